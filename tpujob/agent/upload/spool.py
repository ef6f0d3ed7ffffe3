"""The chunks of a log that wait for their upload, the limit of its size, and its segments in the bucket."""

from __future__ import annotations

import collections
import time
from functools import partial
from typing import Callable, Deque, List, Tuple

from tpujob.agent.storage import Storage, retry
from tpujob.protocol import segment
from tpujob.protocol.limits import LAST_SEGMENT


class Chunk:
    """Lines that are uploaded as one segment."""

    def __init__(self, data: bytes, first: int, lines: int, head: bool) -> None:
        self.data = data
        self.first = first  #: number of the first line
        self.lines = lines
        self.head = head  #: part of the log's head, which is never dropped
        self.last = False  #: no chunk follows


class Spool:
    """The chunks of a log, of which it keeps `limit` bytes. The first half is the head. The rest is the tail, of which
    the oldest chunks are dropped, waiting ones and uploaded ones. For one thread at a time."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        #: chunks that may not be in the bucket, the oldest first
        self.waiting: Deque[Chunk] = collections.deque()
        #: number, bytes and lines of each segment of the tail, the oldest first
        self._uploaded: Deque[Tuple[int, int, int]] = collections.deque()
        self._head_bytes = self._tail_bytes = 0
        self.to_delete: List[int] = []  #: numbers of segments to delete
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
        """Mark the last chunk as the last of the log; add an empty one if none waits."""
        if not self.waiting:
            self.waiting.append(Chunk(b"", next_line, 0, True))
        self.waiting[-1].last = True

    def note_uploaded(self, chunk: Chunk, number: int) -> None:
        """Record the upload of a chunk as segment `number`; 0: the log has too many segments for it."""
        if chunk not in self.waiting:  # dropped during the upload
            self.to_delete += [number] if number else []
            return
        self.waiting.remove(chunk)
        if not number:
            self._count_dropped(0 if chunk.head else len(chunk.data), chunk.lines)
        elif not chunk.head:
            self._uploaded.append((number, len(chunk.data), chunk.lines))

    def _drop_oldest(self) -> bool:
        if self._uploaded:
            number, size, lines = self._uploaded.popleft()
            self.to_delete.append(number)
            self._count_dropped(size, lines)
            return True
        chunk = next((chunk for chunk in self.waiting if not chunk.head), None)
        if chunk is None:
            return False
        self.waiting.remove(chunk)
        self._count_dropped(len(chunk.data), chunk.lines)
        return True

    def _count_dropped(self, size: int, lines: int) -> None:
        self._tail_bytes -= size
        self.dropped += lines


# Segments ------------------------------------------------------------------------------------------------------------


class Segments:
    """The segments of a log in the bucket. Failed requests are retried until they succeed. For one thread."""

    def __init__(self, storage: Storage, path_of: Callable[[int], str]) -> None:
        """`path_of` returns the path of a segment."""
        self._storage, self._path_of = storage, path_of
        self.number = 0  #: the number of the newest segment
        self._marker = 0  #: the number of the marker's segment; 0: none
        self._marked = 0  #: dropped lines that the marker states
        self._next_line = self._marker_line = 1
        self._marker_time = 0.0

    def write(self, chunk: Chunk) -> int:
        """Upload a chunk, and return the number of its segment; 0: the log has LAST_SEGMENT segments already."""
        if not self._marker and not chunk.head:
            self._reserve_marker(_time_of(chunk.data))
        if self.number >= LAST_SEGMENT:
            return 0
        self.number += 1
        self._next_line = chunk.first + chunk.lines
        self._put(self.number, chunk.data, chunk.first, chunk.lines, is_open=not chunk.last)
        return self.number

    def continue_after(self, line: int, number: int) -> None:
        """Continue a log after that line and that segment."""
        self._next_line = line + 1
        self.number = number

    def mark(self, dropped: int, at: float) -> None:
        """Write the number of dropped lines into the marker, a segment between head and tail."""
        if dropped == self._marked:
            return
        if not self._marker:
            self._reserve_marker(at)
        text = "%.3f [tpujob] %d lines were dropped here\n" % (self._marker_time, dropped)
        self._put(self._marker, text.encode(), self._marker_line, 1, is_open=True)
        self._marked = dropped

    def delete(self, number: int) -> None:
        retry(partial(self._storage.delete, self._path_of(number)), float("inf"), time.sleep)

    def _reserve_marker(self, at: float) -> None:
        self.number += 1
        self._marker, self._marker_line = self.number, self._next_line
        self._marker_time = at

    def _put(self, number: int, content: bytes, line: int, lines: int, is_open: bool) -> None:
        facts = segment.to_metadata(segment.SegmentFacts(line, lines, _time_of(content), is_open))
        put = partial(self._storage.put, self._path_of(number), content, facts)
        retry(put, float("inf"), time.sleep)


def _time_of(content: bytes) -> float:
    """Return the time of the first line."""
    return float(content.partition(b" ")[0] or 0)
