"""`tpujob cost report`: what jobs have cost, and what came of it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tpujob.cli.backend import connect
from tpujob.cli.options import Json, complete_job
from tpujob.cli.output import note, say, say_json, screen
from tpujob.errors import BadRequest, TpujobError


class By(StrEnum):
    JOB = "job"
    USER = "user"
    DAY = "day"
    TYPE = "type"
    ZONE = "zone"


def report(
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="Only this job.", autocompletion=complete_job),
    ] = "",
    by: Annotated[
        By, typer.Option(metavar="|".join(By), help="What makes a row; days are those of UTC.")
    ] = By.JOB,
    user: Annotated[str, typer.Option(metavar="NAME", help="Only jobs of this user.")] = "",
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw money and goodput by day, as .svg or .png."),
    ] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, in micro-dollars.")] = False,
) -> None:
    """Show chip-hours, list value and goodput of all slices."""
    if as_json and as_csv:
        raise BadRequest("give one of --json and --csv")
    format = _format(plot) if plot else ""
    api = connect()
    job = api.get(job)["id"] if job else ""
    found = api.cost(by=by, user=user, job=job)
    if plot:
        from tpujob.cli.render.cost.plot import draw

        days = found if by is By.DAY else api.cost(by=By.DAY, user=user, job=job)
        _write(plot, draw(days, format))
    if as_json:
        say_json(found)
        return
    from tpujob.cli.render.cost.report import cost_csv, cost_page

    on = screen()
    if as_csv:
        say(cost_csv(found))
    else:
        say(cost_page(found, on.columns, color=on.color))


def _format(plot: Path) -> str:
    from tpujob.cli.render.cost.plot import FORMATS

    found = plot.suffix.lower().removeprefix(".")
    if found not in FORMATS:
        raise BadRequest(f"--plot {plot} should end in .svg or .png")
    return found


def _write(plot: Path, picture: bytes) -> None:
    """The file is whole under its name, or as it was before."""
    unfinished = plot.with_name(f".{plot.name}.tmp")
    try:
        unfinished.write_bytes(picture)
        unfinished.replace(plot)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise TpujobError(f"{plot} cannot be written: {error.strerror}") from None
    note(f"tpujob: drew {plot}")
