"""What `tpujob cost budgets` prints: one line for each budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import wrap
from tpujob.domain.text import clean, dollars

if TYPE_CHECKING:
    from tpujob.api import SpendingView

NONE = """\
There is no budget, so nothing but you ends what is billed. One for a job is a line of its file:
  budget: {usd: 50}
Those of the project and of users are lines of the context's file: docs/cost.md."""

_COLUMNS = (
    Column("Budget", floors=(24, 14)),
    *(Column(title, right=True) for title in ("Limit", "Spent", "Used", "Way out", "Now")),
    Column("Lasts until, UTC"),
    Column("Anew"),
)


def budgets_page(found: Sequence[SpendingView], columns: int, *, color: bool = False) -> str:
    """The whole text."""
    if not found:
        return NONE
    out = [table(_COLUMNS, [_cells(one) for one in found], columns, color=color)]
    out += ["", *wrap(WAY_OUT, columns)]
    return "\n".join(out)


WAY_OUT = (
    "A slice is billed until it is seen to be gone, so its program is told to save, and it is given back, while the "
    "way out is still paid for. What a grant pays for is not counted."
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
