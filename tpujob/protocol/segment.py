"""The metadata of log segments, from which a reader finds any line of a long log with list calls alone.

A segment is an object with lines of one host.
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional

LINE, LINES, AT, OPEN = "line", "lines", "at", "open"
_MAX_LINES = 10**11  #: above the number of lines of any log


class SegmentFacts(NamedTuple):
    """The metadata of one segment. Lines are numbered from 1 for each host and attempt. Dropped lines count, so numbers
    never change; the line that stands for dropped lines has the number of the first. A segment without lines may
    follow the last line of a log, to close it."""

    line: int  #: the number of the first line
    lines: int  #: the number of lines
    at: float  #: the time of the first line, in seconds since the epoch
    open: bool = False  #: more segments may follow


def to_metadata(facts: SegmentFacts) -> Dict[str, str]:
    metadata = {LINE: str(facts.line), LINES: str(facts.lines), AT: "%.3f" % facts.at}
    return dict(metadata, **{OPEN: "1"}) if facts.open else metadata


def read(metadata: Mapping[str, str]) -> Optional[SegmentFacts]:
    """Return the facts in the metadata, or None if they are missing or malformed."""
    try:
        line, lines, at = int(metadata[LINE]), int(metadata[LINES]), float(metadata[AT])
    except (KeyError, ValueError):
        return None
    if not (1 <= line <= _MAX_LINES and 0 <= lines <= _MAX_LINES and 0 <= at <= _MAX_LINES):
        return None
    return SegmentFacts(line, lines, at, metadata.get(OPEN) == "1")
