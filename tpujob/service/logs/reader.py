"""The log of an attempt as one sequence of lines: each host's segments as numbered lines, merged by time.

A place in the log is a position for each host: so many of its lines come before. Lines are counted by what is there
(`position`, from 0) and by what was written (`number`, from 1): they differ where lines were dropped.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from math import inf
from operator import attrgetter
from typing import NamedTuple, TypeVar

from tpujob.lib.tries import Deadline
from tpujob.service.logs.lines import StampedLine, parse
from tpujob.service.logs.segment_reader import STEP, SegmentReader
from tpujob.service.logs.segments import Segment, Segments

T = TypeVar("T")

#: bytes that are read of a host first, at least, however many hosts there are
LEAST_CHUNK = 8 * 1024
LARGEST_CHUNK = 4 * 1024 * 1024
MAX_RUN = 64  #: segments of a host that are read in one go

#: by host: how many of its lines come before
Positions = Mapping[int, int]
_TIME = attrgetter("at")
_NOTHING: list[StampedLine] = []


class LineRun(NamedTuple):
    """Lines of a host that were read in one go."""

    number: int  #: of the first line
    lines: int
    data: bytes
    cut: bool  #: the segment has more lines


class HostLog:
    def __init__(
        self, host: int, segments: Sequence[Segment], reader: SegmentReader, until: Deadline
    ) -> None:
        self.host, self.segments = host, segments
        self._reader, self._until = reader, until

    @cached_property
    def counts(self) -> Sequence[int]:
        """The number of lines of each segment."""
        index = self._reader.index
        return [s.facts.lines if s.facts else index(s, self._until).lines for s in self.segments]

    @cached_property
    def starts(self) -> Sequence[int]:
        """The positions of the first lines of the segments, and of the end."""
        return list(accumulate(self.counts, initial=0))

    @cached_property
    def first(self) -> Sequence[int]:
        """The numbers of the first lines of the segments."""
        return [
            s.facts.line if s.facts else begin + 1
            for s, begin in zip(self.segments, self.starts, strict=False)
        ]

    @cached_property
    def size(self) -> int:
        return sum(s.size for s in self.segments)

    @property
    def lines(self) -> int:
        return self.starts[-1]

    @property
    def last(self) -> int:
        """The number of the last line; 0: there is none."""
        return self.first[-1] + self.counts[-1] - 1 if self.segments else 0

    @cached_property
    def missing(self) -> list[tuple[int, int]]:
        """The gaps of dropped lines: the number of the first line, and how many."""
        gaps = [(1, self.first[0] - 1)] if self.first and self.first[0] > 1 else []
        for first, count, follows in zip(self.first, self.counts, self.first[1:], strict=False):
            if follows > first + count:
                # a line that stands for dropped ones has the first one's number
                begin = first if count == 1 else first + count
                gaps.append((begin, follows - begin))
        return gaps

    def position(self, number: int) -> int:
        """Return the position of the line with that number; of the next one that is there, if it was dropped."""
        at = bisect_right(self.first, number) - 1
        if at < 0:
            return 0
        return min(self.starts[at] + number - self.first[at], self.starts[at + 1])

    def until_time(self, at: float, *, with_it: bool) -> int:
        """Return the number of lines before that time; `with_it`: or at it."""
        bisect = bisect_right if with_it else bisect_left
        segment = bisect(range(len(self.segments)), at, key=self._begin) - 1
        if segment < 0:
            return 0
        marks = self._reader.index(self.segments[segment], self._until).times
        begin = max(0, bisect(marks, at) - 1) * STEP
        lines = self._lines(segment, begin, begin + STEP)
        return self.starts[segment] + begin + bisect(lines, at, key=_TIME)

    def runs_from(self, position: int, size: int) -> list[tuple[int, int]]:
        """Return which lines to read for about `size` bytes from that position on: segments, and a line of each."""
        runs: list[tuple[int, int]] = []
        at, line = self._place(position)
        for segment in range(at, len(self.segments)):
            count = self.counts[segment]
            if line < count:
                runs.append((segment, line))
                size -= self.segments[segment].size * (count - line) // count
            if size <= 0 or len(runs) == MAX_RUN:
                break
            line = 0
        return runs

    def read_run(self, segment: int, line: int, size: int) -> LineRun:
        data = self._reader.lines_from(self.segments[segment], line, size, self._until)
        lines, left = data.count(b"\n"), self.counts[segment] - line
        if lines > left:  # its metadata say otherwise
            data, lines = b"".join(x + b"\n" for x in data.split(b"\n")[:left]), left
        return LineRun(self.first[segment] + line, lines, data, cut=lines < left)

    def _place(self, position: int) -> tuple[int, int]:
        """Return in which segment a position is, and the line there, from 0."""
        at = max(0, bisect_right(self.starts, position) - 1)
        return at, position - self.starts[at]

    def chunks(self, position: int, size: int) -> Iterator[list[StampedLine]]:
        """Read the lines from that position on, at first about `size` bytes, then more at a time."""
        at, line = self._place(position)
        for segment in range(at, len(self.segments)):
            while line < self.counts[segment]:
                data = self._reader.lines_from(self.segments[segment], line, size, self._until)
                lines = parse(self.host, data, self.first[segment] + line)
                if not lines:  # it was removed
                    break
                yield lines[: self.counts[segment] - line]
                line += len(lines)
                size = min(2 * size, LARGEST_CHUNK)
            line = 0

    def chunks_before(self, position: int, size: int) -> Iterator[list[StampedLine]]:
        """Read the lines before that position, at first about `size` bytes, the last chunk first."""
        at = max(0, bisect_left(self.starts, position) - 1)
        line = position - self.starts[at]
        for segment in range(min(at, len(self.segments) - 1), -1, -1):
            while line > 0:
                lines: list[StampedLine] = []
                if line == self.counts[segment] and (of := self.segments[segment]).facts:
                    data = self._reader.last_lines(of, size, self._until)
                    number = self.first[segment] + line - data.count(b"\n")
                    lines = parse(self.host, data, number)[-line:]
                lines = lines or self._lines(segment, max(0, line - STEP), line)
                if not lines:
                    break
                yield lines
                line -= len(lines)
            line = self.counts[segment - 1]

    def _lines(self, segment: int, begin: int, end: int) -> list[StampedLine]:
        """Return lines of a segment, counted from 0."""
        lines: list[StampedLine] = []
        for chunk in self.chunks(self.starts[segment] + begin, LEAST_CHUNK):
            lines += chunk
            if begin + len(lines) >= min(end, self.counts[segment]):
                break
        return lines[: min(end, self.counts[segment]) - begin]

    def _begin(self, at: int) -> float:
        facts = self.segments[at].facts
        if facts:
            return facts.at
        times = self._reader.index(self.segments[at], self._until).times
        return times[0] if times else 0.0


class LogReader:
    """The logs of several hosts as one, in order of time; at the same time by host, and each host's in its order."""

    def __init__(self, segments: Segments, reader: SegmentReader, until: Deadline) -> None:
        self.logs = {h: HostLog(h, own, reader, until) for h, own in sorted(segments.items())}
        self._reader, self._until = reader, until

    def of_host(self, host: int | None) -> "LogReader":
        """Return that host's log alone; all of them if no host is named."""
        segments = {h: [*x.segments] for h, x in self.logs.items() if host in (None, h)}
        return LogReader(segments, self._reader, self._until)

    @property
    def lines(self) -> int:
        return sum(log.lines for log in self.logs.values())

    def each(self, work: Callable[[HostLog], T]) -> dict[int, T]:
        """Return what `work` makes of each host's log, side by side."""
        results = self._reader.side_by_side(work, self.logs.values())
        return dict(zip(self.logs, results, strict=True))

    def read_ahead(self, begin: Positions, size: int) -> tuple[dict[int, list[LineRun]], bool]:
        """Read about `size` bytes from those positions on, of all hosts at once; then whether there is more."""
        share = max(LEAST_CHUNK, size // max(1, len(self.logs)))
        work = [
            (log, *run)
            for log in self.logs.values()
            for run in log.runs_from(begin.get(log.host, 0), share)
        ]
        read = self._reader.side_by_side(lambda run: run[0].read_run(*run[1:], share), work)
        by_host: dict[int, list[LineRun]] = {host: [] for host in self.logs}
        for (log, *_), run in zip(work, read, strict=True):
            runs = by_host[log.host]
            if run.lines and not (runs and runs[-1].cut):
                runs.append(run)
        return by_host, any(self._has_more(host, runs) for host, runs in by_host.items())

    def ahead(self, begin: Positions, size: int) -> tuple[list[StampedLine], bool]:
        """Return about `size` bytes of lines from those positions on; then whether there are more."""
        by_host, is_cut = self.read_ahead(begin, size)
        chunks = {
            host: [line for run in runs for line in parse(host, run.data, run.number)]
            for host, runs in by_host.items()
        }
        # a host with more to come may have lines as old as its last one: what is later must wait for them
        ends = (chunk[-1].at for h, chunk in chunks.items() if self._has_more(h, by_host[h]))
        bound = min(ends, default=inf)
        lines = sorted(chain.from_iterable(chunks.values()), key=_TIME)  # stable: by host
        return lines[: bisect_right(lines, bound, key=_TIME)], is_cut

    def _has_more(self, host: int, runs: Sequence[LineRun]) -> bool:
        return bool(runs) and runs[-1].number + runs[-1].lines <= self.logs[host].last

    def forward(self, begin: Positions, size: int) -> Iterator[StampedLine]:
        """Read the lines from those positions on. `size`: bytes that are probably needed."""
        return self._merged(lambda log, share: log.chunks(begin.get(log.host, 0), share), size)

    def backward(self, end: Positions, size: int) -> Iterator[StampedLine]:
        """Read the lines before those positions, the last one first."""

        def read(log: HostLog, share: int) -> Iterator[list[StampedLine]]:
            chunks = log.chunks_before(end.get(log.host, 0), share)
            return (chunk[::-1] for chunk in chunks)

        return self._merged(read, size, backward=True)

    def _merged(
        self,
        read: Callable[[HostLog, int], Iterator[list[StampedLine]]],
        size: int,
        *,
        backward: bool = False,
    ) -> Iterator[StampedLine]:
        share = max(LEAST_CHUNK, size // max(1, len(self.logs)))
        chunks = {host: read(log, share) for host, log in self.logs.items()}
        first = self.each(lambda log: next(chunks[log.host], _NOTHING))
        streams = [chain(first[h], chain.from_iterable(chunks[h])) for h in chunks]
        if len(streams) == 1:
            return iter(streams[0])
        return heapq.merge(*(streams[::-1] if backward else streams), key=_TIME, reverse=backward)

    # Places ----------------------------------------------------------------------------------------------------------

    def begin(self) -> Positions:
        return dict.fromkeys(self.logs, 0)

    def end(self) -> Positions:
        return {host: log.lines for host, log in self.logs.items()}

    def after(self, numbers: Mapping[int, int]) -> Positions:
        """Return the place behind the lines with those numbers."""
        return {host: log.position(numbers.get(host, 0) + 1) for host, log in self.logs.items()}

    def at_line(self, host: int, position: int, *, behind: bool = False) -> Positions:
        """Return the place before that line of a host, or just `behind` it; behind the host's last line, if it has no
        such line."""
        log = self.logs.get(host)
        if log is None or not log.lines:
            return self.begin()
        if len(self.logs) == 1:
            return {host: min(position + behind, log.lines)}
        chunk = next(log.chunks(min(position, log.lines - 1), LEAST_CHUNK), _NOTHING)
        if not chunk:  # it was removed
            return self.begin()
        at = chunk[0].at

        def place(other: HostLog) -> int:
            if other.host == host:
                return min(position + behind, log.lines)
            return other.until_time(at, with_it=other.host < host)

        return self.each(place)

    def at_part(self, part: float) -> Positions:
        """Return a place that has about so much of the log before it, from 0 to 1."""
        if part >= 1 or not self.logs:
            return self.end()
        longest = max(self.logs.values(), key=lambda log: log.lines)
        return self.at_line(longest.host, int(max(0.0, part) * longest.lines))
