"""Lists and fetches what is stored of an attempt's log. What the objects look like is known to `stored.py`; everything
else here sees `Segment`s and their bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple, TypeVar

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job
from tpujob.errors import NotFound, Transient
from tpujob.lib.lru import LruDict
from tpujob.ports import Blob, Blobs
from tpujob.protocol import paths
from tpujob.service.logs.bucket import stored
from tpujob.service.logs.bucket.lists import Listed, Lists
from tpujob.service.logs.bucket.shared import MOST_PIECES
from tpujob.service.logs.bucket.stored import SHARED, Ordered, Segment
from tpujob.service.logs.cursor import BEGIN, Place

A = TypeVar("A")
B = TypeVar("B")

#: hosts that an attempt has whose slice is not known, at most
FEW_HOSTS = 16
AT_ONCE = 8  #: objects that are fetched side by side
#: seconds for which readers share a list: while lines come, and after the last one
FRESH, FRESH_FINAL = 3.0, 30.0
ATTEMPTS = 64  #: of which lists are kept
#: objects in one list: a long log has some thousands, and an agent cannot make a reader list what it likes
MOST_SEGMENTS = 20_000

_Range = tuple[Segment, int, int]  #: and which of its bytes


class Told(NamedTuple):
    """What the hosts of an attempt tell of what is stored."""

    needed: Mapping[int, int]  #: the reader has to know what is stored up to that line of a host
    settled_at: float  #: when they stored something last; monotonic
    whole: bool  #: every host tells it: what nobody needs, nobody has to look for


class Until:
    """The end of the time that one request may take."""

    def __init__(self, timeout: float) -> None:
        self._end = time.monotonic() + timeout

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._end

    @property
    def left(self) -> float:
        """Seconds. Raises Transient when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise Transient(
                "reading the log takes too long", hint="Try again, or ask for one host."
            )
        return left


class Pieces:
    """Threads may share it."""

    def __init__(self, blobs: Blobs, fresh: float = FRESH) -> None:
        """`fresh`: seconds for which a list of a log that grows is good enough."""
        self._blobs, self._fresh = blobs, fresh
        self._attempts: LruDict[tuple[str, int], Lists] = LruDict(ATTEMPTS)
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="log")

    def segments(
        self,
        job: Job,
        attempt: int,
        host: int | None,
        until: Until,
        since: Mapping[int, Place],
        told: Told | None = None,
    ) -> dict[int, Ordered]:
        """Of that host, or of all, in order; only those with lines after the place in `since`. If the job has ended,
        the list is not older than its end. `told`: the list has what is needed, or cannot have it; it may be of any
        age where all hosts tell."""
        where = _Where(job, attempt, host)

        def found(oldest: float) -> dict[int, Ordered]:
            listed = self._all(where, since, until, oldest)
            places = {of: since.get(of, BEGIN) for of in listed}
            left = {
                of: stored.after(each, places[of].segment, places[of].given)
                for of, each in listed.items()
            }
            return {of: each for of, each in left.items() if each}

        oldest = time.monotonic() - (FRESH_FINAL if where.final else self._fresh)
        known = found(0.0 if told and told.whole else oldest)
        if told is None:
            return known
        # of one host its own objects and those of many are listed apart, and one list may be older than the other
        reach = _reaches if len(where.hosts) == 1 < where.count else _ends
        given = {of: since.get(of, BEGIN).given for of in told.needed}
        if all(reach(known.get(of), given[of], line) for of, line in told.needed.items()):
            return known
        return found(told.settled_at)

    def read(self, segment: Segment, start: int, end: int, until: Until) -> bytes:
        """Those bytes, as far as it has them. Empty when it is gone since it was listed."""
        if segment.data is not None:
            return segment.data[start:end]
        try:
            begin, end = segment.offset + start, segment.offset + min(end, segment.size)
            return self._blobs.get(segment.path, start=begin, end=end, timeout=until.left)
        except NotFound:
            return b""

    def read_all(self, ranges: Sequence[_Range], until: Until) -> Sequence[bytes]:
        """Several at once; what lies in one object is fetched in one go."""
        objects: dict[tuple[str, int], list[int]] = {}
        for at, (segment, _, _) in enumerate(ranges):
            key = (segment.path, at) if segment.data is not None else (segment.path, -1)
            objects.setdefault(key, []).append(at)

        def fetched(those: list[int]) -> list[bytes]:
            if len(those) == 1:
                return [self.read(*ranges[those[0]], until)]
            wanted = [ranges[at] for at in those]
            begin = min(s.offset + start for s, start, _ in wanted)
            end = max(s.offset + min(end, s.size) for s, _, end in wanted)
            try:
                path = wanted[0][0].path
                data = self._blobs.get(path, start=begin, end=end, timeout=until.left)
            except NotFound:
                data = b""
            return [
                data[s.offset + start - begin : s.offset + min(end, s.size) - begin]
                for s, start, end in wanted
            ]

        found = [b""] * len(ranges)
        read = self.side_by_side(fetched, objects.values())
        for those, each in zip(objects.values(), read, strict=True):
            for at, data in zip(those, each, strict=True):
                found[at] = data
        return found

    def side_by_side(self, work: Callable[[A], B], on: Collection[A]) -> list[B]:
        """What `work` makes of each. It waits for the storage, and must not call this itself."""
        if len(on) == 1:
            return [work(each) for each in on]
        return list(self._pool.map(work, on))

    def _all(
        self, where: _Where, since: Mapping[int, Place], until: Until, oldest: float
    ) -> dict[int, Ordered]:
        """By one list for all hosts, unless there is too much in it. Hosts are not trusted: nobody has to read what the
        slice has no host for."""
        folder = paths.attempt_folder(where.workdir, where.attempt)
        if len(where.hosts) > 1:
            together = self._listed(where, folder + "/", "", until, oldest)
            if together.whole:
                found = {of: together.of(of) for of in together.hosts if of in where.hosts}
                return {of: each for of, each in found.items() if each}
        shared = _NOTHING
        if where.count > 1:
            prefix = paths.shared_log_prefix(where.workdir, where.attempt)
            shared = self._listed(where, prefix, "", until, oldest)

        def of_one(host: int) -> Ordered:
            prefix, first = (
                paths.log_prefix(where.workdir, where.attempt, host),
                since.get(host, BEGIN).segment,
            )
            known = 0 < first < SHARED
            after = paths.log_path(where.workdir, where.attempt, host, first - 1) if known else ""
            own = self._listed(where, prefix, after, until, oldest)
            return own._replace(shared=shared.shared).of(host)

        each = dict(zip(where.hosts, self.side_by_side(of_one, where.hosts), strict=True))
        return {of: found for of, found in each.items() if found}

    def _listed(
        self, where: _Where, prefix: str, after: str, until: Until, oldest: float
    ) -> Listed:
        if where.final and after:  # one list serves every page of a reader, as nothing is added
            whole = self._listed(where, prefix, "", until, oldest)
            if whole.whole:
                return whole
        key, lists = (prefix, after, where.final), self._lists(where)
        known = lists.known(key)
        if known is not None and known.at > oldest:
            return known

        def ask(prefix: str, after: str) -> list[Blob]:
            return self._blobs.list(prefix, after=after, most=MOST_SEGMENTS, timeout=until.left)

        found = lists.look(key, ask, MOST_SEGMENTS)
        self._make_room()
        return found

    def _lists(self, where: _Where) -> Lists:
        key = (where.workdir, where.attempt)
        with self._lock:
            found = self._attempts.get(key) or Lists(*key)
            self._attempts[key] = found  # the newest from now on
            return found

    def _make_room(self) -> None:
        with self._lock:
            room = MOST_PIECES - sum(each.weight for each in self._attempts.values())
            while room < 0 and len(self._attempts) > 1:
                room += self._attempts.popitem(last=False)[1].weight


def _ends(found: Ordered | None, given: int, line: int) -> bool:
    """Whether that line, or a later one, is known."""
    return (found[-1].last if found else given) >= line


def _reaches(found: Ordered | None, given: int, line: int) -> bool:
    """Whether every line is known from behind the given one up to that."""
    for segment in found or ():
        if given >= line or (segment.facts and segment.facts.line > given + 1):
            break
        given = max(given, segment.last)
    return given >= line


class _Where:
    """What is read."""

    def __init__(self, job: Job, attempt: int, host: int | None) -> None:
        self.workdir, self.attempt = job.workdir_of(attempt), attempt
        self.count = host_count(job, attempt)
        self.hosts = range(self.count) if host is None else range(host, host + 1)
        self.final = job.state.final


_NOTHING = Listed(0.0, {}, {}, whole=True)


def host_count(job: Job, attempt: int) -> int:
    """How many hosts the attempt's slice has."""
    name = job.attempts[attempt - 1].slice
    found = [s for s in job.slices if s.name == name]
    return accelerators.find(found[0].type).hosts * found[0].tpu_slices if found else FEW_HOSTS
