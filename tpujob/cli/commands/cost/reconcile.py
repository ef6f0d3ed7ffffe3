"""`tpujob cost reconcile`: compares the ledger with Google's bill, and prints the differences."""

import csv
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.errors import PROBLEM_FOUND
from tpujob.cli.options import Json, argument, flag, option
from tpujob.cli.output import say, say_page
from tpujob.cli.render.table import Column, numbers, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.text import clean, dollars
from tpujob.errors import BadRequest

_DAY = ["%Y-%m-%d"]
_JOBS = (
    Column("Job", floors=(24, 14), cut=clip_middle),
    Column("Found by"),
    *numbers("Chip-h", "on bill", "Estimate", "Billed", "Gap"),
    Column("Why", floors=(20, 8)),
)
_BILL = (Column("For", floors=(34, 20)), *numbers("Rows", "Cost", "Credits", "Billed"))


def reconcile(
    exports: Annotated[
        list[Path], argument("EXPORT...", "CSV or JSON of the billing export, also .gz.")
    ],
    since: Annotated[
        datetime | None,
        option("DAY", "First day, UTC; default: that of the first row.", formats=_DAY),
    ] = None,
    until: Annotated[
        datetime | None,
        option(
            "DAY", "End before this day; default: 48 hours before the newest row.", formats=_DAY
        ),
    ] = None,
    tolerance: Annotated[
        float, option("PERCENT", "Ignore smaller differences, and those below $0.01.", min=0.0)
    ] = 1.0,
    as_json: Json = False,
    as_csv: Annotated[bool, flag("Print CSV, in micro-dollars.", "--csv")] = False,
) -> int:
    """Show where Google's bill differs from the ledger, and why. Exports that overlap count once."""
    from tpujob.cli.commands.cost.bill import compare

    if as_json and as_csv:
        raise BadRequest("give one of --json and --csv")
    if since and until and since >= until:
        raise BadRequest("--since has to be before --until")
    days = [day and int(day.replace(tzinfo=UTC).timestamp()) * 1_000_000 for day in (since, until)]
    comparison = compare(exports, connect().ledger(), *days, tolerance=tolerance / 100)
    if as_csv:
        text = io.StringIO()
        writer = csv.DictWriter(text, comparison["total"], lineterminator="\n")
        writer.writeheader()
        writer.writerows([*comparison["jobs"], *comparison["others"]])
        say(text.getvalue().rstrip("\n"))
    else:
        say_page(comparison, _page, as_json)
    return PROBLEM_FOUND if any(line["differs"] for line in comparison["jobs"]) else 0


def _page(comparison: dict[str, Any], columns: int, *, color: bool) -> str:
    until, jobs, all_jobs = comparison["until"][:16], comparison["jobs"], comparison["all_jobs"]
    differing = [line for line in jobs if line["differs"]]
    out: list[str] = []
    if jobs:
        rows = [_job_row(line) for line in (*(differing or jobs[:20]), all_jobs)]
        title = f"TPU time of jobs, {comparison['from'][:16]} to {until}, UTC"
        out += [paint(title, "bold", color), table(_JOBS, rows, columns, color=color), ""]
    rows = [
        (
            clean(f"{line['key']} {line['name']}".strip()),
            f"{line['rows']:,}",
            *(_amount(line[f"{part}_micros"]) for part in ("cost", "credits", "billed")),
        )
        for line in (all_jobs, *comparison["others"], comparison["total"])
        if line["rows"]
    ]
    out += [paint("The bill", "bold", color), table(_BILL, rows, columns, color=color), ""]
    remarks = (
        f"Jobs that differ: {len(differing):,} of {len(jobs):,}. The newest row was exported at "
        f"{comparison['newest_export'][:16]}, UTC. Use from {until} on is not settled; the ledger has "
        f"{dollars(comparison['unsettled_estimate_micros'])} of it. --until DAY compares more."
    )
    if current_settings().local:
        remarks += " The jobs of this context ran on this machine's emulator, which bills nothing."
    return "\n".join([*out, *wrap(remarks, columns)])


def _job_row(line: dict[str, Any]) -> tuple[str, ...]:
    unpriced = line["unpriced_chip_hours"]
    return (
        clean(f"{line['key']} {line['name']}".strip()),
        line["found_by"].replace(" ", ", ") or "-",
        f"{line['ledger_chip_hours']:,.3f}",
        f"{line['billed_chip_hours']:,.3f}",
        "unknown" if unpriced else dollars(line["estimate_micros"]),
        _amount(line["billed_micros"]),
        "-" if unpriced else _amount(line["gap_micros"], "+"),
        explain_gap(line),
    )


def explain_gap(line: dict[str, Any]) -> str:
    """Return the largest reason why bill and ledger differ; empty: they agree."""
    if line["unpriced_chip_hours"]:
        return "no price in the ledger"
    if not line["differs"]:
        return ""
    parts = {name: line[f"by_{name}_micros"] for name in ("usage", "rate", "credits")}
    largest = max(parts, key=lambda name: abs(parts[name]))
    return f"{largest} {_amount(parts[largest], '+')}"


def _amount(micros: int, plus_sign: str = "") -> str:
    return f"{'-' if micros < 0 else plus_sign}{dollars(abs(micros))}"
