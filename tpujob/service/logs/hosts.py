"""One host's log as numbered lines, over its segments: any of them by its number, its time or its place."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

from tpujob.service.logs.cursor import BEGIN, Place
from tpujob.service.logs.index import STEP, Indexes
from tpujob.service.logs.lines import Line, parse, whole
from tpujob.service.logs.pieces import Pieces, Until
from tpujob.service.logs.stored import Segment

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
        counts = [s.facts.lines if s.facts else indexes.of(s, until).lines for s in segments]
        #: positions of the first lines of the segments, and of the end
        self.starts = list(accumulate(counts, initial=0))
        self.first = [
            s.facts.line if s.facts else begin + 1
            for s, begin in zip(segments, self.starts, strict=False)
        ]
        self.size = sum(s.size for s in segments)

    @property
    def lines(self) -> int:
        """How many there are."""
        return self.starts[-1]

    @property
    def stored_end(self) -> Place:
        """Behind what is stored."""
        for at in range(len(self.segments) - 1, -1, -1):
            segment = self.segments[at]
            if segment.data is None:
                lines = self.starts[at + 1] - self.starts[at]
                offset = self._indexes.of(segment, self._until).offsets[-1]
                return Place(segment.number, offset, self.first[at] + lines - 1)
        return BEGIN

    @property
    def missing(self) -> list[tuple[int, int]]:
        """Where lines are that were dropped: the number of the first of them, and how many."""
        found: list[tuple[int, int]] = []
        expected = 1
        for number, first, (begin, end) in zip(
            range(len(self.first)), self.first, pairwise(self.starts), strict=True
        ):
            if first > expected:
                found.append((expected, first - expected))
            follows = self.first[number + 1 : number + 2]
            expected = first + end - begin
            if follows and follows[0] > expected and end - begin == 1:
                expected = first  # the line stands for dropped ones, and has the first one's number
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
        begins = [self._begin(i) for i in range(len(self.segments))]
        segment = sought(begins, at) - 1
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
