"""Where the lines of a segment are: the offset of each 1,000th, so that any line is read with a few others.

A segment is read once for its index, and the index is kept while there is room for it.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock

from tpujob.lib.lru import LruDict
from tpujob.service.logs.bucket.pieces import Pieces, Until
from tpujob.service.logs.bucket.stored import Key, Segment
from tpujob.service.logs.lines import time_of, whole

STEP = 1000
KEPT = 20_000  #: segments whose index is kept; about 600 bytes each

_STEP_LINES = re.compile(rb"(?:[^\n]*+\n){1,%d}" % STEP)
_TRACEBACK = b"Traceback (most recent call last)"
#: before a traceback that tells of the same failure as the one before it
_CHAINED = re.compile(rb"During handling of the above|was the direct cause of the following")


@dataclass(frozen=True, slots=True)
class Index:
    lines: int
    offsets: array[int]  #: of each 1,000th line, and of the end
    times: array[float]  #: of each 1,000th line

    def block(self, first: int, last: int) -> tuple[int, int, int]:
        """Which bytes hold the lines from `first` up to `last`, and which line they begin with."""
        begin, end = first // STEP, -(-last // STEP)
        return self.offsets[begin], self.offsets[min(end, len(self.times))], begin * STEP


def scan(data: bytes) -> Index:
    """Of a segment's bytes; an unfinished line at the end is none."""
    data = whole(data)
    offsets = array("Q", [0])
    offsets.extend(found.end() for found in _STEP_LINES.finditer(data))
    times = (time_of(data[at : at + 32]) for at in offsets[:-1])
    return Index(data.count(b"\n"), offsets, array("d", accumulate(times, max)))


def tracebacks(data: bytes) -> list[int]:
    """The lines where one begins; several of one failure are one, and so are those of a group of exceptions."""
    found: list[int] = []
    line = done = 0
    at = data.find(_TRACEBACK)
    while at >= 0:
        begin = data.rfind(b"\n", 0, at) + 1
        line += data.count(b"\n", done, begin)
        done = begin
        before = b"\n".join(data[max(0, begin - 250) : begin].split(b"\n")[-3:])
        if b"|" not in data[begin:at] and not _CHAINED.search(before):
            found.append(line)
        end = data.find(b"\n", at)
        at = data.find(_TRACEBACK, end) if end >= 0 else -1
    return found


class Indexes:
    """Those of the segments that were read last. Threads may share it."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._known: LruDict[Key, Index] = LruDict(KEPT)
        self._lock = Lock()

    def of(self, segment: Segment, until: Until) -> Index:
        with self._lock:
            known = self._known.get(segment.key)
        if known is None:
            known = scan(self._pieces.read(segment, 0, segment.size, until))
            with self._lock:
                self._known[segment.key] = known
        return known
