"""A log from a cursor on, as it comes: in order of time as far as that is known, each line once."""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from tpujob.protocol import limits
from tpujob.service.logs.bucket.pieces import Pieces, Until
from tpujob.service.logs.bucket.stored import Segment
from tpujob.service.logs.cursor import BEGIN, Cursor, Place
from tpujob.service.logs.following.tail import after_lines
from tpujob.service.logs.hosts import HostLog
from tpujob.service.logs.lines import Line, parse, whole

LEAST_SHARE = 8 * 1024  #: bytes that are read of a host at least, however many hosts there are
LONGEST_LINE = limits.LONGEST_LINE + 64  #: bytes, with its time

STAMP = 14  #: bytes of a line's time, until the year 2286
_ALL_STAMPED = re.compile(rb"(?:\d{10}\.\d{3} [^\n]*+\n)*+")
MOST_AT_ONCE = 64  #: segments of a host that are read in one go

Segments = Mapping[int, Sequence[Segment]]
_Range = tuple[Segment, int, int]  #: and which of its bytes


class _Run(NamedTuple):
    """Whole lines of one segment that were read in one go."""

    segment: int
    offset: int
    data: bytes
    number: int  #: of its first line
    lines: int
    stored: bool = True

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    def place(self, lines: int, before: Place) -> Place:
        """After so many of its lines. `before`: the place before it."""
        if not self.stored:
            return before._replace(seen=self.number + lines - 1)
        size = len(self.data)
        if lines < self.lines:
            size = sum(map(len, self.data.split(b"\n", lines)[:lines])) + lines
        return Place(self.segment, self.offset + size, self.number + lines - 1)


class _Piece(NamedTuple):
    """What was read of one host in one go."""

    host: int
    runs: list[_Run]
    more: bool  #: there was more
    start: Place  #: before them

    @property
    def lines(self) -> list[Line]:
        found: list[Line] = []
        for run in self.runs:
            found += parse(self.host, run.data, run.number)
        return found

    def place(self, lines: int) -> Place:
        """After so many of its lines."""
        before = self.start
        for run in self.runs:
            if lines <= run.lines:
                return run.place(lines, before) if lines else before
            before, lines = run.place(run.lines, before), lines - run.lines
        return before

    @property
    def size(self) -> int:
        """How many lines."""
        return sum(run.lines for run in self.runs)


class _Asked:
    """What comes of one host after a place, while it is read."""

    def __init__(self, segments: Sequence[Segment], place: Place) -> None:
        self._begin = place
        self.place = place  #: after what was given before
        self._left = (s for s in segments if s.size > self._start(s))
        self.ahead = next(self._left, None)  #: the first one that is not asked for yet
        self.number = place.lines + 1  #: of the next line
        self._newest: Segment | None = None

    def next_ranges(self, share: int) -> list[_Range]:
        """About so many bytes of what is ahead."""
        ranges: list[_Range] = []
        while self.ahead and share > 0 and len(ranges) < MOST_AT_ONCE:
            self._newest = segment = self.ahead
            self.ahead = next(self._left, None)
            start = self._start(segment)
            ranges.append((segment, start, min(segment.size, start + share)))
            share -= segment.size - start
        return ranges

    def more(self, last: _Run) -> bool:
        """Whether there is more than was read."""
        newest = self._newest
        cut = newest is not None and last.segment == newest.number and last.end < newest.size
        return cut or self.ahead is not None

    def not_seen(self, run: _Run) -> list[_Run]:
        """What of the run was not given before it was stored."""
        given = max(self.place.seen, self._begin.lines)
        seen = min(run.lines, given + 1 - run.number)
        if seen <= 0:
            return [run]
        if run.stored:  # otherwise the place stays before it
            self.place = run.place(seen, self.place)._replace(seen=self.place.seen)
        data = after_lines(run.data, seen)
        start, left = run.end - len(data), run.lines - seen
        return [run._replace(offset=start, data=data, number=run.number + seen, lines=left)] * bool(
            left
        )

    @property
    def moved(self) -> bool:
        return self.place != self._begin

    def _start(self, segment: Segment) -> int:
        """Which of its bytes comes next."""
        return self._begin.offset if segment.number == self._begin.segment else 0


class Page(NamedTuple):
    lines: list[Line]
    cursor: Cursor  #: after them
    more: bool  #: more can be read at once


class Block(NamedTuple):
    """As a page, but one text: each line with its host, its time and what the program wrote."""

    data: bytes
    cursor: Cursor
    more: bool


class Forward:
    def __init__(self, pieces: Pieces, until: Until) -> None:
        self._pieces, self._until = pieces, until

    def page(self, segments: Segments, cursor: Cursor, size: int, most: int) -> Page:
        """What comes after the cursor: about `size` bytes, at most `most` lines."""
        return self._page(self._read(segments, cursor, size), cursor, size, most)

    def block(self, segments: Segments, cursor: Cursor, size: int) -> Block:
        """What comes after the cursor: about `size` bytes."""
        pieces = self._read(segments, cursor, size)
        if len(pieces) == 1:  # nothing to merge: the lines need not be told apart
            (piece,) = pieces
            data = b"".join(run.data for run in piece.runs)
            places = {**cursor.places, piece.host: piece.place(piece.size)}
            return Block(_with_host(piece.host, data), Cursor(cursor.attempt, places), piece.more)
        stamped = [_stamped(piece) for piece in pieces]
        if stamped and all(stamped):
            return _block(pieces, [each for each in stamped if each], cursor)
        page = self._page(pieces, cursor, size, size)
        told = [b"%d %.3f %b\n" % (line.host, line.at, line.raw) for line in page.lines]
        return Block(b"".join(told), page.cursor, page.more)

    def last(self, hosts: Mapping[int, HostLog], attempt: int, most: int, size: int) -> Page:
        """The last lines, and the cursor after the end."""
        share = max(LEAST_SHARE, size // max(1, len(hosts)))
        pieces = [self._backward(each, share, most) for each in hosts.values()]
        pieces = [piece for piece in pieces if piece.runs]
        places = {p.host: p.place(p.size) for p in pieces}
        lines = merged([piece.lines[-max(1, most) :] for piece in pieces])
        return Page(lines[max(0, len(lines) - most) :], Cursor(attempt, places), more=False)

    def _page(self, pieces: Sequence[_Piece], cursor: Cursor, size: int, most: int) -> Page:
        read = [piece.lines for piece in pieces]
        lines = merged(read)
        # a host with more to come may have lines as old as its last one: what is later must wait for them
        ends = (p_lines[-1].at for p_lines, p in zip(read, pieces, strict=True) if p.more)
        bound = min(ends, default=math.inf)
        taken = _within([line for line in lines if line.at <= bound], size, most)
        places = dict(cursor.places)
        counts = Counter(line.host for line in taken)
        for piece in pieces:
            places[piece.host] = piece.place(counts[piece.host])
        more = len(taken) < len(lines) or any(p.more for p in pieces)
        return Page(taken, Cursor(cursor.attempt, places), more)

    def _read(self, segments: Segments, cursor: Cursor, size: int) -> list[_Piece]:
        """Of each host that has something after the cursor; the storage is asked for all hosts at once."""
        share = max(LEAST_SHARE, size // max(1, len(segments)))
        asked = {h: _Asked(each, cursor.places.get(h, BEGIN)) for h, each in segments.items()}
        found: list[_Piece] = []
        while asked:
            ranges = {host: each.next_ranges(share) for host, each in asked.items()}
            data = self._pieces.read_all([r for each in ranges.values() for r in each], self._until)
            read = iter(data)
            for host, each in list(asked.items()):
                runs = self._runs(each, list(zip(ranges[host], read)))  # noqa: B905, each takes its own
                if runs or (each.moved and not each.ahead):
                    more = bool(runs) and each.more(runs[-1])
                    found.append(_Piece(host, runs, more, each.place))
                if (
                    runs or not each.ahead
                ):  # no agent writes segments without a line: the next ones are asked for
                    del asked[host]
        return found

    def _runs(self, asked: _Asked, read: Sequence[tuple[_Range, bytes]]) -> list[_Run]:
        runs: list[_Run] = []
        for (segment, start, end), got in read:
            data = whole(got) or self._longer(segment, start, end)
            if segment.facts and not start:
                asked.number = segment.facts.line
            if data:
                lines, stored = data.count(b"\n"), segment.data is None
                run = _Run(segment.number, start, data, asked.number, lines, stored)
                asked.number += lines
                runs += asked.not_seen(run)
        return runs

    def _longer(self, segment: Segment, start: int, end: int) -> bytes:
        """One line at least, if it has one: longer than was to be read."""
        for most in (start + LONGEST_LINE, segment.size):
            if end < segment.size and most > end:
                end = min(segment.size, most)
                data = whole(self._pieces.read(segment, start, end, self._until))
                if data:
                    return data
        return b""

    def _backward(self, log: HostLog, share: int, most: int) -> _Piece:
        """The last lines of one host; the last one at least, for its place."""
        runs: list[_Run] = []
        for at in range(len(log.segments) - 1, -1, -1):
            if share <= 0 or sum(run.lines for run in runs) >= max(1, most):
                break
            segment = log.segments[at]
            begin = max(0, segment.size - max(share, LONGEST_LINE))
            data = self._pieces.read(segment, begin, segment.size, self._until)
            cut = data.find(b"\n") + 1 if begin else 0  # the first line may be half of one
            data = whole(data[cut:])
            if data:
                lines = data.count(b"\n")
                number = log.last(at) + 1 - lines
                stored = segment.data is None
                runs.insert(0, _Run(segment.number, begin + cut, data, number, lines, stored))
            share -= len(data)
        start = BEGIN if not runs or runs[0].stored else log.stored_end
        return _Piece(log.host, runs, more=False, start=start)


def _stamped(piece: _Piece) -> tuple[list[bytes], list[bytes]] | None:
    """Its lines and their times, as they are stored; None: they do not all have one, or the times go back, as no agent
    writes them."""
    data = b"".join(run.data for run in piece.runs)
    if not _ALL_STAMPED.fullmatch(data):
        return None
    lines = data.split(b"\n")
    lines.pop()
    times = [line[:STAMP] for line in lines]
    return (lines, times) if times == sorted(times) else None


def _block(
    pieces: Sequence[_Piece], stamped: Sequence[tuple[list[bytes], list[bytes]]], cursor: Cursor
) -> Block:
    """As `Forward._page`, where stored times can be compared as they are, which takes a fifth of the time."""
    ends = (times[-1] for (_, times), p in zip(stamped, pieces, strict=True) if p.more)
    bound = min(ends, default=None)
    places, rows, keys = dict(cursor.places), list[bytes](), list[bytes]()
    more = any(piece.more for piece in pieces)
    for piece, (lines, times) in sorted(zip(pieces, stamped, strict=True), key=lambda p: p[0].host):
        taken = len(lines) if bound is None else bisect_right(times, bound)
        places[piece.host] = piece.place(taken)
        front = b"%d " % piece.host
        rows += [front + line for line in lines[:taken]]
        keys += times[:taken]
        more = more or taken < len(lines)
    order = sorted(range(len(rows)), key=keys.__getitem__)  # stable
    data = b"\n".join([rows[i] for i in order])
    return Block(data + b"\n" if rows else b"", Cursor(cursor.attempt, places), more)


def merged(hosts: Sequence[list[Line]]) -> list[Line]:
    """By time; at the same time by host; the lines of one host in their order."""
    if len(hosts) == 1:
        return hosts[0]
    lines = [line for each in sorted(hosts, key=lambda h: h[0].host if h else 0) for line in each]
    lines.sort(key=attrgetter("at"))  # stable
    return lines


def _within(lines: list[Line], size: int, most: int) -> list[Line]:
    """As many as there is room for, one at least."""
    for index, line in enumerate(lines[:most]):
        size -= len(line.raw)
        if index and size < 0:
            return lines[:index]
    return lines[:most]


def _with_host(host: int, data: bytes) -> bytes:
    if not data:
        return b""
    front = b"%d " % host
    return front + data[:-1].replace(b"\n", b"\n" + front) + b"\n"
