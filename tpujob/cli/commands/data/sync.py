"""`tpujob data sync`: copies of the user's data from one place to another."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import current_settings, local_stack
from tpujob.cli.errors import FOUND, on_interrupt
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json

if TYPE_CHECKING:
    from tpujob.config.settings import Settings


def sync(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="A folder, gs://BUCKET/PREFIX, s3://BUCKET/PREFIX, https://HOST/FILE, or a list of URLs: a file whose "
            "first line is TsvHttpData-1.0 and each other one a URL, its bytes and the base64 of its MD5.",
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="A folder, or gs://BUCKET/PREFIX.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Copy nothing: print objects, bytes and dollars.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Copy what differs from SRC to DST, verified. Safe to repeat; goes on where it was killed. Deletes nothing."""
    from tpujob.cli.render.data import pages as render
    from tpujob.cli.render.data.progress import Bar
    from tpujob.data import places
    from tpujob.data.sources.urls import listed
    from tpujob.data.sync.run import Sync, check
    from tpujob.wiring.data import copying, reading

    from_, to = listed(places.parse(source)), places.parse(target)
    check(from_, to)  # before a bucket is made, or credentials are asked for
    new = to.bucket if isinstance(to, places.Prefix) and not dry_run else ""
    with (
        reading(from_) as reader,
        copying(settings(), new) as (objects, ledger),
        Bar(shown=not dry_run) as progress,
    ):
        begun = time.monotonic()
        job = Sync(from_, to, objects, ledger, progress, reader)
        if dry_run:
            preview = job.preview()
            record, page = render.preview_record(preview), render.preview_page
            problems = preview.left_out
        else:
            with on_interrupt("What is whole stays. The same command goes on."):
                outcome = job.run()
            record = render.outcome_record(outcome, objects.operations, time.monotonic() - begun)
            page = render.outcome_page
            problems = outcome.left_out + outcome.conflicts
    say_json(record) if as_json else say(page(record))
    return FOUND if problems else 0


def settings() -> Settings:
    """The local stack is started when it is down; another context needs nothing that runs here."""
    now = current_settings()
    return local_stack() if now.local and not now.storage_endpoint else now
