"""Copies between two prefixes that the storage makes by itself, a while at a time: the port `Copies`.

What differs is found by listing both sides in the order of their names. Which objects are at the target the storage
itself remembers, so that nothing is lost with the progress of a round but a few rewrites of large objects.
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
#: objects that are copied between two looks at the clock
_BATCH = 64
#: passes through a source that is written to meanwhile, before it is given up
_PASSES = 10
#: pages of a list that are read to know beforehand how much there is
_COUNTED = 50
#: folders of a workdir that do not follow their job
_STAYS = ("attempts/", "bundles/")
_CHECKPOINTS, _OUTPUTS = "checkpoints/", "outputs/"
#: in the name of a folder that Orbax has not finished writing
_UNFINISHED = ".orbax-checkpoint-tmp"

_Pair = Pair[ObjectFacts, ObjectFacts]


class ObjectCopies:
    """Implements `ports.Copies`. Threads may share it."""

    def __init__(self, objects: Objects, clock: Callable[[], float] = time.monotonic) -> None:
        self._objects, self._clock = objects, clock

    def close(self) -> None:
        """Close its connections; a later call opens new ones."""
        self._objects.close()

    def compare(self, source: str, target: str, *, timeout: float) -> Comparison:
        until = self._clock() + timeout
        found = [0, 0, 0, 0]
        for number, pair in enumerate(self._pairs(source, target, (), "")):
            if number // 1000 >= _COUNTED or self._clock() > until:
                return Comparison(*found, counted=False)
            found[0] += 1
            found[1] += pair.source.size
            if not pair.source.same_bytes(pair.target):
                found[2] += 1
                found[3] += pair.source.size
        return Comparison(*found, counted=True)

    def advance(self, copy: Copy, *, timeout: float) -> CopyProgress:
        try:
            return self._advance(copy, self._clock(), self._clock() + timeout)
        except NotFound as error:  # of a bucket: objects that are gone are looked at again
            raise Refused(error.message, cause=Cause.BAD_SPEC) from error

    def _advance(self, copy: Copy, now: float, until: float) -> CopyProgress:
        progress = copy.progress
        if progress == CopyProgress():
            progress = self._begun(copy, progress, (now + until) / 2)
        if progress.whole:
            return progress
        wanted = self._pairs(copy.source, copy.target, progress.below, progress.after)
        if copy.saved and not progress.below:
            wanted = (pair for pair in wanted if not pair.key.startswith(_STAYS))
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="copy") as pool:
            while batch := list(islice(wanted, _BATCH)):
                steps = list(pool.map(partial(self._step, copy, progress, until), batch))
                before, progress = progress, _after(progress, steps)
                failed = next((step.error for step in steps if step.error), None)
                if failed and progress == before:
                    raise failed
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

    def _begun(self, copy: Copy, progress: CopyProgress, until: float) -> CopyProgress:
        """What is to be copied, and how much it is, as far as that can be counted in time. Raises Refused when a data
        set is empty: what should be there was not put there, or is elsewhere."""
        below = self._chosen(copy.source, copy.saved) if copy.saved else ()
        number = size = 0
        for page_number, page in enumerate(self._pages(copy.source, below)):
            if page_number >= _COUNTED or self._clock() > until:
                return replace(progress, below=below)
            number += len(page)
            size += sum(facts.size for facts in page)
        if number == 0 and copy.saved is None:
            raise Refused(f"there is nothing below {copy.source}/", cause=Cause.BAD_SPEC)
        return replace(progress, below=below, total=number, total_bytes=size)

    def _chosen(self, workdir: str, saved: Saved) -> tuple[str, ...]:
        """The folders of the checkpoints that may be resumed from and of the outputs, in the order of their names: the
        newest checkpoint that the record knows of, and later ones, which were saved after the last report that was
        read. One of those may be torn; the program finds that out, as it would where it was saved. Empty: everything
        follows, as the program tells no step, or keeps checkpoints in folders without one."""
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
        known = max((n for n in usable if n <= saved.step), default=0)
        return (*sorted(numbers[n] for n in usable if n >= known), _OUTPUTS)

    # One object

    def _step(self, copy: Copy, progress: CopyProgress, until: float, pair: _Pair) -> "_Step":
        try:
            return _Step(pair, self._move(copy, pair, progress, until))
        except Transient as error:
            return _Step(pair, None, error)

    def _move(
        self, copy: Copy, pair: _Pair, progress: CopyProgress, until: float
    ) -> str | ObjectFacts | None:
        """The object at the target; a token where the time was up first; None: it is looked at again, as it changed."""
        facts, there = pair.source, pair.target
        if there and facts.same_bytes(there):
            return there
        source, _ = _split(copy.source)
        bucket, prefix = _split(copy.target)
        token = progress.tokens.get(pair.key, "")
        generation = there.generation if there else 0
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
                token = ""  # the step that it is of has ended; or the object was changed, and the next try says so
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
        """Every object of the source after that name, with its counterpart."""
        there = self._named(target, below, after) if target else iter(())
        return pairs(self._named(source, below, after), there)

    def _named(
        self, place: str, below: Sequence[str], after: str
    ) -> Iterator[tuple[str, ObjectFacts]]:
        """Every object after that name, by its name below the place."""
        start = len(_split(place)[1])
        for page in self._pages(place, below, after):
            for facts in page:
                name = facts.name[start:]
                if name and name != after:
                    yield name, facts


@dataclass(frozen=True, slots=True)
class _Step:
    """The result of one object in one round."""

    pair: _Pair
    found: str | ObjectFacts | None  #: as `_move` returns it
    error: Transient | None = None

    @property
    def done(self) -> bool:
        return isinstance(self.found, ObjectFacts)


def _after(progress: CopyProgress, steps: list[_Step]) -> CopyProgress:
    """The progress after a batch. What is complete up to the first object that is not is never looked at again."""
    counted = set(progress.beyond)
    new = [s.pair for s in steps if s.done and s.pair.key not in counted]
    moved = [pair.source for pair in new if not pair.source.same_bytes(pair.target)]
    same = [pair.source for pair in new if pair.source.same_bytes(pair.target)]
    same = same if not progress.passes else []  # counted once
    first = next((n for n, step in enumerate(steps) if not step.done), len(steps))
    return replace(
        progress,
        after=steps[first - 1].pair.key if first else progress.after,
        beyond=tuple(s.pair.key for s in steps[first:] if s.done),
        tokens={s.pair.key: s.found for s in steps if isinstance(s.found, str) and s.found},
        moved=progress.moved or bool(moved),
        objects=progress.objects + len(moved),
        bytes=progress.bytes + sum(facts.size for facts in moved),
        same=progress.same + len(same),
        same_bytes=progress.same_bytes + sum(facts.size for facts in same),
    )


def _split(place: str) -> tuple[str, str]:
    """The bucket, and the prefix with a slash at its end; that of a whole bucket is empty."""
    bucket, _, prefix = place.removeprefix("gs://").partition("/")
    return bucket, f"{prefix}/" if prefix else ""
