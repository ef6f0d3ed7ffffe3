"""`tpujob`: the list of all commands, the main function, and the handling of errors.

The module of a command is imported when it runs, so that each command pays for its own imports only.
"""

import importlib
import io
import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from tpujob.cli.errors import OUTPUT_CLOSED, exit_code_table, show_error
from tpujob.cli.output import OutputClosed, flush, get_screen, say
from tpujob.errors import BadRequest, TpujobError, Transient
from tpujob.version import __version__


class Command(NamedTuple):
    """The location of a command, and its line in `tpujob --help`, which imports no command."""

    #: the module below `tpujob.cli.commands`
    module: str
    #: a function, or the Typer of a group of commands
    function: str
    #: the first sentence of the function's docstring
    summary: str


#: heading of `--help` -> its commands, in the order of `--help`
GROUPS: dict[str, dict[str, Command]] = {
    "Jobs": {
        "create": Command("create", "create", "Submit a job."),
        "run": Command("create", "run", "Submit a job without a job file."),
        "import": Command("imports", "app", "Make job files of the files of jobman or SkyPilot; submit nothing."),
        "list": Command("jobs", "list_jobs", "List active jobs, and those that ended within the last day."),
        "show": Command("jobs", "show", "Show everything about a job, and what happens next."),
        "why": Command("jobs", "why", "Explain a job's state, and what happens next."),
        "queue": Command("queue", "queue", "Show which job gets a slice next, and why another one waits."),
        "shares": Command("queue", "shares", "Show what each share and its owners have used lately."),
        "logs": Command("logs", "logs", "Print a job's output, all hosts merged."),
        "events": Command("overview", "events", "Print the events of a job, or of all jobs, oldest first."),
        "wait": Command("jobs", "wait", "Wait until a job has ended; the exit code says how."),
        "diff": Command("overview", "diff", "Show what differs between two jobs: spec, code, outcome."),
        "note": Command("notes", "note", "Note something about a job, such as what it tries; or print its note."),
        "tag": Command("notes", "tag", "Tag jobs: `tpujob list --tag` finds them again."),
        "cancel": Command("jobs", "cancel", "Stop a job's program; keep its slice for a while, for a resume."),
        "resume": Command("jobs", "resume", "Continue from the last checkpoint, on the held slice or a new one."),
        "delete": Command("jobs", "delete", "Stop a job and release its slice; keep its record and logs."),
        "clean": Command("jobs", "clean", "Delete a job, then remove its logs, its bundle and its record."),
        "outputs": Command("files", "outputs", "List the checkpoints and outputs of a job: step, files, size, age."),
        "cp": Command("files", "cp", "Copy files of jobs to this machine, or files to a job; verified."),
        "exec": Command("shell", "exec_", "Run a command on all hosts of a job."),
        "forward": Command("shell", "forward", "Forward ports of this machine to a host of a job, until Ctrl-C."),
        "ssh": Command("shell", "ssh", "Open a shell on a host of a job, or run a command there."),
        "open": Command("browser", "open_page", "Open the page of your jobs, or of one, in the browser."),
        "schema": Command("stack", "schema", "Print the JSON schema of a job file, for editors."),
    },
    "Data": {
        "data": Command("data.group", "app", "Copy and pack data, and show where it is."),
        "bucket": Command("bucket", "app", "Make and show the buckets of the context."),
        "secret": Command("secrets", "app", "Set, list and remove secrets that jobs name in run.secrets."),
    },
    "Money": {
        "fit": Command("fit", "fit", "Compile any training step for TPU slices: does it fit, how fast, for how much."),
        "cost": Command("cost.group", "app", "Show what jobs have cost and would cost, budgets, and prices."),
    },
    "Cloud": {
        "init": Command("contexts", "init", "Write a context: where in Google Cloud jobs run."),
        "use": Command("contexts", "use", "Choose where jobs run: here, a context, a shared backend."),
        "doctor": Command("doctor", "doctor", "Check that jobs can run, and say what to do where they cannot."),
        "quota": Command("doctor", "quota", "Show limits, use and grants of each type of TPU, by zone."),
        "capacity": Command("overview", "capacity", "Show what jobs hold and wait for, and what the cloud refuses."),
        "hosts": Command("admin", "hosts", "Show machines that are suspected, and why; pin them."),
        "leaks": Command("admin", "leaks", "List slices in the cloud that no job claims, with age and price."),
        "sweep": Command("admin", "sweep", "Delete slices, requests and keys that no job claims."),
        "fsck": Command("admin", "fsck", "Check every record, its history and the slices in the cloud."),
    },
    "People": {
        "login": Command("browser", "login", "Sign in at Google for the deployed backend of the context."),
        "logout": Command("browser", "logout", "Revoke the sign-in, here and at Google."),
        "whoami": Command("admin", "whoami", "Print your identity and role."),
        "members": Command("admin", "members", "Show members and roles."),
        "notifications": Command("notifications", "app", "Show the notification channels; test them."),
    },
    "Local stack": {
        "demo": Command("demo", "demo", "Run a training job on the local stack, through a preemption."),
        "up": Command("stack", "up", "Start the local stack, or the backend of the context."),
        "down": Command("stack", "down", "Stop the local stack, or the backend of the context."),
        "status": Command("stack", "status", "Show the processes of tpujob on this machine."),
        "serve": Command("stack", "serve", "Run one backend for all users of this machine, until Ctrl-C."),
        "emulator": Command("emulator.group", "app", "Inject faults into the local Cloud TPU, and show its state."),
        "version": Command("stack", "version", "Print the version."),
    },
}  # fmt: skip
#: command of Slurm, SkyPilot, kubectl, dstack or a shell -> command of tpujob
FOREIGN_COMMANDS = {
    "squeue": "queue", "ps": "list", "ls": "list", "top": "list --watch", "watch": "list --watch",
    "sacct": "list --all", "sbatch": "create", "submit": "create", "scancel": "cancel", "stop": "cancel",
    "kill": "cancel", "sinfo": "capacity", "attach": "logs -f", "tail": "logs -f", "sattach": "logs -f",
    "log": "logs", "srun": "run", "salloc": "run", "launch": "create", "scontrol": "queue", "sprio": "queue",
    "sshare": "shares", "hold": "queue hold", "release": "queue release", "requeue": "queue requeue",
    "rm": "delete", "describe": "show", "info": "show", "sstat": "show", "history": "events", "event": "events",
    "jobs": "list", "get": "list", "apply": "create", "start": "resume", "restart": "resume", "config": "use",
    "plan": "create --dry-run", "port-forward": "forward", "tunnel": "forward", "tensorboard": "forward",
    "shell": "ssh", "scp": "cp", "rsync": "cp", "sbcast": "cp", "download": "cp", "upload": "cp",
    "artifacts": "outputs", "checkpoints": "outputs", "metrics": "show --plot", "dashboard": "open", "ui": "open",
    "check": "doctor", "sreport": "cost report", "cost-report": "cost report", "offer": "cost prices",
    "show-gpus": "cost prices",
}  # fmt: skip
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


class _InOrder(TyperGroup):
    """Lists the commands in the order and under the headings of `GROUPS`."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return [name for name in COMMANDS if name in self.commands]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002, click calls it
        """Write the commands under their headings."""
        for heading, commands in GROUPS.items():
            rows = [
                (name.ljust(13), command.summary)
                for name, command in commands.items()
                if name in self.commands
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def build(names: Iterable[str] = tuple(COMMANDS), *, outline: bool = False) -> typer.Typer:
    """Return the command line with these commands. An `outline` has no options, as declaring those of all commands
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
        command = COMMANDS[name]
        if outline:
            app.command(name, help=command.summary)(_do_nothing)
            continue
        module = importlib.import_module(f"tpujob.cli.commands.{command.module}")
        function: Any = getattr(module, command.function)
        if isinstance(function, typer.Typer):
            app.add_typer(function, name=name)
        else:
            app.command(name)(function)
    return app


def _build_for(words: Sequence[str]) -> typer.Typer:
    """Return the part of the command line that `words` need. Completion passes none: the shell's line decides."""
    first = words[0] if words else _completed_command()
    if first in COMMANDS:
        return build([first])
    return build(outline=first in ("", "-h", "--help") or not first.startswith("-"))


def _completed_command() -> str:
    """Return the command of the line that a shell completes; empty: none is whole yet, or nothing is completed."""
    from tpujob.config.settings import variable

    line = variable("COMP_WORDS") or variable("_TYPER_COMPLETE_ARGS")
    parts = line.split()[1:2]
    is_whole = len(line.split()) > 2 or line[-1:].isspace() or variable("COMP_CWORD") > "1"
    return parts[0] if parts and is_whole else ""


def _do_nothing() -> None:
    """Stand in for a command of which only name and help are shown."""


def _version(value: bool) -> None:
    if value:
        say(f"tpujob {__version__}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    del version


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit code. tpujob's errors are explained on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old locale cannot show every character
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    try:
        # Typer turns Ctrl-C into 130, and gives back what a command returns
        code = _build_for(words)(args=list(words), prog_name="tpujob", standalone_mode=False)
        flush()
        return code if isinstance(code, int) else 0
    except OutputClosed:
        return OUTPUT_CLOSED
    except TpujobError as error:
        if isinstance(error, Transient) and not error.hint:
            from tpujob.cli.backend import hint_about_dead_processes

            error.hint = hint_about_dead_processes()
        show_error(error, get_screen(), as_json=_wants_json(words))
        return error.exit_code
    except typer.TyperException as error:
        if isinstance(error, typer.BadParameter):
            for kind, noun in (("int range", "whole number"), ("float range", "number")):
                error.message = error.message.replace(f"a valid {kind}", f"a {noun}")
        if command := FOREIGN_COMMANDS.get(words[0] if words else ""):
            text = f"there is no command {words[0]}: use tpujob {command}"
            show_error(BadRequest(text), get_screen(), as_json=_wants_json(words))
        elif len(words) > 1 and words[0] == "status" and not words[1].startswith("-"):
            text = f"`tpujob status` shows no job: use tpujob show {words[1]}"
            show_error(BadRequest(text), get_screen(), as_json=_wants_json(words))
        elif _wants_json(words):
            show_error(BadRequest(error.format_message()), get_screen(), as_json=True)
        elif show := getattr(error, "show", None):
            show()
        return error.exit_code
    except typer.Abort:
        return 130


def _wants_json(words: Sequence[str]) -> bool:
    """Return whether the command prints JSON; words after `--` belong to another program."""
    return "--json" in takewhile(lambda word: word != "--", words)
