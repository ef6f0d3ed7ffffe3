"""`tpujob list --watch`: the table, again whenever something may have changed."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from tpujob.cli.backend import RetryingClient
from tpujob.cli.output import Screen, flush, say, say_json_line, screen
from tpujob.cli.render.listing import job_table

if TYPE_CHECKING:
    from tpujob.api import JobView

EVERY = 2.0  #: seconds, at the latest: ages and steps change without a hint


def watch_list(user: str, all_jobs: bool, *, as_json: bool) -> int:
    """Until Ctrl-C. On a terminal in place; elsewhere the table, or a line of JSON, at each change."""
    retrying = RetryingClient()
    on = screen()
    shown = ""
    with _in_place() if on.tty and not as_json else nullcontext():
        for _ in retrying.follow(None, timeout=EVERY):
            jobs = retrying.ask(lambda api: api.list(user=user, all=all_jobs))
            if on.tty and not as_json:
                _redraw(jobs, screen(), all_jobs, user)
            elif as_json:
                if str(jobs) != shown:
                    say_json_line(jobs)
                shown = str(jobs)
            else:
                shown = _again(jobs, on, all_jobs, user, shown)
    return 0


def _again(jobs: list[JobView], on: Screen, all_jobs: bool, user: str, shown: str) -> str:
    """Print the table when more than ages has changed."""
    facts = str([(j["id"], j["state"], j["step"], j["host0_ip"], j["zone"]) for j in jobs])
    if facts != shown:
        table = job_table(jobs, on.columns, time.time(), all=all_jobs, user=user)
        say(table + "\n", flush=True)
    return facts


def _redraw(jobs: list[JobView], on: Screen, all_jobs: bool, user: str) -> None:
    table = job_table(jobs, on.columns, time.time(), color=on.color, all=all_jobs, user=user)
    lines = table.splitlines()
    room = max(2, on.rows - 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more"]
    # home, each line cleared to its end, then the rest of the screen: no flicker
    say("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", end="", flush=True)


@contextmanager
def _in_place() -> Generator[None]:
    """The other screen of the terminal, without a cursor; what was there before comes back."""
    say("\x1b[?1049h\x1b[?25l", end="", flush=True)
    try:
        yield
    finally:
        say("\x1b[?25h\x1b[?1049l", end="")
        flush()
