"""The commands that show and steer jobs. `create` is in `create.py`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tpujob.cli.backend import connect, current_settings, note_context, retrying_client
from tpujob.cli.errors import TIMED_OUT, job_continues, on_interrupt, show_error
from tpujob.cli.options import (
    JOBS,
    JobRef,
    JobRefs,
    Json,
    Mine,
    States,
    Watch,
    Yes,
    duration,
    flag,
    option,
)
from tpujob.cli.output import Screen, get_screen, note, say, say_json, say_json_line, say_page
from tpujob.cli.render import words
from tpujob.cli.render.answers import next_commands, steered_text, stop_question
from tpujob.cli.render.job_page import job_page
from tpujob.cli.render.listing import OF_GROUP, chosen_columns, first_hints, list_page
from tpujob.domain.final_states import FINAL
from tpujob.domain.text import listed
from tpujob.errors import BadRequest, TpujobError
from tpujob.wiring.retrying import RetryingClient

if TYPE_CHECKING:
    from tpujob.api import JobPage, JobsApi, JobView, ListQuery


#: maximum number of jobs in a range such as `sweep-[1-9]`
MAX_RANGE = 1000


def list_jobs(
    all_jobs: Annotated[bool, flag("Include jobs that ended earlier.", "--all", "-a")] = False,
    user: Annotated[str, option("NAME", "Filter by user.")] = "",
    mine: Mine = False,
    state: States = None,
    cause: Annotated[list[str] | None, option("CAUSE", "Filter by cause, such as OOM_HBM.")] = None,
    type_: Annotated[list[str] | None, option("TYPE", "Filter by TPU type.", "--type")] = None,
    zone: Annotated[list[str] | None, option("ZONE", "Filter by zone.")] = None,
    tag: Annotated[list[str] | None, option("TAG", "Filter by tag.")] = None,
    text: Annotated[str, option("TEXT", "Filter by text in id, name, user, note or tags.")] = "",
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
    if group:
        group = connect().get(group)["id"]
        columns = columns or OF_GROUP
        if not order:  # the first element first
            order, reverse = "id", not reverse
    request = _list_request(
        {"user": user, "mine": mine, "text": text, "group": group, "order": order}
        | {"reverse": reverse, "states": state, "causes": cause, "types": type_, "zones": zone}
        | {"tags": tag, "recent": not all_jobs, "limit": limit}
    )
    chosen = chosen_columns(columns)
    if html:
        _write_page(html, request, watch=watch, as_json=as_json)
        return

    def text_of(page: JobPage, screen: Screen) -> str:
        now = time.time()
        hints = _first_hints() if not page["total"] else []
        return list_page(
            page, request, screen.columns, now, color=screen.color, chosen=chosen, hints=hints
        )

    def facts(page: JobPage) -> object:
        keys = ("id", "state", "step", "host0_ip", "zone")  # without ages
        return page["rows"] if as_json else [[row[key] for key in keys] for row in page["rows"]]

    if watch:
        from tpujob.cli.live_display import watch_table

        watch_table(lambda api: api.list(request), text_of, facts, as_json=as_json)
    page = connect().list(request)
    say_json(page["rows"]) if as_json else say(text_of(page, get_screen()))


def _first_hints() -> list[str]:
    submits = connect().whoami()["role"] in ("submitter", "admin")
    return first_hints(submits=submits, local=current_settings().local)


def _list_request(options: dict[str, Any]) -> ListQuery:
    return cast("ListQuery", {name: value for name, value in options.items() if value})


def _write_page(file: Path, request: ListQuery, *, watch: bool, as_json: bool) -> None:
    """Write the web page of the list to a file."""
    from urllib.parse import urlencode

    from tpujob.wiring import client

    if watch or as_json:
        raise BadRequest("--html goes without --watch and --json", hint="`tpujob open` is live.")
    if request.keys() & {"limit", "group"}:
        raise BadRequest("--html goes without --limit and --group", hint="A page has 50 jobs.")
    # key of the request -> query parameter of the page
    names = {"states": "state", "causes": "cause", "types": "type", "zones": "zone", "text": "q"}
    names |= {"tags": "tag", "user": "user", "order": "order"}
    query: dict[str, object] = {names[key]: request[key] for key in request if key in names}
    query["who"] = "mine" if request.get("mine") else "everyone"
    query["show"] = "" if request.get("recent") else "all"
    query |= {"reverse": "1"} if request.get("reverse") else {}
    connect()
    text = client.client(current_settings()).html(f"/?{urlencode(query, doseq=True)}")
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadRequest(
            f"cannot write {file}: {error.strerror}", hint="Name another file."
        ) from None
    say(f"Wrote {file}.")


def show(
    job: JobRef,
    plot: Annotated[bool, flag("Plot loss and speed.", "--plot")] = False,
    as_json: Json = False,
) -> None:
    """Show everything about a job, and what happens next."""
    _print_job(job, as_json, job_page)
    if plot and not as_json:
        from tpujob.cli.render.plot import plot_page

        screen = get_screen()
        say("\n" + plot_page(connect().metrics(job), screen.columns, color=screen.color))


def why(job: JobRef, as_json: Json = False) -> None:
    """Explain a job's state, and what happens next."""
    from tpujob.cli.render.job_page import why_page

    _print_job(job, as_json, why_page)


def _print_job(job: str, as_json: bool, page: Callable[..., str]) -> None:
    api = connect()
    view = api.get(job)
    if as_json:
        say_json(view)
        return
    screen = get_screen()
    events = api.events(view["id"])
    say(page(view, events, screen.columns, time.time(), color=screen.color))


def wait(
    job: JobRef,
    timeout: Annotated[
        float | None, option("TIME", "Maximum wait, such as 15m.", parser=duration)
    ] = None,
    as_json: Json = False,
) -> int:
    """Wait until a job has ended; the exit code says how."""
    deadline = None if timeout is None else time.monotonic() + timeout
    retrying = retrying_client()
    view = retrying.ask(lambda api: api.get(job))
    job_id = view["id"]
    with on_interrupt(*job_continues(job_id, "wait {}")):
        while view["state"] not in FINAL:
            if deadline is not None and time.monotonic() >= deadline:
                break
            view = _wait_for_change(retrying, job_id, deadline)
    say_page(view, steered_text, as_json, now=time.time())
    return words.EXIT_OF_STATE.get(view["state"], TIMED_OUT)


def _wait_for_change(retrying: RetryingClient, job_id: str, deadline: float | None) -> JobView:
    """Return the job after its next change, at the latest after 30 seconds or at the deadline."""
    timeout = 30.0 if deadline is None else min(30.0, max(0.05, deadline - time.monotonic()))
    hints = retrying.follow(job_id, timeout=timeout)
    next(hints)
    view = retrying.ask(lambda api: api.get(job_id))
    if view["state"] not in FINAL:
        next(hints)
        view = retrying.ask(lambda api: api.get(job_id))
    return view


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
    chosen = _choose_jobs(api, jobs, state, mine, yes, "Cancel")
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
    api = connect()
    follow_up = ("show", "logs -f")
    return steer_each(jobs, lambda job: api.resume(job, budget=budget), as_json, follow_up)


def delete(
    jobs: JobRefs = None,
    state: States = None,
    mine: Mine = False,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    """Stop a job and release its slice; keep its record and logs."""
    return _delete_or_clean("Delete", jobs, state, mine, yes, as_json)


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
    return _delete_or_clean("Clean", jobs, state, mine, yes, as_json, checkpoints)


def _delete_or_clean(
    verb: str,
    jobs: list[str] | None,
    states: list[str] | None,
    mine: bool,
    yes: bool,
    as_json: bool,
    checkpoints: bool = False,
) -> int:
    """Delete or clean the jobs, and return the exit code. Ask, unless nothing of a named job is lost."""
    note_context()
    api = connect()
    chosen = _choose_jobs(api, jobs, states, mine, yes, verb)

    def steer(job: str) -> JobView | None:
        if jobs and not yes:
            view = api.get(job)
            job = view["id"]
            question = stop_question(view, verb, checkpoints=checkpoints)
            if question and not _confirm(question):
                note("Nothing was done.")
                return None
        return api.delete(job) if verb == "Delete" else api.clean(job, checkpoints=checkpoints)

    return steer_each(chosen, steer, as_json)


def _choose_jobs(
    api: JobsApi, jobs: list[str] | None, states: list[str] | None, mine: bool, yes: bool, verb: str
) -> list[str]:
    """Return the named jobs, or the ids of the jobs that match, after asking. Without a state, jobs that
    have ended match for `clean` only. Raises BadRequest."""
    if bool(jobs) == bool(states or mine):
        hint = "Not both." if jobs else "`tpujob list` shows them."
        raise BadRequest("name jobs, or choose them by --state and --mine", hint=hint)
    if jobs:
        return jobs
    active = verb != "Clean" and not states
    rows = api.list(_list_request({"states": states, "mine": mine, "active": active}))["rows"]
    names = [f"{row['id']} {row['name']}" for row in rows]
    shown = listed([*names[:10], *([f"{len(names) - 10} more"] if len(names) > 10 else [])])
    goes = "Logs and records go for good; the costs stay in `tpujob cost report`."
    stays = f" {goes}" if verb == "Clean" else ""
    if not rows:
        note("No job matches.")
    elif not yes and not _confirm(f"{verb} {shown}?{stays}"):
        raise typer.Abort
    return [row["id"] for row in rows]


def _confirm(question: str) -> bool:
    """Return a person's answer. Raises BadRequest where no person can be asked: input that is no terminal, such as a
    pipe, is no answer."""
    if not get_screen().asks:
        raise BadRequest(
            f"nothing was done, as there is no terminal for the question: {question}",
            hint="--yes (-y) does it without a question.",
        )
    return typer.confirm(question, err=True)


def steer_each(
    jobs: Sequence[str],
    steer: Callable[[str], JobView | None],
    as_json: bool,
    follow_up: Sequence[str] = (),
    shown: Callable[..., str] = steered_text,
) -> int:
    """Steer each job in turn and print it, as `shown` or in JSON as one record or as lines; return the first error's
    exit code. An error of one job does not stop the others. `steer` returns None when the person declined."""
    code = 0
    hint = ""
    jobs = expand_ranges(jobs)
    for job in jobs:
        try:
            steered = steer(job)
        except TpujobError as error:
            if len(jobs) == 1:
                raise
            if error.hint == hint and not as_json:
                error.hint = ""  # the line above has the same hint
            hint = error.hint or hint
            show_error(error, get_screen(), as_json=as_json)
            code = code or error.exit_code
            continue
        if steered is None:
            code = code or 1
        elif as_json and len(jobs) > 1:
            say_json_line(steered)
        else:
            say_page(steered, shown, as_json, now=time.time())
            if follow_up and not as_json:
                # a group has no log
                commands = follow_up[:1] if steered.get("elements") else follow_up
                say("\n".join(next_commands(steered["id"], commands)))
    return code


def expand_ranges(jobs: Sequence[str]) -> list[str]:
    """Return the jobs with `sweep-[1-3]` replaced by its three elements. Raises BadRequest for a range of too many."""
    expanded: list[str] = []
    for job in jobs:
        match = re.fullmatch(r"(.+)\[([0-9]{1,5})-([0-9]{1,5})\]", job)
        if match is None:
            expanded.append(job)
            continue
        first, last = int(match[2]), int(match[3])
        if not first <= last < first + MAX_RANGE:
            raise BadRequest(
                f"{job}: a range goes from the smaller to the larger index, of {MAX_RANGE} jobs at most",
                hint="The name of an array or a sweep names all of its jobs.",
            )
        expanded += [f"{match[1]}{index}" for index in range(first, last + 1)]
    return expanded
