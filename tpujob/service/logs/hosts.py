"""One host's log as numbered lines, over its segments: any of them by its number, its time or its place."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, compress
from operator import add, gt
from typing import TypeVar

from tpujob.service.logs.bucket.pieces import Pieces, Until
from tpujob.service.logs.bucket.stored import Ordered, Segment
from tpujob.service.logs.cursor import BEGIN, Place
from tpujob.service.logs.index import STEP, Indexes
from tpujob.service.logs.lines import Line, parse, whole

T = TypeVar("T")


class HostLogs(dict[int, "HostLog"]):
    """The logs of several hosts, by number."""

    def __init__(self, logs: Iterable[HostLog], pieces: Pieces) -> None:
        super().__init__((log.host, log) for log in logs)
        self._pieces = pieces

    def each(self, work: Callable[[HostLog], T]) -> dict[int, T]:
        """What `work` makes of each, side by side: it reads one host's log."""
        return dict(zip(self, self._pieces.side_by_side(work, self.values()), strict=True))

    def alone(self, host: int | None) -> HostLogs:
        """That host's log alone; all of them: no host is named."""
        found = [log for log in self.values() if host in (None, log.host)]
        return HostLogs(found, self._pieces)


class HostLog:
    """Lines are counted by what is there (`position`, from 0) and by what was written (`number`, from 1): they differ
    where lines were dropped."""

    def __init__(
        self,
        host: int,
        segments: Sequence[Segment],
        pieces: Pieces,
        indexes: Indexes,
        until: Until,
    ) -> None:
        self.host, self.segments = host, segments
        self._pieces, self._indexes, self._until = pieces, indexes, until
        self._table = segments if isinstance(segments, Ordered) and segments.numbered else None

    @cached_property
    def counts(self) -> Sequence[int]:
        """How many lines each segment has."""
        if self._table is not None:
            return self._table.counts()
        of = self._indexes.of
        return [s.facts.lines if s.facts else of(s, self._until).lines for s in self.segments]

    @cached_property
    def starts(self) -> Sequence[int]:
        """Positions of the first lines of the segments, and of the end."""
        return array("q", accumulate(self.counts, initial=0))

    @cached_property
    def first(self) -> Sequence[int]:
        """The numbers of the first lines of the segments."""
        if self._table is not None:
            return self._table.first_lines()
        return [
            s.facts.line if s.facts else begin + 1
            for s, begin in zip(self.segments, self.starts, strict=False)
        ]

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return self._table.size if self._table is not None else sum(s.size for s in self.segments)

    @property
    def lines(self) -> int:
        """How many there are."""
        return self.starts[-1]

    def last(self, at: int) -> int:
        """The number of the last line of that segment."""
        segment = self.segments[at]
        return segment.last if segment.facts else self.first[at] + self.counts[at] - 1

    @property
    def stored_end(self) -> Place:
        """Behind what is stored."""
        for at in range(len(self.segments) - 1, -1, -1):
            segment = self.segments[at]
            if segment.data is None:
                offset = self._indexes.of(segment, self._until).offsets[-1]
                return Place(segment.number, offset, self.last(at))
        return BEGIN

    @cached_property
    def missing(self) -> list[tuple[int, int]]:
        """Where lines are that were dropped: the number of the first of them, and how many."""
        found: list[tuple[int, int]] = []
        if not self.first:
            return found
        if self.first[0] > 1:
            found.append((1, self.first[0] - 1))
        ends, follows = list(map(add, self.first, self.counts)), self.first[1:]
        for at in compress(range(len(follows)), map(gt, follows, ends)):
            # a line that stands for dropped ones has the first one's number
            begin = self.first[at] if self.counts[at] == 1 else ends[at]
            found.append((begin, follows[at] - begin))
        return found

    def position(self, number: int) -> int:
        """Of the line with that number; of the next one that is there, if it was dropped."""
        if number < 1 or not self.segments:
            return 0
        at = bisect_right(self.first, number) - 1
        if at < 0:
            return 0
        return min(self.starts[at] + number - self.first[at], self.starts[at + 1])

    def until_time(self, at: float, *, with_it: bool) -> int:
        """How many lines are older; with those of that time, `with_it`."""
        sought = bisect_right if with_it else bisect_left
        segment = sought(range(len(self.segments)), at, key=self._begin) - 1
        if segment < 0:
            return 0
        marks = self._indexes.of(self.segments[segment], self._until).times
        begin = max(0, sought(marks, at) - 1) * STEP
        lines = self._of_segment(segment, begin, begin + STEP)
        return self.starts[segment] + begin + sought(lines, at, key=lambda line: line.at)

    def read(self, begin: int, end: int) -> list[Line]:
        """The lines between those positions, as far as there are any."""
        begin, end = max(0, begin), min(end, self.lines)
        found: list[Line] = []
        at = bisect_right(self.starts, begin) - 1
        while begin < end and at < len(self.segments):
            here = self.starts[at]
            found += self._of_segment(at, begin - here, min(end, self.starts[at + 1]) - here)
            at += 1
            begin = self.starts[at]
        return found

    def _of_segment(self, at: int, begin: int, end: int) -> list[Line]:
        segment = self.segments[at]
        index = self._indexes.of(segment, self._until)
        begin, end = min(begin, index.lines), min(end, index.lines)
        if begin >= end:
            return []
        start, stop, first = index.block(begin, end)
        data = whole(self._pieces.read(segment, start, stop, self._until))
        return parse(self.host, data, self.first[at] + first)[begin - first : end - first]

    def _begin(self, at: int) -> float:
        facts = self.segments[at].facts
        if facts:
            return facts.at
        times = self._indexes.of(self.segments[at], self._until).times
        return times[0] if times else 0.0
