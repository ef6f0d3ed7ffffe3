"""What of a log waits to be shipped, how much is kept at all, and its segments in the bucket."""

from __future__ import annotations

import collections
import time
from functools import partial
from typing import Callable, Deque, List, Tuple

from tpujob.agent.storage import Storage, insist
from tpujob.protocol import segment
from tpujob.protocol.limits import LAST_SEGMENT


class Chunk:
    """Whole lines that are shipped in one go."""

    def __init__(self, data: bytes, first: int, lines: int, head: bool) -> None:
        self.data, self.first, self.lines = data, first, lines
        self.head = head  #: it is never dropped
        self.last = False  #: nothing comes after it


class Spool:
    """The first half of a log, by `limit`, is its head, the rest its tail. Of a tail that grows beyond the other half
    the oldest is dropped, also what is in the bucket by then. Not for two threads at a time."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        #: what is not known to be in the bucket, the oldest first
        self.waiting: Deque[Chunk] = collections.deque()
        self._shipped: Deque[Tuple[int, int, int]] = collections.deque()  #: number, bytes, lines
        self._head_bytes = self._tail_bytes = 0
        self.doomed: List[int] = []  #: numbers of segments that are to be deleted
        self.dropped = 0  #: lines

    def add(self, data: bytes, first: int, lines: int) -> None:
        chunk = Chunk(data, first, lines, self._head_bytes < self._half)
        self.waiting.append(chunk)
        if chunk.head:
            self._head_bytes += len(data)
            return
        self._tail_bytes += len(data)
        while self._tail_bytes > self._half and self._drop_oldest():
            pass

    def close(self, next_line: int) -> None:
        """Accept nothing more. If nothing waits, an empty chunk says so."""
        if not self.waiting:
            self.waiting.append(Chunk(b"", next_line, 0, True))
        self.waiting[-1].last = True

    def shipped(self, chunk: Chunk, number: int) -> None:
        """Note that the chunk is in the bucket, as a segment of that number; 0: that it will never be."""
        if chunk not in self.waiting:  # it was dropped meanwhile
            self.doomed += [number] if number else []
            return
        self.waiting.remove(chunk)
        if not number:
            self._count_out(0 if chunk.head else len(chunk.data), chunk.lines)
        elif not chunk.head:
            self._shipped.append((number, len(chunk.data), chunk.lines))

    def _drop_oldest(self) -> bool:
        if self._shipped:
            number, size, lines = self._shipped.popleft()
            self.doomed.append(number)
            self._count_out(size, lines)
            return True
        chunk = next((chunk for chunk in self.waiting if not chunk.head), None)
        if chunk is None:
            return False
        self.waiting.remove(chunk)
        self._count_out(len(chunk.data), chunk.lines)
        return True

    def _count_out(self, size: int, lines: int) -> None:
        self._tail_bytes -= size
        self.dropped += lines


# Segments: the log in the bucket -------------------------------------------------------------------------------------


class Segments:
    """For one thread. What the storage refuses is tried again until it is taken."""

    def __init__(self, storage: Storage, path_of: Callable[[int], str]) -> None:
        """`path_of` gives the path of a segment."""
        self._storage, self._path_of = storage, path_of
        self.number = 0  #: of the newest segment
        self._marker = self._marked = 0  #: its number, and the lines it counts
        self._next_line = self._marker_line = 1
        self._marker_time = 0.0

    def write(self, chunk: Chunk) -> int:
        """The number of its segment; 0: there are as many as there may be."""
        if not self._marker and not chunk.head:
            self._reserve_marker(_time_of(chunk.data))
        if self.number >= LAST_SEGMENT:
            return 0
        self.number += 1
        self._next_line = chunk.first + chunk.lines
        self._put(self.number, chunk.data, chunk.first, chunk.lines, more=not chunk.last)
        return self.number

    def go_on(self, line: int, number: int) -> None:
        """With that line, after the segment of that number."""
        self._next_line, self.number = line, number

    def mark(self, dropped: int, at: float) -> None:
        """Say between head and tail how many lines were dropped, if that is not what it says already."""
        if dropped == self._marked:
            return
        if not self._marker:
            self._reserve_marker(at)
        text = "%.3f [tpujob] %d lines were dropped here\n" % (self._marker_time, dropped)
        self._put(self._marker, text.encode(), self._marker_line, 1, more=True)
        self._marked = dropped

    def delete(self, number: int) -> None:
        insist(partial(self._storage.delete, self._path_of(number)), float("inf"), time.sleep)

    def _reserve_marker(self, at: float) -> None:
        self.number += 1
        self._marker, self._marker_time, self._marker_line = self.number, at, self._next_line

    def _put(self, number: int, content: bytes, line: int, lines: int, more: bool) -> None:
        facts = segment.to_metadata(segment.SegmentFacts(line, lines, _time_of(content), more))
        put = partial(self._storage.put, self._path_of(number), content, facts)
        insist(put, float("inf"), time.sleep)


def _time_of(content: bytes) -> float:
    """When its first line was written."""
    return float(content.partition(b" ")[0] or 0)
