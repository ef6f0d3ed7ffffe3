"""`tpujob cost prices`: shows the prices in force and checks a user's price file, without a backend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tpujob.cli.backend import current_settings
from tpujob.cli.options import Json, argument, option
from tpujob.cli.output import get_screen, note, say, say_json
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import wrap
from tpujob.domain.hardware.price_check import SPOT_AGES
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.text import clean, listed, many
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.domain.hardware.prices import Price


def prices(
    words: Annotated[
        list[str] | None, argument("[WORD]...", "Filter by words, such as v5e us-central1.")
    ] = None,
    lint: Annotated[Path | None, option("FILE", "Check a price file.")] = None,
    as_json: Json = False,
) -> None:
    """Show the prices in force, with their dates and sources."""
    from tpujob.config import context
    from tpujob.config import prices as own
    from tpujob.domain.hardware.prices import LIST

    today = datetime.now(UTC).date()
    if lint is not None:
        if words:
            raise BadRequest("give words or --lint, not both")
        file = own.read(lint, today)
        for warning in file.warnings:
            note(f"warning: {clean(warning)}")
        if as_json:
            say_json({"rows": len(file.rows), "warnings": list(file.warnings)})
        else:
            say(f"{lint}: {many(len(file.rows), 'price')}, {many(len(file.warnings), 'warning')}")
        return
    settings = current_settings()
    path = None if settings.local else own.path_of(settings, context.current(settings))
    file = own.read(path, today) if path else own.OwnPrices((), ())
    for warning in file.warnings:
        note(f"warning: {clean(warning)}")

    rows = matching(LIST.over(file.rows), words or [])
    screen = get_screen()
    page = prices_page(rows, today, screen.columns, color=screen.color)
    say_json([row.record() for row in rows]) if as_json else say(page)


NOTHING = "No price has all these words. `tpujob cost prices` lists every price."
_COLUMNS = (
    Column("Item", floors=(24, 18)),
    Column("Where", floors=(20, 12)),
    Column("Pricing", floors=(10,)),
    Column("US dollars", right=True),
    Column("For"),
    Column("Source", right=True),
)


def matching(prices: Iterable[Price], words: Sequence[str]) -> list[Price]:
    """Return the prices that have all these words, sorted by item, place and pricing."""

    def matches(price: Price) -> bool:
        text = f"{price.name} {price.source.name}".lower()
        return all(word.lower() in text for word in words)

    return sorted(filter(matches, prices), key=lambda row: (row.item, row.where, row.pricing))


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
        trust = "your file" if own else f"{source.confidence} confidence"
        text = f"[{number}] {clean(source.name)}, {source.as_of}, {trust}"
        first, *rest = wrap(text, columns - 4)
        out += [first, *(f"    {line}" for line in rest)]
    changing = [row for row in rows if find_pricing(row.pricing).preemptible]
    ages = [(today - row.source.as_of).days for row in changing]
    if max(ages, default=0) > SPOT_AGES.days:
        names = listed([*dict.fromkeys(row.pricing for row in changing)])
        text = f"{names.capitalize()} prices here are up to {max(ages)} days old, and can change every month."
        out += ["", *wrap(text, columns)]
    return "\n".join(out)
