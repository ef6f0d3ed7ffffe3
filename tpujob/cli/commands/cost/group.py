"""The commands of `tpujob cost`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.commands.cost import HELP, estimate, prices
from tpujob.cli.commands.cost.reconcile import reconcile
from tpujob.cli.options import Json, complete_job
from tpujob.cli.output import say, say_json, screen
from tpujob.errors import BadRequest

app = typer.Typer(no_args_is_help=True, help=HELP)
app.command()(reconcile)


class By(StrEnum):
    JOB = "job"
    USER = "user"
    DAY = "day"
    TYPE = "type"
    ZONE = "zone"


@app.callback()
def cost() -> None:
    """Show what jobs have cost, and what came of it."""


@app.command()
def report(
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="Only this job.", autocompletion=complete_job),
    ] = "",
    by: Annotated[
        By, typer.Option(metavar="|".join(By), help="What makes a row; days are those of UTC.")
    ] = By.JOB,
    user: Annotated[str, typer.Option(metavar="NAME", help="Only jobs of this user.")] = "",
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, in micro-dollars.")] = False,
) -> None:
    """Show chip-hours, list value and goodput of all slices."""
    if as_json and as_csv:
        raise BadRequest("give one of --json and --csv")
    api = connect()
    found = api.cost(by=by, user=user, job=api.get(job)["id"] if job else "")
    if as_json:
        say_json(found)
        return
    from tpujob.cli.render.cost.report import cost_csv, cost_page

    on = screen()
    if as_csv:
        say(cost_csv(found))
    else:
        emulated = current_settings().local
        say(cost_page(found, on.columns, color=on.color, emulated=emulated))


app.command()(estimate.estimate)
app.command()(prices.prices)
