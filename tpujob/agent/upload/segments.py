"""Writes a log into the bucket, as numbered segments of this host."""

from __future__ import annotations

import time
from typing import Callable

from tpujob.agent.storage import Storage, StorageError
from tpujob.agent.upload.spool import Chunk
from tpujob.protocol import segment
from tpujob.protocol.limits import LAST_SEGMENT


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
        data = chunk.content()
        if not self._marker and not chunk.head:
            self._reserve_marker(_time_of(data))
        if self.number >= LAST_SEGMENT:
            return 0
        self.number += 1
        self._next_line = chunk.first + chunk.lines
        self._put(self.number, data, chunk.first, chunk.lines, more=not chunk.last)
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
