"""`tpujob cost report` and `tpujob cost budgets`: the costs of jobs and what the time was used for, and all budgets."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from tpujob.cli.backend import connect
from tpujob.cli.options import Json, argument, complete_job, flag, option
from tpujob.cli.output import say, say_page
from tpujob.cli.render.table import Column, numbers, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.money.period import Period, month_of
from tpujob.domain.text import clean, dollars, many, unreadable
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import CostRowView, CostView, SpendingView


class By(StrEnum):
    JOB = "job"
    USER = "user"
    SHARE = "share"
    DAY = "day"
    TYPE = "type"
    ZONE = "zone"


def report(
    job: Annotated[str, argument("JOB", "Only this job.", autocompletion=complete_job)] = "",
    by: Annotated[By, option("|".join(By), "Group rows; days are UTC.")] = By.JOB,
    then: Annotated[By | None, option("|".join(By), "Divide each row by this.")] = None,
    since: Annotated[str, option("DAY", "First day that counts, such as 2026-11-01.")] = "",
    until: Annotated[str, option("DAY", "Last day that counts.")] = "",
    month: Annotated[str, option("MONTH", "Only this month, such as 2026-11.")] = "",
    user: Annotated[str, option("NAME", "Only jobs of this user.")] = "",
    as_json: Json = False,
    as_csv: Annotated[bool, flag("Print CSV, in micro-dollars.", "--csv")] = False,
) -> None:
    """Show chip-hours, list value and goodput of all slices."""
    if as_json and as_csv:
        raise BadRequest("give one of --json and --csv")
    if month and (since or until):
        raise BadRequest("give --month, or --since and --until")
    period = month_of(month) if month else Period(since, until)
    api = connect()
    costs = api.cost(
        by=by,
        then=then or "",
        user=user,
        job=api.get(job)["id"] if job else "",
        since=period.since,
        until=period.until,
    )
    if as_csv:
        from tpujob.service.money.cost_csv import cost_csv  # slow to import

        say(cost_csv(costs))
    else:
        say_page(costs, cost_page, as_json)


NOTHING = "There are no jobs, so nothing was spent."
NOTHING_THEN = "Nothing was spent: {period}, UTC."
LEFT_OUT = (
    "List prices of TPU slices, from ready to gone, without disks, addresses, storage and traffic."
)
GOODPUT = (
    "Goodput is the productive part of the billed chip-hours. Waiting for the cloud is not billed."
)
EMULATED = "These jobs ran on this machine's emulator, which bills nothing: amounts are Google's list prices."
FREE = ("waiting", "provisioning")  #: nothing is billed before a slice is ready
MEANING = {
    "productive": "steps that count",
    "waiting": "between requests, after a refusal",
    "provisioning": "requested, not ready yet",
    "preparing": "set-up, and pauses between retries",
    "compiling": "until the first step",
    "redone": "steps that were lost",
    "nonfinite": "steps with a loss of NaN or Inf",
    "hung": "no progress, until it was stopped",
    "held": "cancelled, the slice kept",
    "condemned": "a bad slice, until its replacement was ready",
    "candidate": "lost a race, until it was handed on or deleted",
    "releasing": "the program had ended",
    "unknown": "useful share not known",
}
_PARTS = (
    Column("Part"),
    *numbers("Chip-hours", "Share", "List value"),
    Column("What it is", floors=(24, 10)),
)


def cost_page(costs: CostView, columns: int, *, color: bool = False) -> str:
    total = costs["total"]
    emulated = costs.get("emulated", False)
    period = _period(costs)
    if not total["parts"]:
        return NOTHING_THEN.format(period=period) if period else NOTHING
    rows = [_cells(row, costs["by"], emulated) for row in costs["rows"]]
    total_cells = _cells(total, "total", emulated)
    first = [Column(costs["by"].capitalize(), floors=(30, 16, 10), cut=clip_middle)]
    if then := costs["then"]:
        first.append(Column(then.capitalize(), floors=(16, 10), cut=clip_middle))
        rows = [
            (row[0], of["then"] or "-", *row[1:])
            for row, of in zip(rows, costs["rows"], strict=True)
        ]
        total_cells = (total_cells[0], "", *total_cells[1:])
    titles = ("Jobs", "Slices", "Chip-hours", "Goodput", "List value", "You pay")
    shown = (*first, *numbers(*titles))
    out = [f"{period}, UTC", ""] if period else []
    out += [table(shown, [*rows, total_cells], columns, color=color)]
    out += ["", *time_lines(total, columns, color=color), "", *_remarks(costs, columns)]
    return "\n".join([*out, *wrap(EMULATED if emulated else LEFT_OUT, columns)])


def _period(costs: CostView) -> str:
    """Return the days that count; empty: all."""
    since, until = costs["since"], costs["until"]
    if since and until:
        return f"{since} to {until}"
    return f"from {since}" if since else f"up to {until}" if until else ""


def time_lines(row: CostRowView, columns: int, *, color: bool = False) -> list[str]:
    """Return a table of the uses of one row's time."""
    billed = row["chip_hours"]
    rows = [
        (
            use["part"],
            f"{use['chip_hours']:,.3f}",
            "-" if use["part"] in FREE or not billed else f"{use['chip_hours'] / billed:.1%}",
            dollars(0) if use["part"] in FREE else _money(use["list_micros"], row),
            MEANING.get(use["part"], ""),
        )
        for use in row["parts"]
    ]
    waited = f"waited for the cloud: {row['waited_chip_hours']:,.3f} more"
    total = ("billed", f"{billed:,.3f}", f"{1:.1%}", _money(row["list_micros"], row), waited)
    heading = paint("Where the time went", "bold", color)
    return [heading, table(_PARTS, [*rows, total], columns, color=color)]


def _cells(row: CostRowView, by: str, emulated: bool) -> tuple[str, ...]:
    key = f"{row['key']} {row['name']}" if by == "job" else row["key"] or "-"
    goodput = row["goodput"]
    return (
        clean(key),
        f"{row['jobs']:,}",
        f"{row['slices']:,}",
        f"{row['chip_hours']:,.3f}",
        "-" if goodput is None else f"{goodput:.1%}",
        _money(row["list_micros"], row),
        dollars(0) if emulated else _money(row["pay_micros"], row),
    )


def _money(micros: int, row: CostRowView) -> str:
    """Return an amount; `>` marks a lower bound, as slices without a price are left out."""
    if not row["unpriced_chip_hours"]:
        return dollars(micros)
    return f">{dollars(micros)}" if micros else "unknown"


def _remarks(costs: CostView, columns: int) -> list[str]:
    total = costs["total"]
    lines = [GOODPUT]
    if total["open_slices"]:
        lines.append(f"{many(total['open_slices'], 'slice')} still billed, until confirmed gone.")
    if total["least_micros"] < total["list_micros"]:
        lower, upper = (dollars(total[key]) for key in ("least_micros", "list_micros"))
        lines.append(
            f"The list value is between {lower} and {upper}: a slice is missing, or was lost while no poll saw it."
        )
    if total["unpriced_chip_hours"]:
        share = 1 - total["unpriced_chip_hours"] / (total["chip_hours"] or 1)
        lines.append(
            f"No price is known for {total['unpriced_chip_hours']:,.3f} chip-hours; the amounts cover {share:.1%}."
        )
    if costs["unreadable"]:
        lines.append(f"Not included: {unreadable(costs['unreadable'])}.")
    if copies := costs.get("copies_micros", 0):
        lines.append(
            f"Copies of data and checkpoints into other regions: {dollars(copies)}, in addition to these amounts."
        )
    return [line for text in lines for line in wrap(clean(text), columns)]


# Budgets -------------------------------------------------------------------------------------------------------------


def budgets(as_json: Json = False) -> None:
    """Show what is left of every budget, and until when it lasts."""
    say_page(connect().budgets(), budgets_page, as_json)


NO_BUDGETS = """\
No budget is configured, so tpujob stops no job for its cost. A budget of a job is a line of its file:
  budget: {usd: 50}
Those of the project and of users are lines of the context's file: docs/cost.md."""

RESERVE = (
    "A slice is billed until it is gone. So its program is stopped while the budget still pays for saving and for "
    "releasing the slice. What a grant pays for is not counted."
)
_BUDGETS = (
    Column("Budget", floors=(24, 14)),
    *numbers("Limit", "Spent", "Used", "Reserve", "Now"),
    Column("Lasts until, UTC"),
    Column("Renewed"),
)


def budgets_page(budgets: Sequence[SpendingView], columns: int, *, color: bool = False) -> str:
    if not budgets:
        return NO_BUDGETS
    out = [table(_BUDGETS, [_budget_cells(budget) for budget in budgets], columns, color=color)]
    out += ["", *wrap(RESERVE, columns)]
    if unclear := next((budget["unreadable"] for budget in budgets if budget["unreadable"]), None):
        out += wrap(f"Not included: {unreadable(unclear)}.", columns)
    return "\n".join(out)


def _budget_cells(budget: SpendingView) -> tuple[str, ...]:
    limit, used = budget["limit_micros"], budget["used_micros"]
    until = (budget["reached_at"] or "")[:16].replace("T", " ") or "-"
    return (
        clean(budget["whose"]),
        dollars(limit),
        dollars(used),
        f"{used / limit:.0%}",
        dollars(budget["reserve_micros"]),
        f"{dollars(budget['micros_per_hour'])}/h",
        "used up" if budget["used_up"] else until,
        (budget["anew_at"] or "")[:10] or "-",
    )
