"""One log out of many: the segments that the agents ship, merged by time, a page at a time.

Segments are numbered from 1 for each host and attempt. The newest one may still grow at its end; older ones never
change, but the oldest of a very long log may be gone. Only the cursor remembers what a page has given.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpujob.api import LogLine, LogPage
from tpujob.domain.hardware import accelerators
from tpujob.domain.model import Job
from tpujob.domain.text import clean, many, rfc3339
from tpujob.errors import BadRequest, NotFound, Transient
from tpujob.ports import Blob, Blobs
from tpujob.protocol import limits, paths

PAGE_BYTES = 1024 * 1024
PAGE_LINES = 5000
LEAST_SHARE = 8 * 1024  #: bytes that are read of a host at least, however many hosts there are
LONGEST_LINE = limits.LONGEST_LINE + 64  #: bytes, with its time
#: up to this many hosts are listed one by one from where the cursor stands; more are listed together, from the start
FEW_HOSTS = 16

_CURSOR = re.compile(r"(\d{1,9})((?:~\d{1,6}\.\d{1,9}\.\d{1,12})*)")

#: segment number and the bytes of it that were given
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cursor:
    attempt: int
    places: Mapping[int, Place] = field(default_factory=dict[int, Place])  #: by host


@dataclass(frozen=True, slots=True)
class _Line:
    at: float
    host: int
    raw: bytes
    after: Place  #: where the next one begins


@dataclass(frozen=True, slots=True)
class _Piece:
    """What was read of one host in one go."""

    lines: Sequence[_Line]
    more: bool  #: there was more


def read(
    blobs: Blobs,
    job: Job,
    *,
    host: int | None,
    attempt: int | None,
    cursor: str,
    tail: int | None,
    timeout: float,
) -> LogPage:
    """The next page after `cursor`. An empty cursor begins with the newest attempt, or its last `tail` lines; without
    `attempt`, the following pages go on to later attempts. Raises BadRequest, NotFound, Transient."""
    if tail is not None and tail < 0:
        raise BadRequest(f"tail must not be negative, but is {tail}")
    newest = len(job.attempts)
    start = _start(job, attempt, cursor)
    _check_host(job, host)
    if start.attempt == 0:
        return LogPage(lines=[], cursor="", done=job.state.final)
    reader = _LogReader(blobs, job, host, time.monotonic() + timeout)
    if tail is not None and not cursor:
        lines, place = reader.last(start, min(tail, PAGE_LINES))
        more = False
    else:
        lines, place, more = reader.next(start)
        while not lines and not more and attempt is None and place.attempt < newest:
            lines, place, more = reader.next(Cursor(place.attempt + 1))
    last = place.attempt == newest
    done = not more and (job.state.final if last else attempt is not None)
    shown = [LogLine(host=line.host, at=rfc3339(line.at), text=_text(line.raw)) for line in lines]
    return LogPage(lines=shown, cursor=_written(place), done=done)


def _text(raw: bytes) -> str:
    return clean(raw.decode("utf-8", errors="replace").rstrip("\r\n"), tabs=True)


# The cursor ----------------------------------------------------------------------------------------------------------


def _start(job: Job, attempt: int | None, cursor: str) -> Cursor:
    newest = len(job.attempts)
    if attempt is not None and not 1 <= attempt <= newest:
        raise NotFound(f"job {job.id} has {many(newest, 'attempt')}, no attempt {attempt}")
    if not cursor:
        return Cursor(attempt or newest)
    given = _read_cursor(cursor)
    if not 1 <= given.attempt <= newest:
        raise BadRequest("this cursor belongs to another job", hint="Begin without a cursor.")
    return given if attempt in (None, given.attempt) else Cursor(attempt or newest)


def _check_host(job: Job, host: int | None) -> None:
    """Raise NotFound for a host that no slice of the job ever had: its log would just look empty."""
    most = max((len(s.endpoints) for s in job.slices), default=0)
    if host is not None and most and not 0 <= host < most:
        raise NotFound(f"job {job.id} has {hosts_up_to(most)}, no host {host}")


def hosts_up_to(count: int) -> str:
    return "host 0" if count == 1 else f"hosts 0 to {count - 1}"


def _read_cursor(text: str) -> Cursor:
    match = _CURSOR.fullmatch(text)
    if not match:
        raise BadRequest("this is not a cursor of a log", hint="Begin without a cursor.")
    numbers = (tuple(map(int, part.split("."))) for part in match[2].split("~")[1:])
    return Cursor(int(match[1]), {host: (segment, offset) for host, segment, offset in numbers})


def _written(cursor: Cursor) -> str:
    places = (f"~{host}.{s}.{offset}" for host, (s, offset) in sorted(cursor.places.items()))
    return f"{cursor.attempt}{''.join(places)}"


# Reading -------------------------------------------------------------------------------------------------------------


class _LogReader:
    """One call's reads, all of them done by its deadline."""

    def __init__(self, blobs: Blobs, job: Job, host: int | None, deadline: float) -> None:
        self._blobs, self._job, self._host, self._deadline = blobs, job, host, deadline

    def next(self, cursor: Cursor) -> tuple[list[_Line], Cursor, bool]:
        """Lines after the cursor in order of time, the new cursor, and whether more can be read at once."""
        segments = self._segments(cursor)
        share = max(LEAST_SHARE, PAGE_BYTES // max(1, len(segments)))
        pieces = {
            h: self._forward(s, cursor.places.get(h, (0, 0)), share) for h, s in segments.items()
        }
        merged = _merged(pieces.values())
        # a host with more to come may have lines as old as its last one: what is later must wait for them
        unread = {h for h, p in pieces.items() if p.more}
        bounds = {line.host: at for at, line in merged if line.host in unread}
        bound = min(bounds.values(), default=math.inf)
        lines = _page([line for at, line in merged if at <= bound])
        places = dict(cursor.places)
        for line in lines:
            places[line.host] = line.after
        more = len(lines) < len(merged) or any(p.more for p in pieces.values())
        return lines, Cursor(cursor.attempt, places), more

    def last(self, cursor: Cursor, count: int) -> tuple[list[_Line], Cursor]:
        """The last lines, and the cursor after them."""
        segments = self._segments(cursor)
        share = max(LEAST_SHARE, PAGE_BYTES // max(1, len(segments)))
        found = {
            h: _Piece(self._backward(s, share, count), more=False) for h, s in segments.items()
        }
        places = {h: p.lines[-1].after for h, p in found.items() if p.lines}
        lines = [line for _, line in _merged(found.values())]
        return lines[max(0, len(lines) - count) :], Cursor(cursor.attempt, places)

    def _segments(self, cursor: Cursor) -> dict[int, list[tuple[int, Blob]]]:
        """The segments from the cursor on, by host, in order."""
        number = cursor.attempt
        workdir = self._job.workdir_of(number)
        hosts = [self._host] if self._host is not None else range(self._count(number))
        found: list[Blob] = []
        if len(hosts) <= FEW_HOSTS:
            for host in hosts:
                prefix = paths.log_prefix(workdir, number, host)
                segment = cursor.places.get(host, (0, 0))[0]
                after = paths.log_path(workdir, number, host, segment - 1) if segment else ""
                found += self._blobs.list(prefix, after=after, timeout=self._left())
        else:
            prefix = paths.hosts_prefix(workdir, number)
            found = self._blobs.list(prefix, timeout=self._left())
        by_host: dict[int, list[tuple[int, Blob]]] = {}
        for blob in found:
            _, host, segment = paths.read_log_path(workdir, blob.path) or (0, 0, -1)
            if segment >= cursor.places.get(host, (0, 0))[0]:
                by_host.setdefault(host, []).append((segment, blob))
        return {host: sorted(segments, key=lambda s: s[0]) for host, segments in by_host.items()}

    def _count(self, attempt: int) -> int:
        """How many hosts the attempt's slice has."""
        name = self._job.attempts[attempt - 1].slice
        found = [s for s in self._job.slices if s.name == name]
        return accelerators.find(found[0].type).hosts * found[0].tpu_slices if found else FEW_HOSTS

    def _forward(self, segments: Iterable[tuple[int, Blob]], place: Place, share: int) -> _Piece:
        lines: list[_Line] = []
        for number, blob in segments:
            offset = place[1] if number == place[0] else 0
            while offset < blob.size:
                if share <= 0:
                    return _Piece(lines, more=True)
                data = self._get(blob, offset, share)
                if not data:
                    break
                lines += _lines(_host_of(blob), data, number, offset)
                offset += len(data)
                share -= len(data)
        return _Piece(lines, more=False)

    def _backward(
        self, segments: Sequence[tuple[int, Blob]], share: int, count: int
    ) -> list[_Line]:
        """The last `count` lines of one host; the last one at least, for its place."""
        lines: list[_Line] = []
        for number, blob in reversed(segments):
            if share <= 0 or len(lines) >= max(1, count):
                break
            begin = max(0, blob.size - max(share, LONGEST_LINE))
            data = self._fetch(blob, begin, blob.size)
            cut = data.find(b"\n") + 1 if begin else 0  # the first line may be half of one
            lines[:0] = _lines(_host_of(blob), data[cut:], number, begin + cut)
            share -= len(data)
        return lines[-max(1, count) :]

    def _get(self, blob: Blob, start: int, size: int) -> bytes:
        """About `size` bytes in whole lines, at least one line; empty: there is none."""
        for wanted in (size, max(size, LONGEST_LINE)):
            data = self._fetch(blob, start, min(blob.size, start + wanted))
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                return whole
        return b""

    def _fetch(self, blob: Blob, start: int, end: int) -> bytes:
        """Empty when the segment is gone since it was listed, as the oldest of a very long log may be."""
        try:
            return self._blobs.get(blob.path, start=start, end=end, timeout=self._left())
        except NotFound:
            return b""

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise Transient(
                "reading the log takes too long", hint="Try again, or ask for one host."
            )
        return left


def _lines(host: int, data: bytes, segment: int, offset: int) -> list[_Line]:
    """Each with its time; a line without one, which no agent writes, is as old as the one before."""
    found: list[_Line] = []
    at = 0.0
    for raw in data.split(b"\n")[:-1]:
        offset += len(raw) + 1
        stamp, _, text = raw.partition(b" ")
        time_given = _seconds(stamp)
        at = at if time_given is None else time_given
        found.append(_Line(at, host, raw if time_given is None else text, (segment, offset)))
    return found


def _page(lines: Sequence[_Line]) -> list[_Line]:
    """As many as one page takes, one at least."""
    size = 0
    for index, line in enumerate(lines[:PAGE_LINES]):
        size += len(line.raw)
        if index and size > PAGE_BYTES:
            return list(lines[:index])
    return list(lines[:PAGE_LINES])


def _merged(pieces: Iterable[_Piece]) -> list[tuple[float, _Line]]:
    """By time; the lines of one host keep their order, even if its clock was set back."""
    keyed: list[tuple[float, int, int, _Line]] = []
    for piece in pieces:
        latest = 0.0
        for index, line in enumerate(piece.lines):
            latest = max(latest, line.at)
            keyed.append((latest, line.host, index, line))
    keyed.sort(key=lambda k: k[:3])
    return [(at, line) for at, _, _, line in keyed]


def _seconds(stamp: bytes) -> float | None:
    return float(stamp) if re.fullmatch(rb"\d{1,11}\.\d{3}", stamp) else None


def _host_of(blob: Blob) -> int:
    return int(blob.path.rpartition("/host-")[2].partition("/")[0])
