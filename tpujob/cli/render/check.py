"""What `tpujob create --check` prints: the job's types side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.text import clean, dollars

if TYPE_CHECKING:
    from tpujob.submit.compile_check import TargetFinding

GIB = 2**30
MEANING = (
    "Compiled on this machine, not run. The step, and what follows from it, is from the best that is likely to the "
    "worst, by what is published of language models on the generation; dollars are list prices of those hours alone. "
    "`tpujob cost estimate --compare` adds waits and preemptions."
)
KEYS = "A flag `--name=value` is `name: value` below `run.args` of the job file."
_COLUMNS = (
    Column("Slices"),
    Column("Zone", floors=(14, 0), cut=clip_middle),
    Column("Fits", style=lambda cell: "green" if cell == "yes" else "red"),
    Column("Memory", right=True),
    Column("of", right=True),
    Column("At least", right=True),
    Column("Step", right=True),
    Column("Per s", right=True),
    Column("Hours", right=True),
    Column("List value", right=True),
)


class Checked(NamedTuple):
    found: TargetFinding
    zone: str
    usd_per_hour: float | None  #: of the slices; None: no price is known


def check_page(name: str, rows: Sequence[Checked], columns: int, *, color: bool = False) -> str:
    """The whole text."""
    work = next((one.found["pace"] for one in rows if "pace" in one.found), None)
    title = clean(name) + (f": {work['work']:,.0f} {work['unit']}" if work else "")
    out = [paint(title, "bold", color), ""]
    out += [table(_COLUMNS, [_cells(one) for one in rows], columns, color=color), ""]
    for one in rows:
        found = one.found
        notes = [found["reason"], found["advice"]] if found["fit"] != "yes" else []
        notes += [f"warning: {text}" for text in found["warnings"]]
        for text in filter(None, notes):
            out += wrap(f"{found['target']}: {clean(text)}", columns)
    if any("--" in row.found["reason"] + row.found["advice"] for row in rows):
        out += wrap(KEYS, columns)
    return "\n".join([*out, *wrap(MEANING, columns)])


def _cells(one: Checked) -> tuple[str, ...]:
    found, program = one.found, one.found["program"]
    takes = program["peak_bytes"] if program else found["needed_bytes"]
    start = (
        found["target"],
        one.zone,
        found["fit"],
        _memory(takes) if takes else "",
        _memory(found["limit_bytes"]),
    )
    if "pace" not in found or "step_seconds" not in found:
        return (*start, "", "", "", "", "")
    going = found["pace"]
    usd = [hours * one.usd_per_hour for hours in going["hours"]] if one.usd_per_hour else []
    return (
        *start,
        _time(found["step_seconds"]["bound"]),
        _span([_time(seconds) for seconds in going["step"]]),
        _span([_many(speed) for speed in reversed(going["per_second"])]),
        _span([f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}" for hours in going["hours"]]),
        _span([dollars(round(amount * 1e6)) for amount in usd]) if usd else "unknown",
    )


def _span(pair: Sequence[str]) -> str:
    low, high = pair
    return low if low == high else f"{low} to {high}"


def _memory(size: float) -> str:
    return f"{size / GIB:.2f} GiB" if size >= 0.1 * GIB else f"{size / 2**20:.3g} MiB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _many(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
