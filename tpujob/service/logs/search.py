"""Which lines of a log match: matches are counted segment by segment, and the counts are kept, so that going on from
match to match reads one segment, and a log that grows is searched from its old end on."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from threading import Lock

from tpujob.lib.lru import LruDict
from tpujob.service.logs.lines import StampedLine, raw_of, time_of, whole
from tpujob.service.logs.query import LogPattern, Matcher
from tpujob.service.logs.reader import HostLog, LogReader, Positions
from tpujob.service.logs.segment_reader import AT_ONCE, SegmentReader
from tpujob.service.logs.segments import Key, Until

KEPT = 100_000  #: counts
_TIME = attrgetter("at")


@dataclass(frozen=True, slots=True)
class Counted:
    """How many lines of each segment match; a segment that was not reached is missing."""

    counts: Mapping[Key, int]
    complete: bool
    searched: int  #: bytes


class Searches:
    """Threads may share it."""

    def __init__(self, reader: SegmentReader) -> None:
        self._reader = reader
        self._known: LruDict[tuple[bytes, Key], int] = LruDict(KEPT)
        self._lock = Lock()

    def count(
        self, log: LogReader, query: LogPattern, by: Matcher, until: Until, time: Until
    ) -> Counted:
        """Count the matches of all segments, or of as many as `time` allows. What was counted before costs nothing."""
        segments = [segment for each in log.logs.values() for segment in each.segments]
        mark = blake2b(repr(query).encode(errors="replace"), digest_size=16).digest()
        with self._lock:
            known = {s.key: self._known.get((mark, s.key)) for s in segments}
        counts = {key: count for key, count in known.items() if count is not None}
        missing = [s for s in segments if s.key not in counts]
        while missing and not time.over:
            some, missing = missing[:AT_ONCE], missing[AT_ONCE:]
            read = self._reader.side_by_side(lambda s: self._reader.read(s, until), some)
            for segment, data in zip(some, read, strict=True):
                count = counts[segment.key] = len(by.lines(whole(data)))
                with self._lock:
                    self._known[mark, segment.key] = count
                if time.over:  # a pattern may take seconds for each
                    break
        searched = sum(s.size for s in segments if s.key in counts)
        return Counted(counts, all(s.key in counts for s in segments), searched)

    def after(
        self, log: LogReader, place: Positions, counted: Counted, by: Matcher, most: int, until: Until
    ) -> list[StampedLine]:  # fmt: skip
        """Return the first matches after a place."""

        def matches(host: int, of: HostLog) -> Iterator[StampedLine]:
            for at, segment in enumerate(of.segments):
                if of.starts[at + 1] > place[host] and counted.counts.get(segment.key):
                    found = self._matches(of, at, by, until)
                    yield from (line for position, line in found if position >= place[host])

        found = [matches(host, of) for host, of in log.logs.items()]
        return list(islice(heapq.merge(*found, key=_TIME), most))

    def before(
        self, log: LogReader, place: Positions, counted: Counted, by: Matcher, until: Until
    ) -> tuple[int, StampedLine | None]:
        """Return how many matches are before a place, and the last of them."""
        found = [self._before(of, place[host], counted, by, until) for host, of in log.logs.items()]
        last = [line for _, line in found if line]
        return sum(count for count, _ in found), max(
            last, key=lambda x: (x.at, x.host), default=None
        )

    def _before(
        self, of: HostLog, position: int, counted: Counted, by: Matcher, until: Until
    ) -> tuple[int, StampedLine | None]:
        total, last = 0, None
        for at in range(len(of.segments) - 1, -1, -1):
            count = counted.counts.get(of.segments[at].key, 0)
            if not count or of.starts[at] >= position:
                continue
            if last is None or of.starts[at + 1] > position:
                here = [x for p, x in self._matches(of, at, by, until) if p < position]
                count, last = len(here), here[-1] if here else last
            total += count
        return total, last

    def _matches(
        self, of: HostLog, at: int, by: Matcher, until: Until
    ) -> Sequence[tuple[int, StampedLine]]:
        """Return the matches of one segment, with their positions in the host's log."""
        data = whole(self._reader.read(of.segments[at], until))
        stored, first, start = data.split(b"\n"), of.first[at], of.starts[at]
        return [
            (start + i, StampedLine(of.host, first + i, time_of(stored[i]), raw_of(stored[i])))
            for i in by.lines(data)
        ]
