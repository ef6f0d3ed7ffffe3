"""Some lines at any place of a log, of one host or of all merged by time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tpujob.api import WindowLine
from tpujob.domain.text import rfc3339
from tpujob.service.logs.forward import merged
from tpujob.service.logs.hosts import HostLog, HostLogs
from tpujob.service.logs.lines import Line, text_of

ROOM = 48 * 1024  #: bytes of an answer that its lines take, as HTML or as JSON
LINES, MOST_LINES = 150, 1000
WIDTH, MOST_WIDTH = 2000, 64 * 1024  #: bytes of a line that are shown
OVERHEAD = 180  #: bytes that a line takes beside its text
#: bytes that a character takes beyond its own where HTML or JSON must escape it
_ESCAPED = {'"': 4, "'": 4, "<": 3, ">": 3, "&": 4, "\\": 1, "\t": 1}


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in the merged log: before it are so many lines of each host."""

    positions: Mapping[int, int]

    @property
    def before(self) -> int:
        return sum(self.positions.values())


def spot_of(hosts: HostLogs, host: int, position: int, *, behind: bool = False) -> Spot:
    """Before that line of a host, in the order of time, and at the same time by host; or just `behind` it."""
    log = hosts.get(host)
    if log and len(hosts) == 1:
        return Spot({host: min(position + behind, log.lines)})
    found = log.read(position, position + 1) if log else []
    if log is None or not found:
        return spot_after(hosts, host, position)
    at = found[0].at

    def place(other: HostLog) -> int:
        if other.host == host:
            return position + behind
        return other.until_time(at, with_it=other.host < host)

    return Spot(hosts.each(place))


def spot_after(hosts: HostLogs, host: int, position: int) -> Spot:
    """After the end of a host's log: after what every other one wrote up to then."""
    log = hosts.get(host)
    if log is None or not log.lines:
        return begin(hosts)
    last = spot_of(hosts, host, log.lines - 1).positions
    return Spot({each: position if each == host else place for each, place in last.items()})


def begin(hosts: HostLogs) -> Spot:
    return Spot(dict.fromkeys(hosts, 0))


def end(hosts: HostLogs) -> Spot:
    return Spot({host: log.lines for host, log in hosts.items()})


def spot_at(hosts: HostLogs, part: float) -> Spot:
    """About so much of the log, from 0 to 1, lies before it."""
    if part >= 1 or not hosts:
        return end(hosts)
    longest = max(hosts.values(), key=lambda log: log.lines)
    return spot_of(hosts, longest.host, int(max(0.0, part) * longest.lines))


def lines_after(hosts: HostLogs, spot: Spot, most: int) -> list[Line]:
    def read(log: HostLog) -> list[Line]:
        return log.read(spot.positions[log.host], spot.positions[log.host] + most)

    return merged([lines for lines in hosts.each(read).values() if lines])[:most]


def lines_before(hosts: HostLogs, spot: Spot, most: int) -> list[Line]:
    def read(log: HostLog) -> list[Line]:
        return log.read(spot.positions[log.host] - most, spot.positions[log.host])

    lines = merged([lines for lines in hosts.each(read).values() if lines])
    return lines[max(0, len(lines) - most) :]


def shown(line: Line, width: int) -> WindowLine:
    cut = max(0, len(line.raw) - width)
    text = text_of(line.raw[:width] if cut else line.raw)
    if cut:
        text = text.rstrip("\ufffd")  # the width may end within a character
    return WindowLine(
        host=line.host, line=line.number, at=rfc3339(line.at), text=text, cut=cut, marks=[]
    )


def fitting(lines: Iterable[WindowLine], room: int) -> list[WindowLine]:
    """The first of them, as many as there is room for."""
    found: list[WindowLine] = []
    for line in lines:
        room -= _cost(line["text"])
        if room < 0:
            break
        found.append(line)
    return found


def around(
    hosts: HostLogs, spot: Spot, side: str, most: int, width: int
) -> tuple[list[WindowLine], int]:
    """Lines beside a spot, and how many of them lie before it. One line is there whatever its size, if there is one."""
    room = ROOM
    back: list[WindowLine] = []
    ahead: list[WindowLine] = []
    if side != "before":
        first = [shown(line, width) for line in lines_after(hosts, spot, most)]
        share = room if side == "after" else room * 2 // 3
        keep = most if side == "after" else -(-most * 2 // 3)
        ahead = fitting(first[:keep], share) or first[:1]
        room -= sum(_cost(line["text"]) for line in ahead)
    if side != "after":
        last = [shown(line, width) for line in lines_before(hosts, spot, most)]
        keep = most if side == "before" else most - len(ahead)
        back = fitting(reversed(last[len(last) - min(keep, len(last)) :]), room)[::-1]
        if side == "before":
            back = back or last[-1:]
    return back + ahead, len(back)


def mark(
    lines: Sequence[WindowLine], spans: Callable[[list[str]], list[list[tuple[int, int]]]]
) -> None:
    """Say what of each line's text matches."""
    for line, found in zip(lines, spans([line["text"] for line in lines]), strict=True):
        line["marks"] = [(a, b) for a, b in found if b > a]


def _cost(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return OVERHEAD + size + sum(text.count(c) * more for c, more in _ESCAPED.items())
