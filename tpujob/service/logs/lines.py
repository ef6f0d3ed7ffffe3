"""Lines as they are stored: each with its time in front. Pure."""

import re
from itertools import accumulate
from typing import NamedTuple

from tpujob.domain.text import clean

#: at the beginning of each line: its time, if it has one
_STAMP = re.compile(rb"^(?:(\d{1,11}\.\d{3}) )?", re.MULTILINE)


class Line(NamedTuple):
    host: int
    number: int  #: from 1, for each host and attempt; never changes
    at: float  #: never smaller than that of the line before it
    raw: bytes  #: what the program wrote, without the end of the line


def parse(host: int, data: bytes, number: int) -> list[Line]:
    """The lines of `data`, which are whole, the first with that number. A line without a time, which no agent writes,
    is as old as the one before, and so is one of before it: the lines of a host keep their order."""
    lines = data.split(b"\n")
    lines.pop()
    stamps = _STAMP.findall(data)
    times = accumulate((float(stamp or 0) for stamp in stamps), max)
    return [
        Line(host, number + i, at, line[len(stamp) + 1 :] if stamp else line)
        for i, (line, stamp, at) in enumerate(zip(lines, stamps, times, strict=False))
    ]


def time_of(stored: bytes) -> float:
    """Of a stored line; 0: it has none."""
    found = _STAMP.match(stored)
    return float(found[1] or 0) if found else 0.0


def raw_of(stored: bytes) -> bytes:
    """A stored line, or several, without their times."""
    return _STAMP.sub(b"", stored)


def text_of(raw: bytes) -> str:
    """As people may see it: no escape sequences, nothing invisible."""
    return clean(raw.decode("utf-8", errors="replace").rstrip("\r\n"), tabs=True)


def whole(data: bytes) -> bytes:
    """Without the unfinished line at its end."""
    return data[: data.rfind(b"\n") + 1]
