"""`tpujob list --watch`: the table, again whenever something may have changed."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from tpujob.cli.backend import RetryingClient
from tpujob.cli.output import Screen, flush, say, say_json_line, screen
from tpujob.cli.render.listing import list_page

if TYPE_CHECKING:
    from tpujob.api import JobPage, ListAsked

EVERY = 2.0  #: seconds, at the latest: ages and steps change without a hint


def watch_list(asked: ListAsked, *, as_json: bool) -> int:
    """Until Ctrl-C. On a terminal in place; elsewhere the table, or a line of JSON, at each change."""
    retrying = RetryingClient()
    on = screen()
    shown = ""
    with _in_place() if on.tty and not as_json else nullcontext():
        for _ in retrying.follow(None, timeout=EVERY):
            page = retrying.ask(lambda api: api.list(asked))
            if on.tty and not as_json:
                _redraw(page, screen(), asked)
            elif as_json:
                if str(page["rows"]) != shown:
                    say_json_line(page["rows"])
                shown = str(page["rows"])
            else:
                shown = _again(page, on, asked, shown)
    return 0


def _again(page: JobPage, on: Screen, asked: ListAsked, shown: str) -> str:
    """Print the table when more than ages has changed."""
    rows = page["rows"]
    facts = str([(j["id"], j["state"], j["step"], j["host0_ip"], j["zone"]) for j in rows])
    if facts != shown:
        say(list_page(page, asked, on.columns, time.time()) + "\n", flush=True)
    return facts


def _redraw(page: JobPage, on: Screen, asked: ListAsked) -> None:
    table = list_page(page, asked, on.columns, time.time(), color=on.color)
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
