"""`tpujob events` and `tpujob capacity`: what happened to a job, or to all; the hardware of all jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import RetryingClient
from tpujob.cli.errors import goes_on, on_interrupt
from tpujob.cli.options import Follow, Json
from tpujob.cli.output import flush, say, say_json, say_json_line, say_json_list, screen
from tpujob.cli.render import words
from tpujob.cli.render.capacity import capacity_page
from tpujob.cli.render.lines import event_line, event_lines, job_event_line
from tpujob.domain.pages import PAGE as MOST
from tpujob.domain.pages import newest
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import EventView, JobEventView


NEWEST = 50  #: events of all jobs, where nobody says how many


def events(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Id or name; left out: all jobs.")
    ] = None,
    follow: Follow = False,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Of all jobs: only these, such as slice_gone."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Of all jobs: the newest so many.")
    ] = NEWEST,
    as_json: Json = False,
) -> int:
    """Print what happened to a job, or to all of them, oldest first."""
    if job is None:
        if follow:
            raise BadRequest("--follow needs a job", hint="`tpujob list --watch` follows them all.")
        return _all(limit, kind or [], as_json=as_json)
    if kind:
        raise BadRequest("--kind goes without a job")
    retrying = RetryingClient()
    job_id = retrying.ask(lambda api: api.get(job))["id"]
    if not follow:
        found = retrying.ask(lambda api: api.events(job_id))
        if as_json:
            say_json_list(found)
        else:
            _say_events(found)
        return 0
    with on_interrupt(*goes_on(job_id)):
        for fresh in _events(retrying, job_id):
            if as_json:
                for event in fresh:
                    say_json_line(event)
            else:
                _say_events(fresh)
    return 0


def _all(limit: int, kinds: list[str], *, as_json: bool) -> int:
    """The newest events of all jobs."""
    retrying = RetryingClient()

    def page(most: int, before: str) -> tuple[list[JobEventView], str]:
        found = retrying.ask(lambda api: api.happened(before=before, kinds=kinds, limit=most))
        return found["events"], found["next"]

    found = newest(page, limit)
    if as_json:
        say_json_list(found)
        return 0
    on = screen()
    for event in found:
        say(job_event_line(event, on.columns if on.tty else 0, color=on.color))
    flush()
    return 0


def _say_events(found: list[EventView]) -> None:
    on = screen()
    for event in found:
        if on.tty:
            say(event_lines(event, on.columns, color=on.color))
        else:
            say(event_line(event))
    flush()


def _events(retrying: RetryingClient, job_id: str) -> Iterator[list[EventView]]:
    after = 0
    for _ in retrying.follow(job_id, timeout=10):
        job = retrying.ask(lambda api: api.get(job_id))
        seen = after
        fresh = retrying.ask(lambda api: api.events(job_id, after=seen))  # noqa: B023 asked at once
        after = max([after, *(event["seq"] for event in fresh)])
        yield fresh
        if job["state"] in words.FINAL:
            return


def capacity(as_json: Json = False) -> int:
    """Show the hardware that jobs hold and wait for, and what the cloud refuses."""
    found = RetryingClient().ask(lambda api: api.capacity())
    if as_json:
        say_json(found)
    else:
        on = screen()
        say(capacity_page(found, on.columns, time.time(), color=on.color))
    return 0
