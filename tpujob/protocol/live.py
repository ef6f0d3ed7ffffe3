"""The messages from a host's agent to a reader who follows a running attempt: one JSON object a line.

`tails` names the hosts whose lines the agent sends: its own host.
`log` has lines that are not in the bucket yet, in the format of a log segment.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, cast

LOG, TAILS = "log", "tails"
BEAT = 5.0  #: most seconds between two messages
MAX_MESSAGE = 256 * 1024  #: most bytes of lines in a message, unless a single line is longer
_MAX_LINES = 10**11  #: above the number of lines of any log


class TailMessage(NamedTuple):
    """The lines of a host after `after` that are not in the bucket. Lines before `line` are there, or were dropped."""

    host: int
    after: int  #: the number of the last line that the reader has
    line: int  #: the number of the first line in `data`
    lines: int  #: the number of lines in `data`
    settled: int  #: each line up to this number is in the bucket, or was dropped
    data: bytes  #: each line with its time and its newline


def to_message(tail: TailMessage) -> Dict[str, Any]:
    fields: Dict[str, Any] = tail._asdict()
    return {"kind": LOG, **fields, "data": tail.data.decode("utf-8", "surrogateescape")}


def read_tail(message: Mapping[str, Any]) -> Optional[TailMessage]:
    """Return the lines in a message, or None if the message has none or is malformed."""
    text = message.get("data")
    if message.get("kind") != LOG or not isinstance(text, str):
        return None
    try:
        host, after, line, lines, settled = (
            _parse_count(message.get(name)) for name in TailMessage._fields[:5]
        )
        data = text.encode("utf-8", "surrogateescape")
    except ValueError:
        return None
    tail = TailMessage(host, after, line, lines, settled, data)
    has_all_lines = data.count(b"\n") == tail.lines and (not data or data.endswith(b"\n"))
    return tail if has_all_lines and tail.line > tail.after else None


def read_hosts(message: Mapping[str, Any]) -> Optional[List[int]]:
    """Return the hosts whose lines the agent sends, or None if the message is of another kind."""
    hosts = message.get("hosts")
    if message.get("kind") != TAILS or not isinstance(hosts, list):
        return None
    return [host for host in cast(List[Any], hosts) if type(host) is int]


def _parse_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_LINES:
        raise ValueError(value)
    return value
