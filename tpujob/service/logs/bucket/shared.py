"""The table of what the objects of many hosts hold of an attempt's log: some 33 bytes for each piece. Pure.

Such an object never changes, so that it is read once. A slice of many hosts has hundreds of thousands of pieces: they
lie in columns, and of each host there is the order in which its lines go on.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from tpujob.ports import Blob
from tpujob.protocol import segment
from tpujob.protocol.segment import SegmentFacts

#: bytes of a segment that are read; agents write little more than half of that, and what is beyond is not theirs
MOST = 8 * 1024 * 1024
#: bytes of an object of many hosts; agents write some mebibytes
_LARGEST = 2**32 - 1
#: of one log, and of all that are kept: 33 bytes each
MOST_PIECES = 4_000_000
#: of a host whose next piece has to be put in order, whatever its number
_UNSURE = 2**62


class Shared:
    """It grows at its end only: one thread at a time adds to it, while others read what it had before."""

    def __init__(self) -> None:
        self.generations: dict[str, int] = {}  #: of the objects, by path
        self._paths: list[str] = []
        self._begins = array("I")  #: the first piece of each object
        self._line, self._lines = array("q"), array("I")
        self._at, self._open = array("d"), array("B")
        self._offset, self._size = array("I"), array("I")
        self.orders: dict[
            int, array[int]
        ] = {}  #: the pieces of each host, in order, each line once
        self._bounds: dict[
            int, int
        ] = {}  #: a piece that begins behind that line is the next of its host
        self._ends: dict[int, int] = {}  #: said to be the last line

    @property
    def pieces(self) -> int:
        return len(self._line)

    @property
    def full(self) -> bool:
        return self.pieces >= MOST_PIECES

    def add(self, blobs: Iterable[Blob]) -> None:
        """What they hold, by path, as far as there is room for it."""
        late: dict[int, list[int]] = {}
        for blob in blobs:
            if self.full:
                break
            if blob.path not in self.generations:
                self._add(blob, late)
        for host, each in late.items():
            self._put_in_order(host, each)

    def _add(self, blob: Blob, late: dict[int, list[int]]) -> None:
        begin = self.pieces
        self.generations[blob.path] = blob.generation
        self._paths.append(blob.path)
        self._begins.append(begin)
        found = segment.read_columns(blob.metadata, blob.size)
        if found is None or blob.size > _LARGEST:
            return
        if max(found.size) > MOST:
            read = [row for row in zip(*found, strict=True) if row[-1] <= MOST]
            if not read:
                return
            found = segment.Columns(*zip(*read, strict=True))
        self._line.extend(found.line)
        self._lines.extend(found.lines)
        self._at.extend(found.at)
        self._open.extend(map(bool, found.open))
        self._offset.extend(found.offset)
        self._size.extend(found.size)
        bounds, orders = self._bounds, self.orders
        for piece, (host, line, lines) in enumerate(
            zip(found.host, found.line, found.lines, strict=True), begin
        ):
            bound = bounds.get(host, 0)
            if lines and line > bound:
                bounds[host] = line + lines - 1
                try:
                    orders[host].append(piece)
                except KeyError:
                    orders[host] = array("I", (piece,))
                continue
            if not lines and not self._open[piece]:
                self._ends[host] = max(self._ends.get(host, 0), line - 1)
            if lines or line != bound + 1:  # else it says only that the line before it was the last
                late.setdefault(host, []).append(piece)

    def _put_in_order(self, host: int, late: Iterable[int]) -> None:
        """As all its pieces at once would be; who reads the order that there was, keeps it."""
        found = [(self.place(i), self.path(i), i) for i in (*self.orders.get(host, ()), *late)]
        kept, end = array("I"), 0
        for _, _, piece in sorted(found):
            if self.last(piece) > end:
                kept.append(piece)
                end = self.last(piece)
        if kept:
            self.orders[host] = kept
            self._bounds[host] = end if self._lines[kept[-1]] else _UNSURE

    # Of one piece -------------------------------------------------------------------------------------------------

    def place(self, piece: int) -> tuple[int, int]:
        """By which it is sorted."""
        return self._line[piece], -self.last(piece)

    def last(self, piece: int) -> int:
        """The number of its last line."""
        return self._line[piece] + self._lines[piece] - 1

    def path(self, piece: int) -> str:
        """Of the object that holds it."""
        return self._paths[bisect_right(self._begins, piece) - 1]

    def facts(self, piece: int) -> SegmentFacts:
        return SegmentFacts(
            self._line[piece], self._lines[piece], self._at[piece], bool(self._open[piece])
        )

    def extent(self, piece: int) -> tuple[int, int]:
        """How many bytes of its object are before it, and how many it has."""
        return self._offset[piece], self._size[piece]

    # Of many ------------------------------------------------------------------------------------------------------

    def first_lines(self, pieces: Iterable[int]) -> array[int]:
        """The numbers of their first lines."""
        return array("q", map(self._line.__getitem__, pieces))

    def counts(self, pieces: Iterable[int]) -> array[int]:
        """How many lines they have."""
        return array("q", map(self._lines.__getitem__, pieces))

    def bytes(self, pieces: Iterable[int]) -> int:
        return sum(map(self._size.__getitem__, pieces))

    def part(self, host: int) -> tuple[array[int], int, int]:
        """Of one host: its pieces in order, how many of them there are now, as more may follow, and which line was said
        to be the last one."""
        order = self.orders[host]
        return order, len(order), self._ends.get(host, -1)
