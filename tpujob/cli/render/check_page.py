"""The page of a compile check: the types of a job or of a function side by side."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tpujob.cli.render.table import Column, numbers, space, table
from tpujob.cli.render.text import amount_text, clip_middle, paint, wrap
from tpujob.domain.text import clean, dollars

if TYPE_CHECKING:
    from tpujob.submit.compile_check import TargetFinding

GIB = 2**30
MEANING = "Compiled on this machine, not run. Bound is the peak of what limits the step."
PUBLISHED = "The other ranges go from a plain port to tuned programs, by what is published of the generation."
OWN = "Those of {} go from the least to the most that your own jobs reached."
PRICES = "Dollars are the list price of those hours; `tpujob cost estimate --compare` adds waits and preemptions."
KEYS = "A flag `--name=value` is `name: value` below `run.args` of the job file."
_COLUMNS = (
    Column("Slices"),
    Column("Zone", floors=(14, 0), cut=clip_middle),
    Column("Fits", style=lambda cell: "green" if cell == "yes" else "red"),
    *numbers("Memory", "of", "Bound"),
    Column("by"),
    *numbers("Step", "Per s", "Hours", "List value"),
)


#: titles of the columns that are left out of a narrow terminal, in this order; `--json` has all figures
_LEFT_OUT = ("Per s", "of", "Step")


class CheckedTarget(NamedTuple):
    finding: TargetFinding
    zone: str
    usd_per_hour: float | None  #: price of the job's slices; None: unknown

    @property
    def usd(self) -> list[float]:
        """The list price of the fastest and of the slowest run; empty: unknown."""
        pace = self.finding.get("pace")
        if pace is None or self.usd_per_hour is None:
            return []
        return [hours * self.usd_per_hour for hours in pace["hours"]]


class FinishBy(NamedTuple):
    at: datetime
    hours: float  #: until then


def check_page(
    name: str,
    targets: Sequence[CheckedTarget],
    columns: int,
    *,
    deadline: FinishBy | None = None,
    color: bool = False,
) -> str:
    """Return the page as text."""
    findings = [target.finding for target in targets]
    paces = {finding["target"]: finding["pace"] for finding in findings if "pace" in finding}
    pace = next(iter(paces.values()), None)
    title = clean(name) + (f": {amount_text(pace['work'])} {pace['unit']}" if pace else "")
    out = [paint(title, "bold", color), ""]
    out += [_table(targets, columns, color=color), ""]
    for finding in findings:
        notes = [finding["reason"], finding["advice"]] if finding["fit"] != "yes" else []
        notes += [*finding["gains"], *(f"warning: {text}" for text in finding["warnings"])]
        for text in filter(None, notes):
            out += wrap(f"{finding['target']}: {clean(text)}", columns)
    if deadline is not None:
        out += wrap(_cheapest(targets, deadline), columns)
    if any("--" in finding["reason"] + finding["advice"] for finding in findings):
        out += wrap(KEYS, columns)
    own = [target for target, pace in paces.items() if pace["own"]]
    meaning = [
        MEANING,
        PUBLISHED if len(own) < len(paces) else "",
        OWN.format(", ".join(own)) if own else "",
    ]
    return "\n".join([*out, *wrap(" ".join([*filter(None, meaning), PRICES]), columns)])


def _table(targets: Sequence[CheckedTarget], columns: int, *, color: bool) -> str:
    """Return the targets, a line each. The zone is cut before a column is left out."""
    shown = list(zip(_COLUMNS, zip(*map(_cells, targets), strict=True), strict=True))
    for title in ("", *_LEFT_OUT):
        shown = [(column, cells) for column, cells in shown if column.title != title]
        rigid = [(column, cells) for column, cells in shown if not column.floors]
        rows = list(zip(*(cells for _, cells in rigid), strict=True))
        if space([column for column, _ in rigid], rows, columns) >= 0:
            break
    rows = list(zip(*(cells for _, cells in shown), strict=True))
    return table([column for column, _ in shown], rows, columns, color=color)


def _cheapest(targets: Sequence[CheckedTarget], deadline: FinishBy) -> str:
    """Return the sentence about the cheapest slice that ends in time, if it starts now and nothing interrupts it."""
    by = f"{deadline.at:%a %Y-%m-%d %H:%M %Z}".strip()
    timed = [
        (target, target.finding["pace"]["hours"]) for target in targets if "pace" in target.finding
    ]
    if not timed:
        return f"By {by}: none, as no slice has a time."
    for end, words in ((1, "even at the slow end"), (0, "at the fast end alone")):
        in_time = [target for target, hours in timed if hours[end] <= deadline.hours]
        priced = [target for target in in_time if target.usd]
        if priced:
            best = min(priced, key=lambda target: target.usd[end])
            return (
                f"Cheapest that ends by {by}, {words} of its hours, if it starts now and is not interrupted: "
                f"{best.finding['target']}, {_span([dollars(round(usd * 1e6)) for usd in best.usd])}."
            )
        if in_time:
            return f"Ends by {by}, {words} of its hours: {in_time[0].finding['target']}; no price is known."
    fastest, hours = min(timed, key=lambda pair: pair[1][0])
    return f"None ends by {by}: the fastest, {fastest.finding['target']}, takes {_hours(hours)} h."


def _cells(target: CheckedTarget) -> tuple[str, ...]:
    finding = target.finding
    program = finding["program"]
    memory = program["peak_bytes"] if program else finding["needed_bytes"]
    start = (
        finding["target"],
        target.zone,
        finding["fit"],
        _memory(memory) if memory else "",
        _memory(finding["limit_bytes"]),
    )
    if "pace" not in finding or "step_seconds" not in finding:
        return (*start, "", "", "", "", "", "")
    pace, spent = finding["pace"], finding["step_seconds"]
    return (
        *start,
        _time(spent["bound"]),
        spent["limited_by"],
        _span([_time(seconds) for seconds in pace["step"]]),
        _span([amount_text(speed) for speed in reversed(pace["per_second"])]),
        _hours(pace["hours"]),
        _span([dollars(round(amount * 1e6)) for amount in target.usd]) if target.usd else "unknown",
    )


def _hours(pair: Sequence[float]) -> str:
    return _span([f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}" for hours in pair])


def _span(pair: Sequence[str]) -> str:
    low, high = pair
    return low if low == high else f"{low} to {high}"


def _memory(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.3g} MiB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
