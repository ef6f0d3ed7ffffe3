"""The commands that show and steer jobs. `create` is in `create.py`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tpujob.cli.backend import RetryingClient, connect, current_settings, say_where
from tpujob.cli.errors import TIMED_OUT, goes_on, on_interrupt, show_error
from tpujob.cli.options import (
    JOBS,
    JobRef,
    JobRefs,
    Json,
    Mine,
    States,
    Watch,
    Yes,
    argument,
    duration,
    flag,
    option,
)
from tpujob.cli.output import Screen, note, say, say_json, say_json_line, say_page, screen
from tpujob.cli.render import words
from tpujob.cli.render.answers import next_commands, steered_text, stop_question
from tpujob.cli.render.job_page import job_page
from tpujob.cli.render.listing import OF_GROUP, chosen_columns, list_page
from tpujob.domain.text import listed
from tpujob.errors import BadRequest, TpujobError

if TYPE_CHECKING:
    from tpujob.api import JobPage, JobsApi, JobView, ListAsked


#: jobs that one range names, at most
MOST_NAMED = 1000


def list_jobs(
    all_jobs: Annotated[bool, flag("Include jobs that ended earlier.", "--all", "-a")] = False,
    user: Annotated[str, option("NAME", "Filter by user.")] = "",
    mine: Mine = False,
    state: States = None,
    cause: Annotated[list[str] | None, option("CAUSE", "Filter by cause, such as OOM_HBM.")] = None,
    type_: Annotated[list[str] | None, option("TYPE", "Filter by TPU type.", "--type")] = None,
    zone: Annotated[list[str] | None, option("ZONE", "Filter by zone.")] = None,
    text: Annotated[str, option("TEXT", "Filter by text in id, name or user.")] = "",
    group: Annotated[str, option("JOB", "Only the jobs of this array or sweep.")] = "",
    order: Annotated[str, option("COLUMN", "Sort by a column, such as step or spent.")] = "",
    reverse: Annotated[bool, flag("Reverse the order.", "--reverse", "-r")] = False,
    limit: Annotated[int, option("N", "Maximum number.", min=0, show_default=False)] = 0,
    columns: Annotated[
        str, option("NAME,...", "Columns of the table, such as id,name,spent.")
    ] = "",
    watch: Watch = False,
    html: Annotated[Path | None, option("FILE", "Write a static HTML page.", "--html")] = None,
    as_json: Json = False,
) -> None:
    """List active jobs, and those that ended within the last day."""
    if columns and (html or as_json):
        raise BadRequest("--columns goes without --html and --json")
    if group:  # the first element first, unless another order is asked for
        group, columns = connect().get(group)["id"], columns or OF_GROUP
        order, reverse = order or "id", reverse if order else not reverse
    options = {"user": user, "mine": mine, "text": text, "group": group}
    options |= {"order": order, "reverse": reverse}
    several = {"states": state, "causes": cause, "types": type_, "zones": zone}
    ended = all_jobs or state or cause or group
    given = {**options, **several, "recent": not ended, "limit": limit}
    asked = cast("ListAsked", {name: value for name, value in given.items() if value})
    chosen = chosen_columns(columns)
    if html:
        _write_page(html, asked, watch=watch, as_json=as_json)
        return

    def shown(page: JobPage, on: Screen) -> str:
        return list_page(page, asked, on.columns, time.time(), color=on.color, chosen=chosen)

    def facts(page: JobPage) -> object:
        keys = ("id", "state", "step", "host0_ip", "zone")  # without ages
        return page["rows"] if as_json else [[row[key] for key in keys] for row in page["rows"]]

    if watch:
        from tpujob.cli.live_display import watch_table

        watch_table(lambda api: api.list(asked), shown, facts, as_json=as_json)
    page = connect().list(asked)
    say_json(page["rows"]) if as_json else say(shown(page, screen()))


def _write_page(file: Path, asked: ListAsked, *, watch: bool, as_json: bool) -> None:
    """Write the list as the page shows it."""
    from urllib.parse import urlencode

    from tpujob.wiring import client

    if watch or as_json:
        raise BadRequest("--html goes without --watch and --json", hint="`tpujob open` is live.")
    if asked.keys() & {"limit", "group"}:
        raise BadRequest("--html goes without --limit and --group", hint="A page has 50 jobs.")
    names = {"states": "state", "causes": "cause", "types": "type", "zones": "zone", "text": "q"}
    same = ("user", "order", "states", "causes", "types", "zones", "text")
    query: dict[str, object] = {names.get(k, k): v for k, v in asked.items() if k in same}
    whose = "mine" if asked.get("mine") else "everyone"
    query |= {"who": whose, "show": "" if asked.get("recent") else "all"}
    query |= {"reverse": "1"} if asked.get("reverse") else {}
    connect()
    text = client.client(current_settings()).html(f"/?{urlencode(query, doseq=True)}")
    file.write_text(text, encoding="utf-8")
    say(f"Wrote {file}.")


def show(
    job: JobRef,
    plot: Annotated[bool, flag("Plot loss and speed.", "--plot")] = False,
    as_json: Json = False,
) -> None:
    """Show everything about a job, and what happens next."""
    _one_page(job, as_json, job_page)
    if plot and not as_json:
        from tpujob.cli.render.plot import plot_page

        on = screen()
        say("\n" + plot_page(connect().metrics(job), on.columns, color=on.color))


def why(job: JobRef, as_json: Json = False) -> None:
    """Explain a job's state, and what happens next."""
    from tpujob.cli.render.job_page import why_page

    _one_page(job, as_json, why_page)


def _one_page(job: str, as_json: bool, page: Callable[..., str]) -> None:
    api = connect()
    found = api.get(job)
    if as_json:
        say_json(found)
    else:
        on = screen()
        say(page(found, api.events(found["id"]), on.columns, time.time(), color=on.color))


def wait(
    job: JobRef,
    timeout: Annotated[
        float | None, option("TIME", "Maximum wait, such as 15m.", parser=duration)
    ] = None,
    as_json: Json = False,
) -> int:
    """Wait until a job has ended; the exit code says how."""
    deadline = None if timeout is None else time.monotonic() + timeout
    retrying = RetryingClient()
    found = retrying.ask(lambda api: api.get(job))
    job_id = found["id"]
    with on_interrupt(*goes_on(job_id)):
        while found["state"] not in words.FINAL:
            if deadline is not None and time.monotonic() >= deadline:
                break
            found = _next_look(retrying, job_id, deadline)
    _say_job(found, as_json)
    return words.EXIT_OF_STATE.get(found["state"], TIMED_OUT)


def _next_look(retrying: RetryingClient, job_id: str, deadline: float | None) -> JobView:
    left = 30.0 if deadline is None else min(30.0, max(0.05, deadline - time.monotonic()))
    hints = retrying.follow(job_id, timeout=left)
    next(hints)
    found = retrying.ask(lambda api: api.get(job_id))
    if found["state"] not in words.FINAL:
        next(hints)
        found = retrying.ask(lambda api: api.get(job_id))
    return found


# Steer ---------------------------------------------------------------------------------------------------------------


def cancel(
    jobs: JobRefs = None,
    state: States = None,
    mine: Mine = False,
    yes: Yes = False,
    release: Annotated[bool, flag("Release the slice too.", "--release")] = False,
    as_json: Json = False,
) -> int:
    """Stop a job's program; keep its slice for a while, for a resume."""
    api = connect()
    chosen = _chosen(api, jobs, state, mine, yes, "Cancel")
    return steer_each(chosen, lambda job: api.cancel(job, release=release), as_json)


def resume(
    jobs: Annotated[list[str], JOBS],
    budget: Annotated[
        float | None,
        option("USD", "New total budget in US dollars, also of a running job.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> int:
    """Continue from the last checkpoint, on the held slice or a new one."""
    api, then = connect(), ("show", "logs -f")
    return steer_each(jobs, lambda job: api.resume(job, budget=budget), as_json, then=then)


def delete(
    jobs: JobRefs = None,
    state: States = None,
    mine: Mine = False,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Stop a job and release its slice; keep its record and logs."""
    say_where()
    api = connect()
    chosen, yes = _chosen(api, jobs, state, mine, yes, "Delete"), yes or not jobs
    return steer_each(chosen, lambda job: _end(api, job, yes, "Delete"), as_json)


def clean(
    jobs: JobRefs = None,
    state: States = None,
    mine: Mine = False,
    yes: Yes = False,
    checkpoints: Annotated[
        bool, flag("Remove its checkpoints and outputs too.", "--checkpoints")
    ] = False,
    as_json: Json = False,
) -> int:
    """Delete a job, then remove its logs, its bundle and its record."""
    say_where()
    api = connect()
    chosen, yes = _chosen(api, jobs, state, mine, yes, "Clean"), yes or not jobs
    return steer_each(chosen, lambda job: _end(api, job, yes, "Clean", checkpoints), as_json)


def _chosen(
    api: JobsApi, jobs: list[str] | None, states: list[str] | None, mine: bool, yes: bool, verb: str
) -> list[str]:
    """Return the jobs that are named, or those that match, of which a person at a terminal is asked. Without a state,
    jobs that have ended match `clean` alone. Raises BadRequest."""
    if bool(jobs) == bool(states or mine):
        hint = "Not both." if jobs else "`tpujob list` shows them."
        raise BadRequest("name jobs, or choose them by --state and --mine", hint=hint)
    if jobs:
        return jobs
    asked = {"states": states, "mine": mine, "active": verb != "Clean" and not states}
    given = cast("ListAsked", {name: value for name, value in asked.items() if value})
    rows = api.list(given)["rows"]
    names = [f"{row['id']} {row['name']}" for row in rows]
    shown = listed([*names[:10], *([f"{len(names) - 10} more"] if len(names) > 10 else [])])
    if not rows:
        note("No job matches.")
    elif not yes and screen().asks and not typer.confirm(f"{verb} {shown}?", err=True):
        raise typer.Abort
    return [row["id"] for row in rows]


def _end(api: JobsApi, job: str, yes: bool, verb: str, checkpoints: bool = False) -> JobView | None:
    """Delete or clean the job, and return it; None when the person declined. Asks only at a terminal, and only when the
    job holds a slice or has made output."""
    if not yes and screen().asks:
        found = api.get(job)
        job, question = found["id"], stop_question(found, verb, checkpoints=checkpoints)
        if question and not typer.confirm(question, err=True):
            note("Nothing was done.")
            return None
    return api.delete(job) if verb == "Delete" else api.clean(job, checkpoints=checkpoints)


def steer_each(
    jobs: Sequence[str],
    steer: Callable[[str], JobView | None],
    as_json: bool,
    *,
    then: Sequence[str] = (),
) -> int:
    """Steer each job in turn, and print it: as JSON one record, or one line for each of several. An error of one job
    does not stop the others. Returns the first error's exit code. `steer` returns None when the person declined."""
    code, hint = 0, ""
    jobs = [one for job in jobs for one in expanded(job)]
    for job in jobs:
        try:
            steered = steer(job)
        except TpujobError as error:
            if len(jobs) == 1:
                raise
            if error.hint == hint and not as_json:
                error.hint = ""  # it is above
            hint = error.hint or hint
            show_error(error, screen(), as_json=as_json)
            code = code or error.exit_code
            continue
        if steered is None:
            code = code or 1
        elif as_json and len(jobs) > 1:
            say_json_line(steered)
        else:
            _say_job(steered, as_json)
            if then and not as_json:
                here = then[:1] if steered.get("elements") else then  # a group has no log
                say("\n".join(next_commands(steered["id"], here)))
    return code


def expanded(job: str) -> list[str]:
    """The elements that `sweep-[1-3]` names. Raises BadRequest for a range of too many."""
    found = re.fullmatch(r"(.+)\[([0-9]{1,5})-([0-9]{1,5})\]", job)
    if found is None:
        return [job]
    first, last = int(found[2]), int(found[3])
    if not first <= last < first + MOST_NAMED:
        raise BadRequest(
            f"{job}: a range goes from the smaller to the larger index, of {MOST_NAMED} jobs at most",
            hint="The name of an array or a sweep names all of its jobs.",
        )
    return [f"{found[1]}{index}" for index in range(first, last + 1)]


def _say_job(job: JobView, as_json: bool) -> None:
    say_page(job, steered_text, as_json, now=time.time())


# Reach ---------------------------------------------------------------------------------------------------------------


def ssh(
    job: JobRef,
    command: Annotated[list[str] | None, argument("[-- COMMAND...]", "Run a command.")] = None,
    host: Annotated[int, option("K", "Host number.", "--host", min=0)] = 0,
) -> int:
    """Open a shell on a host of a job, or run a command there."""
    backend = connect()
    from tpujob.wiring import client

    return client.open_session(current_settings(), backend, job, host=host, command=command or None)
