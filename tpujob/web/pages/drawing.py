"""Coordinates of a job's timeline, in percent of its width. Pure.

Templates write SVG with these numbers as attributes, as the page may have no style of its own.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from tpujob.api import JobView, SpanView
from tpujob.domain.money.goodput import BESIDE
from tpujob.domain.text import seconds

#: seconds between two marks of a time axis
STEPS = (
    1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2592000,
)  # fmt: skip
MARKS = 6  #: at most
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
    step = round_step(max(1.0, end - begin) / 200)
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


def round_step(least: float) -> float:
    """Return a round number of seconds between two marks, at least `least`."""
    return next((step for step in STEPS if step >= least), STEPS[-1])


def _marks(begin: float, end: float) -> list[Mark]:
    """Return marks at round times of day, UTC."""
    step = round_step((end - begin) / MARKS)
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
