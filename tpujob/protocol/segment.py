"""What the metadata of stored lines of a log say of them: a reader finds any line of a long log by a list alone.

A segment is an object of one host. What many hosts print little of lies in one object that one of them writes for all,
one piece after the other, each as a segment would be.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from operator import le
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

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
    open: bool = False  #: more may come; agents that never say so wrote before it was said


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
    said = {LINE: str(facts.line), LINES: str(facts.lines), AT: "%.3f" % facts.at}
    return dict(said, **{OPEN: "1"}) if facts.open else said


def read(metadata: Mapping[str, str]) -> Optional[SegmentFacts]:
    """None: nothing is said, as by an older agent, or it makes no sense."""
    try:
        line, lines, at = int(metadata[LINE]), int(metadata[LINES]), float(metadata[AT])
    except (KeyError, ValueError):
        return None
    return _sensible(SegmentFacts(line, lines, at, metadata.get(OPEN) == "1"))


def shared(pieces: Sequence[Tuple[int, SegmentFacts, int]]) -> Dict[str, str]:
    """Of an object that holds these, in that order: host, facts, size in bytes."""
    began = min((facts.at for _, facts, _ in pieces), default=0.0)
    rows = [
        "%d,%d,%d,%d,%d,%d" % (host, f.line, f.lines, size, round((f.at - began) * 1000), f.open)
        for host, f, size in pieces
    ]
    return {AT: "%.3f" % began, PIECES: ";".join(rows)}


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


def told(said: Mapping[str, Any]) -> Optional[SegmentFacts]:
    """As JSON has it, from another host; None: it makes no sense."""
    line, lines, at, more = (said.get(name) for name in SegmentFacts._fields)
    if type(line) is not int or type(lines) is not int or not isinstance(at, (int, float)):
        return None
    if not 0 <= at <= _MOST:  # a whole number of JSON may be beyond all floating-point ones
        return None
    return _sensible(SegmentFacts(line, lines, float(at), more is True))


def _sensible(facts: SegmentFacts) -> Optional[SegmentFacts]:
    known = 1 <= facts.line <= _MOST and 0 <= facts.lines <= _MOST and 0 <= facts.at <= _MOST
    return facts if known else None
