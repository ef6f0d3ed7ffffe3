"""Tails of live output that the bucket does not have yet, and their joining to the stored lines. Pure.

Lines are identified by number: a line of a tail follows the stored ones if its number does. If a line in between is
missing, the tail waits until the store has it.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tpujob.protocol import live
from tpujob.protocol.segment import SegmentFacts
from tpujob.service.logs.lines import time_of
from tpujob.service.logs.segments import Segment

#: bytes of memory for each message that is kept, beside its lines
MESSAGE = 256


class LiveTail(NamedTuple):
    """The lines of one host, as of a moment ago."""

    base: int  #: the number of the line before the first
    settled: int  #: each line up to this number was in the bucket, or dropped
    end: int  #: the number of the last line
    blocks: Sequence[live.TailMessage]  #: as they came

    def after(self, line: int) -> bytes:
        parts: list[bytes] = []
        for block in reversed(self.blocks):
            if block.line + block.lines <= line + 1:
                break
            parts.append(after_lines(block.data, max(0, line + 1 - block.line)))
        return b"".join(reversed(parts))


class Ring:
    """The newest lines of one host, at most `room` bytes."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._blocks = deque[live.TailMessage]()
        self._size = 0
        self._base = self.end = self.settled = 0
        self._cut = 0  #: the number of the last line that had to go

    def take(self, tail: live.TailMessage) -> bool:
        """Add lines that were not received before, and return whether anything is new."""
        before = (self.end, self.settled)
        if tail.after > self.end or (tail.lines and tail.line > self.end + 1):
            self._blocks.clear()  # what lies between is in the bucket, or was dropped
            self._size, self._base, self.end = 0, tail.line - 1, tail.line - 1
        new = tail.line + tail.lines - 1 - self.end
        if new > 0:
            data = after_lines(tail.data, tail.lines - new)
            block = tail._replace(line=self.end + 1, lines=new, data=data)
            self._blocks.append(block)
            self._size, self.end = self._size + len(data), self.end + new
        self.settled = max(self.settled, tail.settled)
        while self._blocks and (self._oldest <= self.settled or self._size > self._room):
            self.shorten()
        return (self.end, self.settled) != before

    def shorten(self) -> None:
        """Drop the oldest lines, if it has any."""
        if self._blocks:
            self._base = self._cut = self._oldest
            self._size -= len(self._blocks.popleft().data)

    @property
    def size(self) -> int:
        return self._size + MESSAGE * len(self._blocks)

    @property
    def short(self) -> bool:
        """Return whether lines were dropped that are not in the bucket yet."""
        return self._cut > self.settled

    @property
    def _oldest(self) -> int:
        """Return the number of the last line of the oldest block."""
        return self._blocks[0].line + self._blocks[0].lines - 1

    def now(self) -> LiveTail:
        return LiveTail(self._base, self.settled, self.end, tuple(self._blocks))


def after_lines(data: bytes, lines: int) -> bytes:
    """Return the data without so many of its first lines."""
    begin = 0
    for _ in range(lines):
        begin = data.find(b"\n", begin) + 1
        if not begin:
            return b""
    return data[begin:]


def joined(
    host: int, stored: Sequence[Segment], tail: LiveTail, seen: int = 0, *, over: bool = False
) -> list[Segment]:
    """Return what comes after the stored segments, which were listed after the tail was heard, or reach up to it;
    empty: nothing, or the lines between are not stored yet. `seen`: the number of the last line that the reader has.
    `over`: no more will be stored, and lines that are not count as missing."""
    last = stored[-1].last if stored else 0
    if tail.end <= last or tail.end + over <= seen:
        return []
    if tail.base > max(last, seen, tail.settled) and not over:
        return []
    before = max(last, tail.base)
    begin = max(before, min(seen, tail.end))
    data, lines = tail.after(begin), tail.end - begin
    if over:
        newest = time_of(tail.after(tail.end - 1))
        lost = f"lines {before + 1:,} to {tail.end:,}: they will be lost"
        text = f"{newest:.3f} [tpujob] the agent of this host ended before it had stored {lost}\n"
        data, lines = data + text.encode(), lines + 1
    facts = SegmentFacts(begin + 1, lines, time_of(data))
    return [Segment(host, f"live:{host}", len(data), begin, facts, data)]
