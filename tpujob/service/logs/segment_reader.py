"""Reads lines of a segment, on either side of a line of it.

Where each 1,000th line begins is remembered of a segment that was read whole, as it is when a line inside it is first
needed.
"""

from array import array
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from re import compile
from threading import Lock
from typing import NamedTuple, TypeVar

from tpujob.errors import NotFound
from tpujob.lib.lru import LruDict
from tpujob.lib.tries import Deadline
from tpujob.ports import Blobs
from tpujob.protocol import limits
from tpujob.service.logs.lines import StampedLine, parse, time_of, whole
from tpujob.service.logs.segments import Key, Segment

A = TypeVar("A")
B = TypeVar("B")

AT_ONCE = 8  #: objects that are fetched side by side
STEP = 1000  #: lines between two places in an index
INDEXES = 20_000  #: that are kept, of about 600 bytes each
MAX_STORED_LINE = limits.MAX_LINE + 64  #: bytes, with its time

_STEP_LINES = compile(rb"(?:[^\n]*+\n){1,%d}" % STEP)


class Index(NamedTuple):
    """The lines of a segment."""

    offsets: Sequence[int]  #: of each 1,000th line, and of the end
    times: Sequence[float]  #: of each 1,000th line


def scan(data: bytes) -> Index:
    """Make the index of a segment's bytes; an unfinished line at the end is left out."""
    offsets = array("Q", [0])
    offsets.extend(match.end() for match in _STEP_LINES.finditer(whole(data)))
    times = (time_of(data[at : at + 32]) for at in offsets[:-1])
    return Index(offsets, array("d", accumulate(times, max)))


class SegmentReader:
    """Threads may share it."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._indexes: LruDict[Key, Index] = LruDict(INDEXES)
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="log")

    def ask(self, work: Callable[..., B], *of: object) -> Future[B]:
        """Begin `work`, which reads the storage and must not wait for other work."""
        return self._pool.submit(work, *of)

    def side_by_side(self, work: Callable[[A], B], on: Collection[A]) -> list[B]:
        """Return the results of `work`, which reads the storage and must not wait for other work."""
        return [work(x) for x in on] if len(on) == 1 else list(self._pool.map(work, on))

    def read(
        self, segment: Segment, until: Deadline, start: int = 0, end: int | None = None
    ) -> bytes:
        """Return the segment's bytes from `start` to `end`; none if it was removed since it was listed."""
        end = segment.size if end is None else min(end, segment.size)
        if segment.data is not None or start >= end:
            return (segment.data or b"")[start:end]
        try:
            return self._blobs.get(segment.path, start=start, end=end, timeout=until.left())
        except NotFound:
            return b""

    def index(self, segment: Segment, until: Deadline) -> Index:
        with self._lock:
            index = self._indexes.get(segment.key)
        if index is None:
            index = scan(self.read(segment, until))
            with self._lock:
                self._indexes[segment.key] = index
        return index

    def after(self, segment: Segment, number: int, size: int, until: Deadline) -> list[StampedLine]:
        """Return about so many bytes of lines behind the one with that number, one line at least if there is one."""
        line = max(0, number + 1 - segment.first)
        offsets = self.index(segment, until).offsets if line else [0]
        step = min(line // STEP, len(offsets) - 1)
        least = offsets[min(step + 1, len(offsets) - 1)]
        for end in (least + size, least + size + MAX_STORED_LINE, segment.size):
            data = self.read(segment, until, offsets[step], end)
            lines = _lines(segment, step * STEP, data)[line - step * STEP :]
            if lines or end >= segment.size:
                return lines
        return []

    def up_to(self, segment: Segment, number: int, size: int, until: Deadline) -> list[StampedLine]:
        """Return the line with that number and lines before it: about so many bytes at the segment's end, or up to
        1,000 lines."""
        line = min(number + 1 - segment.first, segment.lines)
        begin = max(0, segment.size - max(size, MAX_STORED_LINE))
        if begin and line == segment.lines:
            data = self.read(segment, until, begin)
            data = whole(data[data.find(b"\n") + 1 :])
            if data:
                number = segment.last + 1 - data.count(b"\n")
                return parse(segment.host, data, number)[-line:]
        step = (line - 1) // STEP
        return self.lines_of_step(segment, step, until)[: line - step * STEP]

    def lines_of_step(self, segment: Segment, step: int, until: Deadline) -> list[StampedLine]:
        """Return the 1,000 lines from a place in the index on."""
        ends = self.index(segment, until).offsets[step : step + 2]
        return (
            _lines(segment, step * STEP, self.read(segment, until, *ends)) if len(ends) > 1 else []
        )


def _lines(segment: Segment, line: int, data: bytes) -> list[StampedLine]:
    """Return the whole lines in `data`, which begins with that line of the segment, from 0. What is beyond the lines
    that its metadata name is left out."""
    return parse(segment.host, whole(data), segment.first + line)[: max(0, segment.lines - line)]
