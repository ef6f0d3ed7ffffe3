"""The page of `tpujob outputs`: what a job saved in the bucket. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render.table import Column, numbers, table
from tpujob.cli.render.text import clip_middle
from tpujob.domain.text import age, amount_of_bytes, clean, many

if TYPE_CHECKING:
    from tpujob.api import OutputsView

_COLUMNS = (Column("Path", floors=(24,), cut=clip_middle), *numbers("Step", "Files", "Size", "Age"))


def outputs_page(outputs: OutputsView, columns: int, *, color: bool) -> str:
    """Return the table, and the command that copies the newest checkpoint."""
    rows = [
        (
            clean(row["path"]),
            "-" if row["step"] is None else f"{row['step']:,}",
            f"{row['files']:,}",
            amount_of_bytes(row["bytes"]),
            age(row["age_s"]),
        )
        for row in outputs["rows"]
    ]
    workdir = clean(outputs["workdir"])
    lines = [table(_COLUMNS, rows, columns, color=color) if rows else "No checkpoints and outputs."]
    if not outputs["complete"]:
        lines.append(
            "There are more: only the first objects were read, in the order of their names."
        )
    if outputs["checkpoint"] is not None:
        lines.append(f"The newest checkpoint that every host has: step {outputs['checkpoint']:,}.")
    lines.append(f"In {workdir}")
    if outputs["earlier"]:
        lines.append(f"Before that in {many(len(outputs['earlier']), 'other folder')}: --json")
    if rows:
        saved = [row["path"] for row in outputs["rows"] if row["step"] is not None]
        newest = saved[-1] if saved else outputs["rows"][-1]["path"]
        lines.append(f"  copy: tpujob cp {outputs['id']}:{clean(newest)} .")
    return "\n".join(lines)
