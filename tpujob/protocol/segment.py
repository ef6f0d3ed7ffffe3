"""The metadata of log segments, from which a reader finds any line of a long log with list calls alone.

A segment is an object with lines of one host. Older agents may have written the lines of many hosts into one shared
object, one piece after the other, each in the format of a segment; shared objects are only read.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from operator import le
from typing import Dict, Mapping, NamedTuple, Optional, Sequence

LINE, LINES, AT, OPEN, PIECES = "line", "lines", "at", "open", "pieces"
_MOST = 10**11  #: above the number of lines of any log
_ROWS = re.compile(r"[0-9,;-]+")


class SegmentFacts(NamedTuple):
    """The metadata of one segment. Lines are numbered from 1 for each host and attempt. Dropped lines count, so numbers
    never change; the line that stands for dropped lines has the number of the first. A segment without lines may
    follow the last line of a log, to close it."""

    line: int  #: the number of the first line
    lines: int  #: the number of lines
    at: float  #: the time of the first line, in seconds since the epoch
    open: bool = False  #: more segments may follow; older agents never write this


class Columns(NamedTuple):
    """The pieces of a shared object, in their order, as columns. A long log has hundreds of thousands of pieces;
    columns are read in a fifth of the time that rows take."""

    host: Sequence[int]
    line: Sequence[int]
    lines: Sequence[int]
    at: Sequence[float]
    open: Sequence[int]  #: 0: closed
    offset: Sequence[int]  #: bytes of the object before the piece
    size: Sequence[int]


def to_metadata(facts: SegmentFacts) -> Dict[str, str]:
    metadata = {LINE: str(facts.line), LINES: str(facts.lines), AT: "%.3f" % facts.at}
    return dict(metadata, **{OPEN: "1"}) if facts.open else metadata


def read(metadata: Mapping[str, str]) -> Optional[SegmentFacts]:
    """Return the facts in the metadata, or None if they are missing or malformed."""
    try:
        line, lines, at = int(metadata[LINE]), int(metadata[LINES]), float(metadata[AT])
    except (KeyError, ValueError):
        return None
    if not (1 <= line <= _MOST and 0 <= lines <= _MOST and 0 <= at <= _MOST):
        return None
    return SegmentFacts(line, lines, at, metadata.get(OPEN) == "1")


def read_columns(metadata: Mapping[str, str], size: int) -> Optional[Columns]:
    """Return the pieces of a shared object of `size` bytes, or None if the metadata are malformed."""
    try:
        began, text = float(metadata[AT]), metadata[PIECES]
        if not _ROWS.fullmatch(text):
            return None
        rows = json.loads("[[%s]]" % text.replace(";", "],["))
        if set(map(len, rows)) != {6}:
            return None
        host, line, lines, sizes, delays, is_open = zip(*rows)  # noqa: B905, all have six
        at = [began + ms / 1000 for ms in delays]
    except (KeyError, ValueError, OverflowError):
        return None
    sensible = (
        min(host) >= 0
        and 1 <= min(line) <= max(line) <= _MOST
        and 0 <= min(lines) <= max(lines) <= _MOST
        and 0 <= min(at) <= max(at) <= _MOST
        and all(map(le, lines, sizes))
        and sum(sizes) <= size
    )
    offset = list(accumulate((0, *sizes[:-1])))
    return Columns(host, line, lines, at, is_open, offset, sizes) if sensible else None
