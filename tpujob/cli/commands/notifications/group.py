"""`tpujob notifications ...`: channels are set up in the context; here they are looked at, tried and supplied with
secrets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import connect, say_where
from tpujob.cli.commands.notifications import HELP
from tpujob.cli.commands.notifications.tables import channels_page, deliveries_page, said_of
from tpujob.cli.commands.secrets import FromEnv, value_of
from tpujob.cli.errors import FOUND
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json, say_page
from tpujob.domain import secrets
from tpujob.domain.text import clean
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import DeliveryView

app = typer.Typer(invoke_without_command=True, help=HELP)
Channel = Annotated[str, typer.Argument(metavar="CHANNEL", help="As the context calls it.")]


@app.callback()
def show_channels(context: typer.Context, as_json: Json = False) -> None:
    """Show where people are told of jobs, and what was sent; test, replay, mute."""
    if not context.invoked_subcommand:
        say_page(connect().channels(), channels_page, as_json, now=time.time())


@app.command(name="list")
def list_deliveries(
    channel: Annotated[
        str, typer.Option("--channel", metavar="NAME", help="Of this channel alone.")
    ] = "",
    before: Annotated[
        str, typer.Option("--before", metavar="ID", help="Older than this message.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="How many.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """List messages, newest first, with their tries."""
    found = connect().deliveries(channel=channel, before=before, limit=limit)
    say_page(found, deliveries_page, as_json, now=time.time())


@app.command(name="test")
def try_channel(channel: Channel, as_json: Json = False) -> None:
    """Send a message that says it is a test, now.

    A channel that its receiver has disabled is enabled by that."""
    _told(connect().test_channel(channel), as_json)


@app.command()
def replay(
    delivery: Annotated[
        str, typer.Argument(metavar="ID", help="As `tpujob notifications list` shows it.")
    ],
    as_json: Json = False,
) -> None:
    """Send a message again, now, with the same id."""
    _told(connect().replay(delivery), as_json)


@app.command()
def mute(
    channel: Channel,
    hours: Annotated[float, typer.Option("--hours", metavar="HOURS", help="For how long.")] = 0.0,
    off: Annotated[bool, typer.Option("--off", help="Tell again, now.")] = False,
    as_json: Json = False,
) -> None:
    """Tell nothing on a channel for some hours.

    What happened meanwhile is told after that."""
    if bool(hours) == off:
        raise BadRequest(
            "give one of --hours and --off", hint=f"tpujob notifications mute {channel} --hours 8"
        )
    found = connect().mute_channel(channel, 0.0 if off else hours)
    name, until = clean(found["name"]), found["muted_until"]
    text = f"{name} is muted until {until}." if until else f"{name} is told again."
    say_json(found) if as_json else say(text)


@app.command()
def secret(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As the context names it.")],
    from_env: FromEnv = False,
) -> None:
    """Keep what a channel needs: a URL, a signing key or a password.

    The value is asked for; or it is read from standard input: tpujob notifications secret NAME < FILE"""
    secrets.checked_name(name)
    value = value_of(name, from_env=from_env)
    say_where()
    connect().set_channel_secret(name, value)
    say(f"{name} is kept for the channels that name it.")


def _told(found: DeliveryView, as_json: bool) -> None:
    say_json(found) if as_json else say(said_of(found))
    if found["state"] != "sent":
        raise typer.Exit(FOUND)
