"""What the metadata of stored lines of a log say of them: a reader finds any line of a long log by a list alone.

A segment is an object of one host. Agents of before may have written the lines of many hosts into one object, one piece
after the other, each as a segment would be; such objects are only read.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from operator import le
from typing import Dict, Mapping, NamedTuple, Optional, Sequence

LINE, LINES, AT, OPEN, PIECES = "line", "lines", "at", "open", "pieces"
_MOST = 10**11  #: no log has more lines; what says so is not ours
_ROWS = re.compile(r"[0-9,;-]+")


class SegmentFacts(NamedTuple):
    """Numbers of lines count from 1 for each host and attempt, those that were dropped included: a line keeps its
    number for ever. The line that stands for dropped ones has the number of the first of them. After the last line of a
    log, a piece of no lines may say that it was the last."""

    line: int  #: of its first line
    lines: int  #: that it holds
    at: float  #: when the first was written; seconds since the epoch
    #: more may come; older agents never write this
    open: bool = False


class Columns(NamedTuple):
    """The pieces of an object of many, one or more: the value of each, in their order. As columns they are read in a
    fifth of the time: a long log has hundreds of thousands."""

    host: Sequence[int]
    line: Sequence[int]
    lines: Sequence[int]
    at: Sequence[float]
    open: Sequence[int]  #: not 0: it is
    offset: Sequence[int]  #: bytes of the object before it
    size: Sequence[int]


def written(facts: SegmentFacts) -> Dict[str, str]:
    metadata = {LINE: str(facts.line), LINES: str(facts.lines), AT: "%.3f" % facts.at}
    return dict(metadata, **{OPEN: "1"}) if facts.open else metadata


def read(metadata: Mapping[str, str]) -> Optional[SegmentFacts]:
    """Return the facts in the metadata, or None if an older agent wrote none or they make no sense."""
    try:
        line, lines, at = int(metadata[LINE]), int(metadata[LINES]), float(metadata[AT])
    except (KeyError, ValueError):
        return None
    if not (1 <= line <= _MOST and 0 <= lines <= _MOST and 0 <= at <= _MOST):
        return None
    return SegmentFacts(line, lines, at, metadata.get(OPEN) == "1")


def read_columns(metadata: Mapping[str, str], size: int) -> Optional[Columns]:
    """Of an object of many that has that size; None: it makes no sense."""
    try:
        began, text = float(metadata[AT]), metadata[PIECES]
        if not _ROWS.fullmatch(text):
            return None
        rows = json.loads("[[%s]]" % text.replace(";", "],["))
        if set(map(len, rows)) != {6}:
            return None
        host, line, lines, held, after, more = zip(*rows)  # noqa: B905, all have six
        at = [began + ms / 1000 for ms in after]
    except (KeyError, ValueError, OverflowError):
        return None
    sensible = (
        min(host) >= 0
        and 1 <= min(line) <= max(line) <= _MOST
        and 0 <= min(lines) <= max(lines) <= _MOST
        and 0 <= min(at) <= max(at) <= _MOST
        and all(map(le, lines, held))
        and sum(held) <= size
    )
    offset = list(accumulate((0, *held[:-1])))
    return Columns(host, line, lines, at, more, offset, held) if sensible else None
