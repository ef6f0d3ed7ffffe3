"""`tpujob`: every command in one list, and the one place where a command ends.

Nothing heavy is imported here or at the top of a module of commands: every command pays for it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TextIO

import typer

from tpujob import __version__
from tpujob.cli import demo, emulator, jobs, logs, stack
from tpujob.cli.errors import NOBODY_READS, exit_code_table, show_error
from tpujob.cli.output import OutputClosed, flush, say, screen
from tpujob.errors import TpujobError

COMMANDS: dict[str, Callable[..., Any]] = {
    "up": stack.up,
    "down": stack.down,
    "status": stack.status,
    "create": jobs.create,
    "list": jobs.list_jobs,
    "show": jobs.show,
    "logs": logs.logs,
    "events": logs.events,
    "wait": jobs.wait,
    "cancel": jobs.cancel,
    "resume": jobs.resume,
    "delete": jobs.delete,
    "clean": jobs.clean,
    "ssh": jobs.ssh,
    "demo": demo.demo,
    "schema": stack.schema,
    "version": stack.version,
}

app = typer.Typer(
    name="tpujob",
    help="Keeps training jobs alive on Cloud TPUs until they are done.",
    epilog=f"\b\nExit codes:\n{exit_code_table()}",
    no_args_is_help=True,
    # both cost more CPU time than the rest of a command
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"tpujob {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    del version


for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
app.add_typer(emulator.app, name="emulator")


def run(words: Sequence[str]) -> int:
    """Run one command line; returns its exit code. Every error that can be explained is, on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old locale is no reason to fail
    try:
        # Typer turns Ctrl-C into 130, and gives back what a command returns
        code = app(args=list(words), prog_name="tpujob", standalone_mode=False)
        flush()
        return code if isinstance(code, int) else 0
    except OutputClosed:
        _discard(sys.stdout)
        return NOBODY_READS
    except TpujobError as error:
        show_error(error, screen())
        return error.exit_code
    except typer.TyperException as error:
        _show_usage(error)
        return error.exit_code
    except typer.Abort:
        return 130


def _show_usage(error: typer.TyperException) -> None:
    show = getattr(error, "show", None)
    if show:
        show()


def _discard(stream: TextIO) -> None:
    """What is still buffered for a closed pipe goes nowhere, or the interpreter would complain on its way out."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
