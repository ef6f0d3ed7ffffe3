"""What the metadata of stored lines of a log say of them: a reader finds any line of a long log by a list alone.

A segment is an object of one host. What many hosts print little of lies in one object that one of them writes for all,
one piece after the other, each as a segment would be.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

LINE, LINES, AT, OPEN, PIECES = "line", "lines", "at", "open", "pieces"
_MOST = 10**11  #: no log has more lines; what says so is not ours


class SegmentFacts(NamedTuple):
    """Numbers of lines count from 1 for each host and attempt, those that were dropped included: a line keeps its
    number for ever. The line that stands for dropped ones has the number of the first of them. After the last line of a
    log, a piece of no lines may say that it was the last."""

    line: int  #: of its first line
    lines: int  #: that it holds
    at: float  #: when the first was written; seconds since the epoch
    open: bool = False  #: more may come; agents that never say so wrote before it was said


class Piece(NamedTuple):
    """Of one host, in an object of many."""

    host: int
    facts: SegmentFacts
    offset: int  #: bytes of the object before it
    size: int


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


def read_shared(metadata: Mapping[str, str], size: int) -> List[Piece]:
    """Of an object of that size; none, if it makes no sense."""
    found: List[Piece] = []
    offset = 0
    try:
        began = float(metadata[AT])
        for row in metadata[PIECES].split(";"):
            host, line, lines, held, after, more = map(int, row.split(","))
            facts = _sensible(SegmentFacts(line, lines, began + after / 1000, bool(more)))
            if facts is None or host < 0 or not lines <= held <= size - offset:
                return []
            found.append(Piece(host, facts, offset, held))
            offset += held
    except (KeyError, ValueError):
        return []
    return found


def told(said: Mapping[str, Any]) -> Optional[SegmentFacts]:
    """As JSON has it, from another host; None: it makes no sense."""
    line, lines, at, more = (said.get(name) for name in SegmentFacts._fields)
    if type(line) is not int or type(lines) is not int or not isinstance(at, (int, float)):
        return None
    return _sensible(SegmentFacts(line, lines, float(at), more is True))


def _sensible(facts: SegmentFacts) -> Optional[SegmentFacts]:
    known = 1 <= facts.line <= _MOST and 0 <= facts.lines <= _MOST and 0 <= facts.at <= _MOST
    return facts if known else None
