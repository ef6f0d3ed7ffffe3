"""`tpujob emulator hollow`: slices whose hosts are only reports, and drills for many slices at once."""

from typing import Annotated, Any

import typer

from tpujob.cli.commands.emulator import options as given
from tpujob.cli.commands.emulator.options import lasting
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json
from tpujob.domain.text import many

HELP = "Make hosts that only report; drills for many slices."

app = typer.Typer(no_args_is_help=True, help=HELP)

_Zone = Annotated[str, typer.Option("--zone", metavar="ZONE", help="Default: every zone.")]
_Seed = Annotated[int, typer.Option(min=0, metavar="N", help="The same seed chooses the same.")]


@app.command()
def on(
    hosts: Annotated[
        int, typer.Option(min=0, metavar="N", help="Each zone has so many of each generation.")
    ] = 0,
) -> None:
    """Hosts that come up from now on are hollow.

    They have no processes: they take plans over SSH, report that their program runs, and end when
    they are told to."""
    given.client().do("hollow", on=True, hosts=hosts)
    say("hosts that come up from now on are hollow: they report, and run nothing")


@app.command()
def off() -> None:
    """Hosts that come up from now on are real processes."""
    given.client().do("hollow", on=False)
    say("hosts that come up from now on run programs")


@app.command()
def status(as_json: Json = False) -> None:
    """Count hollow slices, hosts and reports."""
    found = given.client().do("hollow")
    if as_json:
        say_json(found)
        return
    counts = ", ".join(many(found[f"{what}s"], what) for what in ("slice", "host", "report"))
    say(f"New hosts are {'hollow' if found['on'] else 'real'}. Hollow: {counts} written.")


@app.command()
def preempt(
    count: Annotated[int, typer.Argument(min=1, metavar="N", help="Number of slices.")],
    zone: _Zone = "",
    notice: Annotated[float, lasting("Default: 30s.")] = 30.0,
    seed: _Seed = 0,
) -> None:
    """Preempt many slices at the same moment."""
    _tell("preempt-many", "is preempted", count=count, zone=zone, notice_s=notice, seed=seed)


@app.command()
def silence(
    percent: Annotated[float, typer.Argument(metavar="PERCENT", help="Of the ready slices.")],
    zone: _Zone = "",
    seed: _Seed = 0,
) -> None:
    """Let a share of all slices die without notice."""
    _tell("silence-many", "fell silent", percent=percent, zone=zone, seed=seed)


def _tell(command: str, what: str, **values: Any) -> None:
    hit = given.client().do(command, **values)["slices"]
    say(f"{many(len(hit), 'slice')}: each {what}")
