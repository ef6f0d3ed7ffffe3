"""Server-side copies between two prefixes, for a limited time at a call: the port `Copies`.

Lists of both sides, in the order of names, show which objects differ. So lost progress costs only new lists and a few
repeated rewrites of large objects.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from tpujob.data.objects import ObjectFacts, Objects
from tpujob.data.sync.workers import Pair, pairs
from tpujob.domain.copies import Copy, CopyProgress, Saved
from tpujob.domain.model import Cause
from tpujob.errors import Conflict, NotFound, Refused, Transient
from tpujob.ports import Comparison

_THREADS = 16
_BATCH = 64  #: objects that are copied between two checks of the time
_PASSES = 10  #: most passes through a source that changes meanwhile
_COUNTED = 50  #: most pages of a list that are read to count objects before the copy
_STAYS = ("attempts/", "bundles/")  #: folders of a workdir that are not copied with their job
_CHECKPOINTS, _OUTPUTS = "checkpoints/", "outputs/"
_UNFINISHED = ".orbax-checkpoint-tmp"  #: part of the names of Orbax's unfinished folders

_Pair = Pair[ObjectFacts, ObjectFacts]


class ObjectCopies:
    """An implementation of `ports.Copies`. Threads may share it."""

    def __init__(self, objects: Objects, clock: Callable[[], float] = time.monotonic) -> None:
        self._objects, self._clock = objects, clock

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._objects.close()

    def compare(self, source: str, target: str, *, timeout: float) -> Comparison:
        until = self._clock() + timeout
        counts = [0, 0, 0, 0]
        for number, pair in enumerate(self._pairs(source, target, (), "")):
            if number // 1000 >= _COUNTED or self._clock() > until:
                return Comparison(*counts, counted=False)
            counts[0] += 1
            counts[1] += pair.source.size
            if not pair.source.same_bytes(pair.target):
                counts[2] += 1
                counts[3] += pair.source.size
        return Comparison(*counts, counted=True)

    def advance(self, copy: Copy, *, timeout: float) -> CopyProgress:
        try:
            return self._advance(copy, self._clock(), self._clock() + timeout)
        except NotFound as error:  # a missing bucket; missing objects are handled before
            raise Refused(error.message, cause=Cause.BAD_SPEC) from error

    def _advance(self, copy: Copy, now: float, until: float) -> CopyProgress:
        progress = copy.progress
        if progress == CopyProgress():
            progress = self._plan(copy, progress, (now + until) / 2)
        if progress.whole:
            return progress
        pairs_left = self._pairs(copy.source, copy.target, progress.below, progress.after)
        if copy.saved and not progress.below:
            pairs_left = (pair for pair in pairs_left if not pair.key.startswith(_STAYS))
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="copy") as pool:
            while batch := list(islice(pairs_left, _BATCH)):
                steps = list(pool.map(partial(self._step, copy, progress, until), batch))
                before, progress = progress, _add_steps(progress, steps)
                error = next((step.error for step in steps if step.error), None)
                if error and progress == before:
                    raise error
                if not all(step.done for step in steps) or self._clock() > until:
                    return progress
        if not progress.moved:
            return replace(progress, whole=True)
        if progress.passes >= _PASSES:
            text = f"{copy.source} was changed in each of {_PASSES} passes through it"
            raise Refused(text, cause=Cause.BAD_SPEC)
        passes = progress.passes + 1
        return replace(progress, passes=passes, after="", beyond=(), tokens={}, moved=False)

    # Before the first object

    def _plan(self, copy: Copy, progress: CopyProgress, until: float) -> CopyProgress:
        """Return the progress with the folders to copy, and their objects and bytes if counting them takes not too
        long. Raises Refused for an empty data set."""
        below = self._choose_folders(copy.source, copy.saved) if copy.saved else ()
        number = size = 0
        for page_number, page in enumerate(self._pages(copy.source, below)):
            if page_number >= _COUNTED or self._clock() > until:
                return replace(progress, below=below)
            number += len(page)
            size += sum(facts.size for facts in page)
        if number == 0 and copy.saved is None:
            raise Refused(f"there is nothing below {copy.source}/", cause=Cause.BAD_SPEC)
        return replace(progress, below=below, total=number, total_bytes=size)

    def _choose_folders(self, workdir: str, saved: Saved) -> tuple[str, ...]:
        """Return the folders of outputs and of checkpoints to resume from: the newest in the job's record, and later
        ones, which may be incomplete (the program detects that). Empty: copy everything, as steps are unknown."""
        if saved.step is None:
            return ()
        numbers: dict[int, str] = {}
        for page in self._pages(workdir, (_CHECKPOINTS,)):
            for facts in page:
                folder, slash, _ = facts.name.partition(f"/{_CHECKPOINTS}")[2].partition("/")
                number = re.search(r"(\d+)$", folder)
                if number and slash and _UNFINISHED not in folder:
                    numbers[int(number[1])] = f"{_CHECKPOINTS}{folder}/"
        if not numbers:
            return ()
        usable = [n for n in numbers if not saved.before or n < saved.before]
        recorded = max((n for n in usable if n <= saved.step), default=0)
        return (*sorted(numbers[n] for n in usable if n >= recorded), _OUTPUTS)

    # One object

    def _step(self, copy: Copy, progress: CopyProgress, until: float, pair: _Pair) -> "_Step":
        try:
            return _Step(pair, self._copy_object(copy, pair, progress, until))
        except Transient as error:
            return _Step(pair, None, error)

    def _copy_object(
        self, copy: Copy, pair: _Pair, progress: CopyProgress, until: float
    ) -> str | ObjectFacts | None:
        """Return the object at the target; a token if the time was up; None if an object changed meanwhile."""
        facts, target = pair.source, pair.target
        if target and facts.same_bytes(target):
            return target
        source, _ = _split(copy.source)
        bucket, prefix = _split(copy.target)
        token = progress.tokens.get(pair.key, "")
        generation = target.generation if target else 0
        while True:
            if self._clock() > until:
                return token
            try:
                step = self._objects.rewrite(
                    source, facts, bucket, prefix + pair.key, generation, token
                )
            except (Conflict, NotFound):
                if not token:
                    return None
                token = ""  # the token has expired; a changed object fails the next try, too
                continue
            if isinstance(step, ObjectFacts):
                return step if facts.same_bytes(step) else None
            token = step

    # Lists

    def _pages(
        self, place: str, below: Sequence[str], after: str = ""
    ) -> Iterator[Sequence[ObjectFacts]]:
        bucket, prefix = _split(place)
        for part in below or ("",):
            yield from self._objects.pages(bucket, prefix + part, prefix + after if after else "")

    def _pairs(self, source: str, target: str, below: Sequence[str], after: str) -> Iterator[_Pair]:
        """Yield every object of the source after that name, with the target's object of the same name."""
        targets = self._by_name(target, below, after) if target else iter(())
        return pairs(self._by_name(source, below, after), targets)

    def _by_name(
        self, place: str, below: Sequence[str], after: str
    ) -> Iterator[tuple[str, ObjectFacts]]:
        """Yield every object after that name, with its name below the place."""
        start = len(_split(place)[1])
        for page in self._pages(place, below, after):
            for facts in page:
                name = facts.name[start:]
                if name and name != after:
                    yield name, facts


@dataclass(frozen=True, slots=True)
class _Step:
    """The result for one object in one call."""

    pair: _Pair
    result: str | ObjectFacts | None  #: of `_copy_object`
    error: Transient | None = None

    @property
    def done(self) -> bool:
        return isinstance(self.result, ObjectFacts)


def _add_steps(progress: CopyProgress, steps: list[_Step]) -> CopyProgress:
    """Return the progress after a batch. Its `after` is the last name before the first incomplete object."""
    counted = set(progress.beyond)
    new = [s.pair for s in steps if s.done and s.pair.key not in counted]
    moved = [pair.source for pair in new if not pair.source.same_bytes(pair.target)]
    same = [pair.source for pair in new if pair.source.same_bytes(pair.target)]
    same = same if not progress.passes else []  # counted in the first pass alone
    first = next((n for n, step in enumerate(steps) if not step.done), len(steps))
    return replace(
        progress,
        after=steps[first - 1].pair.key if first else progress.after,
        beyond=tuple(s.pair.key for s in steps[first:] if s.done),
        tokens={s.pair.key: s.result for s in steps if isinstance(s.result, str) and s.result},
        moved=progress.moved or bool(moved),
        objects=progress.objects + len(moved),
        bytes=progress.bytes + sum(facts.size for facts in moved),
        same=progress.same + len(same),
        same_bytes=progress.same_bytes + sum(facts.size for facts in same),
    )


def _split(place: str) -> tuple[str, str]:
    """Return the bucket and the prefix, which ends in a slash or is empty for a whole bucket."""
    bucket, _, prefix = place.removeprefix("gs://").partition("/")
    return bucket, f"{prefix}/" if prefix else ""
