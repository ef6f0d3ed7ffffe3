"""Lines as they are stored, each with its time in front, and the cursor of a reader. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tpujob.domain.text import clean
from tpujob.errors import BadRequest
from tpujob.protocol.text import visible

#: at the beginning of each line: its time, if it has one
_STAMP = re.compile(rb"^(?:(\d{1,11}\.\d{3}) )?", re.MULTILINE)

_TRACEBACK = b"Traceback (most recent call last)"
#: before a traceback that tells of the same failure as the one before it
_CHAINED = re.compile(rb"During handling of the above|was the direct cause of the following")

_CURSOR = re.compile(r"(\d{1,9})((?:~\d{1,6}\.\d{1,13})*)")


class StampedLine(NamedTuple):
    host: int
    number: int  #: from 1, for each host and attempt; never changes
    at: float  #: never smaller than that of the line before it
    raw: bytes  #: what the program wrote, without the end of the line


def parse(host: int, data: bytes, number: int) -> list[StampedLine]:
    """Return the lines of `data`, which are whole; the first has that number. A line without a time, which no agent
    writes, gets the time of the line before it, and so does one with an earlier time: the lines of a host keep their
    order."""
    lines: list[StampedLine] = []
    at = 0.0
    for stored in data.split(b"\n")[:-1]:
        stamp = _STAMP.match(stored)
        if stamp and stamp[1]:
            at = max(at, float(stamp[1]))
        raw = stored[stamp.end() :] if stamp else stored
        lines.append(StampedLine(host, number + len(lines), at, raw))
    return lines


def time_of(stored: bytes) -> float:
    """Return the time of a stored line; 0: it has none."""
    match = _STAMP.match(stored)
    return float(match[1] or 0) if match else 0.0


def raw_of(stored: bytes) -> bytes:
    """Return a stored line, or several, without their times."""
    return _STAMP.sub(b"", stored)


def text_of(raw: bytes) -> str:
    """Return the text as people may see it: no escape sequences, nothing invisible."""
    return clean(raw.decode("utf-8", errors="replace").rstrip("\r\n"), tabs=True)


#: what `text_of` does to plain ASCII
_SPACES, _INVISIBLE = (
    bytes.maketrans(b"\r\x0b\x0c", b"   "),
    bytes([*range(9), *range(14, 32), 127]),
)


def shown(stored: bytes) -> bytes:
    """Return stored lines as people may see them, with their times: the form in which they are searched."""
    if stored.isascii() and b"\x1b" not in stored:
        return stored.translate(_SPACES, _INVISIBLE)
    return visible(stored.decode("utf-8", errors="replace")).encode()


def whole(data: bytes) -> bytes:
    """Return the data without an unfinished line at its end."""
    return data[: data.rfind(b"\n") + 1]


def tracebacks(data: bytes) -> list[int]:
    """Return the lines where one begins, from 0; several of one failure count once, and so do those of a group of
    exceptions."""
    numbers: list[int] = []
    line = done = 0
    at = data.find(_TRACEBACK)
    while at >= 0:
        begin = data.rfind(b"\n", 0, at) + 1
        line += data.count(b"\n", done, begin)
        done = begin
        before = b"\n".join(data[max(0, begin - 250) : begin].split(b"\n")[-3:])
        if b"|" not in data[begin:at] and not _CHAINED.search(before):
            numbers.append(line)
        end = data.find(b"\n", at)
        at = data.find(_TRACEBACK, end) if end >= 0 else -1
    return numbers


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a reader in an attempt's log."""

    attempt: int
    #: by host: the number of the last line that the reader has
    given: Mapping[int, int] = field(default_factory=dict[int, int])

    def __str__(self) -> str:
        return str(self.attempt) + "".join(f"~{h}.{line}" for h, line in sorted(self.given.items()))


def read_cursor(text: str) -> Cursor:
    """Raises BadRequest."""
    match = _CURSOR.fullmatch(text)
    if not match:
        raise BadRequest("invalid cursor of a log", hint="Begin without a cursor.")
    pairs = (part.split(".") for part in match[2].split("~")[1:])
    return Cursor(int(match[1]), {int(host): int(line) for host, line in pairs})
