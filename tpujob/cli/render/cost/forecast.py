"""What an estimate says of preemptions: the range in which a job will probably end, and what it rests on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import paint, wrap
from tpujob.domain.text import dollars, duration, many

if TYPE_CHECKING:
    from tpujob.api import ForecastView, RangeView

EMULATED = "The local stack bills nothing: it is what Google Cloud would list."
_COLUMNS = (
    Column("Nine of ten jobs"),
    Column("From", right=True),
    Column("Half below", right=True),
    Column("1 in 10 above", right=True),
    Column("To", right=True),
)
#: what is said when no job has met anything at that place
GUESSED = (
    "No job has had such a slice there yet, so waits and preemptions are guessed: they are those that were recorded of "
    "spot machines of another kind. --wait and --preempt-every say better."
)
METHOD = (
    "Where that comes from: some hundred courses of the job. Each draws how scarce slices are this time, then waits, "
    "lives of slices and set-ups, as earlier jobs met them. The hours of each course are priced by the lines above."
)


def forecast_lines(
    found: ForecastView, columns: int, *, color: bool = False, emulated: bool = False
) -> list[str]:
    """`emulated`: nothing of it is billed."""
    rows = [
        ("list value", *_money(found["list_micros"])),
        ("you pay", *(_FREE if emulated else _money(found["pay_micros"]))),
        ("slices held", *_hours(found["billed_hours"])),
        ("until the end", *_hours(found["wall_hours"])),
        ("preemptions", *(f"{value:,.0f}" for value in _shown(found["preemptions"]))),
    ]
    means = (
        f"On average {hours(found['waiting_hours'])} of waiting, {hours(found['setup_hours'])} of set-up, and "
        f"{hours(found['redone_hours'])} of work that is lost, beside {hours(found['work_hours'])} of work that counts."
    )
    short = (
        in_short(found) or f"{hours(found['billed_hours']['p50'])} of slices, and no known price"
    )
    out = [paint(f"With preemptions: {short}", "bold", color)]
    out += [table(_COLUMNS, rows, columns, color=color), *wrap(means, columns)]
    if found["fails"] >= 0.01:
        limits = "the preemptions or the wait that recovery: allows"
        out += wrap(f"{found['fails']:.0%} of the courses fail: they use up {limits}.", columns)
    return [*out, *wrap(basis(found), columns)]


def basis(found: ForecastView) -> str:
    """What the range rests on."""
    stated, slices = set(found["stated"]), found["slices"]
    if stated == {"wait", "preemptions"}:
        return "Waits and preemptions are as stated."
    said = f" The {stated.pop()} is as stated." if stated else ""
    if not slices:
        return GUESSED if not said else f"{GUESSED.partition(':')[0]}.{said}"
    return (
        f"It rests on {many(slices, 'earlier slice')} there, {found['losses']} of them lost.{said}"
    )


def explained(found: ForecastView, columns: int) -> list[str]:
    """What it is computed with."""
    halves = found["half_seconds"]
    rows = [
        ("first slice", "half are there after", halves["first_wait"]),
        ("", "half are lost after", halves["first_life"]),
        ("after a loss", "half are there after", halves["later_wait"]),
        ("", "half are lost after", halves["later_life"]),
        ("set-up", "half take less than", halves["setup"]),
        ("release", "half take less than", halves["release"]),
    ]
    lines = [f"  {what:12} {says} {duration(seconds)}" for what, says, seconds in rows]
    return [*wrap(METHOD, columns), *lines]


def in_short(found: ForecastView) -> str:
    """`$41.20 to $66.10, most likely about $48.02`, by list price; empty: no price is known."""
    cost = found["list_micros"]
    if cost is None:
        return ""
    low, middle, high = (dollars(round(cost[key])) for key in ("low", "p50", "high"))
    return f"{low} to {high}, most likely about {middle}"


_FREE = (dollars(0),) * 4


def _shown(found: RangeView) -> tuple[float, float, float, float]:
    return found["low"], found["p50"], found["p90"], found["high"]


def _money(found: RangeView | None) -> tuple[str, ...]:
    if found is None:
        return ("unknown",) * 4
    return tuple(dollars(round(value)) for value in _shown(found))


def _hours(found: RangeView) -> tuple[str, ...]:
    return tuple(hours(value) for value in _shown(found))


def hours(value: float) -> str:
    """`45 s`, `2.5 h`, `3 days`."""
    return duration(value * 3600)
