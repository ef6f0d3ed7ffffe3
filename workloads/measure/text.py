"""Figures in words and columns, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.measure.samples import Interval


def seconds(value: float) -> str:
    """`7.36 ms`: three digits, in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1e-9)} ns"


def times(ratio: Interval) -> str:
    """`35x (33 to 38)`."""
    return f"{_three(ratio.median)}x ({_three(ratio.low)} to {_three(ratio.high)})"


def columns(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lines of equal columns: so many to the left, the rest to the right, and the last one as it is."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines: list[str] = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row[:-1], widths, strict=False))
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def _three(value: float) -> str:
    """Three digits that count, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"
