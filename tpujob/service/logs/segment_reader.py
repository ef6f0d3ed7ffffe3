"""Reads lines of a segment: from any line on, from its end, or all of it.

Where each 1,000th line begins is remembered of a segment that was read whole, as it is when a line inside it is first
needed.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock
from typing import TypeVar

from tpujob.errors import NotFound
from tpujob.lib.lru import LruDict
from tpujob.lib.tries import Deadline
from tpujob.ports import Blobs
from tpujob.protocol import limits
from tpujob.service.logs.lines import time_of, whole
from tpujob.service.logs.segments import Key, Segment

A = TypeVar("A")
B = TypeVar("B")

AT_ONCE = 8  #: objects that are fetched side by side
STEP = 1000  #: lines between two places in an index
INDEXES = 20_000  #: that are kept, of about 600 bytes each
MAX_STORED_LINE = limits.MAX_LINE + 64  #: bytes, with its time

_STEP_LINES = re.compile(rb"(?:[^\n]*+\n){1,%d}" % STEP)


@dataclass(frozen=True, slots=True)
class Index:
    """The offsets of the lines of a segment."""

    lines: int
    offsets: array[int]  #: of each 1,000th line, and of the end
    times: array[float]  #: of each 1,000th line


def scan(data: bytes) -> Index:
    """Make the index of a segment's bytes; an unfinished line at the end is left out."""
    data = whole(data)
    offsets = array("Q", [0])
    offsets.extend(match.end() for match in _STEP_LINES.finditer(data))
    times = (time_of(data[at : at + 32]) for at in offsets[:-1])
    return Index(data.count(b"\n"), offsets, array("d", accumulate(times, max)))


class SegmentReader:
    """Threads may share it."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._indexes: LruDict[Key, Index] = LruDict(INDEXES)
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="log")

    def side_by_side(self, work: Callable[[A], B], on: Collection[A]) -> list[B]:
        """Return the results of `work`, which reads the storage and must not call this method itself."""
        return [work(x) for x in on] if len(on) == 1 else list(self._pool.map(work, on))

    def read(
        self, segment: Segment, until: Deadline, start: int = 0, end: int | None = None
    ) -> bytes:
        """Return the segment's bytes from `start` to `end`; none if it was removed since it was listed."""
        end = segment.size if end is None else min(end, segment.size)
        if segment.data is not None:
            return segment.data[start:end]
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

    def lines_from(self, segment: Segment, line: int, size: int, until: Deadline) -> bytes:
        """Return about so many bytes of whole lines, one line at least, from that line of the segment on, counted from
        0. Empty: it has no such line."""
        begin, skip, least = self._place(segment, line, until)
        for end in (least + size, least + size + MAX_STORED_LINE, segment.size):
            data = whole(self.read(segment, until, begin, end))
            if data.count(b"\n") > skip or end >= segment.size:
                break
        return after_lines(data, skip)

    def last_lines(self, segment: Segment, size: int, until: Deadline) -> bytes:
        """Return about so many bytes of whole lines at the segment's end."""
        begin = max(0, segment.size - max(size, MAX_STORED_LINE))
        data = self.read(segment, until, begin)
        return whole(data[data.find(b"\n") + 1 :] if begin else data)

    def _place(self, segment: Segment, line: int, until: Deadline) -> tuple[int, int, int]:
        """Return where a line at or before that one begins, how many lines are between, and a place behind those."""
        if not line:
            return 0, 0, 0
        offsets = self.index(segment, until).offsets
        step = min(line // STEP, len(offsets) - 1)
        return offsets[step], line - step * STEP, offsets[min(step + 1, len(offsets) - 1)]


def after_lines(data: bytes, lines: int) -> bytes:
    """Return the data without so many of its first lines."""
    begin = 0
    for _ in range(lines):
        begin = data.find(b"\n", begin) + 1
        if not begin:
            return b""
    return data[begin:]
