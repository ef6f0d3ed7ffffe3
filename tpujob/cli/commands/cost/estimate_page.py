"""The page of `tpujob cost estimate`: lines that add up, unknown amounts, sources of figures, the forecast. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render import words
from tpujob.cli.render.table import Column, numbers, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.text import clean, dollars, duration, listed, many

if TYPE_CHECKING:
    from tpujob.api import EstimateLineView, EstimateView, ForecastView, PriceView, RangeView

LISTED = (
    "By list price, an estimate: no bill has been seen. `--explain` has each price with its source."
)
UNLOST = "Preemptions are not included: each adds another set-up and repeated steps."
#: parts without a row if they cost nothing
_FREE = ("machines", "control plane")
_COLUMNS = (
    Column("Part"),
    Column("What", floors=(36, 24), cut=clip_middle),
    *numbers("List value", "You pay"),
)


def estimate_page(
    estimate: EstimateView, columns: int, *, color: bool = False, explained: bool = False
) -> str:
    """Return the whole text. `explained`: with the price and the source of each line."""
    size = f"{many(estimate['hosts'], 'host')}, {many(estimate['chips'], 'chip')}"
    jobs = estimate.get("jobs", 1)
    several_jobs = f", each of {many(jobs, 'job')}," if jobs > 1 else ""
    hardware = f"{estimate['pricing']} {words.kind(estimate)}: {size}, {estimate['zone']}"
    title = f"{clean(estimate['name'])}{several_jobs} on {hardware}"
    out = [paint(title, "bold", color), *wrap(clean(_length(estimate)), columns), ""]
    lines = [x for x in estimate["lines"] if x["list_micros"] is not None or x["amount"]]
    rows = [
        (x["kind"], clean(x["what"]), _amount(x["list_micros"]), _amount(x["pay_micros"]))
        for x in lines
        if x["price"] is not None or x["list_micros"] != 0 or x["kind"] not in _FREE
    ]
    for n in sorted({1, jobs}):
        whole = "an hour" if estimate["hours"] is None else "total"
        list_total = _total(n * estimate["list_micros"], estimate)
        pay_total = _total(n * estimate["pay_micros"], estimate)
        you_pay = dollars(0) if estimate.get("emulated") else pay_total
        rows.append((whole if n == 1 else many(n, "job"), "", list_total, you_pay))
    out += [table(_COLUMNS, rows, columns, color=color), ""]
    for text in filter(None, (_reservation(estimate), _budget(estimate))):
        out += [*wrap(text, columns), ""]
    if explained:
        for line in lines:
            out += _explanation(line, columns)
        out.append("")
    forecast = estimate.get("forecast")
    if forecast is not None:
        ranges = forecast_lines(forecast, columns, estimate["pricing"], jobs=jobs, color=color)
        out += [*ranges, ""]
        out += [*_forecast_explanation(forecast, columns), ""] if explained else []
    if estimate["unknown"]:
        out.append(paint("Not known, and in no total:", "bold", color))
        for text in estimate["unknown"]:
            out += _item(text, columns)
    for warning in estimate["warnings"]:
        out += wrap(f"warning: {clean(warning)}", columns)
    if not forecast:
        out += wrap(UNLOST, columns)
    out += wrap(EMULATED if estimate.get("emulated") else LISTED, columns)
    return "\n".join(out)


def _length(estimate: EstimateView) -> str:
    if estimate["hours"] is None:
        return f"For each hour: {estimate['length']}."
    shortest, longest = estimate["least_hours"], estimate["most_hours"]
    range = ""
    if shortest is not None and longest is not None and shortest != longest:
        range = f" ({hours(shortest)} to {hours(longest)})"
    return f"For {hours(estimate['hours'])}{range}, {estimate['length']}."


def _budget(estimate: EstimateView) -> str:
    """Say when the job's own budget ends the job, and what part of it is kept; empty: there is none."""
    if "budget_micros" not in estimate or "budget_hours" not in estimate:
        return ""
    limit, kept = (
        dollars(estimate.get(key, 0)) for key in ("budget_micros", "budget_reserve_micros")
    )
    reserved = f"{kept} of the budget of {limit} are kept to save and to release the slice"
    paid, needed = estimate["budget_hours"], estimate["hours"]
    if needed is not None and paid >= needed:
        return f"{reserved}."
    of = "" if needed is None else f" of {hours(needed)}"
    return f"{reserved}; the rest pays for {hours(paid)}{of}, then the job is ended."


def _reservation(estimate: EstimateView) -> str:
    """Say that the price is that of another pricing; empty: it has its own."""
    price = next((line["price"] for line in estimate["lines"] if line["kind"] == "slices"), None)
    if price is None or price["pricing"] == estimate["pricing"]:
        return ""
    return "The price is the list price on demand; a commitment costs less."


def _amount(micros: int | None) -> str:
    return "unknown" if micros is None else dollars(micros)


def _total(micros: int, estimate: EstimateView) -> str:
    """Return a total; `>` marks a lower bound, as unknown amounts are left out."""
    return f"{'>' if estimate['unknown'] else ''}{_amount(micros)}"


def _explanation(line: EstimateLineView, columns: int) -> list[str]:
    price = line["price"]
    details: list[str] = []
    if price is not None:
        cost, unit, per = _amount(line["list_micros"]), price["unit"], price["per"]
        unit_text = f"a {unit}" if per == 1 else f"for {per:,} {unit}s"
        details.append(f"{line['formula']}, at ${price['usd']} {unit_text} = {cost}")
        details.append(f"price: {_price_source(price)}")
    if price is None or line["note"]:
        details.append(line["note"])
    out = _item(line["what"], columns, indent=0)
    for text in details:
        out += _item(text, columns)
    return out


def _price_source(price: PriceView) -> str:
    """Return the row of the price list, its source, its day, and its reliability."""
    row = ", ".join(clean(price[key]) for key in ("item", "where", "pricing") if price[key])
    quoted = f", sold as {clean(price['quoted'])}" if price["quoted"] else ""
    trust = "your file" if price["own"] else f"{price['confidence']} confidence"
    note = f"; {clean(price['note'])}" if price["note"] else ""
    return f"{row}{quoted}; {clean(price['source'])}, {price['as_of']}, {trust}{note}"


def _item(text: str, columns: int, indent: int = 2) -> list[str]:
    first, *rest = wrap(clean(text), columns - indent - 2) or [""]
    return [" " * indent + first, *(" " * (indent + 2) + line for line in rest)]


EMULATED = "The local stack bills nothing: amounts are Google's list prices."
_RANGES = (Column("Nine of ten jobs"), *numbers("From", "Half below", "1 in 10 above", "To"))
NEW = "No job has had such a slice there yet"
GUESSED = (
    "Preemptions are guessed from records of spot machines of another kind: state them with "
    "`--preempt-every`."
)
ASSUMED = "One loss in 720 h is assumed: state another with `--preempt-every`."
HELD = "A {} slice is held, so there is no wait for it."
NO_WAIT = "How long the job waits for a slice is not known: state it with `--wait`."
METHOD = (
    "Method: losses of slices are a Poisson process. Its rate, the waits and the times of set-up and release come from "
    "earlier jobs or are as stated above. The hours of each bound are priced by the lines above."
)


def forecast_lines(
    forecast: ForecastView, columns: int, pricing: str, *, jobs: int = 1, color: bool = False
) -> list[str]:
    wall = forecast["wall_hours"]
    rows = [
        ("list value", *_money(forecast["list_micros"])),
        ("you pay", *_money(forecast["pay_micros"])),
        ("slices held", *_hours(forecast["billed_hours"])),
        *([("until the end", *_hours(wall))] if wall else []),
        ("preemptions", *(f"{value:,.0f}" for value in _bounds(forecast["preemptions"]))),
    ]
    means = {
        "waiting": forecast["waiting_hours"],
        "set-up": forecast["setup_hours"],
        "lost work": forecast["redone_hours"],
    }
    mean_texts = [
        f"{hours(mean)} of {part}"
        for part, mean in means.items()
        if mean is not None and hours(mean) != hours(0)
    ]
    held = f"{hours(forecast['billed_hours']['p50'])} of slices, at an unknown price"
    which = f", for each of {many(jobs, 'job')}" if jobs > 1 else ""
    heading = f"With preemptions{which}: {_summary(forecast) or held}"
    cost = forecast["list_micros"]
    if cost and jobs > 1:
        heading += f"; for all of them about {dollars(round(jobs * cost['p50']))}"
    out = [paint(line, "bold", color) for line in wrap(heading, columns)]
    out += [table(_RANGES, rows, columns, color=color)]
    if mean_texts:
        work = f"on top of {hours(forecast['work_hours'])} of useful work"
        out += wrap(f"On average {listed(mean_texts)}, {work}.", columns)
    ends = forecast["planned_ends"]
    if ends:
        text = f"{many(ends, 'slice')} will end as planned before the work is done"
        spare = " `recovery.planned_ends` must allow as many." if forecast["fails"] == 1 else ""
        out += wrap(f"{text}; the next one goes on.{spare}", columns)
    if forecast["fails"] >= 0.01:
        limits = f"the preemptions{' or the wait' if wall else ''} that `recovery` allows"
        probability = f"{forecast['fails']:.0%}"
        text = f"The job fails with a probability of {probability}: it uses up {limits}."
        out += wrap(text, columns)
    if wall is None:
        out += wrap(NO_WAIT, columns)
    for text in (*unmeasured(forecast), _basis(forecast, pricing)):
        out += wrap(text, columns)
    return out


def unmeasured(forecast: ForecastView) -> list[str]:
    """Say that the ranges use a guess of set-up or release; empty: both were measured."""
    times = {"the set-up": forecast["setup_hours"], "the release": forecast["releasing_hours"]}
    names = [name for name, value in times.items() if value is None]
    if not names:
        return []
    return [f"Not measured yet: the time of {listed(names)}. The range is based on guesses."]


def _basis(forecast: ForecastView, pricing: str) -> str:
    """Say what the range is based on."""
    stated = forecast["stated"]
    slices = forecast["slices"]
    if set(stated) == {"wait", "preemptions"}:
        return "Waits and preemptions are as stated."
    terms = find_pricing(pricing)
    wait_stated = "wait" in stated
    losses_stated = "preemptions" in stated
    wait_estimated = terms.waits_in_queue and not wait_stated and forecast["wall_hours"] is not None
    texts: list[str] = []
    if slices:
        losses = f"{forecast['losses']} of them lost"
        texts.append(f"It is based on {many(slices, 'earlier slice')} there, {losses}.")
    elif wait_estimated:
        figures = "waits and preemptions" if terms.preemptible and not losses_stated else "waits"
        other = " and of spot machines of another kind" if terms.preemptible else ""
        texts.append(f"{NEW}; {figures} are those of other places{other}.")
    elif not losses_stated:
        texts.append(f"{NEW}.")
    if not slices and not losses_stated and not (wait_estimated and terms.preemptible):
        texts.append(GUESSED if terms.preemptible else ASSUMED)
    if not terms.waits_in_queue and not wait_stated:
        texts.append(HELD.format(pricing))
    if wait_stated:
        texts.append("The wait is as stated.")
    if losses_stated:
        texts.append("Preemptions are as stated.")
    return " ".join(texts)


def _forecast_explanation(forecast: ForecastView, columns: int) -> list[str]:
    """Return the method and the figures of the forecast."""
    halves = forecast["half_seconds"]
    rows = [
        ("first slice", "half are ready after", halves["first_wait"]),
        ("", "half are lost after", halves["first_life"]),
        ("after a loss", "half are ready after", halves["later_wait"]),
        ("", "half are lost after", halves["later_life"]),
        ("set-up", "half take less than", halves["setup"]),
        ("release", "half take less than", halves["release"]),
    ]
    lines = [
        f"  {part:12} {meaning} {'(not known)' if seconds is None else duration(seconds)}"
        for part, meaning, seconds in rows
    ]
    return [*wrap(METHOD, columns), *lines]


def _summary(forecast: ForecastView) -> str:
    """Return `$41.20 to $66.10, most likely about $48.02`, by list price; empty: no price is known."""
    cost = forecast["list_micros"]
    if cost is None:
        return ""
    low, middle, high = (dollars(round(cost[key])) for key in ("low", "p50", "high"))
    return f"{low} to {high}, most likely about {middle}"


def _bounds(range: RangeView) -> tuple[float, float, float, float]:
    return range["low"], range["p50"], range["p90"], range["high"]


def _money(range: RangeView | None) -> tuple[str, ...]:
    if range is None:
        return ("unknown",) * 4
    return tuple(dollars(round(value)) for value in _bounds(range))


def _hours(range: RangeView) -> tuple[str, ...]:
    return tuple(hours(value) for value in _bounds(range))


def hours(value: float) -> str:
    """Return hours as `45 s`, `2.5 h` or `3 days`."""
    return duration(value * 3600)
