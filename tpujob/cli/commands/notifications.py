"""`tpujob notifications ...`: shows channels and messages, tests a channel, stores the secrets of channels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import connect, note_context
from tpujob.cli.commands.secrets import FromEnv, value_of
from tpujob.cli.errors import PROBLEM_FOUND
from tpujob.cli.options import Json, argument, option
from tpujob.cli.output import say, say_json, say_page
from tpujob.cli.render.lines import elapsed
from tpujob.cli.render.table import Column, table
from tpujob.cli.render.text import clip_middle
from tpujob.domain import secrets
from tpujob.domain.text import age, many, one_line

if TYPE_CHECKING:
    from tpujob.api import ChannelView, DeliveryView, RuleView

NO_CHANNELS = (
    "No notification channels are configured.\n"
    "They go under `notifications:` in the context's file, or into notifications.yaml in the state folder of the local "
    "stack; docs/notifications.md shows both."
)
NO_DELIVERIES = "Nothing was sent yet. `tpujob notifications test CHANNEL` tests a channel."

app = typer.Typer(invoke_without_command=True)


@app.callback()
def show_channels(context: typer.Context, as_json: Json = False) -> None:
    """Show the notification channels; test them."""
    if not context.invoked_subcommand:
        say_page(connect().channels(), channels_page, as_json, now=time.time())


@app.command(name="list")
def list_deliveries(
    channel: Annotated[str, option("NAME", "Filter by channel.", "--channel")] = "",
    limit: Annotated[
        int, option("N", "Number of messages.", "--limit", "-n", min=1, max=1000)
    ] = 20,
    as_json: Json = False,
) -> None:
    """List messages, newest first."""
    deliveries = connect().deliveries(channel=channel, limit=limit)
    say_page(deliveries, deliveries_page, as_json, now=time.time())


@app.command(name="test")
def send_test(
    channel: Annotated[str, argument("CHANNEL", "Name in the context.")], as_json: Json = False
) -> int:
    """Send a test message now."""
    message = connect().test_channel(channel)
    say_json(message) if as_json else say(describe_test(message))
    return 0 if message["state"] == "sent" else PROBLEM_FOUND


@app.command()
def secret(
    name: Annotated[str, argument("NAME", "Name in the context.")], from_env: FromEnv = False
) -> None:
    """Store a URL, signing key or password of a channel.

    The value is prompted for, or read from standard input."""
    secrets.checked_name(name)
    value = value_of(name, from_env=from_env)
    note_context()
    connect().set_channel_secret(name, value)
    say(f"{name} is stored for the channels that name it.")


# Pages ---------------------------------------------------------------------------------------------------------------


def _state_style(cell: str) -> str:
    return "red" if cell.startswith("fail") else ""


_CHANNELS = (
    Column("Channel"),
    Column("Destination", floors=(40, 24), cut=clip_middle),
    Column("Events", floors=(32, 16)),
    Column("State", floors=(40, 24, 16), style=_state_style),
    Column("Last message", floors=(32, 16)),
)
_DELIVERIES = (
    Column("Id"),
    Column("Channel"),
    Column("Age", right=True),
    Column("State", style=_state_style),
    Column("Tries", right=True),
    Column("What", floors=(40, 24, 16)),
    Column("Last error", floors=(32, 16)),
)


def channels_page(
    channels: Sequence[ChannelView], columns: int, *, now: float, color: bool = False
) -> str:
    if not channels:
        return NO_CHANNELS
    rows = [
        (
            channel["name"],
            one_line(channel["to"] or "(only admins see it)", 200),
            "; ".join(map(_rule_text, channel["rules"])) or "jobs that name it",
            _state_text(channel),
            _last_message(channel["last"], now),
        )
        for channel in channels
    ]
    return table(_CHANNELS, rows, columns, color=color)


def deliveries_page(
    deliveries: Sequence[DeliveryView], columns: int, *, now: float, color: bool = False
) -> str:
    if not deliveries:
        return NO_DELIVERIES
    rows = [
        (
            message["id"],
            message["channel"],
            age(elapsed(message["at"], now)),
            message["state"],
            str(message["tries"]),
            one_line(message["headline"], 200),
            one_line(message["error"], 200) or "-",
        )
        for message in deliveries
    ]
    return table(_DELIVERIES, rows, columns, color=color)


def describe_test(message: DeliveryView) -> str:
    if message["state"] == "sent":
        return f"{message['channel']}: sent as {message['id']}."
    error = one_line(message["error"], 300) or "not tried yet"
    again = f"; next try at {message['due']}" if message["due"] else ""
    return f"{message['channel']}: {message['id']} was not delivered: {error}{again}."


def _rule_text(rule: RuleView) -> str:
    events = ", ".join(rule["on"]) or "everything"
    users = f" of {', '.join(rule['users'])}" if rule["users"] else ""
    return one_line(f"{events}{users}", 200)


def _state_text(channel: ChannelView) -> str:
    last = channel["last"]
    error = f": {last['error']}" if last and last["error"] else ""
    waiting = f", {many(channel['waiting'], 'message')} waiting" if channel["waiting"] else ""
    return one_line(f"{channel['state']}{waiting}{error}", 200)


def _last_message(message: DeliveryView | None, now: float) -> str:
    if message is None:
        return "-"
    ago = age(elapsed(message["at"], now))
    return f"{message['state']} {ago} ago: {one_line(message['headline'], 100)}"
