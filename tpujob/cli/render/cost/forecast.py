"""What an estimate says of preemptions: the range in which a job will probably end, and what it rests on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import paint, wrap
from tpujob.domain.text import dollars, duration, listed, many

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
NEW = "No job has had such a slice there yet"
GUESSED = (
    "Preemptions are guessed from records of spot machines of another kind: state them with "
    "`--preempt-every`."
)
ASSUMED = "One loss in 720 h is assumed: state another with `--preempt-every`."
HELD = "A reserved slice is held, so there is no wait for it."
NO_WAIT = "How long the job waits for a slice is not known: state it with `--wait`."
METHOD = (
    "Where that comes from: some hundred courses of the job. Each draws how scarce slices are this time, then waits, "
    "lives of slices and set-ups, as earlier jobs met them, or as stated above. The hours of each "
    "course are priced by the lines above."
)


def forecast_lines(
    found: ForecastView, columns: int, pricing: str, *, color: bool = False
) -> list[str]:
    wall, waiting, setup = found["wall_hours"], found["waiting_hours"], found["setup_hours"]
    rows = [
        ("list value", *_money(found["list_micros"])),
        ("you pay", *_money(found["pay_micros"])),
        ("slices held", *_hours(found["billed_hours"])),
        *([("until the end", *_hours(wall))] if wall else []),
        ("preemptions", *(f"{value:,.0f}" for value in _shown(found["preemptions"]))),
    ]
    means = [
        f"{hours(mean)} of {what}"
        for mean, what in (
            (waiting, "waiting"),
            (setup, "set-up"),
            (found["redone_hours"], "work that is lost"),
        )
        if mean is not None and hours(mean) != hours(0)
    ]
    beside = f"beside {hours(found['work_hours'])} of work that counts"
    short = (
        in_short(found) or f"{hours(found['billed_hours']['p50'])} of slices, and no known price"
    )
    out = [paint(f"With preemptions: {short}", "bold", color)]
    out += [table(_COLUMNS, rows, columns, color=color)]
    out += wrap(f"On average {listed(means)}, {beside}.", columns) if means else []
    if found["fails"] >= 0.01:
        limits = f"the preemptions{' or the wait' if wall else ''} that recovery: allows"
        out += wrap(f"{found['fails']:.0%} of the courses fail: they use up {limits}.", columns)
    for text in (
        *([NO_WAIT] if wall is None else []),
        *unmeasured(found),
        basis(found, pricing),
    ):
        out += wrap(text, columns)
    return out


def unmeasured(found: ForecastView) -> list[str]:
    """That the ranges hold a guess of set-up or release."""
    times = {"the set-up": found["setup_hours"], "the release": found["releasing_hours"]}
    names = [name for name, value in times.items() if value is None]
    if not names:
        return []
    take, guess = ("takes", "a guess of it") if len(names) == 1 else ("take", "guesses of them")
    why = f"not known, as no job has been measured: the range holds {guess}"
    return [f"How long {listed(names)} {take} is {why}."]


def basis(found: ForecastView, pricing: str) -> str:
    """What the range rests on."""
    stated, slices = found["stated"], found["slices"]
    if set(stated) == {"wait", "preemptions"}:
        return "Waits and preemptions are as stated."
    waits = pricing != "reserved" and "wait" not in stated and found["wall_hours"] is not None
    lives = "preemptions" not in stated
    texts: list[str] = []
    if slices:
        losses = f"{found['losses']} of them lost"
        texts.append(f"It rests on {many(slices, 'earlier slice')} there, {losses}.")
    elif waits:
        what = "waits and preemptions" if lives and pricing == "spot" else "waits"
        more = " and of spot machines of another kind" if pricing == "spot" else ""
        texts.append(f"{NEW}; {what} are those of other places{more}.")
    elif lives:
        texts.append(f"{NEW}.")
    if not slices and lives and not (waits and pricing == "spot"):
        texts.append(GUESSED if pricing == "spot" else ASSUMED)
    if pricing == "reserved" and "wait" not in stated:
        texts.append(HELD)
    texts += [f"The {what} is as stated." for what in stated if what == "wait"]
    texts += ["Preemptions are as stated." for what in stated if what == "preemptions"]
    return " ".join(texts)


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
    lines = [
        f"  {what:12} {says} {'(not known)' if seconds is None else duration(seconds)}"
        for what, says, seconds in rows
    ]
    return [*wrap(METHOD, columns), *lines]


def in_short(found: ForecastView) -> str:
    """`$41.20 to $66.10, most likely about $48.02`, by list price; empty: no price is known."""
    cost = found["list_micros"]
    if cost is None:
        return ""
    low, middle, high = (dollars(round(cost[key])) for key in ("low", "p50", "high"))
    return f"{low} to {high}, most likely about {middle}"


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
