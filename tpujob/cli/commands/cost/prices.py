"""`tpujob cost prices`: the price list in force, and what is wrong with a user's own price file. Asks no backend."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tpujob.cli.backend import current_settings
from tpujob.cli.options import Json
from tpujob.cli.output import note, say, say_json, screen
from tpujob.domain.text import clean, many
from tpujob.errors import BadRequest


def prices(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="Only rows with these words: v5e us-central1."),
    ] = None,
    lint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check a price file of yours instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the prices in force, with their dates and sources."""
    from tpujob.config import context
    from tpujob.config import prices as own
    from tpujob.domain.prices import LIST

    today = datetime.now(UTC).date()
    if lint is not None:
        if words:
            raise BadRequest("give words or --lint, not both")
        found = own.read(lint, today)
        for warning in found.warnings:
            note(f"warning: {clean(warning)}")
        if as_json:
            say_json({"rows": len(found.rows), "warnings": list(found.warnings)})
        else:
            say(f"{lint}: {many(len(found.rows), 'price')}, {many(len(found.warnings), 'warning')}")
        return
    settings = current_settings()
    path = None
    if not settings.local:
        path = own.path_of(settings, context.current(settings))
    mine = own.read(path, today) if path else own.OwnPrices((), ())
    for warning in mine.warnings:
        note(f"warning: {clean(warning)}")
    from tpujob.cli.render.cost.prices import chosen, prices_page

    rows = chosen(LIST.over(mine.rows), words or [])
    if as_json:
        say_json([row.record() for row in rows])
        return
    on = screen()
    say(prices_page(rows, today, on.columns, color=on.color))
