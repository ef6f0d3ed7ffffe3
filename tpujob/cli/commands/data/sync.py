"""`tpujob data sync`: copies the user's data from one place to another."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import current_settings, local_stack
from tpujob.cli.errors import PROBLEM_FOUND, on_interrupt
from tpujob.cli.options import Json, argument, flag
from tpujob.cli.output import note, say, say_json
from tpujob.errors import BadRequest, Conflict

if TYPE_CHECKING:
    from rich.progress import Progress

    from tpujob.api import DataView
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
        with _open_sync(source, target, dry_run=True) as (job, _):
            record, page = render.preview_record(job.preview()), render.preview_page
    else:
        interrupted = "Whole files are kept. The same command continues."
        record, page = copy(source, target, interrupted), render.outcome_page
    say_json(record) if as_json else say(page(record))
    return PROBLEM_FOUND if record["left_out"] + record["conflicts"] else 0


def copy(source: str, target: str, interrupted: str) -> dict[str, Any]:
    """Copy and return the record of the sync. `interrupted`: printed on Ctrl-C. Raises what a sync raises."""
    from tpujob.cli.commands.data.pages import outcome_record

    with _open_sync(source, target, dry_run=False) as (job, operations), on_interrupt(interrupted):
        started = time.monotonic()
        outcome = job.run()
        return outcome_record(outcome, operations, time.monotonic() - started)


@contextmanager
def _open_sync(source: str, target: str, *, dry_run: bool) -> Generator[tuple[Sync, Operations]]:
    from tpujob.data import locations
    from tpujob.data.sync.run import Sync, check
    from tpujob.wiring.data import copying, reading

    from_, to = locations.detect_url_list(locations.parse(source)), locations.parse(target)
    check(from_, to)  # before a bucket is made, or credentials are needed
    new_bucket = to.bucket if isinstance(to, locations.Prefix) and not dry_run else ""
    with (
        reading(from_) as reader,
        copying(storage_settings(), new_bucket) as (objects, cache),
        ProgressBar(shown=not dry_run) as progress,
    ):
        yield Sync(from_, to, objects, cache, progress, reader), objects.operations


def storage_settings() -> Settings:
    """Return the current settings; start the local stack if its storage is used and the stack is down."""
    settings = current_settings()
    return local_stack() if settings.local and not settings.storage_endpoint else settings


# Data of a job that the storage cannot read itself: a folder, s3://, https:// ----------------------------------------


def upload_sources(data: Sequence[DataView]) -> None:
    """Copy each source that the storage cannot read to its place in the plan, verified. Safe to repeat: whole files are
    kept. Raises what a sync raises; Conflict when something could not be copied."""
    for source in data:
        note(f"data: copying {source['source']} to {source['base']}")
        _copy_for_job(_local_path_or_url(source["source"]), source["base"])


def check_sources(data: Sequence[DataView]) -> None:
    """Raise the Conflict of `upload_sources` if a folder of this machine has something that cannot be copied."""
    from tpujob.cli.commands.data.pages import preview_page, preview_record
    from tpujob.submit.job_file import FILE

    for source in data:
        if source["source"].startswith(FILE):
            folder = _local_path_or_url(source["source"])
            with _open_sync(folder, source["base"], dry_run=True) as (job, _):
                record = preview_record(job.preview())
            _refuse_incomplete(record, preview_page(record), folder, source["base"])


def _local_path_or_url(source: str) -> str:
    """Return the source as a sync reads it. Raises BadRequest for a folder of another machine."""
    from tpujob.submit.job_file import FILE

    if not source.startswith(FILE):
        return source
    host, slash, path = source.removeprefix(FILE).partition("/")
    if host != socket.gethostname():
        raise BadRequest(
            f"{source} is a folder on {host}, not on this machine",
            hint=f"submit the job there, or copy the data first: tpujob data sync {slash}{path} gs://BUCKET/PREFIX",
        )
    return slash + path


def _copy_for_job(source: str, target: str) -> None:
    from tpujob.cli.commands.data.pages import outcome_page

    interrupted = "Nothing was submitted. Whole files are kept; the same command continues."
    record = copy(source, target, interrupted)
    _refuse_incomplete(record, outcome_page(record), source, target)


def _refuse_incomplete(record: dict[str, Any], page: str, source: str, target: str) -> None:
    for line in page.splitlines():
        note(f"data: {line.strip()}")
    if record["left_out"] or record["conflicts"]:
        raise Conflict(
            f"not all of {source} could be copied, so nothing was submitted",
            hint=f"tpujob data sync {source} {target}",
        )


# Progress ------------------------------------------------------------------------------------------------------------


class ProgressBar:
    """A bar of the copied bytes on standard error, if that is a terminal. Implements `SyncProgress`, for any thread."""

    def __init__(self, *, shown: bool) -> None:
        self._planned = 0
        self._bar: Progress | None = _make_bar() if shown and sys.stderr.isatty() else None
        self._task = self._bar.add_task("copying", total=0) if self._bar else None

    def __enter__(self) -> ProgressBar:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def planned(self, size: int) -> None:
        """Add the size of a file, whether it is to be copied or exists at the target."""
        if self._bar and self._task is not None:
            self._planned += size
            self._bar.update(self._task, total=self._planned)

    def moved(self, size: int) -> None:
        if self._bar and self._task is not None:
            self._bar.update(self._task, advance=size)


def _make_bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(True), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
