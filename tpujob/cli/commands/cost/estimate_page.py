"""What `tpujob cost estimate` prints: lines that add up, what is not known, where each figure comes from; and the
range in which the job will probably end. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render import words
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.text import clean, dollars, duration, listed, many

if TYPE_CHECKING:
    from tpujob.api import EstimateLineView, EstimateView, ForecastView, PriceView, RangeView

LISTED = (
    "By list price, an estimate: no bill has been seen. `--explain` has each price with its source."
)
UNLOST = "Preemptions are not included: each adds another set-up and repeated steps."
#: parts of which a row without a cost says nothing
_FREE = ("machines", "control plane")
_COLUMNS = (
    Column("Part"),
    Column("What", floors=(36, 24), cut=clip_middle),
    Column("List value", right=True),
    Column("You pay", right=True),
)


def estimate_page(
    found: EstimateView,
    columns: int,
    *,
    color: bool = False,
    explained: bool = False,
) -> str:
    """Return the whole text. `explained`: with the price and the source of each line."""
    slices = many(found["hosts"], "host"), many(found["chips"], "chip")
    jobs = found.get("jobs", 1)
    each = f", each of {many(jobs, 'job')}," if jobs > 1 else ""
    where = f"{found['pricing']} {words.kind(found)}: {', '.join(slices)}, {found['zone']}"
    title = f"{clean(found['name'])}{each} on {where}"
    out = [paint(title, "bold", color), *wrap(clean(_length(found)), columns), ""]
    shown = [one for one in found["lines"] if one["list_micros"] is not None or one["amount"]]
    rows = [
        (one["kind"], clean(one["what"]), _amount(one["list_micros"]), _amount(one["pay_micros"]))
        for one in shown
        if one["price"] is not None or one["list_micros"] != 0 or one["kind"] not in _FREE
    ]
    rows += [
        (
            ("total" if found["hours"] is not None else "an hour") if n == 1 else many(n, "job"),
            "",
            _sum(n * found["list_micros"], found),
            dollars(0) if found.get("emulated") else _sum(n * found["pay_micros"], found),
        )
        for n in sorted({1, jobs})
    ]
    out += [table(_COLUMNS, rows, columns, color=color), ""]
    if reserved := _reserved(found):
        out += [*wrap(reserved, columns), ""]
    if budget := _budget(found):
        out += [*wrap(budget, columns), ""]
    if explained:
        out += [line for one in shown for line in _explained(one, columns)]
        out.append("")
    forecast = found.get("forecast")
    if forecast is not None:
        out += [*forecast_lines(forecast, columns, found["pricing"], color=color), ""]
        out += [*explained_forecast(forecast, columns), ""] if explained else []
    if found["unknown"]:
        out.append(paint("Not known, and in no total:", "bold", color))
        out += [line for one in found["unknown"] for line in _item(one, columns)]
    for warning in found["warnings"]:
        out += wrap(f"warning: {clean(warning)}", columns)
    for text in (*(() if forecast else (UNLOST,)), EMULATED if found.get("emulated") else LISTED):
        out += wrap(text, columns)
    return "\n".join(out)


def _length(found: EstimateView) -> str:
    if found["hours"] is None:
        return f"For each hour: {found['length']}."
    range_, least, most = "", found["least_hours"], found["most_hours"]
    if least is not None and most is not None and least != most:
        range_ = f" ({hours(least)} to {hours(most)})"
    return f"For {hours(found['hours'])}{range_}, {found['length']}."


def _budget(found: EstimateView) -> str:
    """Say when the job's own budget ends it; empty: it does not."""
    if "budget_micros" not in found or "budget_hours" not in found:
        return ""
    paid, wanted = found["budget_hours"], found["hours"]
    if wanted is not None and paid >= wanted:
        return ""
    of = "" if wanted is None else f" of {hours(wanted)}"
    return f"The budget of {dollars(found['budget_micros'])} pays for {hours(paid)}{of}; then the job is ended."


def _reserved(found: EstimateView) -> str:
    """Say that a reservation is priced as on demand; empty: it is not."""
    slices = next((one["price"] for one in found["lines"] if one["kind"] == "slices"), None)
    if found["pricing"] != "reserved" or slices is None or slices["pricing"] != "on-demand":
        return ""
    return "The price is the list price on demand; a commitment costs less."


def _amount(micros: int | None) -> str:
    return "unknown" if micros is None else dollars(micros)


def _sum(micros: int, found: EstimateView) -> str:
    """A sum that leaves something out is a lower bound."""
    bound = ">" if found["unknown"] else ""
    return f"{bound}{_amount(micros)}"


def _explained(one: EstimateLineView, columns: int) -> list[str]:
    price = one["price"]
    texts = [clean(one["what"])]
    if price is None:
        texts.append(f"  {clean(one['note'])}")
    else:
        cost, unit, per = _amount(one["list_micros"]), price["unit"], price["per"]
        each = f"a {unit}" if per == 1 else f"for {per:,} {unit}s"
        texts.append(f"  {one['formula']}, at ${price['usd']} {each} = {cost}")
        texts.append(f"  price: {price_source(price)}")
        texts += [f"  {clean(one['note'])}"] if one["note"] else []
    return [
        line
        for text in texts
        for line in _item(text.strip(), columns, indent=len(text) - len(text.lstrip()))
    ]


def price_source(price: PriceView) -> str:
    """Return the row, its day, its source, and how reliable it is."""
    row = ", ".join(clean(price[key]) for key in ("item", "where", "pricing") if price[key])
    quoted = f", sold as {clean(price['quoted'])}" if price["quoted"] else ""
    whose = "your file" if price["own"] else f"{price['confidence']} confidence"
    note = f"; {clean(price['note'])}" if price["note"] else ""
    return f"{row}{quoted}; {clean(price['source'])}, {price['as_of']}, {whose}{note}"


def _item(text: str, columns: int, indent: int = 2) -> list[str]:
    first, *more = wrap(clean(text), columns - indent - 2) or [""]
    return [" " * indent + first, *(" " * (indent + 2) + line for line in more)]


EMULATED = "The local stack bills nothing: amounts are Google's list prices."
_RANGES = (
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
    "Method: losses of slices are a Poisson process. Its rate, the waits and the times of set-up and release come from "
    "earlier jobs or are as stated above. The hours of each bound are priced by the lines above."
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
            (found["redone_hours"], "lost work"),
        )
        if mean is not None and hours(mean) != hours(0)
    ]
    beside = f"on top of {hours(found['work_hours'])} of useful work"
    short = (
        in_short(found) or f"{hours(found['billed_hours']['p50'])} of slices, at an unknown price"
    )
    out = [paint(f"With preemptions: {short}", "bold", color)]
    out += [table(_RANGES, rows, columns, color=color)]
    out += wrap(f"On average {listed(means)}, {beside}.", columns) if means else []
    if found["fails"] >= 0.01:
        limits = f"the preemptions{' or the wait' if wall else ''} that `recovery` allows"
        out += wrap(
            f"The job fails with a probability of {found['fails']:.0%}: it uses up {limits}.",
            columns,
        )
    for text in (
        *([NO_WAIT] if wall is None else []),
        *unmeasured(found),
        basis(found, pricing),
    ):
        out += wrap(text, columns)
    return out


def unmeasured(found: ForecastView) -> list[str]:
    """Say that the ranges use a guess of set-up or release; empty: they do not."""
    times = {"the set-up": found["setup_hours"], "the release": found["releasing_hours"]}
    names = [name for name, value in times.items() if value is None]
    if not names:
        return []
    return [f"Not measured yet: the time of {listed(names)}. The range is based on guesses."]


def basis(found: ForecastView, pricing: str) -> str:
    """Say what the range is based on."""
    stated, slices = found["stated"], found["slices"]
    if set(stated) == {"wait", "preemptions"}:
        return "Waits and preemptions are as stated."
    waits = pricing != "reserved" and "wait" not in stated and found["wall_hours"] is not None
    lives = "preemptions" not in stated
    texts: list[str] = []
    if slices:
        losses = f"{found['losses']} of them lost"
        texts.append(f"It is based on {many(slices, 'earlier slice')} there, {losses}.")
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


def explained_forecast(found: ForecastView, columns: int) -> list[str]:
    """Return the method and the figures of the forecast."""
    halves = found["half_seconds"]
    rows = [
        ("first slice", "half are ready after", halves["first_wait"]),
        ("", "half are lost after", halves["first_life"]),
        ("after a loss", "half are ready after", halves["later_wait"]),
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
