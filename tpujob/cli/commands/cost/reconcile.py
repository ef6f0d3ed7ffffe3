"""`tpujob cost reconcile`: the ledger beside Google's bill."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.errors import FOUND
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json, screen
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import LedgerView
    from tpujob.domain.money.billing import Book

_DAY = ["%Y-%m-%d"]


def reconcile(
    exports: Annotated[
        list[Path],
        typer.Argument(metavar="EXPORT...", help="CSV or JSON of the billing export, also .gz."),
    ],
    since: Annotated[
        datetime | None,
        typer.Option(
            metavar="DAY",
            formats=_DAY,
            help="Compare from this day on, UTC; else from the first row.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            metavar="DAY",
            formats=_DAY,
            help="Compare before this day, UTC; else until 48 hours before the newest row.",
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="PERCENT", min=0.0, help="A smaller difference is none; nor is a cent."
        ),
    ] = 1.0,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, in micro-dollars.")] = False,
) -> int:
    """Show where Google's bill differs from the ledger, and why. Exports that overlap count once."""
    from tpujob.billing import read_into
    from tpujob.cli.render.cost import reconcile as render

    if as_json and as_csv:
        raise BadRequest("give one of --json and --csv")
    if since and until and since >= until:
        raise BadRequest("--since has to be before --until")
    ledger = connect().ledger()
    book = _book(ledger)
    imported = read_into(exports, book.add)
    found = book.close(ledger["at"], since=_micros(since), until=_micros(until))
    share = tolerance / 100
    on = screen()
    if as_json:
        say_json(render.reconciled_record(found, imported, share))
    elif as_csv:
        say(render.reconciled_csv(found))
    else:
        emulated = current_settings().local
        say(
            render.reconciled_page(
                found, imported, share, on.columns, color=on.color, emulated=emulated
            )
        )
    return FOUND if found.differing(share) else 0


def _book(ledger: LedgerView) -> Book:
    from tpujob.domain.money.billing import Book, LedgerSlice

    slices = [
        LedgerSlice(
            job=job["job"],
            name=one["slice"],
            generation=one["generation"],
            zone=one["zone"],
            spot=one["pricing"] == "spot",
            chips=one["chips"],
            ready=one["ready"],
            gone=one["gone"],
            rate=one["micros_per_hour"],
            granted=one["granted"],
        )
        for job in ledger["jobs"]
        for one in job["slices"]
    ]
    return Book({job["job"]: job["name"] for job in ledger["jobs"]}, slices, ledger["owner"])


def _micros(day: datetime | None) -> int | None:
    return None if day is None else int(day.replace(tzinfo=UTC).timestamp()) * 1_000_000
