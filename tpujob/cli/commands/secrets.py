"""`tpujob secret ...`: sets, lists and removes secrets. No command prints a value.

A value comes from a hidden prompt, standard input or the environment, never from the command line, which other users of
the machine see.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import connect, note_context
from tpujob.cli.options import Json, argument, flag
from tpujob.cli.output import get_screen, note, say, say_page
from tpujob.cli.render.table import Column, table
from tpujob.domain import secrets
from tpujob.domain.text import age, one_line, seconds
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import SecretView

app = typer.Typer(
    no_args_is_help=True, help="Set, list and remove secrets that jobs name in run.secrets."
)
Name = Annotated[str, argument("NAME", "Environment variable, such as WANDB_API_KEY.")]
FromEnv = Annotated[bool, flag("Read the value from the variable NAME.", "--from-env")]
_COLUMNS = (Column("Name"), Column("Set"))


@app.command(name="set")
def set_secret(name: Name, from_env: FromEnv = False) -> None:
    """Set a secret, or replace its value.

    The value is prompted for, or read from standard input."""
    secrets.checked_name(name)
    value = value_of(name, from_env=from_env)
    note_context()
    connect().set_secret(name, value)
    say(f"{name} is set. A job gets it with `run: {{secrets: [{name}]}}`.")


@app.command(name="list")
def list_secrets(as_json: Json = False) -> None:
    """List your secrets: their names and when they were set."""
    say_page(connect().secrets(), secrets_page, as_json, now=time.time())


@app.command()
def remove(name: Name) -> None:
    """Remove a secret."""
    note_context()
    connect().remove_secret(secrets.checked_name(name))
    say(f"{name} is removed.")


def secrets_page(
    secrets: Sequence[SecretView], columns: int, *, now: float, color: bool = False
) -> str:
    if not secrets:
        return "No secret is set: `tpujob secret set NAME` sets one."
    rows: list[tuple[str, str]] = []
    for secret in secrets:
        set_at = seconds(secret["set_at"])
        ago = "-" if set_at is None else f"{age(now - set_at)} ago"
        rows.append((one_line(secret["name"], 128), ago))
    return table(_COLUMNS, rows, columns, color=color)


def value_of(name: str, *, from_env: bool) -> str:
    """Return a secret's value: from the environment, a person or standard input. Raises BadRequest."""
    from tpujob.config import settings

    value = settings.variable(name) if from_env else _read_value(name)
    if from_env and not value:
        raise BadRequest(f"there is no variable {name} in this environment")
    return secrets.checked_value(name, value)


def _read_value(name: str) -> str:
    """Return a person's hidden input, or the content of standard input without its last newline. Raises BadRequest."""
    if get_screen().asks:
        import getpass

        return getpass.getpass(f"{name}: ")
    if sys.stdin.isatty():
        note(f"Type the value of {name}, then Ctrl-D:")
    data = sys.stdin.buffer.read(secrets.MAX_BYTES + 2)
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise BadRequest(f"the value of {name} is not text: a variable cannot hold it") from None
