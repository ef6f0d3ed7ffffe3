"""`tpujob queue` and `tpujob shares`, and the place of a job in the queue for `tpujob why`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tpujob.cli.render.lines import elapsed
from tpujob.cli.render.table import Column, numbers, space, table
from tpujob.cli.render.text import paint, wrap, wrap_indented
from tpujob.domain.text import age, clean, many, seconds, span, usd

if TYPE_CHECKING:
    from tpujob.api import PlaceView, QueueRow, QueueView, ShareView

_COLUMNS = (
    Column("#", right=True),
    Column("Job"),
    Column("Name", floors=(24, 16, 8)),
    Column("Owner", floors=(12, 8, 6)),
    Column("Wants", floors=(24, 16, 12)),
    Column("Waits", right=True),
    Column("Starts about"),
)
_WHY = Column("Why", floors=(30,))
WHY_WIDTH = 40  #: free columns that _WHY needs; with fewer the reason is below each row
_SHARES = (
    Column("Share"),
    Column("Owner", floors=(16, 12, 8)),
    *numbers("Weight", "Used", "Of all", "Due", "Waiting"),
)


def queue_page(
    view: QueueView,
    columns: int,
    *,
    now: float,
    shares: Sequence[ShareView] = (),
    color: bool = False,
) -> str:
    """Return a line for each job with the reason why it waits, then the use of shares."""
    rows = view["rows"]
    if not rows:
        return "No job is in the queue."
    cells = [_row(row, now) for row in rows]
    reasons = [clean(_why(row)) for row in rows]
    if space(_COLUMNS, cells, columns) >= WHY_WIDTH:
        whole = [(*row, text) for row, text in zip(cells, reasons, strict=True)]
        out = [table((*_COLUMNS, _WHY), whole, columns, color=color)]
    else:
        title, *lines = table(_COLUMNS, cells, columns, color=color).splitlines()
        out = [title]
        for line, reason in zip(lines, reasons, strict=True):
            below = wrap_indented(reason, columns, 4) if reason else []
            out += [line, *(paint(text, "dim", color) for text in below)]
    if hidden := view["waiting"] - sum(1 + row["alike"] for row in rows):
        out.append(f"… {many(hidden, 'more job')}; `tpujob queue --limit 0` shows all.")
    if len(shares) > 1:
        parts = (f"{_share_name(s)} {s['part']:.0%} (due {s['due']:.0%})" for s in shares)
        out += wrap(f"Used by shares: {' · '.join(parts)}", columns)
    return "\n".join(out)


def _row(row: QueueRow, now: float) -> tuple[str, ...]:
    slices = f" x{row['tpu_slices']}" if row["tpu_slices"] > 1 else ""
    return (
        str(row["position"] or "-"),
        clean(row["id"]),
        clean(row["name"]),
        clean(row["user"]),
        clean(f"{row['type']}{slices} {row['pricing']}"),
        age(elapsed(row["since"], now)),
        starts_about(row, now),
    )


def _why(row: QueueRow) -> str:
    why = row["reasons"][0]["text"] if row["reasons"] else "" if row["position"] else "-"
    alike = f"and {many(row['alike'], 'more element')}" if row["alike"] else ""
    return ": ".join(filter(None, (alike, why))) + _passed(row)


def _passed(place: PlaceView) -> str:
    """Say how often other jobs got what it waits for; empty: none did."""
    return f"; passed {many(place['passed'], 'time')}" if place["passed"] else ""


def starts_about(place: PlaceView, now: float) -> str:
    """Return `now`, the local time, or the day of its start, as far as that is known; `-` if unknown."""
    at = seconds(place["starts_about"])
    if at is None:
        return "-"
    if at <= now + 1:
        return "now"
    moment = datetime.fromtimestamp(at)
    return moment.strftime("%H:%M" if at - now < 43_200 else "%a %d %b %H:%M")


def _share_name(share: ShareView) -> str:
    return clean(share["name"]) or "no share"


def shares_page(shares: Sequence[ShareView], columns: int, *, color: bool = False) -> str:
    """Return a line for each share, and below it a line for each of its owners."""
    if not any(share["usd"] or share["waiting"] for share in shares):
        return "No share has used anything lately, and no job waits."
    rows: list[tuple[str, ...]] = []
    for share in shares:
        use = (usd(share["usd"]), f"{share['part']:.0%}", f"{share['due']:.0%}")
        weight = f"{share['weight']:g}"
        rows.append((_share_name(share), "", weight, *use, str(share["waiting"])))
        for owner in share["owners"]:
            use = (usd(owner["usd"]), f"{owner['part']:.0%}")
            rows.append(("", clean(owner["user"]), "", *use, "", ""))
    note = "Used: list price, of which half counts after 7 days. An owner's part is of the share."
    return f"{table(_SHARES, rows, columns, color=color)}\n{note}"


def place_facts(place: PlaceView, now: float) -> list[tuple[str, str]]:
    """Return labels and texts: the place of a job in the queue, its reasons, the terms of its order, and what would
    help."""
    position, time = place["position"], starts_about(place, now)
    where = f"{position} in the queue" if position else "not in the order yet"
    about = f"; starts about {time}" if time != "-" else ""
    facts = [("Place", where + about + _passed(place))]
    reasons = [reason["text"] for reason in place["reasons"]]
    facts += [("Reason" if n == 0 else "", text) for n, text in enumerate(reasons)]
    if order := place["order"]:
        raised = ", raised after a day of waiting" if order["raised"] else ""
        since, used = seconds(order["since"]), order["share_usd"] or order["owner_usd"]
        terms = (
            f"priority {order['priority']}{raised}",
            f"its share has used {usd(order['share_usd'])} for its weight" if used else "",
            f"its owner {usd(order['owner_usd'])}" if used else "",
            f"rank {order['rank']}",
            f"waits for {span(now - since)}" if since is not None else "",
        )
        facts.append(("Order", "; ".join(filter(None, terms))))
    return facts + [("Helps" if n == 0 else "", text) for n, text in enumerate(place["helps"])]
