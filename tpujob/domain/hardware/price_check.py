"""What is wrong with a user's own prices, row by row: figures that a source is known to give by mistake. Pure.

What a file may say at all, such as that every row has a date and a source, is in `config/prices.py`.
"""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import NamedTuple

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.price_list import PriceList
from tpujob.domain.hardware.price_rows import Price
from tpujob.domain.hardware.tpu_prices import chips_per_unit

#: Spot prices change once a month at most (a maintainer of SkyPilot's), so an older one is likely out of date.
SPOT_AGES = timedelta(days=35)
#: by so much a price is above the list's when it is for 8 cores, or a placeholder
_TOO_HIGH = Decimal(3)
_BY_CORES = "; if it is the price of 8 cores, write `unit: 8-core-hour`"


class Flaw(NamedTuple):
    row: int  #: from 0
    text: str
    fatal: bool  #: False: the row can be used


def flaws(own: Sequence[Price], base: PriceList, today: date) -> list[Flaw]:
    """Everything that is wrong with these rows, in their order. `base`: the list that they are laid over."""
    seen: dict[tuple[str, str, str], int] = {}
    merged = base.over(own)
    found: list[Flaw] = []
    for i, row in enumerate(own):
        first = seen.setdefault(row.key, i)
        if first != i:
            found.append(
                Flaw(i, f"is the second row for {row.name}; the first is row {first + 1}", True)
            )
        if row.source.as_of > today:
            found.append(Flaw(i, f"is dated {row.source.as_of}, which is in the future", True))
        if row.item.startswith("tpu "):
            found += (Flaw(i, text, True) for text in _of_tpu(row, merged, base))
        if row.item.startswith("tpu ") and row.item.split()[1] not in accelerators.GENERATIONS:
            found.append(Flaw(i, "is of a generation that tpujob does not know", False))
        if row.pricing == "spot" and today - row.source.as_of > SPOT_AGES:
            age = (today - row.source.as_of).days
            found.append(Flaw(i, f"is {age} days old; spot prices can change every month", False))
    return found


def _of_tpu(row: Price, merged: PriceList, base: PriceList) -> Iterator[str]:
    on_demand = merged.find(row.item, row.where, "on-demand")
    by_cores = "" if chips_per_unit(row.item.split()[1]) == 1 else _BY_CORES
    if row.pricing == "spot" and on_demand and row.usd > on_demand.usd:
        yield f"spot costs ${row.usd:f}, more than on demand (${on_demand.usd:f}){by_cores}"
    elif (usual := _usual(row, base)) and row.usd >= usual * _TOO_HIGH:
        yield f"${row.usd:f} for a chip-hour, where the list has ${usual:f}{by_cores}"


def _usual(row: Price, base: PriceList) -> Decimal | None:
    """Return the shipped list's price for it; without one, the highest price of the same kind anywhere."""
    listed = base.find(row.item, row.where, row.pricing)
    if listed:
        return listed.usd
    same = [p.usd for p in base if (p.item, p.pricing) == (row.item, row.pricing)]
    return max(same, default=None)
