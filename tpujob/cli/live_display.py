"""Following one job until it ends: the loop, and plain lines. The live panel is in `cli/render/panel.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from tpujob.cli.backend import RetryingClient
from tpujob.cli.output import Screen, flush, say, say_json_line, screen
from tpujob.cli.render.lines import event_line, progress_line
from tpujob.cli.render.words import FINAL

if TYPE_CHECKING:
    from tpujob.api import EventView, JobsApi, JobView
    from tpujob.cli.render.panel import Panel

T = TypeVar("T")


LOOK_EVERY = 1.0  #: seconds, at the latest: reports of progress change no record
PLAIN_EVERY = 5.0  #: seconds between plain lines of progress


def follow(
    retrying: RetryingClient,
    job_id: str,
    sink: PlainLines | Panel,
    *,
    each: Callable[[JobView], str] = lambda _job: "",
) -> JobView:
    """Return the job when it has ended. `each` is called at every poll; its result, if any, is shown as a remark."""
    with sink:
        for job, fresh in retrying.changes(job_id, timeout=LOOK_EVERY):
            sink.show(job, fresh, time.time())
            if job["state"] in FINAL:
                return job
            if remark := each(job):
                sink.remark(remark, time.time())
    raise AssertionError("the hints never end")


def sink_for(screen: Screen, *, list_price: float | None = None) -> PlainLines | Panel:
    """The live panel on a terminal that is wide enough, plain lines elsewhere."""
    if screen.tty and screen.columns >= 60:
        from tpujob.cli.render.panel import Panel

        return Panel(screen, list_price)
    return PlainLines(screen)


class PlainLines(nullcontext[None]):
    """A line for each event, and one for progress now and then."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self._last_progress: str = ""
        self._last_at: float = 0.0

    def show(self, job: JobView, fresh: Sequence[EventView], now: float) -> None:
        for event in fresh:
            say(event_line(event, color=self._screen.color), flush=True)
        progress = progress_line(job)
        due = now - self._last_at >= PLAIN_EVERY
        if job["state"] == "running" and progress and progress != self._last_progress and due:
            self._last_progress, self._last_at = progress, now
            self.remark(progress, now)

    def remark(self, text: str, now: float) -> None:
        """A line of the command's own, among the events."""
        say(f"  {time.strftime('%H:%M:%S', time.localtime(now))}  {text}", flush=True)


# Tables ---------------------------------------------------------------------------------------------------------------


EVERY = 2.0  #: seconds, at the latest: ages and steps change without a hint


def watch_table(
    ask: Callable[[JobsApi], T],
    text: Callable[[T, Screen], str],
    facts: Callable[[T], object],
    *,
    as_json: bool,
) -> None:
    """Show the answer until Ctrl-C. On a terminal in place; elsewhere as text, or its facts as a line of JSON, at each
    change of the facts."""
    retrying, shown = RetryingClient(), object()
    in_place = screen().tty and not as_json
    with _in_place() if in_place else nullcontext():
        for _ in retrying.follow(None, timeout=EVERY):
            found, on = retrying.ask(ask), screen()
            if in_place:
                _redraw(text(found, on).splitlines(), on)
            elif facts(found) != shown:
                shown = facts(found)
                say_json_line(shown) if as_json else say(text(found, on) + "\n", flush=True)


def _redraw(lines: list[str], on: Screen) -> None:
    room = max(2, on.rows - 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more"]
    # home, each line cleared to its end, then the rest of the screen: no flicker
    say("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", end="", flush=True)


@contextmanager
def _in_place() -> Generator[None]:
    """Use the other screen of the terminal, without a cursor; restore the first one afterwards."""
    say("\x1b[?1049h\x1b[?25l", end="", flush=True)
    try:
        yield
    finally:
        say("\x1b[?25h\x1b[?1049l", end="")
        flush()
