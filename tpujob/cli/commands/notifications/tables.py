"""What `tpujob notifications` prints. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle
from tpujob.domain.text import age, many, one_line, seconds

if TYPE_CHECKING:
    from tpujob.api import ChannelView, DeliveryView, RuleView

NO_CHANNELS = (
    "No notification channels are configured.\n"
    "They go under `notifications:` in the context's file, or into notifications.yaml in the state folder of the local "
    "stack; docs/notifications.md shows both."
)
NO_DELIVERIES = "Nothing was sent yet. `tpujob notifications test CHANNEL` tries a channel."


def _colour(cell: str) -> str:
    return "red" if cell.startswith(("disabled", "failing", "failed")) else ""


_CHANNELS = (
    Column("Channel"),
    Column("Destination", floors=(40, 24), cut=clip_middle),
    Column("Events", floors=(32, 16)),
    Column("State", floors=(32, 16), style=_colour),
    Column("Last message", floors=(32, 16)),
)
_DELIVERIES = (
    Column("Id"),
    Column("Channel"),
    Column("Age", right=True),
    Column("State", style=_colour),
    Column("Tries", right=True),
    Column("What", floors=(40, 24, 16)),
    Column("Last error", floors=(32, 16)),
)


def channels_page(
    found: Sequence[ChannelView], columns: int, *, now: float, color: bool = False
) -> str:
    if not found:
        return NO_CHANNELS
    rows = [
        (
            one["name"],
            one_line(one["to"] or "(admins see where)", 200),
            "; ".join(map(_rule, one["rules"])) or "jobs that name it",
            _state(one),
            _last(one["last"], now),
        )
        for one in found
    ]
    return table(_CHANNELS, rows, columns, color=color)


def deliveries_page(
    found: Sequence[DeliveryView], columns: int, *, now: float, color: bool = False
) -> str:
    if not found:
        return NO_DELIVERIES
    rows = [
        (
            one["id"],
            one["channel"],
            _ago(one["at"], now),
            one["state"],
            str(len(one["tries"])),
            one_line(one["headline"], 200),
            one_line(_error(one), 200) or "-",
        )
        for one in found
    ]
    return table(_DELIVERIES, rows, columns, color=color)


def said_of(one: DeliveryView) -> str:
    """After a test or a replay."""
    error = one_line(_error(one), 300)
    if one["state"] == "sent":
        return f"{one['channel']}: sent as {one['id']}."
    again = f"; tried again at {one['due']}" if one["due"] else ""
    return f"{one['channel']}: {one['id']} was not delivered: {error or 'no try was made'}{again}."


def _rule(rule: RuleView) -> str:
    what = ", ".join(rule["on"]) or "everything"
    whose = f" of {', '.join(rule['users'])}" if rule["users"] else ""
    return one_line(f"{what}{whose}", 200)


def _state(one: ChannelView) -> str:
    waiting = f"{many(one['waiting'], 'message')} waiting" if one["waiting"] else ""
    if one["disabled_at"]:
        return one_line(f"disabled: {one['disabled_why']}", 200)
    muted = f"muted until {one['muted_until']}" if one["muted_until"] else ""
    return ", ".join(filter(None, (muted or one["state"], waiting)))


def _last(one: DeliveryView | None, now: float) -> str:
    if one is None:
        return "-"
    return f"{one['state']} {_ago(one['at'], now)} ago: {one_line(one['headline'], 100)}"


def _ago(at: str, now: float) -> str:
    return age(now - (seconds(at) or now))


def _error(one: DeliveryView) -> str:
    return one["tries"][-1]["error"] if one["tries"] else ""
