"""Where a log matches, exactly: matches are counted segment by segment, and the counts of segments are kept, so that
going on from match to match reads one of them, and a log that grows only what is new."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from threading import Lock

from tpujob.lib.lru import LruDict
from tpujob.service.logs.bucket.pieces import AT_ONCE, Pieces, Until
from tpujob.service.logs.bucket.stored import Key, Segment
from tpujob.service.logs.forward import merged
from tpujob.service.logs.hosts import HostLog
from tpujob.service.logs.lines import Line, raw_of, time_of, whole
from tpujob.service.logs.query import Matcher, Query
from tpujob.service.logs.window import Spot

KEPT = 100_000  #: counts

#: of what was looked for, and of the segment
_Key = tuple[bytes, Key]


@dataclass(frozen=True, slots=True)
class Counted:
    """How many lines of each segment match; a segment that was not reached is missing."""

    counts: Mapping[Key, int]
    complete: bool
    searched: int  #: bytes


class Searches:
    """Threads may share it."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._known: LruDict[_Key, int] = LruDict(KEPT)
        self._lock = Lock()

    def count(
        self, hosts: Mapping[int, HostLog], query: Query, by: Matcher, until: Until, time: Until
    ) -> Counted:
        """Of all segments, or of as many as `time` allows; those that were counted before cost nothing."""
        segments = [segment for log in hosts.values() for segment in log.segments]
        mark = blake2b(repr(query).encode(errors="replace"), digest_size=16).digest()
        counts = {s.key: n for s in segments if (n := self._of(mark, s)) is not None}
        missing = [s for s in segments if s.key not in counts]
        while missing and not time.over:
            some, missing = missing[:AT_ONCE], missing[AT_ONCE:]
            for segment, data in zip(some, self._read(some, until), strict=True):
                counts[segment.key] = len(by.lines(data))
                self._keep(mark, segment, counts[segment.key])
                if time.over:  # a pattern may take seconds for each
                    break
        searched = sum(s.size for s in segments if s.key in counts)
        return Counted(counts, all(s.key in counts for s in segments), searched)

    def after(
        self, hosts: Mapping[int, HostLog], spot: Spot, counted: Counted, by: Matcher,
        most: int, until: Until,
    ) -> list[Line]:  # fmt: skip
        """The first matches after a spot."""
        found = [
            self._onward(log, spot.positions[h], counted, by, most, until)
            for h, log in hosts.items()
        ]
        return merged([lines for lines in found if lines])[:most]

    def before(
        self, hosts: Mapping[int, HostLog], spot: Spot, counted: Counted, by: Matcher, until: Until
    ) -> tuple[int, Line | None]:
        """How many matches lie before a spot, and the last of them."""
        total, last = 0, list[list[Line]]()
        for host, log in hosts.items():
            count, line = self._backward(log, spot.positions[host], counted, by, until)
            total += count
            last += [[line]] if line else []
        return total, merged(last)[-1] if last else None

    def _onward(
        self, log: HostLog, position: int, counted: Counted, by: Matcher, most: int, until: Until
    ) -> list[Line]:
        found: list[Line] = []
        for at, segment in enumerate(log.segments):
            if log.starts[at + 1] > position and counted.counts.get(segment.key):
                lines = self._matches(log, at, by, until)
                found += [line for place, line in lines if log.starts[at] + place >= position]
                if len(found) >= most:
                    break
        return found[:most]

    def _backward(
        self, log: HostLog, position: int, counted: Counted, by: Matcher, until: Until
    ) -> tuple[int, Line | None]:
        total, last = 0, None
        whole_ones = [i for i in range(len(log.segments)) if log.starts[i + 1] <= position]
        for at in range(len(log.segments)):
            if log.starts[at] < position < log.starts[at + 1]:
                lines = self._matches(log, at, by, until)
                here = [line for place, line in lines if log.starts[at] + place < position]
                total, last = len(here), here[-1] if here else None
        total += sum(counted.counts.get(log.segments[i].key, 0) for i in whole_ones)
        for at in reversed(whole_ones):
            if last is None and counted.counts.get(log.segments[at].key):
                last = next((line for _, line in self._matches(log, at, by, until)[-1:]), None)
        return total, last

    def _matches(self, log: HostLog, at: int, by: Matcher, until: Until) -> list[tuple[int, Line]]:
        """Of one segment, with their places in it."""
        (data,) = self._read([log.segments[at]], until)
        found, stored, first = by.lines(data), data.split(b"\n"), log.first[at]
        return [
            (i, Line(log.host, first + i, time_of(stored[i]), raw_of(stored[i]))) for i in found
        ]

    def _read(self, segments: Sequence[Segment], until: Until) -> list[bytes]:
        read = self._pieces.read_all([(s, 0, s.size) for s in segments], until)
        return [whole(data) for data in read]

    def _of(self, mark: bytes, segment: Segment) -> int | None:
        with self._lock:
            return self._known.get((mark, segment.key))

    def _keep(self, mark: bytes, segment: Segment, count: int) -> None:
        with self._lock:
            self._known[mark, segment.key] = count
