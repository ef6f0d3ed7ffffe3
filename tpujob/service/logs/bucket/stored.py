"""How an attempt's log lies in the bucket: the paths and metadata of its objects, as segments of each host. Pure.

A host's log is in segments of its own and in pieces of objects that one host writes for many; the numbers of lines put
them into order. What was written twice, as nobody had confirmed it, counts once. A segment of an older agent may grow
at its end, the one that stands for dropped lines is written again, every other object never changes; the oldest of the
tail of a very long log may be gone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import overload

from tpujob.ports import Blob
from tpujob.protocol import paths, segment
from tpujob.protocol.segment import SegmentFacts
from tpujob.service.logs.bucket.shared import MOST, Shared

#: the number of a piece in an object of many hosts is this and the number of its first line
SHARED = 10**12

Key = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """Lines of one host, one after the other."""

    host: int
    number: int  #: unlike that of any other of the host
    path: str
    size: int
    generation: int
    facts: SegmentFacts | None  #: None: its lines are known only once they were counted
    data: bytes | None = None  #: what it holds, if it is not stored yet
    offset: int = 0  #: bytes of its object before it

    @property
    def key(self) -> Key:
        """What changes with its content."""
        return self.path, self.generation, self.offset, self.size

    @property
    def last(self) -> int:
        """The number of its last line, if that is known."""
        return self.facts.line + self.facts.lines - 1 if self.facts else 0


class Rows(Sequence[Segment]):
    """What objects of many hosts have of one, as rows of their table: a segment is made when somebody takes it."""

    __slots__ = "_begin", "_end", "_host", "_order", "_table", "closed"

    def __init__(self, table: Shared, host: int) -> None:
        self._table, self._host, self._begin = table, host, 0
        #: the number of a line that was said to be the last
        self._order, self._end, self.closed = table.part(host)

    def __len__(self) -> int:
        return self._end - self._begin

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Segment | Rows:
        if isinstance(index, slice):
            begin, end, _ = index.indices(len(self))
            found = Rows.__new__(Rows)
            found._table, found._host, found._order = self._table, self._host, self._order
            found._begin, found._end = self._begin + begin, self._begin + max(begin, end)
            found.closed = self.closed
            return found
        piece, table = self._order[range(self._begin, self._end)[index]], self._table
        path, facts, (offset, size) = table.path(piece), table.facts(piece), table.extent(piece)
        generation, number = table.generations[path], SHARED + facts.line
        return Segment(self._host, number, path, size, generation, facts, None, offset)

    @property
    def last(self) -> int:
        """The number of its last line, if there is any."""
        return self._table.last(self._order[self._end - 1]) if self else 0

    def begun_before(self, one: Segment) -> int:
        """How many come before that one, which has facts."""
        place, pieces = _place(one), self._order
        found = range(self._begin, self._end)
        return bisect_left(found, place, key=lambda i: self._table.place(pieces[i]))

    def up_to(self, line: int) -> int:
        """How many have no lines after that one."""
        pieces, found = self._order, range(self._begin, self._end)
        return bisect_right(found, line, key=lambda i: self._table.last(pieces[i]))

    @property
    def pieces(self) -> array[int]:
        return self._order[self._begin : self._end]

    @property
    def table(self) -> Shared:
        return self._table


class Ordered(Sequence[Segment]):
    """Segments of one host, in order; those of `Rows` are not there until somebody takes them."""

    def __init__(self, parts: Iterable[Rows | list[Segment]] = ()) -> None:
        self.parts: list[Rows | list[Segment]] = []
        self._ends: list[int] = []
        for part in parts:
            self._extend(part)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        every = range(len(self))
        if isinstance(index, slice):
            return [self[i] for i in every[index]]
        index = every[index]
        at = bisect_right(self._ends, index)
        return self.parts[at][index - self._ends[at]]  # counted from the end of the part

    def __iter__(self) -> Iterator[Segment]:
        return chain.from_iterable(self.parts)

    def append(self, one: Segment) -> None:
        self._extend([one])

    @property
    def numbered(self) -> bool:
        """Whether it is known which lines each has."""
        return all(isinstance(p, Rows) or all(s.facts for s in p) for p in self.parts)

    def first_lines(self) -> array[int]:
        """The number of the first line of each. Their lines are numbered."""
        found = array("q")
        for part in self.parts:
            if isinstance(part, Rows):
                found += part.table.first_lines(part.pieces)
            else:
                found.extend(s.facts.line for s in part if s.facts)
        return found

    def counts(self) -> array[int]:
        """How many lines each has. Their lines are numbered."""
        found = array("q")
        for part in self.parts:
            if isinstance(part, Rows):
                found += part.table.counts(part.pieces)
            else:
                found.extend(s.facts.lines for s in part if s.facts)
        return found

    @property
    def size(self) -> int:
        """How many bytes all of them have."""
        return sum(
            p.table.bytes(p.pieces) if isinstance(p, Rows) else sum(s.size for s in p)
            for p in self.parts
        )

    def _extend(self, part: Rows | list[Segment]) -> None:
        if part:
            self.parts.append(part)
            self._ends.append(len(self) + len(part))


def shared(workdir: str, attempt: int, found: Iterable[Blob]) -> list[Blob]:
    """The objects of many hosts."""
    return [blob for blob in found if paths.is_shared_log(workdir, attempt, blob.path)]


def own(workdir: str, attempt: int, found: Iterable[Blob]) -> dict[int, list[Segment]]:
    """What hosts wrote for themselves, as it was listed."""
    by_host: dict[int, list[Segment]] = {}
    for blob in found:
        of, host, number = paths.read_log_path(workdir, blob.path) or (0, 0, -1)
        if of == attempt:
            size, facts = min(blob.size, MOST), segment.read(blob.metadata)
            if facts and facts.lines > size:  # a line has a byte at least
                facts = None
            one = Segment(host, number, blob.path, size, blob.generation, facts)
            by_host.setdefault(host, []).append(one)
    return by_host


def rows(table: Shared) -> dict[int, Rows]:
    """What it has now of each host."""
    return {host: Rows(table, host) for host in table.orders}


def after(all_of: Ordered, number: int, line: int) -> Ordered:
    """Those with lines after that one; where lines are not numbered, from the segment of that number on."""
    return Ordered(
        part[part.up_to(line) :]
        if isinstance(part, Rows)
        else [s for s in part if (s.last > line if s.facts else s.number >= number)]
        for part in all_of.parts
    )


def in_order(own: Sequence[Segment], shared: Rows | None) -> Ordered:
    """All of one host, each line once."""
    if not all(one.facts for one in own):
        return Ordered([sorted(own, key=lambda s: s.number)])
    parts = _spliced(sorted(own, key=_place), shared)
    closed = max(map(_closed, own), default=-1)
    if shared is not None:
        closed = max(closed, shared.closed)
    if parts:
        newest = parts[-1]
        last = newest.last if isinstance(newest, Rows) else newest[-1].last
        if closed >= last and (facts := newest[-1].facts) and facts.open:
            parts[-1] = newest[:-1]
            parts.append([replace(newest[-1], facts=facts._replace(open=False))])
    return Ordered(parts)


def _spliced(own: Iterable[Segment], shared: Rows | None) -> list[Rows | list[Segment]]:
    """Both in one order; what has no line that is not before it, is left out."""
    parts: list[Rows | list[Segment]] = []
    end = 0

    def take(some: Rows) -> None:
        nonlocal end
        some = some[some.up_to(end) :]
        if some:
            parts.append(some)
            end = some.last

    for one in own:
        before = shared.begun_before(one) if shared else 0
        if shared and before:
            take(shared[:before])
            shared = shared[before:]
        if one.last > end:
            if parts and isinstance(parts[-1], list):
                parts[-1].append(one)
            else:
                parts.append([one])
            end = one.last
    if shared:
        take(shared)
    return parts


def _place(one: Segment) -> tuple[int, int]:
    """By which those with facts are sorted; as `Shared.place`."""
    return one.facts.line if one.facts else 0, -one.last


def _closed(one: Segment) -> int:
    """The number of the line that it says was the last; -1: it says nothing of that."""
    return one.last if one.facts and not one.facts.lines and not one.facts.open else -1
