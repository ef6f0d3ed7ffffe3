"""What `tpujob cost prices` prints: rows of the price list with their dates and sources. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING

from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import wrap
from tpujob.domain.prices.lint import SPOT_AGES
from tpujob.domain.text import clean

if TYPE_CHECKING:
    from tpujob.domain.prices import Price

NOTHING = "No price has all these words. `tpujob cost prices` lists every price."
_COLUMNS = (
    Column("Item", floors=(24, 18)),
    Column("Where", floors=(20, 12)),
    Column("Pricing", floors=(10,)),
    Column("US dollars", right=True),
    Column("For"),
    Column("Source", right=True),
)


def chosen(prices: Iterable[Price], words: Sequence[str]) -> list[Price]:
    """The rows that have all these words, in the order of the list; the user's own with the others of their item."""
    rows = sorted(prices, key=lambda row: (row.item, row.where, row.pricing))
    wanted = [word.lower() for word in words]
    return [
        row
        for row in rows
        if all(word in f"{row.name} {row.source.name}".lower() for word in wanted)
    ]


def prices_page(rows: Sequence[Price], today: date, columns: int, *, color: bool = False) -> str:
    if not rows:
        return NOTHING
    sources = list(dict.fromkeys((row.source, row.own) for row in rows))
    cells = [
        (
            clean(row.item),
            clean(row.where),
            row.pricing,
            f"{row.usd.normalize():f}",
            row.each,
            f"[{sources.index((row.source, row.own)) + 1}]",
        )
        for row in rows
    ]
    out = [table(_COLUMNS, cells, columns, color=color), ""]
    for number, (source, own) in enumerate(sources, 1):
        sure = "your file" if own else f"{source.confidence} confidence"
        first, *more = wrap(f"[{number}] {clean(source.name)}, {source.as_of}, {sure}", columns - 4)
        out += [first, *(f"    {line}" for line in more)]
    ages = [(today - row.source.as_of).days for row in rows if row.pricing == "spot"]
    if max(ages, default=0) > SPOT_AGES.days:
        out += [
            "",
            *wrap(
                f"Spot prices here are up to {max(ages)} days old, and can change every month.",
                columns,
            ),
        ]
    return "\n".join(out)
