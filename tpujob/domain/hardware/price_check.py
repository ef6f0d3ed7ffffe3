"""Checks a user's own prices, row by row, for the known mistakes of sources of prices. Pure.

`config/prices.py` checks the format of the file, such as that every row has a date and a source.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import NamedTuple

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.price_list import LIST, PriceList
from tpujob.domain.hardware.price_rows import ONE_YEAR, THREE_YEARS, Price
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.hardware.tpu_prices import chips_per_unit

#: spot prices change at most once a month (a maintainer of SkyPilot); an older price is likely outdated
SPOT_AGES = timedelta(days=35)
_NEAR = Decimal("0.01")
_COMMITMENT = re.compile(r"commit|\bcud\b", re.I)
#: a price of this multiple of the list price is for 8 cores, or a placeholder
_TOO_HIGH = Decimal(3)


class Flaw(NamedTuple):
    """A mistake in a row of the user's prices."""

    row: int  #: from 0
    text: str
    fatal: bool  #: False: the row can be used


def flaws(own: Sequence[Price], today: date) -> list[Flaw]:
    """Return all mistakes in these rows, in their order. The rows replace parts of the shipped list."""
    seen: dict[tuple[str, str, str], int] = {}
    merged = LIST.over(own)
    flaws: list[Flaw] = []
    for i, row in enumerate(own):
        first = seen.setdefault(row.key, i)
        if first != i:
            flaws.append(
                Flaw(i, f"is the second row for {row.name}; the first is row {first + 1}", True)
            )
        if row.source.as_of > today:
            flaws.append(Flaw(i, f"is dated {row.source.as_of}, which is in the future", True))
        if row.item.startswith("tpu "):
            flaws += (Flaw(i, text, True) for text in _flaws_of_tpu(row, merged))
            if row.item.split()[1] not in accelerators.GENERATIONS:
                flaws.append(Flaw(i, "is of a generation that tpujob does not know", False))
        if find_pricing(row.pricing).preemptible and today - row.source.as_of > SPOT_AGES:
            age = (today - row.source.as_of).days
            flaws.append(
                Flaw(i, f"is {age} days old; {row.pricing} prices can change every month", False)
            )
    return flaws


def _flaws_of_tpu(row: Price, merged: PriceList) -> Iterator[str]:
    on_demand = merged.find(row.item, row.where, "on-demand")
    if find_pricing(row.pricing).preemptible and on_demand and row.usd > on_demand.usd:
        yield f"{row.pricing} costs ${row.usd:f}, more than on demand (${on_demand.usd:f}){_unit_hint(row)}"
    elif find_pricing(row.pricing).usual and (committed := _commitment(row)):
        yield f"${row.usd:f} on demand is {committed}; give it as `pricing: reserved` if that is what you pay"
    elif (usual := _usual_price(row)) and row.usd >= usual * _TOO_HIGH:
        yield f"${row.usd:f} for a chip-hour, where the list has ${usual:f}{_unit_hint(row)}"


def _usual_price(row: Price) -> Decimal | None:
    """Return the price in the shipped list; without one, the highest price of the same kind in any region."""
    listed = LIST.find(row.item, row.where, row.pricing)
    return listed.usd if listed else max(_prices_of_kind(row), default=None)


def _prices_of_kind(row: Price) -> list[Decimal]:
    return [p.usd for p in LIST if (p.item, p.pricing) == (row.item, row.pricing)]


def _unit_hint(row: Price) -> str:
    """Return a hint if the price is likely that of 8 cores; else empty."""
    chips = chips_per_unit(row.item.split()[1])
    prices = _prices_of_kind(row)
    if chips > 1 and any(_is_near(row.usd, usd * chips) for usd in prices):
        return ": it is the price of 8 cores; write `unit: 8-core-hour`"
    return ""


def _commitment(row: Price) -> str:
    """Return the commitment that has this price; empty: none."""
    if _COMMITMENT.search(row.source.name):
        return "called a commitment by its own source"
    listed = LIST.find(row.item, row.where, "on-demand")
    generation = accelerators.GENERATIONS.get(row.item.split()[1])
    shares = generation.committed_shares if generation else ()
    for pricing, share in zip((ONE_YEAR, THREE_YEARS), shares, strict=False):
        committed = LIST.find(row.item, row.where, pricing)
        rates = [committed.usd] if committed else []
        rates += [listed.usd * Decimal(share)] if listed else []
        if any(_is_near(row.usd, rate) for rate in rates):
            return f"the rate of a {pricing}"
    return ""


def _is_near(usd: Decimal, other: Decimal) -> bool:
    return abs(usd - other) <= other * _NEAR
