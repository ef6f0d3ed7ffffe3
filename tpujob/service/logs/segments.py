"""Storage of an attempt's log: paths and metadata of its objects, as segments of each host.

A host writes its own segments. They are ordered by line numbers, and a line that was stored twice counts once. The
segment that stands for dropped lines is rewritten, every other object never changes; the oldest segments of a very
long log may be gone.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import NamedTuple

from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job
from tpujob.lib.lru import LruDict
from tpujob.lib.tries import Deadline
from tpujob.ports import Blob, Blobs
from tpujob.protocol import paths, segment
from tpujob.protocol.limits import LAST_SEGMENT
from tpujob.protocol.segment import SegmentFacts

#: bytes of a segment that are read; agents write little more than half of that, and what is beyond is not theirs
MAX_SEGMENT = 8 * 1024 * 1024
#: objects in one list of all hosts: an agent cannot make a reader list what it likes
MAX_SEGMENTS = 20_000
#: segments that all lists in memory may have, of some 400 bytes each
CACHED_SEGMENTS = 100_000
CACHED_LISTS = 64
#: seconds for which readers share a list: while the log grows, and after its end
LIST_TTL, FINAL_LIST_TTL = 3.0, 30.0
#: a list that took long is shared for so many times as long
SHARE = 10.0
#: hosts that an attempt has whose slice is not known, at most
FEW_HOSTS = 16

Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """Lines of one host, one after the other."""

    host: int
    path: str
    size: int
    generation: int
    facts: SegmentFacts
    #: the content of a segment that is not stored yet
    data: bytes | None = None

    @property
    def key(self) -> Key:
        """The cache key, which changes with the content."""
        return self.path, self.generation, self.size

    @property
    def first(self) -> int:
        """The number of its first line."""
        return self.facts.line

    @property
    def lines(self) -> int:
        return self.facts.lines

    @property
    def last(self) -> int:
        """The number of its last line; of a segment without lines, that of the line before it."""
        return self.facts.line + self.facts.lines - 1


#: the segments of each host, in order
Segments = dict[int, list[Segment]]


class SegmentList(NamedTuple):
    at: float  #: when the list began; monotonic
    took: float  #: seconds
    segments: Segments

    @property
    def weight(self) -> int:
        return sum(map(len, self.segments.values()))


class SegmentLists:
    """Lists the segments of attempts; readers share a list for a moment. Threads may share it."""

    def __init__(self, blobs: Blobs, fresh: float = LIST_TTL) -> None:
        """`fresh`: seconds for which a list of a growing log is good enough."""
        self._blobs, self._fresh = blobs, fresh
        self._kept: LruDict[tuple[str, int, int | None, bool], SegmentList] = LruDict(CACHED_LISTS)
        self._lock = Lock()

    def find(
        self,
        job: Job,
        attempt: int,
        host: int | None,
        until: Deadline,
        *,
        ends: Mapping[int, int] | None = None,
        settled_at: float = 0.0,
        complete: bool = False,
    ) -> Segments:
        """Return the segments of that host, or of all hosts that the slice has. A list of a job that has ended is not
        older than its end. `ends`: the line of each host up to which the reader needs the stored log; a list that does
        not reach it is made again, unless it is newer than `settled_at`, when hosts last stored something. `complete`:
        the hosts report all other lines themselves, so that a list that reaches `ends` may be of any age."""
        workdir, final = job.workdir_of(attempt), job.state.final
        key = workdir, attempt, host, final
        with self._lock:
            cached = self._kept.get(key)
        if cached:
            fresh = max(
                FINAL_LIST_TTL if final else self._fresh, SHARE * cached.took * bool(self._fresh)
            )
            young = cached.at > time.monotonic() - fresh
            if _reaches(cached.segments, ends or {}):
                if young or complete:
                    return cached.segments
            elif young and cached.at > settled_at:
                return cached.segments
        newest = self._list(workdir, attempt, host, host_count(job, attempt), until)
        with self._lock:
            self._kept[key] = newest
            weight = sum(entry.weight for entry in self._kept.values())
            while weight > CACHED_SEGMENTS and len(self._kept) > 1:
                weight -= self._kept.popitem(last=False)[1].weight
        return newest.segments

    def _list(
        self, workdir: str, attempt: int, host: int | None, count: int, until: Deadline
    ) -> SegmentList:
        """List the segments. Hosts are not trusted: a path of a host that the slice does not have is left out."""
        began = time.monotonic()

        def listed(prefix: str, limit: int) -> list[Blob]:
            return self._blobs.list(prefix, most=limit, timeout=until.left())

        if host is None:
            blobs = listed(paths.attempt_folder(workdir, attempt) + "/", MAX_SEGMENTS)
            hosts: Sequence[int] = range(count)
        else:
            blobs = listed(paths.log_prefix(workdir, attempt, host), LAST_SEGMENT)
            hosts = [host]
        segments = read_segments(workdir, attempt, blobs, hosts)
        return SegmentList(began, time.monotonic() - began, segments)


def read_segments(
    workdir: str, attempt: int, blobs: Iterable[Blob], hosts: Sequence[int]
) -> Segments:
    """Return the segments in these objects by host, in order of lines. An object whose metadata are not those of an
    agent, or name more lines than it has bytes, is passed over."""
    by_host: dict[int, list[Segment]] = {}
    for blob in blobs:
        of, host, _ = paths.read_log_path(workdir, blob.path) or (0, 0, 0)
        if of == attempt and host in hosts:
            size, facts = min(blob.size, MAX_SEGMENT), segment.read(blob.metadata)
            if facts and facts.lines <= size:
                piece = Segment(host, blob.path, size, blob.generation, facts)
                by_host.setdefault(host, []).append(piece)
    in_order = ((host, _in_order(segments)) for host, segments in sorted(by_host.items()))
    return {host: segments for host, segments in in_order if segments}


def host_count(job: Job, attempt: int) -> int:
    """Return how many hosts the attempt's slice has."""
    name = job.attempts[attempt - 1].slice
    slices = [s for s in job.slices if s.name == name]
    if not slices:
        return FEW_HOSTS
    return accelerators.find(slices[0].type, slices[0].provider).hosts * slices[0].tpu_slices


def _in_order(segments: list[Segment]) -> list[Segment]:
    """Sort the segments of one host; leave out those without a line that is not in an earlier one."""
    ordered: list[Segment] = []
    end = closed = 0
    for piece in sorted(segments, key=lambda piece: (piece.first, -piece.last)):
        if piece.last > end:
            ordered.append(piece)
            end = piece.last
        if not piece.lines and not piece.facts.open:
            closed = max(closed, piece.last)
    if ordered and closed >= end:
        # a piece without lines says that the line before it was the last one
        ordered[-1] = replace(ordered[-1], facts=ordered[-1].facts._replace(open=False))
    return ordered


def _reaches(segments: Segments, ends: Mapping[int, int]) -> bool:
    """Return whether the segments of each host reach that line."""
    return all(
        (segments[host][-1].last if host in segments else 0) >= end for host, end in ends.items()
    )
