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
    floors: tuple[int, ...] = ()  #: least width in each round of cutting; empty: never cut
    right: bool = False
    cut: Callable[[str, int], str] = clip
    style: Callable[[str], str] = field(default=lambda _cell: "")  #: a key of `text.STYLES`


def numbers(*titles: str) -> list[Column]:
    """Return a right-aligned column for each title."""
    return [Column(title, right=True) for title in titles]


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int, *, color: bool
) -> str:
    """Return the titles and the rows, a line each, in at most `available` columns of the terminal. Cells are clean."""
    widths = _widths(columns, rows, available)
    titles = [
        pad(clip(column.title, room), room, right=column.right)
        for column, room in zip(columns, widths, strict=True)
    ]
    lines = [paint((" " * GAP).join(titles).rstrip(), "bold", color)]
    lines += [_line(columns, row, widths, color) for row in rows]
    return "\n".join(lines)


def space(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int) -> int:
    """Return the width that is left for one more column if none of these is cut; may be negative."""
    return available - sum(_natural_widths(columns, rows)) - GAP * len(columns)


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
    widths = _natural_widths(columns, rows)
    excess = sum(widths) + GAP * (len(columns) - 1) - available
    for round_ in range(max((len(column.floors) for column in columns), default=0)):
        for i, column in enumerate(columns):
            if excess <= 0:
                return widths
            if round_ < len(column.floors):
                cut = min(excess, max(0, widths[i] - column.floors[round_]))
                widths[i] -= cut
                excess -= cut
    return widths


def _natural_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(width(column.title), *(width(row[i]) for row in rows), 0)
        for i, column in enumerate(columns)
    ]
