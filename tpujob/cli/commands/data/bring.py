"""Brings the data of a job that the storage itself cannot read (a folder, s3://, https://) to where copies of it are
made from, before the job is submitted."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.output import note
from tpujob.errors import BadRequest, Conflict
from tpujob.submit.job_file import FILE

if TYPE_CHECKING:
    from tpujob.api import DataView


def bring(data: Sequence[DataView]) -> None:
    """Afterwards everything that the storage cannot read is where the plan wants it, verified. Safe to repeat: goes on
    where it was ended. Raises what a sync raises; Conflict when something could not be copied."""
    for one in data:
        if one["to_bring"]:
            note(f"data: copying {one['source']} to {one['base']}")
            _sync(_here(one["source"]), one["base"])


def _here(source: str) -> str:
    """What a sync can read. Raises BadRequest for a folder of another machine."""
    if not source.startswith(FILE):
        return source
    host, slash, path = source.removeprefix(FILE).partition("/")
    if host != socket.gethostname():
        raise BadRequest(
            f"{source} is a folder on {host}, not on this machine",
            hint=f"submit the job there, or copy the data first: tpujob data sync {slash}{path} gs://BUCKET/PREFIX",
        )
    return slash + path


def _sync(source: str, target: str) -> None:
    from tpujob.cli.commands.data.sync import copied
    from tpujob.cli.render.data.pages import outcome_page

    ended = "Nothing was submitted. Whole files are kept; the same command goes on."
    record = copied(source, target, ended)
    for line in outcome_page(record).splitlines():
        note(f"data: {line.strip()}")
    if record["left_out"] or record["conflicts"]:
        raise Conflict(
            f"not all of {source} could be copied, so nothing was submitted",
            hint=f"tpujob data sync {source} {target}",
        )
