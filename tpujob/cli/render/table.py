"""A table without borders that fits a width: columns are cut in a given order, each to a given floor. Pure.

Written by hand because a table library costs more CPU time at 1,000 rows than the rest of the command.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tpujob.cli.render.text import clip, pad, paint, width

GAP = 1


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    floors: tuple[int, ...] = ()  #: widths to give way to, one in each round; empty: never cut
    right: bool = False
    cut: Callable[[str, int], str] = clip
    style: Callable[[str], str] = field(default=lambda _cell: "")  #: a key of `text.STYLES`


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], columns_wide: int, *, color: bool
) -> str:
    """The rows, in clean text, under their titles. One line each, without a line end after the last."""
    widths = _widths(columns, rows, columns_wide)
    titles = [
        pad(clip(column.title, room), room, right=column.right)
        for column, room in zip(columns, widths, strict=True)
    ]
    lines = [paint((" " * GAP).join(titles).rstrip(), "bold", color)]
    lines += [_line(columns, row, widths, color) for row in rows]
    return "\n".join(lines)


def space(columns: Sequence[Column], rows: Sequence[Sequence[str]], columns_wide: int) -> int:
    """How wide one more column could be if none of these were cut."""
    return columns_wide - sum(_natural(columns, rows)) - GAP * len(columns)


def _line(
    columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], color: bool
) -> str:
    out: list[str] = []
    for column, cell, room in zip(columns, cells, widths, strict=True):
        if len(cell) <= room and cell.isascii():  # nearly always
            shown = cell.rjust(room) if column.right else cell.ljust(room)
        else:
            shown = pad(column.cut(cell, room), room, right=column.right)
        out.append(paint(shown, column.style(cell), color) if color else shown)
    return (" " * GAP).join(out).rstrip()


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int) -> list[int]:
    widths = _natural(columns, rows)
    over = sum(widths) + GAP * (len(columns) - 1) - available
    for turn in range(max((len(c.floors) for c in columns), default=0)):
        for i, column in enumerate(columns):
            if over <= 0:
                return widths
            if turn < len(column.floors):
                given = min(over, max(0, widths[i] - column.floors[turn]))
                widths[i] -= given
                over -= given
    return widths


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(width(column.title), *(width(row[i]) for row in rows), 0)
        for i, column in enumerate(columns)
    ]
