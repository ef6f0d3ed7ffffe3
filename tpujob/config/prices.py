"""The user's own prices: a dated YAML file that a context names, laid over the shipped list.

`domain/hardware/price_check.py` finds figures that cannot be right.
"""

import contextlib
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field

from tpujob.config import files
from tpujob.config.context import Context
from tpujob.config.settings import Settings
from tpujob.domain.hardware import price_rows as known
from tpujob.domain.hardware import tpu_prices
from tpujob.domain.hardware.prices import LIST, Flaw, Price, PriceList, Source, flaws
from tpujob.domain.hardware.service_prices import PARTS, route
from tpujob.domain.spec import bad_spec, validate, yaml
from tpujob.domain.spec import fields as kinds
from tpujob.domain.spec.errors import Problem
from tpujob.domain.spec.fields import Checked

_MAX_USD = 1_000_000
#: by item's unit and other unit of a price: the factor that converts the price
_OTHER_UNITS = {
    ("chip-hour", "8-core-hour"): Decimal(1) / tpu_prices.CHIPS_OF_8_CORES,
    ("GiB-month", "GiB-hour"): Decimal(known.HOURS_A_MONTH),
}


@dataclass(frozen=True, slots=True)
class OwnPrices:
    """The rows of a user's price file, and warnings about doubtful figures."""

    rows: tuple[Price, ...]
    warnings: tuple[str, ...]


def read(path: Path, today: date) -> OwnPrices:
    """Return the prices in that file. Raise BadSpec that lists every mistake with its line and row."""
    return parse(files.read(path), str(path), today)


def parse(text: str, source: str, today: date) -> OwnPrices:
    """Return the prices in a file's text; `source` names the file in errors. Raise BadSpec as `read` does."""
    document = yaml.load(text, source)
    file = validate(_File, document.data, document, of="a price file")
    rows, wrong = _rows(file)
    faulty = {problem.path[1] for problem in wrong}
    suspects = [flaw for flaw in flaws(rows, today) if flaw.row not in faulty]
    wrong += [_problem(rows, flaw) for flaw in suspects if flaw.fatal]
    if wrong:
        raise bad_spec(wrong, document)
    unsure = [_problem(rows, flaw) for flaw in suspects]
    return OwnPrices(tuple(rows), tuple(f"{source}:{document.line(p.path)}: {p}" for p in unsure))


def path_of(settings: Settings, context: Context) -> Path | None:
    """Return the path of the context's price file, relative to the folder of contexts; None if it names none."""
    return settings.contexts / context.prices if context.prices else None


def in_force(settings: Settings, context: Context, today: date) -> PriceList:
    """Return the shipped list overlaid with the context's own prices. Raise BadSpec as `read` does."""
    path = path_of(settings, context)
    return LIST.over(read(path, today).rows) if path else LIST


# The file ------------------------------------------------------------------------------------------------------------


def _amount(value: Any) -> Decimal:
    """Return exact dollars. YAML parses a number to a float, whose shortest text is the text of the file."""
    amount = None
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with contextlib.suppress(InvalidOperation):
            amount = Decimal(str(value))
    if amount is None or not amount.is_finite() or amount > _MAX_USD:
        raise ValueError(f"must be an amount in US dollars, not {yaml.describe(value)}")
    if amount <= 0:
        raise ValueError(f"must be above 0, not {value}; leave out a row whose price is not known")
    return amount


def _day(value: Any) -> date:
    with contextlib.suppress(ValueError, TypeError):
        return date.fromisoformat(value)
    raise ValueError(f"must be a day such as 2026-11-20, not {yaml.describe(value)}")


def _many(value: Any) -> Any:
    if isinstance(value, list) and value:
        return cast("list[Any]", value)
    raise ValueError(f"must be a list of prices, not {yaml.describe(value)}")


def _item(value: Any) -> str:
    item: str = kinds.text(100)(value)
    if known.item(item):
        return item
    names = [*known.ITEMS, *sorted({row.item for row in LIST if row.item.startswith("tpu ")})]
    near = [name for name in names if name.startswith(f"{item} ")]
    near = near or difflib.get_close_matches(item, names, n=1)
    meant = (
        f"; did you mean {' or '.join(near)}?"
        if near
        else "; `tpujob cost prices` lists what there is"
    )
    raise ValueError(f"{yaml.shown(item)} is not an item with a price{meant}")


_Source = Annotated[str | None, kinds.optional(kinds.text(200))]
_AsOf = Annotated[date | None, kinds.optional(Checked(_day))]


class _Row(kinds.SpecPart):
    item: Annotated[str, Checked(_item)]
    where: Annotated[str, kinds.text(100)] = ""
    pricing: Annotated[str, kinds.text(40)] = ""
    usd: Annotated[Decimal, Checked(_amount)]
    unit: Annotated[str, kinds.text(40)]
    source: _Source = None
    as_of: _AsOf = None
    note: Annotated[str | None, kinds.optional(kinds.text(500))] = None


class _File(kinds.SpecPart):
    """A price file. `source` and `as_of` are the defaults of its rows."""

    source: _Source = None
    as_of: _AsOf = None
    prices: Annotated[tuple[_Row, ...], Field(strict=False), Checked(_many)]


def _rows(file: _File) -> tuple[list[Price], list[Problem]]:
    rows: list[Price] = []
    wrong: list[Problem] = []
    for i, row in enumerate(file.prices):
        kind = known.item(row.item)
        assert kind, f"{row.item} was checked"
        faults = list(_faults(row, kind, file))
        wrong += [Problem(("prices", i, key), f"{row.item}: {text}") for key, text in faults]
        rows.append(_price(row, kind, file))
    return rows, wrong


def _faults(row: _Row, kind: known.Item, file: _File) -> list[tuple[str, str]]:
    faults: list[tuple[str, str]] = []
    if row.source is None and file.source is None:
        faults.append(("source", "source is missing: say where the price comes from"))
    if row.as_of is None and file.as_of is None:
        faults.append(("as_of", "as_of is missing: give the day of the price"))
    if row.pricing not in kind.pricings:
        allowed = ", ".join(kind.pricings) if kind.pricings != ("",) else "none"
        faults.append(("pricing", f"pricing {row.pricing!r} is not possible; allowed: {allowed}"))
    units = [kind.unit, *(other for unit, other in _OTHER_UNITS if unit == kind.unit)]
    if row.item.startswith("tpu ") and tpu_prices.chips_per_unit(row.item.split()[1]) == 1:
        units = [kind.unit]
    if row.unit not in units:
        count = f", the price being for {kind.per:,} of them" if kind.per > 1 else ""
        faults.append(("unit", f"unit must be {' or '.join(units)}{count}; not {row.unit!r}"))
    if (fault := _where_fault(row, kind)) is not None:
        faults.append(("where", fault))
    return faults


def _where_fault(row: _Row, kind: known.Item) -> str | None:
    if bool(row.where) != bool(kind.where):
        return "where is missing" if kind.where else "where goes with no price of this kind"
    if kind.where == "route" and len(_ends(row.where)) != 2:
        return f"where must be two places, as in us-central1 -> europe-west4; not {row.where!r}"
    return None


def _ends(where: str) -> list[str]:
    ends = [end.strip() for end in where.split("->")]
    named = {part.lower(): part for part in {*PARTS.values(), "anywhere"}}
    return [named.get(end.lower(), end.lower()) for end in ends if end]


def _price(row: _Row, kind: known.Item, file: _File) -> Price:
    usd, quoted = row.usd, ""
    if row.unit != kind.unit:
        usd *= _OTHER_UNITS.get((kind.unit, row.unit), 1)
        quoted = f"${row.usd:f} for a {row.unit}"
    ends = _ends(row.where) if kind.where == "route" else []
    source = row.source or file.source or ""
    return Price(
        item=row.item,
        where=route(*ends) if len(ends) == 2 else row.where.lower(),
        pricing=row.pricing,
        usd=usd,
        unit=kind.unit,
        source=Source(source, row.as_of or file.as_of or date.min),
        per=kind.per,
        quoted=quoted or tpu_prices.quoted(row.item.removeprefix("tpu "), usd),
        note=row.note or "",
        own=True,
    )


def _problem(rows: Sequence[Price], flaw: Flaw) -> Problem:
    return Problem(("prices", flaw.row), f"{rows[flaw.row].name}: {flaw.text}")
