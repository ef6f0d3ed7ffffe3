"""`tpujob cost reconcile`: the ledger beside Google's bill, and its page."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.errors import FOUND
from tpujob.cli.options import Json, argument, flag, option
from tpujob.cli.output import Screen, say, say_json, screen
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.text import clean, dollars, many, rfc3339
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.billing import JobLine, Reconciled, Totals

_DAY = ["%Y-%m-%d"]
MICROS = 1_000_000
CHIP_HOUR = 3600 * MICROS
MOST_AGREEING = 20  #: jobs that agree, shown; with --json and --csv all are
EMULATED = "The jobs of this context ran on this machine's emulator, which bills nothing."
_JOBS = (
    Column("Job", floors=(24, 14), cut=clip_middle),
    Column("Found by"),
    *(Column(title, right=True) for title in ("Chip-h", "on bill", "Estimate", "Billed", "Gap")),
    Column("Why", floors=(20, 8)),
)


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
            "DAY",
            "Compare before this day, UTC; default: 48 hours before the newest row.",
            formats=_DAY,
        ),
    ] = None,
    tolerance: Annotated[
        float, option("PERCENT", "Ignore smaller differences, and those below $0.01.", min=0.0)
    ] = 1.0,
    as_json: Json = False,
    as_csv: Annotated[bool, flag("Print CSV, in micro-dollars.", "--csv")] = False,
) -> int:
    """Show where Google's bill differs from the ledger, and why. Exports that overlap count once."""
    from tpujob import billing

    if as_json and as_csv:
        raise BadRequest("give one of --json and --csv")
    if since and until and since >= until:
        raise BadRequest("--since has to be before --until")
    ledger = connect().ledger()
    slices = [
        billing.LedgerSlice(
            job["job"], one["slice"], one["generation"], one["zone"], one["pricing"] == "spot", one["chips"],
            one["ready"], one["gone"], one["micros_per_hour"], one["granted"],
        )
        for job in ledger["jobs"]
        for one in job["slices"]
    ]  # fmt: skip
    found = billing.reconcile(
        exports, {job["job"]: job["name"] for job in ledger["jobs"]}, slices, ledger["owner"], ledger["at"],
        since=_micros(since), until=_micros(until),
    )  # fmt: skip
    if as_json:
        say_json(_record(found, tolerance / 100))
    elif as_csv:
        say(_csv(found))
    else:
        say(_page(found, tolerance / 100, screen(), emulated=current_settings().local))
    return FOUND if found.differing(tolerance / 100) else 0


def _micros(day: datetime | None) -> int | None:
    return None if day is None else int(day.replace(tzinfo=UTC).timestamp()) * MICROS


# The page ------------------------------------------------------------------------------------------------------------


def _page(found: Reconciled, tolerance: float, on: Screen, *, emulated: bool) -> str:
    out: list[str] = []
    if found.jobs:
        agreeing = [line for line in found.jobs if not line.differs(tolerance)]
        shown = [*found.differing(tolerance), *agreeing[:MOST_AGREEING]]
        hidden = len(found.jobs) - len(shown)
        rows = [_job_row(line, tolerance) for line in shown]
        rows.append(("all jobs", *_job_row(found.tpu, tolerance)[1:]))
        span = f"{_time(found.start)} to {_time(found.end)}, UTC"
        out += [paint(f"TPU time of jobs, {span}", "bold", on.color)]
        out += [table(_JOBS, rows, on.columns, color=on.color)]
        out += [f"({many(hidden, 'job')} more, without a difference)"] if hidden else []
        out += [""]
    out += [paint("The bill", "bold", on.color), _bill(found, on), ""]
    remarks = [*_remarks(found, tolerance), *((EMULATED,) if emulated else ())]
    return "\n".join([*out, *(line for text in remarks for line in wrap(text, on.columns))])


def _time(micros: int) -> str:
    return datetime.fromtimestamp(micros // MICROS, UTC).strftime("%Y-%m-%d %H:%M")


def _job_row(line: JobLine, tolerance: float) -> tuple[str, ...]:
    return (
        clean(f"{line.job} {line.name}"),
        "several ways" if len(line.matched) > 1 else next(iter(line.matched), "-"),
        f"{line.chip_time / CHIP_HOUR:,.3f}",
        "?" if line.billed.unmeasured else f"{line.billed.usage / MICROS:,.3f}",
        "unknown" if line.unpriced else dollars(line.estimate),
        _amount(line.billed.net),
        "-" if line.unpriced else _signed(line.gap),
        explain_gap(line, tolerance),
    )


def explain_gap(line: JobLine, tolerance: float) -> str:
    """Return the largest reason why bill and ledger differ; empty: they do not."""
    if line.unpriced:
        return "no price in the ledger"
    if not line.differs(tolerance):
        return ""
    if not line.matched:
        return "not on the bill"
    if not line.chip_time:
        return "not in the ledger"
    parts = {"time": line.by_usage, "rate": line.by_rate, "credits": line.by_credits}
    largest = max(parts, key=lambda name: abs(parts[name]))
    if largest == "time":
        return f"{line.billed.usage / MICROS - line.chip_time / CHIP_HOUR:+,.3f} chip-hours"
    if largest == "rate":
        expected = line.list + line.by_usage
        return f"rate {line.by_rate / expected:+.1%}" if expected else "another rate"
    return f"credits {_signed(line.by_credits)}"


def _signed(micros: int) -> str:
    return f"{'-' if micros < 0 else '+'}{dollars(abs(micros))}"


def _amount(micros: int) -> str:
    return _signed(micros) if micros < 0 else dollars(micros)


def _bill(found: Reconciled, on: Screen) -> str:
    foreign = sorted(set(found.billed.by_currency) - {"USD"})
    heads = [Column("For", floors=(34, 20))]
    titles = ("Rows", "Cost", "Credits", "Billed", *(f"in {currency}" for currency in foreign))
    heads += [Column(title, right=True) for title in titles]
    lines = [("TPU time of jobs, above", found.tpu.billed)] if found.jobs else []
    lines += [(clean(f"{o.category}: {o.name}".removesuffix(": ")), o.billed) for o in found.others]
    lines += (
        [("late rows and corrections of earlier use", found.before)] if found.before.rows else []
    )
    lines += [("not settled: newer use", found.unsettled)] if found.unsettled.rows else []
    rows = [
        (
            title,
            f"{sums.rows:,}",
            _amount(sums.gross),
            _amount(sums.net - sums.gross) if sums.net != sums.gross else "-",
            _amount(sums.net),
            *(f"{sums.by_currency[currency] / MICROS:,.2f}" for currency in foreign),
        )
        for title, sums in [*lines, ("total", found.billed)]
    ]
    return table(heads, rows, on.columns, color=on.color)


def _remarks(found: Reconciled, tolerance: float) -> list[str]:
    remarks = [
        f"{many(found.billed.rows, 'row')} of the bill; the newest was exported at {_time(found.newest)}, UTC."
    ]
    if found.duplicates:
        remarks.append(f"Ignored {many(found.duplicates, 'row')} that another file had already.")
    if found.unsettled.rows or found.unsettled_estimate:
        remarks.append(
            f"Not settled: use from {_time(found.end)} on. The ledger has {dollars(found.unsettled_estimate)} of it, "
            f"the export {_amount(found.unsettled.net)} so far. --until DAY compares more."
        )
    if found.earlier_estimate:
        remarks.append(
            f"Not compared: {dollars(found.earlier_estimate)} in the ledger from before the first row."
        )
    if found.billed.promotions:
        remarks.append(
            f"Promotions and grants paid {dollars(-found.billed.promotions)} of the bill."
        )
    differing = len(found.differing(tolerance))
    if found.jobs:
        count = many(differing, "job") if differing else "No job"
        verb = "differ" if differing > 1 else "differs"
        remarks.append(f"{count} {verb} by more than {tolerance:.2%} and a cent.")
    return remarks


# For programs --------------------------------------------------------------------------------------------------------

_CSV: tuple[str, ...] = (
    "kind", "key", "name", "found_by", "rows", "ledger_chip_hours", "billed_chip_hours", "list_micros",
    "estimate_micros", "cost_micros", "billed_micros", "gap_micros", "by_usage_micros", "by_rate_micros",
    "by_credits_micros",
)  # fmt: skip


def _csv(found: Reconciled) -> str:
    out = io.StringIO()
    write = csv.DictWriter(out, _CSV, restval="", extrasaction="ignore", lineterminator="\n")
    write.writeheader()
    write.writerows({"kind": "job", **_job(line)} for line in found.jobs)
    write.writerows(
        {"kind": "other", "key": o.category, "name": o.name, **_sums(o.billed)}
        for o in found.others
    )
    write.writerow({"kind": "before", **_sums(found.before)})
    write.writerow({"kind": "unsettled", **_sums(found.unsettled)})
    return out.getvalue().rstrip("\n")


def _record(found: Reconciled, tolerance: float) -> dict[str, Any]:
    """Everything; amounts are micro-dollars, but for those by currency."""
    return {
        "from": rfc3339(found.start / MICROS),
        "until": rfc3339(found.end / MICROS),
        "newest_export": rfc3339(found.newest / MICROS),
        "rows": found.billed.rows,
        "duplicates": found.duplicates,
        "jobs": [{**_job(line), "differs": line.differs(tolerance)} for line in found.jobs],
        "others": [
            {"heading": o.category, "name": o.name, **_sums(o.billed)} for o in found.others
        ],
        "before": _sums(found.before),
        "unsettled": {**_sums(found.unsettled), "estimate_micros": found.unsettled_estimate},
        "earlier_estimate_micros": found.earlier_estimate,
        "total": _sums(found.billed),
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


def _sums(sums: Totals) -> dict[str, Any]:
    return {
        "rows": sums.rows,
        "cost_micros": sums.gross,
        "promotions_micros": sums.promotions,
        "discounts_micros": sums.discounts,
        "billed_micros": sums.net,
        "billed_by_currency_micros": dict(sums.by_currency),
    }
