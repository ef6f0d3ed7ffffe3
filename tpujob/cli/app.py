"""`tpujob`: the list of all commands, and the one place where a command ends.

The module of a command is imported when it runs, so that each command pays for its own imports only.
"""

import importlib
import io
import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tpujob import __version__
from tpujob.cli.errors import NOBODY_READS, exit_code_table, show_error
from tpujob.cli.output import OutputClosed, flush, say, screen
from tpujob.errors import BadRequest, TpujobError, Transient

#: Every command and the module of `tpujob.cli.commands` that has it, in the order of `--help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("stack", "up"),
    "down": ("stack", "down"),
    "status": ("stack", "status"),
    "serve": ("stack", "serve"),
    "init": ("contexts", "init"),
    "use": ("contexts", "use"),
    "login": ("signing_in", "login"),
    "logout": ("signing_in", "logout"),
    "bucket": ("bucket", "app"),
    "data": ("data.group", "app"),
    "doctor": ("doctor", "doctor"),
    "quota": ("doctor", "quota"),
    "secret": ("secret.group", "app"),
    "create": ("create", "create"),
    "list": ("jobs", "list_jobs"),
    "show": ("jobs", "show"),
    "open": ("opening", "open_page"),
    "why": ("jobs", "why"),
    "logs": ("logs", "logs"),
    "events": ("overview", "events"),
    "diff": ("diff", "diff"),
    "cost": ("cost.group", "app"),
    "wait": ("jobs", "wait"),
    "cancel": ("jobs", "cancel"),
    "resume": ("jobs", "resume"),
    "delete": ("jobs", "delete"),
    "clean": ("jobs", "clean"),
    "ssh": ("jobs", "ssh"),
    "whoami": ("members", "whoami"),
    "members": ("members", "members"),
    "notifications": ("notifications", "app"),
    "capacity": ("overview", "capacity"),
    "hosts": ("admin", "hosts"),
    "leaks": ("admin", "leaks"),
    "sweep": ("admin", "sweep"),
    "fsck": ("admin", "fsck"),
    "demo": ("demo", "demo"),
    "schema": ("stack", "schema"),
    "version": ("stack", "version"),
    "emulator": ("emulator.group", "app"),
}


class _InOrder(TyperGroup):
    """Lists the commands in the order of `COMMANDS`; by default groups come last."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return [name for name in COMMANDS if name in self.commands]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Whole sentences: what is too long for its line goes on in the next one, where click would cut it."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(200)) for name, each in found if each]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def build(names: Iterable[str] = tuple(COMMANDS), *, outline: bool = False) -> typer.Typer:
    """The command line with these commands; as an `outline` without their options, as declaring those of all commands
    costs more CPU time than most commands take."""
    app = typer.Typer(
        name="tpujob",
        cls=_InOrder,
        help="Keeps training jobs alive on Cloud TPUs until they are done.",
        epilog=f"\b\nExit codes:\n{exit_code_table()}",
        no_args_is_help=True,
        # both cost more CPU time than the rest of a command
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_main)
    for name in names:
        module, function = COMMANDS[name]
        package, dot, _ = module.partition(".")
        if outline and dot:
            text = importlib.import_module(f"tpujob.cli.commands.{package}").HELP
            app.command(name, help=text)(_outlined)
            continue
        found: Any = getattr(importlib.import_module(f"tpujob.cli.commands.{module}"), function)
        group = isinstance(found, typer.Typer)
        if outline:
            app.command(name, help=found.info.help if group else found.__doc__)(_outlined)
        elif group:
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _needed(words: Sequence[str]) -> typer.Typer:
    """The part of the command line that these words need. Completion passes no words and needs all of it."""
    first = words[0] if words else "-"
    if first in COMMANDS:
        return build([first])
    return build(outline=first in ("-h", "--help") or not first.startswith("-"))


def _outlined() -> None:
    """Stands for a command where only its name and help are shown."""


def _version(wanted: bool) -> None:
    if wanted:
        say(f"tpujob {__version__}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    del version


def run(words: Sequence[str]) -> int:
    """Run one command line; returns its exit code. Errors of ours are explained on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old locale cannot show every character
    try:
        # Typer turns Ctrl-C into 130, and gives back what a command returns
        code = _needed(words)(args=list(words), prog_name="tpujob", standalone_mode=False)
        flush()
        return code if isinstance(code, int) else 0
    except OutputClosed:
        return NOBODY_READS
    except TpujobError as error:
        if isinstance(error, Transient) and not error.hint:
            from tpujob.cli.backend import died

            error.hint = died()
        show_error(error, screen(), as_json=_wants_json(words))
        return error.exit_code
    except typer.TyperException as error:
        if _wants_json(words):
            show_error(BadRequest(error.format_message()), screen(), as_json=True)
        else:
            _show_usage(error)
        return error.exit_code
    except typer.Abort:
        return 130


def _wants_json(words: Sequence[str]) -> bool:
    """Whether the command prints JSON; what follows `--` is of another program."""
    return "--json" in takewhile(lambda word: word != "--", words)


def _show_usage(error: typer.TyperException) -> None:
    show = getattr(error, "show", None)
    if show:
        show()
