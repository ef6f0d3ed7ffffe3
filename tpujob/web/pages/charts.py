"""Charts of curves, of one job or of several over each other: coordinates in units of a box, and round values beside
the axes. Pure.

Templates write SVG with these numbers as attributes. All charts of a page have one range of steps or times, so that a
place from the left means the same in each.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tpujob.api import ChartView, CurveView
from tpujob.domain import text
from tpujob.web.pages.drawing import MARKS, round_step
from tpujob.web.pages.query import PageQuery

WIDTH, HEIGHT = 600.0, 120.0  #: of the box of a chart
#: least height of a curve's box, as a part of the greatest value: a nearly constant curve must look flat
FLAT = 0.1
COLOURS, DASHES = 8, 4  #: in `job.css`
MAX_MARKS = 40  #: of one chart, the newest
SMOOTHINGS = ("", "0.6", "0.9", "0.97")  #: that are offered
#: points over the whole range for which `smooth` is the weight of a point's predecessor
SMOOTH_POINTS = 1000
LOG_FROM, LOG_TO = 1e-300, 1e300  #: values of a logarithmic axis
FILTERS = ("x", "log", "smooth")  #: names in the query of a page with charts


class ChartOptions(NamedTuple):
    by_time: bool = False  #: over the time since the run's first step; else over steps
    log: bool = False
    smooth: float = 0.0  #: weight of the past, from 0 to 1

    @classmethod
    def read(cls, query: PageQuery) -> "ChartOptions":
        """Parse the query of a page; an unknown smoothing is none."""
        smooth = query.one("smooth")
        return cls(
            query.one("x") == "time",
            bool(query.one("log")),
            float(smooth) if smooth in SMOOTHINGS[1:] else 0.0,
        )


class RunStyle(NamedTuple):
    """The look of a run's curves: no two of 32 runs have the same."""

    colour: int
    dash: int


PLAIN = RunStyle(0, 0)  #: of the only run


class ChartLine(NamedTuple):
    """A part of a curve."""

    points: str  #: of a polyline
    lost: bool  #: these steps were lost, and made again if there is a later attempt
    attempt: int
    run: int  #: place of its job among the runs


class ChartMark(NamedTuple):
    """Something that happened to a run."""

    x: float  #: percent from the left, and from the top
    y: float
    kind: str  #: `preempted`, `ended`, `nonfinite` or `checkpoint`
    run: int
    text: str


class Tick(NamedTuple):
    """A value beside an axis."""

    at: float  #: percent from the left, or from the top
    text: str


class Plot(NamedTuple):
    """A chart as it is drawn."""

    lines: list[ChartLine]
    marks: list[ChartMark]
    newest: dict[int, float]  #: last value of each run that has the curve, by its place
    first: float  #: step or second at the left, and at the right
    last: float
    least: float  #: of all points, and the greatest
    most: float
    bottom: float  #: value at the lower edge of the box, and at the upper edge; of a log axis, its logarithm to base 10
    top: float
    log: bool  #: the axis is logarithmic; False also where no value is positive
    across: list[Tick]
    values: list[Tick]
    dot: tuple[float, float]  #: place of the last value of the only run


class ChartRange(NamedTuple):
    """What charts have from left to right."""

    first: float
    last: float
    origins: Mapping[str, float]  #: time of the first step of each job; empty: over steps

    def x(self, value: float) -> float:
        return WIDTH * (value - self.first) / ((self.last - self.first) or 1)


class _Point(NamedTuple):
    step: int
    x: float  #: as in `ChartRange`
    value: float


def styles(jobs: Sequence[str]) -> list[RunStyle]:
    """Return the style of each job. A job has the same colour in most selections: that of its id, unless another job
    of a lower id has it."""
    taken: dict[int, str] = {}
    for job in sorted(jobs):
        turn = len(taken) // COLOURS * COLOURS  # each colour is used once before one is used again
        wanted = int(job) % COLOURS if job.isdecimal() else 0
        free = (turn + (wanted + n) % COLOURS for n in range(COLOURS))
        taken[next(place for place in free if place not in taken)] = job
    places = {job: place for place, job in taken.items()}
    return [
        RunStyle(place % COLOURS, (place + place // COLOURS) % DASHES)
        for place in map(places.__getitem__, jobs)
    ]


def draw(
    charts: Sequence[ChartView], jobs: Sequence[str], options: ChartOptions
) -> list[tuple[ChartView, Plot]]:
    """Return each chart of more than one step with its plot. `jobs`: ids of the runs, in their order."""
    curves = [curve for chart in charts for curve in chart["curves"]]
    if not curves:
        return []
    origins: dict[str, float] = {}
    for curve in curves if options.by_time else ():
        began = text.seconds(curve["began_at"]) or 0.0
        origins[curve["job"]] = min(began, origins.get(curve["job"], began))
    xs = [point.x for curve in curves for point in _points(curve, origins)]
    across = ChartRange(min(xs), max(xs), origins)
    several = [
        chart for chart in charts if len({p[0] for c in chart["curves"] for p in c["points"]}) > 1
    ]
    return [(chart, _plot(chart, jobs, options, across)) for chart in several]


def _points(curve: CurveView, origins: Mapping[str, float]) -> list[_Point]:
    if not origins:
        return [_Point(p[0], p[0], p[4]) for p in curve["points"]]
    began = (text.seconds(curve["began_at"]) or 0.0) - origins[curve["job"]]
    return [_Point(p[0], began + p[1], p[4]) for p in curve["points"]]


def _plot(chart: ChartView, jobs: Sequence[str], options: ChartOptions, across: ChartRange) -> Plot:
    smooth = options.smooth
    drawn = [
        (curve, smoothed(_points(curve, across.origins), smooth, across.last - across.first))
        for curve in chart["curves"]
    ]
    on_log = [
        (curve, [p for p in points if LOG_FROM < p.value < LOG_TO]) for curve, points in drawn
    ]
    log = options.log and any(points for _, points in on_log)
    drawn = on_log if log else drawn  # a value that is not positive has no place on the axis
    values = [point.value for _, points in drawn for point in points]
    least, most = min(values), max(values)
    low, high = (math.log10(least), math.log10(most)) if log else (least, most)
    height = max(high - low, FLAT * (1 if log else max(abs(high), abs(low)))) or 1.0
    bottom = (low + high - height) / 2
    box = _Box(across, bottom, height, log)
    places = {job: place for place, job in enumerate(jobs)}
    lines: list[ChartLine] = []
    marks: list[ChartMark] = []
    newest: dict[int, float] = {}
    dot = (0.0, 0.0)
    for curve, points in drawn:
        run = places[curve["job"]]
        if not points:
            continue
        newest[run], dot = points[-1].value, box.place(points[-1])
        for part, lost in _kept_and_lost(points, curve["kept"]):
            if line := _line(part, box):
                lines.append(ChartLine(line, lost, curve["attempt"], run))
        marks += _marks(curve, points, box, run, chart["name"])
    return Plot(
        lines,
        marks[-MAX_MARKS:],
        newest,
        across.first,
        across.last,
        least,
        most,
        bottom,
        bottom + height,
        log,
        _across(across),
        _beside(box),
        dot,
    )


class _Box(NamedTuple):
    across: ChartRange
    bottom: float
    height: float
    log: bool

    def place(self, point: _Point) -> tuple[float, float]:
        return self.across.x(point.x), self.y(point.value)

    def y(self, value: float) -> float:
        scaled = math.log10(value) if self.log else value
        return HEIGHT * (1 - (scaled - self.bottom) / self.height)


def smoothed(points: Sequence[_Point], smooth: float, width: float) -> list[_Point]:
    """Return the points with an exponential moving average of their values, which starts without a bias. `smooth`: the
    weight of a point's predecessor if `SMOOTH_POINTS` points lie evenly over `width`; points that lie farther apart
    count more, so that runs with points of other distances are smoothed alike."""
    if not smooth or not width:
        return [*points]
    result: list[_Point] = []
    total = weight = 0.0
    before = points[0].x if points else 0.0
    for point in points:
        past = smooth ** max(0.0, SMOOTH_POINTS * (point.x - before) / width)
        total, weight = past * total + point.value, past * weight + 1.0
        result.append(point._replace(value=total / weight))
        before = point.x
    return result


def _kept_and_lost(
    points: Sequence[_Point], last_kept: int | None
) -> list[tuple[Sequence[_Point], bool]]:
    """Return the points of kept and of lost steps; the boolean marks the lost ones."""
    if last_kept is None:
        return [(points, False)]
    good = [point for point in points if point.step <= last_kept]
    return [(good, False), (points[max(0, len(good) - 1) :], True)]


def _line(points: Sequence[_Point], box: _Box) -> str:
    drawn = ["{:.1f},{:.2f}".format(*box.place(point)) for point in points]
    return " ".join(drawn * 2 if len(drawn) == 1 else drawn)  # a line needs two ends


def _marks(
    curve: CurveView, points: Sequence[_Point], box: _Box, run: int, name: str
) -> Iterator[ChartMark]:
    """Yield the marks of an attempt: its checkpoint, the first loss that is not finite, and its end."""
    attempt = f"attempt {curve['attempt']}"

    def mark(kind: str, step: int, what: str) -> ChartMark:
        nearest = min(points, key=lambda point: abs(point.step - step))
        x, y = box.place(nearest)
        place = 100 * x / WIDTH, 100 * y / HEIGHT
        return ChartMark(*place, kind, run, f"{attempt}, step {step:,}: {what}")

    saved, bad, cause = curve["checkpoint"], curve["nonfinite"], curve["cause"]
    if saved is not None and points[0].step <= saved <= points[-1].step:
        yield mark("checkpoint", saved, "newest checkpoint")
    if bad is not None and name == "loss":
        yield mark("nonfinite", bad, "the loss is not finite")
    if cause:
        kind = "preempted" if cause == "PREEMPTED" else "ended"
        yield mark(kind, points[-1].step, cause)


def _across(across: ChartRange) -> list[Tick]:
    first, last = across.first, across.last
    if across.origins:
        step = round_step((last - first) / MARKS)
        values = [(n * step, text.span(n * step)) for n in range(int(last / step) + 1)]
    else:
        values = ticks(first, last, least=1.0, most=8)
    return [Tick(100 * across.x(value) / WIDTH, shown) for value, shown in values]


def _beside(box: _Box) -> list[Tick]:
    low, high = box.bottom, box.bottom + box.height
    if not box.log:
        return [Tick(100 * box.y(value) / HEIGHT, shown) for value, shown in ticks(low, high)]
    least, most = 10**low, 10**high
    decades = range(math.floor(low), math.ceil(high) + 1)
    for factors, each in (((1, 2, 5), 1), ((1,), 1), ((1,), -(-len(decades) // 6))):
        values = [n * 10.0**power for power in decades[::each] for n in factors]
        values = [value for value in values if least <= value <= most]
        if 2 <= len(values) <= 6:
            break
    else:
        values = [value for value, _ in ticks(least, most) if value > 0]
    return [Tick(100 * box.y(value) / HEIGHT, f"{value:,g}") for value in values]


def ticks(low: float, high: float, *, least: float = 0.0, most: int = 4) -> list[tuple[float, str]]:
    """Return round values from `low` to `high`, with their text: `most` and one at most; none where floats cannot
    divide the range. `least`: the least distance of two values."""
    if not math.isfinite(high - low) or 0 < high - low < 1e-300:
        return []
    power = 10.0 ** math.floor(math.log10((high - low) / most)) if high > low else 1.0
    step = max(least, next(n * power for n in (1, 2, 5, 10) if n * power * most >= high - low))
    first = math.ceil(low / step - 1e-9)
    values = [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    wide = digits > 5 or max(abs(low), abs(high)) >= 1e6
    return [(v, f"{v:.4g}" if wide else f"{v:,.{digits}f}") for v in values]
