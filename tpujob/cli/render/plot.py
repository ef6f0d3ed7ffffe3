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
MOST = 100  #: columns of a curve


def plot_page(found: MetricsView, columns: int, *, color: bool = False) -> str:
    """The attempts of a chart share one scale of steps and of values, so that they can be compared; steps that were
    lost are dim."""
    if not found["charts"]:
        return clean(found["why"]) or "No curves."
    width = max(20, min(MOST, columns - 12))
    out = ["\n".join(_chart(chart, width, color)) for chart in found["charts"]]
    if found["left_out"]:
        out.append(f"{many(found['left_out'], 'earlier attempt')} not shown.")
    if found["why"]:
        out.append(clean(found["why"]))
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
    """One column for each `width`-th of all steps: the last value in it. Columns of steps that were lost are dim."""
    newest, low, high = scale
    cells: list[tuple[str, bool]] = [(" ", False)] * width
    for step, _, _, _, value in curve["points"]:
        at = min(width - 1, int(width * step / max(1.0, newest)))
        lost = curve["kept"] is not None and step > curve["kept"]
        cells[at] = (_block(value, low, high), lost)
    return "".join(_filled(cells, color)).rstrip()


def _filled(cells: Sequence[tuple[str, bool]], color: bool) -> list[str]:
    """Where no point fell into a column between two others, the one before it is repeated."""
    used = [at for at, (cell, _) in enumerate(cells) if cell != " "]
    found: list[str] = []
    before = cells[0]
    for at, cell in enumerate(cells):
        inside = bool(used) and used[0] <= at <= used[-1]
        before = cell if cell[0] != " " or not inside else before
        found.append(paint(before[0], "dim" if before[1] else "", color))
    return found


def _block(value: float, low: float, high: float) -> str:
    """What is not finite shows as `!`."""
    if not math.isfinite(value):
        return "!"
    part = (value - low) / (high - low) if high > low else 0.0
    return LEVELS[min(len(LEVELS) - 1, int(part * len(LEVELS)))]
