"""`tpujob show --plot`: the curves of a job in a terminal, a line of blocks for each attempt. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.render.text import paint
from tpujob.domain.text import clean, many, number

if TYPE_CHECKING:
    from tpujob.api import ChartView, CurveView, MetricsView

LEVELS = "▁▂▃▄▅▆▇█"
MAX_WIDTH = 100  #: columns of a curve


def plot_page(metrics: MetricsView, columns: int, *, color: bool = False) -> str:
    """Return a chart for each metric. Its attempts share one scale, so that they can be compared; steps that were lost
    are dim."""
    if not metrics["charts"]:
        return clean(metrics["why"]) or "No curves."
    width = max(20, min(MAX_WIDTH, columns - 12))
    out = ["\n".join(_chart(chart, width, color)) for chart in metrics["charts"]]
    if metrics["left_out"]:
        out.append(f"{many(metrics['left_out'], 'earlier attempt')} not shown.")
    if metrics["why"]:
        out.append(clean(metrics["why"]))
    return "\n\n".join(out)


def _chart(chart: ChartView, width: int, color: bool) -> list[str]:
    points = [point for curve in chart["curves"] for point in curve["points"]]
    values = [value for *_, low, high, _ in points for value in (low, high) if math.isfinite(value)]
    if not values:
        return [clean(chart["title"]), "  no finite value"]
    last = points[-1]
    low, high = min(values), max(values)
    summary = f"{number(low)} to {number(high)}, {number(last[4])} at step {last[0]:,}"
    scale = (max(point[0] for point in points), low, high)
    return [f"{paint(clean(chart['title']), 'bold', color)}  {summary}"] + [
        f"  {curve['attempt']:>3}  {_line(curve, width, scale, color)}" for curve in chart["curves"]
    ]


def _line(curve: CurveView, width: int, scale: tuple[float, float, float], color: bool) -> str:
    """Return a curve: a column shows the last value of its range of steps; columns of lost steps are dim."""
    newest, low, high = scale
    cells: list[tuple[str, bool]] = [(" ", False)] * width
    for step, _, _, _, value in curve["points"]:
        column = min(width - 1, int(width * step / max(1.0, newest)))
        lost = curve["kept"] is not None and step > curve["kept"]
        cells[column] = (_block(value, low, high), lost)
    return "".join(_fill_gaps(cells, color)).rstrip()


def _fill_gaps(cells: Sequence[tuple[str, bool]], color: bool) -> list[str]:
    """Return the painted cells; an empty cell between two others repeats the cell before it."""
    used = [column for column, (block, _) in enumerate(cells) if block != " "]
    painted: list[str] = []
    shown = cells[0]
    for column, cell in enumerate(cells):
        is_gap = cell[0] == " " and bool(used) and used[0] <= column <= used[-1]
        shown = shown if is_gap else cell
        painted.append(paint(shown[0], "dim" if shown[1] else "", color))
    return painted


def _block(value: float, low: float, high: float) -> str:
    """Return the block of a value; `!` for a value that is not finite."""
    if not math.isfinite(value):
        return "!"
    height = (value - low) / (high - low) if high > low else 0.0
    return LEVELS[min(len(LEVELS) - 1, int(height * len(LEVELS)))]
