"""What `tpujob cost estimate` prints: lines that add up, what is not known, and where each figure comes from. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render import words
from tpujob.cli.render.cost.forecast import EMULATED, forecast_lines, hours
from tpujob.cli.render.cost.forecast import explained as forecast_explained
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.text import clean, dollars, many

if TYPE_CHECKING:
    from tpujob.api import EstimateLineView, EstimateView, PriceView

LISTED = (
    "By list price, an estimate: no bill has been seen. `--explain` has each price with its source."
)
UNLOST = (
    "Preemptions are not in it: each adds the time to set up again, and steps that are made again."
)
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
    """The whole text. `explained`: with the price and the source of each line."""
    slices = many(found["hosts"], "host"), many(found["chips"], "chip")
    title = f"{clean(found['name'])} on {found['pricing']} {words.kind(found)}: {', '.join(slices)}, {found['zone']}"
    out = [paint(title, "bold", color), *wrap(clean(_length(found)), columns), ""]
    shown = [one for one in found["lines"] if one["list_micros"] is not None or one["amount"]]
    rows = [_cells(one) for one in shown if not _is_free(one)]
    total = (
        "total" if found["hours"] is not None else "an hour",
        "",
        _sum(found["list_micros"], found),
        dollars(0) if found.get("emulated") else _sum(found["pay_micros"], found),
    )
    out += [table(_COLUMNS, [*rows, total], columns, color=color), ""]
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
        out += [*forecast_explained(forecast, columns), ""] if explained else []
    if found["unknown"]:
        out.append(paint("Not known, and in no sum:", "bold", color))
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
    """When the job's own budget ends it; empty: it does not."""
    if "budget_micros" not in found or "budget_hours" not in found:
        return ""
    paid, wanted = found["budget_hours"], found["hours"]
    if wanted is not None and paid >= wanted:
        return ""
    of = "" if wanted is None else f" of {hours(wanted)}"
    return f"The budget of {dollars(found['budget_micros'])} pays for {hours(paid)}{of}; then the job is ended."


def _reserved(found: EstimateView) -> str:
    """That a reservation is priced as on demand; empty: it is not."""
    slices = next((one["price"] for one in found["lines"] if one["kind"] == "slices"), None)
    if found["pricing"] != "reserved" or slices is None or slices["pricing"] != "on-demand":
        return ""
    return "The price is the list price on demand; a commitment costs less."


def _is_free(one: EstimateLineView) -> bool:
    """Whether it is a part of the machines or the backend for which there is nothing to pay."""
    return one["price"] is None and one["list_micros"] == 0 and one["kind"] in _FREE


def _amount(micros: int | None) -> str:
    return "unknown" if micros is None else dollars(micros)


def _cells(one: EstimateLineView) -> tuple[str, ...]:
    return (
        one["kind"],
        clean(one["what"]),
        _amount(one["list_micros"]),
        _amount(one["pay_micros"]),
    )


def _sum(micros: int, found: EstimateView) -> str:
    """A sum that leaves something out is a lower bound."""
    bound = ">" if found["unknown"] else ""
    return f"{bound}{_amount(micros)}"


def _explained(one: EstimateLineView, columns: int) -> list[str]:
    price = one["price"]
    said = [clean(one["what"])]
    if price is None:
        said.append(f"  {clean(one['note'])}")
    else:
        cost = _amount(one["list_micros"])
        said.append(f"  {one['formula']}, at ${price['usd']} {_each(price)} = {cost}")
        said.append(f"  price: {price_source(price)}")
        said += [f"  {clean(one['note'])}"] if one["note"] else []
    return [
        line
        for text in said
        for line in _item(text.strip(), columns, indent=len(text) - len(text.lstrip()))
    ]


def _each(price: PriceView) -> str:
    return f"a {price['unit']}" if price["per"] == 1 else f"for {price['per']:,} {price['unit']}s"


def price_source(price: PriceView) -> str:
    """Which row it is, of which day, who says so, and how sure that is."""
    row = ", ".join(clean(price[key]) for key in ("item", "where", "pricing") if price[key])
    quoted = f", sold as {clean(price['quoted'])}" if price["quoted"] else ""
    whose = "your file" if price["own"] else f"{price['confidence']} confidence"
    note = f"; {clean(price['note'])}" if price["note"] else ""
    return f"{row}{quoted}; {clean(price['source'])}, {price['as_of']}, {whose}{note}"


def _item(text: str, columns: int, indent: int = 2) -> list[str]:
    first, *more = wrap(clean(text), columns - indent - 2) or [""]
    return [" " * indent + first, *(" " * (indent + 2) + line for line in more)]
