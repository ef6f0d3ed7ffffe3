"""The log of an attempt as one sequence of lines: each host's segments as numbered lines, merged by time.

A place in the log is, for each host, the number of the last line before it. Lines are numbered from 1 as they were
written, so a place stays where it is, whatever is stored later or was dropped.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise, takewhile
from operator import attrgetter

from tpujob.lib.tries import Deadline
from tpujob.service.logs.lines import StampedLine
from tpujob.service.logs.segment_reader import STEP, SegmentReader
from tpujob.service.logs.segments import Segment

#: bytes that are read of a host first, at least, however many hosts there are
LEAST_CHUNK = 8 * 1024
LARGEST_CHUNK = 4 * 1024 * 1024
MAX_RUN = 64  #: segments of a host that are read in one go

#: by host: the number of the last line before it; 0 for hosts that are missing
Place = Mapping[int, int]
_TIME, _NUMBER = attrgetter("at"), attrgetter("number")
_FIRST, _LAST = attrgetter("first"), attrgetter("last")
_MORE = 0  #: the number of a line that stands for all that come later


class HostLog:
    def __init__(
        self, host: int, segments: Sequence[Segment], reader: SegmentReader, until: Deadline
    ) -> None:
        self.host, self.segments = host, segments
        self._reader, self._until = reader, until

    @cached_property
    def _starts(self) -> Sequence[int]:
        """How many lines are before each segment, and before the end."""
        return list(accumulate((segment.lines for segment in self.segments), initial=0))

    @property
    def lines(self) -> int:
        return self._starts[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def last(self) -> int:
        """The number of the last line; 0: there is none."""
        return self.segments[-1].last if self.segments else 0

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The gaps of dropped lines: the number of the first line, and how many."""
        gaps = [(1, first - 1)] if self.segments and (first := self.segments[0].first) > 1 else []
        for segment, follows in pairwise(self.segments):
            if follows.first > segment.last + 1:
                # a line that stands for dropped ones has the first one's number
                begin = segment.last if segment.lines == 1 else segment.last + 1
                gaps.append((begin, follows.first - begin))
        return gaps

    def lines_up_to(self, number: int) -> int:
        """Return how many lines have at most that number."""
        at = bisect_right(self.segments, number, key=_FIRST) - 1
        if at < 0:
            return 0
        segment = self.segments[at]
        return self._starts[at] + min(number + 1 - segment.first, segment.lines)

    def number_of(self, line: int) -> int:
        """Return the number of a line that is there, counted from 0."""
        at = min(bisect_right(self._starts, line), len(self.segments)) - 1
        return self.segments[at].first + line - self._starts[at]

    def before_time(self, at: float, *, with_it: bool) -> int:
        """Return the number of the last line before that time; `with_it`: or at it."""
        bisect = bisect_right if with_it else bisect_left
        before = bisect(self.segments, at, key=lambda segment: segment.facts.at)
        if not before:
            return 0
        segment = self.segments[before - 1]
        times = self._reader.index(segment, self._until).times
        step = max(0, bisect(times, at) - 1)
        lines = self._reader.lines_of_step(segment, step, self._until)
        return segment.first + step * STEP + bisect(lines, at, key=_TIME) - 1

    def chunks(
        self, place: int, size: int, *, backward: bool = False, once: bool = False
    ) -> Iterator[list[StampedLine]]:
        """Read the lines behind that one; `backward`: that one and those before it, the last one first. About `size`
        bytes are read at first, then more. The first chunk is empty, and comes before anything is waited for. `once`:
        end where more would be read, with `_MORE` at the time of the last line."""
        lines_beside = self._reader.up_to if backward else self._reader.after
        read = 0
        while pieces := self._beside(place, size, backward, more=once):
            asked = [
                self._reader.ask(lines_beside, piece, place, size, self._until) for piece in pieces
            ]
            yield []
            lines: list[StampedLine] = []
            for piece, answer in zip(pieces, asked, strict=True):
                lines = answer.result()[:: -1 if backward else 1]
                yield lines
                edge = piece.first if backward else piece.last
                number = lines[-1].number if lines else edge
                place = number - backward
                if number != edge:
                    break  # it has more lines
            if once and lines:
                if place < self.last:
                    yield [lines[-1]._replace(number=_MORE)]
                return
            read += size
            size = min(read, LARGEST_CHUNK)

    def _beside(self, place: int, size: int, backward: bool, *, more: bool) -> list[Segment]:
        """Return the next segments with lines on that side, one at least: as many as `size` bytes have; `more`: or one
        more."""
        if backward:
            order = range(bisect_right(self.segments, place, key=_FIRST) - 1, -1, -1)
        else:
            order = range(bisect_right(self.segments, place, key=_LAST), len(self.segments))
        pieces: list[Segment] = []
        for at in order[:MAX_RUN]:
            piece = self.segments[at]
            if pieces and (size <= 0 or (size < piece.size and not more)):
                break
            pieces.append(piece)
            lines = place + 1 - piece.first if backward else piece.last - place
            size -= piece.size * min(lines, piece.lines) // max(1, piece.lines)
        return pieces


class LogReader:
    """The logs of several hosts as one, in order of time; at the same time by host, and each host's in its order."""

    def __init__(self, logs: Mapping[int, HostLog], reader: SegmentReader) -> None:
        self.logs, self._reader = logs, reader

    def of_host(self, host: int | None) -> "LogReader":
        """Return that host's log alone; all of them if no host is named."""
        return LogReader(
            {h: log for h, log in self.logs.items() if host in (None, h)}, self._reader
        )

    @property
    def lines(self) -> int:
        return sum(log.lines for log in self.logs.values())

    def lines_before(self, place: Place) -> int:
        return sum(log.lines_up_to(place.get(host, 0)) for host, log in self.logs.items())

    def read(
        self, place: Place, size: int, *, backward: bool = False, once: bool = False
    ) -> Iterator[StampedLine]:
        """Read the lines behind a place; `backward`: those before it, the last one first. `size`: bytes that are
        probably needed. `once`: end where more would have to be read, as other lines may come before."""
        share = max(LEAST_CHUNK, size // max(1, len(self.logs)))
        hosts = [
            log.chunks(place.get(host, 0), share, backward=backward, once=once)
            for host, log in self.logs.items()
        ]
        for chunks in hosts:
            next(chunks, None)  # asks for the first lines of each
        streams = [chain.from_iterable(chunks) for chunks in hosts]
        if len(streams) == 1:
            merged = streams[0]
        else:
            in_order = streams[::-1] if backward else streams
            merged = heapq.merge(*in_order, key=_TIME, reverse=backward)
        return takewhile(_NUMBER, merged) if once else merged

    # Places ----------------------------------------------------------------------------------------------------------

    def begin(self) -> Place:
        return dict.fromkeys(self.logs, 0)

    def end(self) -> Place:
        return {host: log.last for host, log in self.logs.items()}

    def at_line(self, host: int, number: int, *, behind: bool = False) -> Place:
        """Return the place before that line of a host, or just `behind` it; behind the host's last line, if it has no
        such line."""
        own = self.logs.get(host)
        if own is None:
            return self.begin()
        place = {host: min(number - 1 + behind, own.last)}
        others = [log for log in self.logs.values() if log is not own]
        if not others:
            return place
        nearest = chain.from_iterable(
            chain.from_iterable(own.chunks(at, LEAST_CHUNK, backward=backward))
            for at, backward in ((number - 1, False), (number, True))
        )
        line = next(nearest, None)
        if line is None:  # it was removed
            return self.begin()
        before = self._reader.side_by_side(
            lambda other: other.before_time(line.at, with_it=other.host < host), others
        )
        return {**place, **{log.host: last for log, last in zip(others, before, strict=True)}}

    def at_time(self, at: float) -> Place:
        """Return the place before the first line of each host at that time or later."""
        logs = [*self.logs.values()]
        before = self._reader.side_by_side(lambda log: log.before_time(at, with_it=False), logs)
        return {log.host: last for log, last in zip(logs, before, strict=True)}

    def at_part(self, part: float) -> Place:
        """Return a place that has about so much of the log before it, from 0 to 1."""
        if part >= 1 or not self.logs:
            return self.end()
        longest = max(self.logs.values(), key=lambda log: log.lines)
        number = longest.number_of(int(max(0.0, part) * longest.lines))
        return self.at_line(longest.host, number)
