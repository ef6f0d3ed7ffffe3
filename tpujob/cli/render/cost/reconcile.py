"""What `tpujob cost reconcile` prints: jobs whose bill differs from the ledger and why, and what else is on the bill.
Pure."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.text import clean, dollars, many, rfc3339

if TYPE_CHECKING:
    from tpujob.billing import Imported
    from tpujob.domain.money.billing import JobLine, Reconciled
    from tpujob.domain.money.billing.tally import Tally

MICROS = 1_000_000
CHIP_HOUR = 3600 * MICROS
MOST_AGREEING = 20  #: jobs that agree, shown; with --json and --csv all are
EMULATED = "The jobs of this context ran on this machine's emulator, which bills nothing."
_JOBS = (
    Column("Job", floors=(24, 14), cut=clip_middle),
    Column("Found by"),
    Column("Chip-h", right=True),
    Column("on bill", right=True),
    Column("Estimate", right=True),
    Column("Billed", right=True),
    Column("Gap", right=True),
    Column("Why", floors=(20, 8)),
)


def reconciled_page(
    found: Reconciled,
    imported: Imported,
    tolerance: float,
    columns: int,
    *,
    color: bool = False,
    emulated: bool = False,
) -> str:
    """The whole text. `tolerance` is a share: 0.01 is one per cent."""
    out: list[str] = []
    if found.jobs:
        out += [paint(f"TPU time of jobs, {_span(found)}", "bold", color)]
        out += [table(_JOBS, _job_rows(found, tolerance), columns, color=color)]
        hidden = len(found.jobs) - len(_shown(found, tolerance))
        out += [f"({many(hidden, 'job')} more, that agree)"] if hidden else []
        out += [""]
    out += [paint("The bill", "bold", color), _bill(found, columns, color), ""]
    out += [line for text in _remarks(found, imported, tolerance) for line in wrap(text, columns)]
    return "\n".join([*out, *(wrap(EMULATED, columns) if emulated else ())])


def _span(found: Reconciled) -> str:
    return f"{_time(found.period.start)} to {_time(found.period.end)}, UTC"


def _time(micros: int) -> str:
    return datetime.fromtimestamp(micros // MICROS, UTC).strftime("%Y-%m-%d %H:%M")


def _shown(found: Reconciled, tolerance: float) -> list[JobLine]:
    differing = found.differing(tolerance)
    agreeing = [line for line in found.jobs if not line.differs(tolerance)]
    return differing + agreeing[:MOST_AGREEING]


def _job_rows(found: Reconciled, tolerance: float) -> list[tuple[str, ...]]:
    rows = [_job_row(line, tolerance) for line in _shown(found, tolerance)]
    return [*rows, ("all jobs", *_job_row(found.tpu, tolerance)[1:])]


def _job_row(line: JobLine, tolerance: float) -> tuple[str, ...]:
    how = "several ways" if len(line.matched) > 1 else next(iter(line.matched), "-")
    return (
        clean(f"{line.job} {line.name}"),
        how,
        f"{line.chip_time / CHIP_HOUR:,.3f}",
        "?" if line.billed.unmeasured else f"{line.billed.usage / MICROS:,.3f}",
        "unknown" if line.unpriced else dollars(line.estimate),
        _amount(line.billed.net),
        "-" if line.unpriced else signed(line.gap),
        why(line, tolerance),
    )


def why(line: JobLine, tolerance: float) -> str:
    """The largest reason why bill and ledger differ, in words; empty: they do not."""
    if line.unpriced:
        return "the ledger knows no price"
    if not line.differs(tolerance):
        return ""
    if not line.billed.rows and not line.billed.cost:
        return "not on the bill"
    if not line.chip_time:
        return "not in the ledger"
    parts = {"time": line.by_usage, "rate": line.by_rate, "credits": line.by_credits}
    largest = max(parts, key=lambda name: abs(parts[name]))
    if largest == "time":
        hours = line.billed.usage / MICROS - line.chip_time / CHIP_HOUR
        return f"{hours:+,.3f} chip-hours"
    if largest == "rate":
        expected = line.list + line.by_usage
        return f"rate {line.by_rate / expected:+.1%}" if expected else "another rate"
    return f"credits {signed(line.by_credits)}"


def signed(micros: int) -> str:
    return f"{'-' if micros < 0 else '+'}{dollars(abs(micros))}"


def _amount(micros: int) -> str:
    return signed(micros) if micros < 0 else dollars(micros)


# The whole bill ------------------------------------------------------------------------------------------------------


def _bill(found: Reconciled, columns: int, color: bool) -> str:
    foreign = sorted({c for c, _ in found.billed.cost} - {"USD"})
    heads = [Column("For", floors=(34, 20)), Column("Rows", right=True)]
    heads += [Column(title, right=True) for title in ("Cost", "Credits", "Billed")]
    heads += [Column(f"in {currency}", right=True) for currency in foreign]
    lines: list[tuple[str, Tally]] = []
    if found.jobs:
        lines.append(("TPU time of jobs, above", found.tpu.billed))
    for other in found.others:
        title = f"{other.heading}: {other.name}" if other.name else str(other.heading)
        lines.append((clean(title), other.billed))
    lines += (
        [("late rows and corrections of earlier use", found.before)] if found.before.rows else []
    )
    lines += [("not settled: newer use", found.unsettled)] if found.unsettled.rows else []
    rows = [_bill_row(title, tally, foreign) for title, tally in [*lines, ("total", found.billed)]]
    return table(heads, rows, columns, color=color)


def _bill_row(title: str, tally: Tally, foreign: list[str]) -> tuple[str, ...]:
    native = tally.net_by_currency()
    return (
        title,
        f"{tally.rows:,}",
        _amount(tally.gross),
        _amount(tally.net - tally.gross) if tally.net != tally.gross else "-",
        _amount(tally.net),
        *(f"{native.get(currency, 0) / MICROS:,.2f}" for currency in foreign),
    )


def _remarks(found: Reconciled, imported: Imported, tolerance: float) -> list[str]:
    rows = f"{many(imported.rows, 'row')} of the bill"
    dropped = (
        f", and {imported.duplicates:,} that another file had already"
        if imported.duplicates
        else ""
    )
    said = [f"{rows}{dropped}; the newest was exported at {_time(found.newest)}, UTC."]
    if found.unsettled.rows or found.unsettled_estimate:
        said.append(
            f"Not settled: use from {_time(found.period.end)} on. The ledger has "
            f"{dollars(found.unsettled_estimate)} of it, the export {_amount(found.unsettled.net)} so far. "
            "--until DAY compares more."
        )
    if found.earlier_estimate:
        said.append(
            f"The ledger has {dollars(found.earlier_estimate)} from before the first row: not compared."
        )
    promotions = found.billed.promotions
    if promotions:
        said.append(f"Promotions and grants paid {dollars(-promotions)} of the bill.")
    differing = len(found.differing(tolerance))
    if differing:
        verb = "differs" if differing == 1 else "differ"
        said.append(f"{many(differing, 'job')} {verb} by more than {tolerance:.2%} and a cent.")
    elif found.jobs:
        said.append(f"No job differs by more than {tolerance:.2%} and a cent.")
    return said


# For programs --------------------------------------------------------------------------------------------------------

_CSV: tuple[str, ...] = (
    "kind", "key", "name", "found_by", "rows", "ledger_chip_hours", "billed_chip_hours", "list_micros",
    "estimate_micros", "cost_micros", "billed_micros", "gap_micros", "by_usage_micros", "by_rate_micros",
    "by_credits_micros",
)  # fmt: skip


def reconciled_csv(found: Reconciled) -> str:
    """A line for each job and each heading, in micro-dollars. Ends without a line end."""
    out = io.StringIO()
    write = csv.DictWriter(out, _CSV, restval="", lineterminator="\n")
    write.writeheader()
    for line in found.jobs:
        write.writerow({"kind": "job", **{k: v for k, v in _job(line).items() if k in _CSV}})
    for other in found.others:
        named = {"kind": "other", "key": str(other.heading), "name": other.name}
        write.writerow({**named, **_csv_tally(other.billed)})
    for kind, tally in (("before", found.before), ("unsettled", found.unsettled)):
        write.writerow({"kind": kind, **_csv_tally(tally)})
    return out.getvalue().rstrip("\n")


def _csv_tally(tally: Tally) -> dict[str, Any]:
    return {"rows": tally.rows, "cost_micros": tally.gross, "billed_micros": tally.net}


def reconciled_record(found: Reconciled, imported: Imported, tolerance: float) -> dict[str, Any]:
    """Everything; amounts are micro-dollars, but for those by currency."""
    return {
        "from": rfc3339(found.period.start / MICROS),
        "until": rfc3339(found.period.end / MICROS),
        "newest_export": rfc3339(found.newest / MICROS),
        "rows": imported.rows,
        "duplicates": imported.duplicates,
        "jobs": [{**_job(line), "differs": line.differs(tolerance)} for line in found.jobs],
        "others": [
            {"heading": str(o.heading), "name": o.name, **_tally(o.billed)} for o in found.others
        ],
        "before": _tally(found.before),
        "unsettled": {**_tally(found.unsettled), "estimate_micros": found.unsettled_estimate},
        "earlier_estimate_micros": found.earlier_estimate,
        "total": _tally(found.billed),
    }


def _job(line: JobLine) -> dict[str, Any]:
    return {
        "key": line.job,
        "name": line.name,
        "found_by": " ".join(sorted(line.matched)),
        "rows": line.billed.rows,
        "ledger_chip_hours": round(line.chip_time / CHIP_HOUR, 6),
        "billed_chip_hours": None if line.billed.unmeasured else line.billed.usage / MICROS,
        "unpriced_chip_hours": round(line.unpriced / CHIP_HOUR, 6),
        "list_micros": line.list,
        "estimate_micros": line.estimate,
        "cost_micros": line.billed.gross,
        "billed_micros": line.billed.net,
        "gap_micros": line.gap,
        "by_usage_micros": line.by_usage,
        "by_rate_micros": line.by_rate,
        "by_credits_micros": line.by_credits,
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "rows": tally.rows,
        "cost_micros": tally.gross,
        "credits_micros": tally.credits_by_type(),
        "billed_micros": tally.net,
        "billed_by_currency_micros": tally.net_by_currency(),
    }
