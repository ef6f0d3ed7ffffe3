"""Lines that several commands print: events, output, progress, and facts beside their labels. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render.text import clip, clock, number, pad, paint, seconds, wrap
from tpujob.domain.text import clean

if TYPE_CHECKING:
    from tpujob.api import EventView, JobView, LogLine

STATE_STYLE = {
    "queued": "yellow",
    "provisioning": "yellow",
    "preparing": "cyan",
    "running": "green",
    "holding": "magenta",
    "releasing": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "dim",
}
HOST_STYLES = ("cyan", "green", "magenta", "yellow", "blue")
LABEL = 10  #: columns of the labels of `show`


def event_line(event: EventView, columns: int = 0, *, color: bool = False) -> str:
    """One event on one line: its time of day, the state it caused, what happened. Cut, where there are columns."""
    text = clean(event["text"])
    return _beside(event, [clip(text, _room(columns)) if columns else text], color)


def event_lines(event: EventView, columns: int, *, color: bool = False) -> str:
    """As `event_line`, but wrapped instead of cut."""
    return _beside(event, wrap(clean(event["text"]), _room(columns)), color)


def _room(columns: int) -> int:
    return max(20, columns - 24)


def _beside(event: EventView, text: list[str], color: bool) -> str:
    state = paint(pad(clean(event["state"]), 12), STATE_STYLE.get(event["state"], ""), color)
    return f"\n{'':24}".join([f"  {clock(event['at'])}  {state}  {text[0]}", *text[1:]])


def log_line(line: LogLine, *, prefix: bool, color: bool) -> str:
    """One line of output, harmless, with its host in front where several are merged."""
    text = clean(line["text"])
    if not prefix:
        return text
    host = line["host"]
    return f"{paint(f'{host}|', HOST_STYLES[host % len(HOST_STYLES)], color)} {text}"


def progress_line(job: JobView, *, bar: int = 20) -> str:
    """Step, loss and checkpoint in one line, with a bar when the end is known."""
    parts: list[str] = []
    done, of = job["step"], job["steps"]
    if done is not None and of:
        filled = round(bar * min(1.0, max(0, done) / of))
        parts.append(f"[{'=' * filled}{' ' * (bar - filled)}] {100 * done // of}%")
    if done is not None:
        parts.append(f"step {done}" + (f" of {of}" if of else ""))
    if job["loss"] is not None:
        parts.append(f"loss {number(job['loss'])}")
    if job["checkpoint"] is not None:
        parts.append(f"checkpoint {job['checkpoint']}")
    return "  ".join(parts)


def labelled(label: str, text: str, columns: int, color: bool) -> list[str]:
    """The label once, the text beside it, wrapped at words. Nothing where there is no text."""
    if not text:
        return []
    lines = wrap(clean(text), max(20, columns - LABEL - 2))
    first = paint(pad(label, LABEL), "dim", color)
    return [f"  {first}{lines[0]}", *(" " * (LABEL + 2) + line for line in lines[1:])]


def job_title(job: JobView, color: bool) -> str:
    """The job's id and name, and its state in the state's colour."""
    title = paint(f"Job {clean(job['id'])}  {clean(job['name'])}", "bold", color)
    return f"{title}  {paint(clean(job['state']), STATE_STYLE.get(job['state'], ''), color)}"


def elapsed(at: str | None, now: float) -> float | None:
    """Seconds from a view's time to now."""
    began = seconds(at)
    return None if began is None else now - began
