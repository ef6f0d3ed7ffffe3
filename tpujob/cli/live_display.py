"""Live views: following one job until it ends, and tables that are redrawn. The panel is in `cli/render/panel.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from tpujob.cli.backend import retrying_client
from tpujob.cli.output import Screen, flush, get_screen, say, say_json_line
from tpujob.cli.render.lines import event_line, progress_line
from tpujob.domain.final_states import FINAL
from tpujob.wiring.retrying import RetryingClient

if TYPE_CHECKING:
    from tpujob.api import EventView, JobsApi, JobView
    from tpujob.cli.render.panel import Panel

T = TypeVar("T")


JOB_POLL = 1.0  #: seconds between two polls; progress changes no record, so no hint announces it
PROGRESS_EVERY = 5.0  #: seconds between plain lines of progress


def follow(
    retrying: RetryingClient,
    job_id: str,
    sink: PlainLines | Panel,
    *,
    on_poll: Callable[[JobView], str] = lambda _job: "",
) -> JobView:
    """Show the job until it has ended, and return it. `on_poll` returns a remark to show, or an empty string."""
    with sink:
        for job, fresh in poll_changes(retrying, job_id, timeout=JOB_POLL):
            sink.show(job, fresh, time.time())
            if job["state"] in FINAL:
                return job
            if remark := on_poll(job):
                sink.remark(remark, time.time())
    raise AssertionError("the hints never end")


def poll_changes(
    retrying: RetryingClient, job_id: str, *, timeout: float
) -> Iterator[tuple[JobView, list[EventView]]]:
    """Yield the job and its new events at each poll, until the job has ended."""
    newest_event = 0
    for _ in retrying.follow(job_id, timeout=timeout):
        job = retrying.ask(lambda api: api.get(job_id))
        fresh = retrying.ask(lambda api, after=newest_event: api.events(job_id, after=after))
        newest_event = max([newest_event, *(event["seq"] for event in fresh)])
        yield job, fresh
        if job["state"] in FINAL:
            return


def sink_for(screen: Screen, *, list_price: float | None = None) -> PlainLines | Panel:
    """Return the live panel for a terminal that is wide enough, else plain lines."""
    if screen.tty and screen.columns >= 60:
        from tpujob.cli.render.panel import Panel

        return Panel(screen, list_price)
    return PlainLines(screen)


class PlainLines(nullcontext[None]):
    """A sink that prints a line for each event, and a line of progress every few seconds."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self._last_progress: str = ""
        self._last_at: float = 0.0  #: time of the last line of progress, since the epoch

    def show(self, job: JobView, fresh: Sequence[EventView], now: float) -> None:
        for event in fresh:
            say(event_line(event, color=self._screen.color), flush=True)
        progress = progress_line(job)
        due = now - self._last_at >= PROGRESS_EVERY
        if job["state"] == "running" and progress and progress != self._last_progress and due:
            self._last_progress, self._last_at = progress, now
            self.remark(progress, now)

    def remark(self, text: str, now: float) -> None:
        """Print a line of the command itself among the events."""
        say(f"  {time.strftime('%H:%M:%S', time.localtime(now))}  {text}", flush=True)


# Tables --------------------------------------------------------------------------------------------------------------


TABLE_POLL = 2.0  #: seconds between two polls; ages and steps change without a hint


def watch_table(
    ask: Callable[[JobsApi], T],
    text: Callable[[T, Screen], str],
    facts: Callable[[T], object],
    *,
    as_json: bool,
) -> None:
    """Show the answer until Ctrl-C. A terminal is redrawn; other outputs get the text, or the facts as a line of JSON,
    whenever the facts change."""
    retrying = retrying_client()
    shown = object()
    redraw = get_screen().tty and not as_json
    with _alternate_screen() if redraw else nullcontext():
        for _ in retrying.follow(None, timeout=TABLE_POLL):
            answer = retrying.ask(ask)
            screen = get_screen()
            if redraw:
                _redraw(text(answer, screen).splitlines(), screen)
            elif facts(answer) != shown:
                shown = facts(answer)
                say_json_line(shown) if as_json else say(text(answer, screen) + "\n", flush=True)


def _redraw(lines: list[str], screen: Screen) -> None:
    room = max(2, screen.rows - 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more"]
    # home, each line cleared to its end, then the rest of the screen: no flicker
    say("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", end="", flush=True)


@contextmanager
def _alternate_screen() -> Generator[None]:
    """Use the terminal's alternate screen without a cursor; restore the main screen afterwards."""
    say("\x1b[?1049h\x1b[?25l", end="", flush=True)
    try:
        yield
    finally:
        say("\x1b[?25h\x1b[?1049l", end="")
        flush()
