"""Some lines at any place of a log, cut to the size of one answer."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from tpujob.api import WindowLine
from tpujob.domain.text import rfc3339
from tpujob.service.logs.lines import StampedLine, text_of
from tpujob.service.logs.reader import LogReader, Place

ROOM = 48 * 1024  #: bytes of an answer that its lines take, as HTML or as JSON
LINES, MAX_LINES = 150, 1000
WIDTH, MAX_WIDTH = 2000, 64 * 1024  #: bytes of a line that are shown
OVERHEAD = 180  #: bytes that a line takes beside its text
#: bytes that a character takes beyond its own where HTML or JSON must escape it
_ESCAPED = {'"': 4, "'": 4, "<": 3, ">": 3, "&": 4, "\\": 1, "\t": 1}


def around(
    reader: LogReader, place: Place, side: str, limit: int, width: int
) -> tuple[list[WindowLine], int]:
    """Return lines beside a place, and how many of them are before it. One line is there whatever its size, if there is
    one."""
    room = ROOM
    back: list[WindowLine] = []
    ahead: list[WindowLine] = []
    if side != "before":
        share = room if side == "after" else room * 2 // 3
        keep = limit if side == "after" else -(-limit * 2 // 3)
        first = [shown(line, width) for line in islice(reader.read(place, ROOM), keep)]
        ahead = fitting(first, share) or first[:1]
        room -= sum(_cost(line["text"]) for line in ahead)
    if side != "after":
        keep = limit - len(ahead)
        last = [
            shown(line, width) for line in islice(reader.read(place, ROOM, backward=True), keep)
        ]
        back = (fitting(last, room) or (last[:1] if side == "before" else []))[::-1]
    return back + ahead, len(back)


def shown(line: StampedLine, width: int) -> WindowLine:
    cut = max(0, len(line.raw) - width)
    text = text_of(line.raw[:width] if cut else line.raw)
    if cut:
        text = text.rstrip("\ufffd")  # the width may end within a character
    return WindowLine(
        host=line.host, line=line.number, at=rfc3339(line.at), text=text, cut=cut, marks=[]
    )


def fitting(lines: Iterable[WindowLine], room: int) -> list[WindowLine]:
    """Return the first of them, as many as there is room for."""
    selected: list[WindowLine] = []
    for line in lines:
        room -= _cost(line["text"])
        if room < 0:
            break
        selected.append(line)
    return selected


def mark(
    lines: Sequence[WindowLine], spans: Callable[[list[str]], list[list[tuple[int, int]]]]
) -> None:
    """Write into each line what of its text matches."""
    for line, marks in zip(lines, spans([line["text"] for line in lines]), strict=True):
        line["marks"] = [(a, b) for a, b in marks if b > a]


def _cost(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return OVERHEAD + size + sum(text.count(c) * extra for c, extra in _ESCAPED.items())
