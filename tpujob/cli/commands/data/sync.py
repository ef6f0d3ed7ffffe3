"""`tpujob data sync`: copies of the user's data from one place to another."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import current_settings, local_stack
from tpujob.cli.errors import FOUND, on_interrupt
from tpujob.cli.options import Json, argument, flag
from tpujob.cli.output import say, say_json

if TYPE_CHECKING:
    from tpujob.config.settings import Settings
    from tpujob.data.objects import Operations
    from tpujob.data.sync.run import Sync


def sync(
    source: Annotated[
        str,
        argument(
            "SRC",
            "A folder, gs://BUCKET/PREFIX, s3://BUCKET/PREFIX, https://HOST/FILE, or a list of URLs "
            "(TsvHttpData-1.0).",
        ),
    ],
    target: Annotated[str, argument("DST", "A folder, or gs://BUCKET/PREFIX.")],
    dry_run: Annotated[
        bool, flag("Print objects, bytes and cost; copy nothing.", "--dry-run")
    ] = False,
    as_json: Json = False,
) -> int:
    """Copy what differs from SRC to DST, verified. Safe to repeat: whole files are kept. Deletes nothing."""
    from tpujob.cli.commands.data import pages as render

    if dry_run:
        with _prepared(source, target, dry_run=True) as (job, _):
            record, page = render.preview_record(job.preview()), render.preview_page
    else:
        ended = "Whole files are kept. The same command goes on."
        record, page = copied(source, target, ended), render.outcome_page
    say_json(record) if as_json else say(page(record))
    return FOUND if record["left_out"] + record["conflicts"] else 0


def copied(source: str, target: str, ended: str) -> dict[str, Any]:
    """The record of a sync. `ended`: what Ctrl-C says. Raises what a sync raises."""
    from tpujob.cli.commands.data.pages import outcome_record

    with _prepared(source, target, dry_run=False) as (job, operations), on_interrupt(ended):
        begun = time.monotonic()
        outcome = job.run()
        return outcome_record(outcome, operations, time.monotonic() - begun)


@contextmanager
def _prepared(source: str, target: str, *, dry_run: bool) -> Generator[tuple[Sync, Operations]]:
    from tpujob.cli.commands.data.progress import ProgressBar
    from tpujob.data import places
    from tpujob.data.sync.run import Sync, check
    from tpujob.data.url_lists import listed
    from tpujob.wiring.data import copying, reading

    from_, to = listed(places.parse(source)), places.parse(target)
    check(from_, to)  # before a bucket is made, or credentials are asked for
    new = to.bucket if isinstance(to, places.Prefix) and not dry_run else ""
    with (
        reading(from_) as reader,
        copying(settings(), new) as (objects, cache),
        ProgressBar(shown=not dry_run) as progress,
    ):
        yield Sync(from_, to, objects, cache, progress, reader), objects.operations


def settings() -> Settings:
    """The local stack is started when it is down; another context needs nothing that runs here."""
    now = current_settings()
    return local_stack() if now.local and not now.storage_endpoint else now
