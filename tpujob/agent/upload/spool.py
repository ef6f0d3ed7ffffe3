"""What of a log waits to be shipped, how much is kept at all, and its segments in the bucket."""

from __future__ import annotations

import collections
import time
from typing import Callable, Deque, List, Optional, Tuple

from tpujob.agent.storage import Storage, StorageError
from tpujob.protocol import segment
from tpujob.protocol.limits import LAST_SEGMENT


class Chunk:
    """Whole lines that are shipped in one go."""

    def __init__(self, data: bytes, first: int, lines: int, head: bool) -> None:
        self.data, self.first, self.lines = data, first, lines
        self.head = head  #: it is never dropped
        self.condemned = False  #: dropped while it was on its way
        self.last = False  #: nothing comes after it


class Spool:
    """The first half of a log, by `limit`, is its head, the rest its tail. Of a tail that grows beyond the other half
    the oldest is dropped, also what is in the bucket by then. Not for two threads at a time."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._queue: Deque[Chunk] = collections.deque()
        self._flying: Optional[Chunk] = None  #: out of the queue, and not yet in the bucket
        self._shipped: Deque[Tuple[int, int, int]] = collections.deque()  #: number, bytes, lines
        self._head_bytes = self._tail_bytes = 0
        self.doomed: List[int] = []  #: numbers of segments that are to be deleted
        self.dropped = 0  #: lines

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def waiting(self) -> List[Chunk]:
        """What is not known to be in the bucket, the oldest first."""
        return [*([] if self._flying is None else [self._flying]), *self._queue]

    def add(self, data: bytes, first: int, lines: int) -> None:
        chunk = Chunk(data, first, lines, self._head_bytes < self._half)
        self._queue.append(chunk)
        if chunk.head:
            self._head_bytes += len(data)
            return
        self._tail_bytes += len(data)
        while self._tail_bytes > self._half and self._drop_oldest():
            pass

    def close(self, next_line: int) -> None:
        """Accept nothing more. If nothing waits, an empty chunk says so."""
        if not self._queue:
            self._queue.append(Chunk(b"", next_line, 0, True))
        self._queue[-1].last = True

    def take(self) -> Optional[Chunk]:
        """The oldest, to be shipped; then `shipped` or `give_up` is called."""
        self._flying = self._queue.popleft() if self._queue else None
        return self._flying

    def shipped(self, number: int) -> None:
        """Note that the chunk is in the bucket, as a segment of that number."""
        chunk, self._flying = self._flying, None
        if chunk is None:
            return
        if chunk.condemned:
            self.doomed.append(number)
        elif not chunk.head:
            self._shipped.append((number, len(chunk.data), chunk.lines))

    def give_up(self) -> None:
        """Note that the chunk will never be shipped."""
        chunk, self._flying = self._flying, None
        if chunk is not None and not chunk.condemned:
            self._count_out(0 if chunk.head else len(chunk.data), chunk.lines)

    def _drop_oldest(self) -> bool:
        if self._shipped:
            number, size, lines = self._shipped.popleft()
            self.doomed.append(number)
            self._count_out(size, lines)
            return True
        chunk = next((c for c in self.waiting if not (c.head or c.condemned)), None)
        if chunk is None:
            return False
        if chunk is self._flying:
            chunk.condemned = True
        else:
            self._queue.remove(chunk)
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
        self.number = self._marker = self._marked = (
            0  #: the last two: its number, and the lines it counts
        )
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
        self._insist(lambda: self._storage.delete(self._path_of(number)))

    def _reserve_marker(self, at: float) -> None:
        self.number += 1
        self._marker, self._marker_time, self._marker_line = self.number, at, self._next_line

    def _put(self, number: int, content: bytes, line: int, lines: int, more: bool) -> None:
        facts = segment.written(segment.SegmentFacts(line, lines, _time_of(content), more))
        self._insist(lambda: self._storage.put(self._path_of(number), content, facts))

    def _insist(self, do: Callable[[], None]) -> None:
        delay = 0.5
        while True:
            try:
                return do()
            except StorageError:
                time.sleep(delay)
                delay = min(delay * 2, 5)


def _time_of(content: bytes) -> float:
    """When its first line was written."""
    return float(content.partition(b" ")[0] or 0)
