"""What the agent on a host sends of a running attempt to a reader who follows it: one JSON object a line.

`tails`: the hosts whose lines it sends, its own; an agent of before may also send those of others. `log`: lines that
are not in the bucket yet, in the format of a log segment.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, cast

LOG, TAILS = "log", "tails"
BEAT = 5.0  #: seconds, at most, between two messages
MOST = 256 * 1024  #: bytes of lines in a message, unless one line is longer
_MOST = 10**11  #: no log has more lines


class TailMessage(NamedTuple):
    """The lines of a host after `after`, as far as they are not in the bucket. Between `after` and `line` lies nothing:
    what was there is in the bucket, or was dropped."""

    host: int
    after: int  #: the number of a line
    line: int  #: the number of the first line
    lines: int  #: how many there are
    settled: int  #: each line up to this number is in the bucket, or was dropped
    data: bytes  #: each line with its time and its end


def written(tail: TailMessage) -> Dict[str, Any]:
    fields: Dict[str, Any] = tail._asdict()
    return {"kind": LOG, **fields, "data": tail.data.decode("utf-8", "surrogateescape")}


def read_tail(message: Mapping[str, Any]) -> Optional[TailMessage]:
    """Return the lines in a message, or None if it holds none or makes no sense."""
    text = message.get("data")
    if message.get("kind") != LOG or not isinstance(text, str):
        return None
    try:
        host, after, line, lines, settled = (
            _number(message.get(name)) for name in TailMessage._fields[:5]
        )
        data = text.encode("utf-8", "surrogateescape")
    except ValueError:
        return None
    tail = TailMessage(host, after, line, lines, settled, data)
    whole = data.count(b"\n") == tail.lines and (not data or data.endswith(b"\n"))
    return tail if whole and tail.line > tail.after else None


def speaks_for(message: Mapping[str, Any]) -> Optional[List[int]]:
    """Return the hosts whose lines come, or None if the message is about something else."""
    hosts = message.get("hosts")
    if message.get("kind") != TAILS or not isinstance(hosts, list):
        return None
    return [host for host in cast(List[Any], hosts) if type(host) is int]


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ValueError(value)
    return value
