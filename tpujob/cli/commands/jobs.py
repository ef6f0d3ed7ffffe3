"""The commands that show and steer jobs. `create` is in `create.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import RetryingClient, connect, current_settings, say_where
from tpujob.cli.errors import TIMED_OUT, goes_on, on_interrupt
from tpujob.cli.options import JobRef, Json, Yes
from tpujob.cli.output import note, say, say_json, screen
from tpujob.cli.render import words
from tpujob.cli.render.answers import next_commands, steered_text, stop_question
from tpujob.cli.render.job_page import job_page
from tpujob.cli.render.listing import job_table

if TYPE_CHECKING:
    from tpujob.api import JobsApi, JobView


def list_jobs(
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Also those that ended.")] = False,
    user: Annotated[str, typer.Option(metavar="NAME", help="Only this user's.")] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it, live.")] = False,
    as_json: Json = False,
) -> int:
    """List jobs, newest first."""
    if watch:
        from tpujob.cli.live.watching import watch_list

        return watch_list(user, all_jobs, as_json=as_json)
    api = connect()
    jobs = api.list(user=user, all=all_jobs)
    if as_json:
        say_json(jobs)
        return 0
    on = screen()
    none_at_all = not jobs and (all_jobs or not api.list(user=user, all=True))
    say(job_table(jobs, on.columns, time.time(), color=on.color, all=none_at_all, user=user))
    return 0


def show(job: JobRef, as_json: Json = False) -> int:
    """Show everything about a job, and what happens next."""
    return _one_page(job, as_json, job_page)


def why(job: JobRef, as_json: Json = False) -> int:
    """Say why a job is in its state, and what happens next."""
    from tpujob.cli.render.why import why_page

    return _one_page(job, as_json, why_page)


def _one_page(job: str, as_json: bool, page: Callable[..., str]) -> int:
    api = connect()
    found = api.get(job)
    if as_json:
        say_json(found)
        return 0
    on = screen()
    say(page(found, api.events(found["id"]), on.columns, time.time(), color=on.color))
    return 0


def wait(
    job: JobRef,
    timeout: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", show_default=False, help="Stop waiting after this time."
        ),
    ] = 0.0,
    as_json: Json = False,
) -> int:
    """Wait until a job has ended; the exit code says how."""
    deadline = time.monotonic() + timeout if timeout else None
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
    job: JobRef,
    release: Annotated[bool, typer.Option("--release", help="Give the slice back too.")] = False,
    as_json: Json = False,
) -> int:
    """Stop a job's program; its slice is kept a while, to resume."""
    return _steered(connect().cancel(job, release=release), as_json)


def resume(
    job: JobRef,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="USD",
            show_default=False,
            help="What it may cost in all from now on, in US dollars; also of a job that runs.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Go on from the last checkpoint, on the held slice or a new one."""
    return _steered(connect().resume(job, budget=budget), as_json, then=("show", "logs -f"))


def delete(job: JobRef, yes: Yes = False, as_json: Json = False) -> int:
    """Stop a job and give its slice back; its record and logs stay."""
    say_where()
    api = connect()
    found = _asked(api, job, yes, "Delete")
    return 1 if found is None else _steered(api.delete(found), as_json)


def clean(
    job: JobRef,
    yes: Yes = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Remove its checkpoints and outputs too.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Delete a job, then remove its logs, its bundle and its record."""
    say_where()
    api = connect()
    found = _asked(api, job, yes, "Clean", checkpoints=checkpoints)
    if found is None:
        return 1
    return _steered(api.clean(found, checkpoints=checkpoints), as_json)


def _asked(
    api: JobsApi, job: str, yes: bool, verb: str, *, checkpoints: bool = False
) -> str | None:
    """The job's id when it is to be done; None when the person said no. Only asks a person, and only when the job holds
    a slice or has made output."""
    on = screen()
    if yes or not on.asks:
        return job
    found = api.get(job)
    question = stop_question(found, verb, checkpoints=checkpoints)
    if question and not typer.confirm(question, err=True):
        note("Nothing was done.")
        return None
    return found["id"]


def _steered(job: JobView, as_json: bool, *, then: Sequence[str] = ()) -> int:
    _say_job(job, as_json)
    if then and not as_json:
        say("\n".join(next_commands(job["id"], then)))
    return 0


def _say_job(job: JobView, as_json: bool) -> None:
    on = screen()
    say_json(job) if as_json else say(steered_text(job, on.columns, time.time(), color=on.color))


# Reach ---------------------------------------------------------------------------------------------------------------


def ssh(
    job: JobRef,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="Run this instead of a shell."),
    ] = None,
    host: Annotated[
        int, typer.Option("--host", min=0, metavar="K", help="Its number in the job.")
    ] = 0,
) -> int:
    """Open a shell on a host of a job, or run a command there."""
    backend = connect()
    from tpujob.wiring import client

    return client.open_session(current_settings(), backend, job, host=host, command=command or None)
