"""The commands that print what a job said and what happened to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.cli.backend import RetryingClient
from tpujob.cli.errors import goes_on, on_interrupt
from tpujob.cli.options import JobRef, Json
from tpujob.cli.output import flush, say, say_json_line, say_json_list, screen
from tpujob.cli.render import words
from tpujob.cli.render.lines import event_line, event_lines, log_line

if TYPE_CHECKING:
    from tpujob.api import EventView, JobsApi, LogLine, LogPage

POLL = 1.0  #: seconds between looks for new output

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")]


def logs(
    job: JobRef,
    follow: Follow = False,
    host: Annotated[
        int | None, typer.Option("--host", min=0, metavar="K", help="Only host K.")
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", min=1, metavar="N", help="Only attempt N; default: the newest."),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, metavar="N", help="Only the last N lines.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Print a job's output, all hosts merged."""
    retrying = RetryingClient()
    job_id = retrying.ask(lambda api: api.get(job))["id"]

    def read(cursor: str) -> Callable[[JobsApi], LogPage]:
        first = tail if not cursor else None
        return lambda api: api.logs(job_id, host=host, attempt=attempt, cursor=cursor, tail=first)

    lines = (line for page in _pages(retrying, read, follow) for line in page)
    with on_interrupt(*goes_on(job_id)):
        _print(lines, follow=follow, prefix=host is None, as_json=as_json)
    return 0


def _pages(
    retrying: RetryingClient, read: Callable[[str], Callable[[JobsApi], LogPage]], follow: bool
) -> Iterator[list[LogLine]]:
    """Page after page, to the end of the output so far; when following, until the job has ended."""
    cursor = ""
    while True:
        page = retrying.ask(read(cursor))
        cursor = page["cursor"]
        yield page["lines"]
        if page["done"] or not (page["lines"] or follow):
            return
        if not page["lines"]:
            time.sleep(POLL)


def _print(lines: Iterator[LogLine], *, follow: bool, prefix: bool, as_json: bool) -> None:
    if as_json and not follow:
        say_json_list(lines)
        return
    color = screen().color
    for line in lines:
        if as_json:
            say_json_line(line)
        else:
            say(log_line(line, prefix=prefix, color=color))
            if follow:
                flush()


def events(job: JobRef, follow: Follow = False, as_json: Json = False) -> int:
    """Print what happened to a job, oldest first."""
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
