"""`tpujob cost budgets`: what is left of the budgets of the project, of users and of active jobs; and its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.backend import connect
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json, screen
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import wrap
from tpujob.domain.text import clean, dollars

if TYPE_CHECKING:
    from tpujob.api import SpendingView


def budgets(as_json: Json = False) -> None:
    """Show what is left of every budget, and until when it lasts."""
    found = connect().budgets()
    if as_json:
        say_json(list(found))
        return

    on = screen()
    say(budgets_page(found, on.columns, color=on.color))


NONE = """\
No budget is configured, so nothing ends billing but you. A budget of a job is a line of its file:
  budget: {usd: 50}
Those of the project and of users are lines of the context's file: docs/cost.md."""

_COLUMNS = (
    Column("Budget", floors=(24, 14)),
    *(Column(title, right=True) for title in ("Limit", "Spent", "Used", "Reserve", "Now")),
    Column("Lasts until, UTC"),
    Column("Renewed"),
)


def budgets_page(found: Sequence[SpendingView], columns: int, *, color: bool = False) -> str:
    """The whole text."""
    if not found:
        return NONE
    out = [table(_COLUMNS, [_cells(one) for one in found], columns, color=color)]
    out += ["", *wrap(WAY_OUT, columns)]
    return "\n".join(out)


WAY_OUT = (
    "A slice is billed until it is gone. So its program is stopped, and the slice released, while saving and releasing "
    "are still paid for. What a grant pays for is not counted."
)


def _cells(one: SpendingView) -> tuple[str, ...]:
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
