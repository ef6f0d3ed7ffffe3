"""Coordinates of a job's drawings: its timeline in percent of its width, its curves in units of a box. Pure.

Templates write SVG with these numbers as attributes, as the page may have no style of its own.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from tpujob.api import ChartView, CurveView, JobView, SpanView
from tpujob.domain.money.goodput import BESIDE
from tpujob.domain.text import seconds

WIDTH, HEIGHT = 600.0, 120.0  #: of the box of a curve
#: seconds between two marks of a time axis
STEPS = (
    1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2592000,
)  # fmt: skip
MARKS = 6  #: at most
#: least height of a curve's box, as a part of the greatest value: a nearly constant curve must look flat
FLAT = 0.1
LEAST = 0.25  #: percent: narrower stretches could not be seen


class TimelineBar(NamedTuple):
    """A stretch of the timeline, in percent of its width."""

    x: float
    width: float
    span: SpanView
    label: str  #: number of an attempt that begins with this bar; empty without room


class Mark(NamedTuple):
    x: float
    text: str


class Sum(NamedTuple):
    """All stretches of one kind."""

    kind: str
    seconds: float
    usd: float | None
    share: float


class Timeline(NamedTuple):
    bars: list[TimelineBar]
    beside: list[TimelineBar]  #: slices that were kept beside the one that served
    marks: list[Mark]
    sums: list[Sum]


def timeline(job: JobView, now: float) -> Timeline | None:
    """Return the job's timeline; None if no time has passed yet."""
    spans = job.get("timeline", [])
    begin = min((_seconds_of(span["start"]) for span in spans), default=now)
    end = max((_seconds_of(span["end"], now) for span in spans), default=now)
    step = _step(max(1.0, end - begin) / 200)
    if any(span["end"] is None for span in spans):  # so that it does not move at every look
        end = begin + (int((end - begin) / step) + 1) * step
    if end <= begin:
        return None

    def x(at: float) -> float:
        return round(100 * (at - begin) / (end - begin), 2)

    bars: list[TimelineBar] = []
    beside: list[TimelineBar] = []
    newest = 0
    for span in spans:
        left, right = x(_seconds_of(span["start"])), x(_seconds_of(span["end"], end))
        fresh = span["attempt"] is not None and span["attempt"] > newest
        newest = max(newest, span["attempt"] or 0)
        width = round(max(right - left, LEAST), 2)
        bar = TimelineBar(min(left, 100 - width), width, span, str(newest) if fresh else "")
        (beside if span["kind"] in BESIDE else bars).append(bar)
    return Timeline(_without_overlapping_labels(bars), beside, _marks(begin, end), sums(spans))


def _seconds_of(time: str | None, otherwise: float = 0.0) -> float:
    moment = seconds(time)
    return otherwise if moment is None else moment


def _without_overlapping_labels(bars: Sequence[TimelineBar]) -> list[TimelineBar]:
    """Return the bars without the labels that would overlap the one before."""
    labelled: list[TimelineBar] = []
    free = 0.0
    for bar in bars:
        label = bar.label if bar.x >= free else ""
        free = bar.x + 4 if label else free
        labelled.append(bar._replace(label=label))
    return labelled


def sums(spans: Sequence[SpanView]) -> list[Sum]:
    """Return the total time and cost of each kind of span, the longest first."""
    whole = sum(span["seconds"] for span in spans) or 1.0
    totals: list[Sum] = []
    for kind in dict.fromkeys(span["kind"] for span in spans):
        members = [span for span in spans if span["kind"] == kind]
        costs = [span["usd"] for span in members if span["usd"] is not None]
        time = sum(span["seconds"] for span in members)
        totals.append(
            Sum(kind, time, sum(costs) if len(costs) == len(members) else None, time / whole)
        )
    return sorted(totals, key=lambda total: -total.seconds)


def _step(least: float) -> float:
    return next((step for step in STEPS if step >= least), STEPS[-1])


def _marks(begin: float, end: float) -> list[Mark]:
    """Return marks at round times of day, UTC."""
    step = _step((end - begin) / MARKS)
    first = -(-begin // step) * step
    marks: list[Mark] = []
    while first <= end and len(marks) <= MARKS:
        x = 100 * (first - begin) / (end - begin)
        if x < 93:
            marks.append(Mark(round(x, 2), _clock(first, step)))
        first += step
    return marks


def _clock(at: float, step: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    if step >= 86400 or (moment.hour, moment.minute) == (0, 0):
        return moment.strftime("%-d %b")
    return moment.strftime("%H:%M:%S" if step < 60 else "%H:%M")


# Curves --------------------------------------------------------------------------------------------------------------


class ChartLine(NamedTuple):
    """A part of a curve."""

    points: str  #: of a polyline
    lost: bool  #: these steps were lost, and made again if there is a later attempt
    attempt: int


class Tick(NamedTuple):
    """A value beside an axis."""

    at: float  #: percent from the left, or from the top
    text: str


class Plot(NamedTuple):
    """A chart as it is drawn."""

    lines: list[ChartLine]
    first: int  #: step at the left, and at the right
    last: int
    least: float  #: of all points, and the greatest
    most: float
    bottom: float  #: value at the lower edge of the box, and at the upper edge
    top: float
    steps: list[Tick]
    values: list[Tick]
    newest: float  #: the last value of the newest attempt, and its place in the box
    newest_at: tuple[float, float]


def plot(chart: ChartView) -> Plot:
    """Return the chart drawn in a box of `WIDTH` by `HEIGHT`."""
    points = [point for curve in chart["curves"] for point in curve["points"]]
    first, last = min(p[0] for p in points), max(p[0] for p in points)
    least, greatest = min(p[4] for p in points), max(p[4] for p in points)
    wide = (last - first) or 1
    high = max(greatest - least, FLAT * max(abs(greatest), abs(least))) or 1.0
    base = (least + greatest - high) / 2

    def place(step: int, value: float) -> tuple[float, float]:
        return WIDTH * (step - first) / wide, HEIGHT * (1 - (value - base) / high)

    lines: list[ChartLine] = []
    for curve in chart["curves"]:
        for part, lost in _kept_and_lost(curve):
            drawn = ["{:.1f},{:.2f}".format(*place(p[0], p[4])) for p in part]
            if len(drawn) == 1:  # a line needs two ends
                drawn *= 2
            if drawn:
                lines.append(ChartLine(" ".join(drawn), lost, curve["attempt"]))
    newest = chart["curves"][-1]["points"][-1]
    return Plot(
        lines,
        first,
        last,
        least,
        greatest,
        base,
        base + high,
        [Tick(100 * (value - first) / wide, text) for value, text in ticks(first, last, least=1.0)],
        [Tick(100 * (1 - (value - base) / high), text) for value, text in ticks(base, base + high)],
        newest[4],
        place(newest[0], newest[4]),
    )


def ticks(low: float, high: float, *, least: float = 0.0) -> list[tuple[float, str]]:
    """Return two to five round values from `low` to `high`, with their text; none where floats cannot divide the range.
    `least`: the least distance of two values."""
    if not math.isfinite(high - low) or 0 < high - low < 1e-300:
        return []
    power = 10.0 ** math.floor(math.log10((high - low) / 4)) if high > low else 1.0
    step = max(least, next(n * power for n in (1, 2, 5, 10) if n * power * 4 >= high - low))
    first = math.ceil(low / step - 1e-9)
    values = [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    wide = digits > 5 or max(abs(low), abs(high)) >= 1e6
    return [(v, f"{v:.4g}" if wide else f"{v:,.{digits}f}") for v in values]


_Point = tuple[int, float, float, float, float]


def _kept_and_lost(curve: CurveView) -> list[tuple[Sequence[_Point], bool]]:
    """Return the points of kept and of lost steps; the boolean marks the lost ones."""
    last_kept, points = curve["kept"], curve["points"]
    if last_kept is None:
        return [(points, False)]
    good = [point for point in points if point[0] <= last_kept]
    return [(good, False), (points[max(0, len(good) - 1) :], True)]
