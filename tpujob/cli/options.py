"""Arguments and options that several commands share, and their completion."""

import re
from datetime import datetime, time, timedelta
from typing import Annotated, Any

import typer

_NUMBER = r"\d{1,9}(?:\.\d{1,3})?"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def argument(metavar: str, help: str, **typer_options: Any) -> Any:
    """Declare an argument for typer."""
    return typer.Argument(metavar=metavar, help=help, **typer_options)


def option(metavar: str, help: str, *names: str, **typer_options: Any) -> Any:
    """Declare an option with a value for typer. Without `names` the option is called as its parameter."""
    return typer.Option(*names, metavar=metavar, help=help, **typer_options)


def flag(help: str, *names: str, **typer_options: Any) -> Any:
    """Declare an option without a value for typer."""
    return typer.Option(*names, help=help, **typer_options)


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Return ids and names of jobs for completion. Starts nothing and raises nothing."""
    from tpujob.cli.backend import running

    try:
        api = running()
        jobs = api.list({"limit": 200, "fields": ["name", "state"]})["rows"] if api else []
    except Exception:
        return []  # a half-typed line is no place for an error
    completions = [(job["id"], f"{job['name']}, {job['state']}") for job in jobs]
    completions += [(job["name"], f"{job['id']}, {job['state']}") for job in jobs]
    return [pair for pair in dict(completions).items() if pair[0].startswith(incomplete)]


def complete_host(incomplete: str) -> list[tuple[str, str]]:
    """Return names of suspected and pinned machines for completion. Starts nothing and raises nothing."""
    from tpujob.cli.backend import running

    try:
        api = running()
        machines = api.hosts()[:200] if api else []
    except Exception:
        return []
    completions = [(m["physical"], f"{m['zone']}, score {m['score']:.2f}") for m in machines]
    return [pair for pair in completions if pair[0].startswith(incomplete)]


def complete_state(incomplete: str) -> list[str]:
    """Return names of states for completion."""
    from tpujob.cli.render.lines import STATE_STYLE  # the domain's records take four times as long

    return [state for state in STATE_STYLE if state.startswith(incomplete)]


def duration(text: str) -> float:
    """Return the seconds of `45`, `30s`, `1.5h` or `1h30m`. Raises typer.BadParameter."""
    if not re.fullmatch(rf"{_NUMBER}|({_NUMBER}[smhd])+", text):
        raise typer.BadParameter(f"{text!r} is not a time such as 90s, 15m or 1h30m")
    return sum(
        float(amount) * _UNITS[unit] for amount, unit in re.findall(r"([\d.]+)([smhd]?)", text)
    )


def moment(text: str) -> float:
    """Return the time, in seconds since the epoch, of `10m` (ago), `14:30` (the last one, here) or a date of ISO 8601.
    Raises typer.BadParameter."""
    now = datetime.now()
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            at = datetime.combine(
                now.date(), time.fromisoformat(text.zfill(5 + 3 * (text.count(":") - 1)))
            )
            return (at if at <= now else at - timedelta(days=1)).timestamp()
        if not re.fullmatch(rf"({_NUMBER}[smhd]?)+", text):
            return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time such as 10m, 14:30 or 2026-11-29T14:30"
        ) from None
    return now.timestamp() - duration(text)


def variables(assignments: list[str] | None) -> dict[str, str]:
    """Return the variables in a list of `NAME=VALUE`. Raises BadRequest."""
    from tpujob.errors import BadRequest

    pairs = [text.partition("=") for text in assignments or ()]
    if bad := next((name for name, separator, _ in pairs if not separator), None):
        raise BadRequest(f"--env {bad} has no value", hint="Write NAME=VALUE.")
    return {name: value for name, _, value in pairs}


JobRef = Annotated[
    str, argument("JOB", "Its id (42 or 000042) or unique name.", autocompletion=complete_job)
]
JOBS = argument("JOB...", "Ids (42 or 000042) or unique names.", autocompletion=complete_job)
JobRefs = Annotated[list[str] | None, JOBS]  #: empty: options choose the jobs, such as --state
Variables = Annotated[list[str] | None, option("NAME=VALUE", "Variable; repeatable.", "--env")]
Follow = Annotated[bool, flag("Follow the job until it ends.", "--follow", "-f")]
Mine = Annotated[bool, flag("Only your jobs.", "--mine", "-m")]
States = Annotated[
    list[str] | None,
    option("STATE", "Filter by state; repeatable.", "--state", autocompletion=complete_state),
]
Watch = Annotated[bool, flag("Update live.", "--watch", "-w")]
Json = Annotated[bool, flag("Print JSON.", "--json")]
Yes = Annotated[bool, flag("Do not ask.", "--yes", "-y")]
