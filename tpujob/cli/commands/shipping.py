"""How `tpujob create` ships a folder of code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tpujob.cli.output import note
from tpujob.domain.text import clean

if TYPE_CHECKING:
    from tpujob.api import CodeGiven, JobsApi


def ship(api: JobsApi, folder: Path, bucket: str) -> tuple[str, CodeGiven]:
    """Pack the folder and store it; returns its object path and the state of its checkout. Warns of what looks like a
    key. Raises BadRequest, naming files."""
    from tpujob.bundle import pack

    bundle = pack(folder)
    for warning in bundle.warnings:
        note(f"code: {clean(warning)}")
    at = bundle.standing
    code: CodeGiven = {"commit": at.commit, "branch": at.branch, "dirty": at.dirty, "diff": at.diff}
    return api.put_bundle(bundle.sha256, bundle.data, bucket=bucket), code
