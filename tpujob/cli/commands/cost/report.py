"""`tpujob cost report`: what jobs have cost and what came of it, as a page and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from tpujob.cli.backend import connect
from tpujob.cli.options import Json, argument, complete_job, flag, option
from tpujob.cli.output import say, say_page
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle, paint, wrap
from tpujob.domain.text import clean, dollars, many
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import CostRowView, CostView, SpendingView


class By(StrEnum):
    JOB = "job"
    USER = "user"
    DAY = "day"
    TYPE = "type"
    ZONE = "zone"


def report(
    job: Annotated[str, argument("JOB", "Only this job.", autocompletion=complete_job)] = "",
    by: Annotated[By, option("|".join(By), "Group rows; days are UTC.")] = By.JOB,
    user: Annotated[str, option("NAME", "Only jobs of this user.")] = "",
    as_json: Json = False,
    as_csv: Annotated[bool, flag("Print CSV, in micro-dollars.", "--csv")] = False,
) -> None:
    """Show chip-hours, list value and goodput of all slices."""
    if as_json and as_csv:
        raise BadRequest("give one of --json and --csv")
    api = connect()
    found = api.cost(by=by, user=user, job=api.get(job)["id"] if job else "")
    if as_csv:
        say(cost_csv(found))
    else:
        say_page(found, cost_page, as_json)


NOTHING = "There are no jobs, so nothing was spent."
LEFT_OUT = (
    "List prices of TPU slices, from ready to gone, without disks, addresses, storage and traffic."
)
GOODPUT = "Goodput is the productive part of all chip-hours, waiting included."
EMULATED = "These jobs ran on this machine's emulator, which bills nothing: amounts are Google's list prices."
FREE = ("waiting", "provisioning")  #: nothing is billed before a slice is ready
MEANING = {
    "productive": "steps that count",
    "waiting": "no slice was requested",
    "provisioning": "requested, not ready yet",
    "preparing": "set-up, and pauses between retries",
    "compiling": "until the first step",
    "redone": "steps that were lost",
    "hung": "no progress, until it was stopped",
    "held": "cancelled, the slice kept",
    "condemned": "a bad slice, until its replacement was ready",
    "releasing": "the program had ended",
    "unknown": "useful share not known",
}
_PARTS = (
    Column("Part"),
    Column("Chip-hours", right=True),
    Column("Share", right=True),
    Column("List value", right=True),
    Column("What it is", floors=(24, 10)),
)


def cost_page(found: CostView, columns: int, *, color: bool = False) -> str:
    total, emulated = found["total"], found.get("emulated", False)
    if not total["parts"]:
        return NOTHING
    rows = [_cells(row, found["by"], emulated) for row in found["rows"]]
    last = _cells(total, "total", emulated)
    first = Column(found["by"].capitalize(), floors=(30, 16, 10), cut=clip_middle)
    shown = (first, *(Column(title, right=True) for title in _TITLES))
    out = [table(shown, [*rows, last], columns, color=color)]
    out += ["", *parts(total, columns, color=color), "", *_remarks(found, columns)]
    return "\n".join([*out, *wrap(EMULATED if emulated else LEFT_OUT, columns)])


def parts(row: CostRowView, columns: int, *, color: bool = False) -> list[str]:
    """Return the lines that divide the time of one row."""
    whole = row.get("all_chip_hours", sum(part["chip_hours"] for part in row["parts"]))
    rows = [
        (
            part["part"],
            f"{part['chip_hours']:,.3f}",
            f"{part['chip_hours'] / whole:.1%}" if whole else "-",
            dollars(0) if part["part"] in FREE else _money(part["list_micros"], row),
            MEANING.get(part["part"], ""),
        )
        for part in row["parts"]
    ]
    billed = f"{row['chip_hours']:,.3f} of them were billed"
    last = ("all", f"{whole:,.3f}", f"{1:.1%}", _money(row["list_micros"], row), billed)
    heading = paint("Where the time went", "bold", color)
    return [heading, table(_PARTS, [*rows, last], columns, color=color)]


_TITLES = ("Jobs", "Slices", "Chip-hours", "Goodput", "List value", "You pay")


def _cells(row: CostRowView, by: str, emulated: bool) -> tuple[str, ...]:
    key = f"{row['key']} {row['name']}" if by == "job" else row["key"] or "-"
    good = row["goodput"]
    return (
        clean(key),
        f"{row['jobs']:,}",
        f"{row['slices']:,}",
        f"{row['chip_hours']:,.3f}",
        "-" if good is None else f"{good:.1%}",
        _money(row["list_micros"], row),
        dollars(0) if emulated else _money(row["pay_micros"], row),
    )


def _money(micros: int, row: CostRowView) -> str:
    """An amount that leaves out slices without a price is a lower bound."""
    if not row["unpriced_chip_hours"]:
        return dollars(micros)
    return f">{dollars(micros)}" if micros else "unknown"


def _remarks(found: CostView, columns: int) -> list[str]:
    total, lines = found["total"], [GOODPUT]
    if total["open_slices"]:
        lines.append(f"{many(total['open_slices'], 'slice')} still billed, until confirmed gone.")
    if total["least_micros"] < total["list_micros"]:
        least, most = (dollars(total[key]) for key in ("least_micros", "list_micros"))
        lines.append(
            f"The list value is between {least} and {most}: a slice is missing, and not confirmed gone yet."
        )
    if total["unpriced_chip_hours"]:
        share = 1 - total["unpriced_chip_hours"] / (total["chip_hours"] or 1)
        lines.append(
            f"No price is known for {total['unpriced_chip_hours']:,.3f} chip-hours; the amounts cover {share:.1%}."
        )
    if copies := found.get("copies_micros", 0):
        lines.append(
            f"Copies of data and checkpoints into other regions: {dollars(copies)}, in addition to these amounts."
        )
    return [line for text in lines for line in wrap(clean(text), columns)]


def cost_csv(found: CostView) -> str:
    """One line for each row and part, with the amounts in micro-dollars. Ends without a line end."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    write.writerow(
        [found["by"], "name", "part", "chip_hours", "list_micros", "unpriced_chip_hours"]
    )
    for row in found["rows"]:
        for part in row["parts"]:
            amount = (
                ""
                if row["unpriced_chip_hours"] and not part["list_micros"]
                else part["list_micros"]
            )
            write.writerow(
                [row["key"], row["name"], part["part"], part["chip_hours"], amount,
                 row["unpriced_chip_hours"]]
            )  # fmt: skip
    return out.getvalue().rstrip("\n")


# Budgets -------------------------------------------------------------------------------------------------------------


def budgets(as_json: Json = False) -> None:
    """Show what is left of every budget, and until when it lasts."""
    say_page(connect().budgets(), budgets_page, as_json)


NO_BUDGETS = """\
No budget is configured, so tpujob stops no job for its cost. A budget of a job is a line of its file:
  budget: {usd: 50}
Those of the project and of users are lines of the context's file: docs/cost.md."""

_BUDGETS = (
    Column("Budget", floors=(24, 14)),
    *(Column(title, right=True) for title in ("Limit", "Spent", "Used", "Reserve", "Now")),
    Column("Lasts until, UTC"),
    Column("Renewed"),
)


def budgets_page(found: Sequence[SpendingView], columns: int, *, color: bool = False) -> str:
    if not found:
        return NO_BUDGETS
    out = [table(_BUDGETS, [_budget_cells(one) for one in found], columns, color=color)]
    out += ["", *wrap(WAY_OUT, columns)]
    return "\n".join(out)


WAY_OUT = (
    "A slice is billed until it is gone. So its program is stopped while the budget still pays for saving and for "
    "releasing the slice. What a grant pays for is not counted."
)


def _budget_cells(one: SpendingView) -> tuple[str, ...]:
    limit, used = one["limit_micros"], one["used_micros"]
    until = (one["reached_at"] or "")[:16].replace("T", " ") or "-"
    return (
        clean(one["whose"]),
        dollars(limit),
        dollars(used),
        f"{used / limit:.0%}",
        dollars(one["reserve_micros"]),
        f"{dollars(one['micros_per_hour'])}/h",
        "used up" if one["used_up"] else until,
        (one["anew_at"] or "")[:10] or "-",
    )
