"""Parallel coordinates: a line for each run of a sweep through its parameters and one metric. Pure."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tpujob.web.pages.run_table import TableRow

WIDTH, HEIGHT = 600.0, 160.0  #: of the box
MAX_AXES, MAX_LINES = 8, 200
#: ratio of the greatest to the least value from which an axis of positive numbers is logarithmic
WIDE = 50.0
MAX_TEXTS = 8  #: values beside an axis of words


class Axis(NamedTuple):
    title: str
    x: float  #: percent from the left
    texts: list[tuple[float, str]]  #: values beside it, with their place in percent from the top


class Line(NamedTuple):
    points: str  #: of a polyline
    text: str
    rank: int  #: quarter of the runs by the metric: 0 the first in the table, 3 the last


class Parallel(NamedTuple):
    axes: list[Axis]
    lines: list[Line]  #: the last in the table first, so that the first is drawn over it


def draw(rows: Sequence[TableRow], params: Sequence[str], metric: str) -> Parallel | None:
    """Return the lines of the rows that have the metric; None: there are fewer than two such rows, or no parameter has
    several values."""
    rows = [row for row in rows if math.isfinite(_metric(row, metric))][:MAX_LINES]
    varied = [name for name in params if len({row.values.get(name, "") for row in rows}) > 1]
    if len(rows) < 2 or not varied or not metric:
        return None
    names = varied[: MAX_AXES - 1]
    scales = [_scale([row.values.get(name, "") for row in rows]) for name in names]
    scales.append(_numbers([_metric(row, metric) for row in rows]))
    xs = [100 * n / len(names) for n in range(len(names) + 1)]
    axes = [
        Axis(title, x, texts)
        for title, x, (_, texts) in zip([*names, metric], xs, scales, strict=True)
    ]
    lines = [
        Line(
            " ".join(
                f"{WIDTH * x / 100:.0f},{HEIGHT * places[n] / 100:.1f}"
                for x, (places, _) in zip(xs, scales, strict=True)
            ),
            f"{row.name}: {metric} {_metric(row, metric):.4g}",
            4 * n // len(rows),
        )
        for n, row in enumerate(rows)
    ]
    return Parallel(axes, lines[::-1])


#: the place of each row on an axis in percent from the top, and the texts beside it
_Scale = tuple[list[float], list[tuple[float, str]]]


def _metric(row: TableRow, name: str) -> float:
    value = row.metrics.get(name)
    return math.nan if value is None else value


def _scale(texts: Sequence[str]) -> _Scale:
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        numbers = []
    if numbers and all(map(math.isfinite, numbers)):
        return _numbers(numbers)
    kinds = sorted({*texts})
    at = {text: 100 * (n + 0.5) / len(kinds) for n, text in enumerate(kinds)}
    return [at[text] for text in texts], [(at[text], text) for text in kinds[:MAX_TEXTS]]


def _numbers(numbers: Sequence[float]) -> _Scale:
    least, most = min(numbers), max(numbers)
    log = least > 0 and most / least >= WIDE
    low, high = (math.log10(least), math.log10(most)) if log else (least, most)

    def place(value: float) -> float:
        scaled = math.log10(value) if log else value
        return 100 * (1 - (scaled - low) / (high - low)) if high > low else 50.0

    values = {*numbers}
    shown = sorted(values) if len(values) <= 5 else [least, most]
    return [place(value) for value in numbers], [(place(v), f"{v:.4g}") for v in shown]
