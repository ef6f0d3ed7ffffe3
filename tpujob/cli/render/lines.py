"""Lines that several commands print: events, output, progress, and facts beside their labels. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tpujob.cli.render import words
from tpujob.cli.render.text import clip, clock, local_time, pad, paint, wrap
from tpujob.domain.text import FRONT, clean, many, number, seconds, span

if TYPE_CHECKING:
    from tpujob.api import EventView, JobEventView, JobView, LogLine, WindowLine

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
#: a character that needs cleaning before it is printed
_UNSAFE = re.compile(r"[^\n -~]")
LABEL = 10  #: columns of the labels of `show`


def event_line(event: EventView, columns: int = 0, *, color: bool = False) -> str:
    """Return an event on one line: time of day, state, text; cut to `columns`, 0: not cut."""
    text = clean(event["text"])
    return _event_text(event, [clip(text, _room(columns)) if columns else text], color)


def event_lines(event: EventView, columns: int, *, color: bool = False) -> str:
    """Return an event with its text wrapped instead of cut."""
    return _event_text(event, wrap(clean(event["text"]), _room(columns)), color)


def job_event_line(event: JobEventView, columns: int, *, color: bool = False) -> str:
    """Return an event of any job on one line: day and time, job, state, text."""
    time = f"{event['at'][5:10]} {clock(event['at'])}"
    state = paint(pad(clean(event["state"]), 12), STATE_STYLE.get(event["state"], ""), color)
    text = clean(event["text"])
    room = max(20, columns - 40)
    return f"{time}  {clean(event['job'])}  {state}  {clip(text, room) if columns else text}"


def _room(columns: int) -> int:
    return max(20, columns - 24)


def _event_text(event: EventView, lines: list[str], color: bool) -> str:
    state = paint(pad(clean(event["state"]), 12), STATE_STYLE.get(event["state"], ""), color)
    return f"\n{'':24}".join([f"  {clock(event['at'])}  {state}  {lines[0]}", *lines[1:]])


def log_line(line: LogLine, *, prefix: bool, color: bool, time: bool = False) -> str:
    """Return a line of output, cleaned; with `prefix` after the number of its host, with `time` after its local
    time."""
    text = clean(line["text"])
    if time:
        text = f"{paint(local_time(line['at']), 'dim', color)} {text}"
    return after_host(line["host"], text, color) if prefix else text


def after_host(host: int, text: str, color: bool) -> str:
    """Return a clean line after the number of its host."""
    return f"{paint(f'{host}|', HOST_STYLES[host % len(HOST_STYLES)], color)} {text}"


def log_text(data: bytes, *, prefix: bool, color: bool) -> str:
    """Return a block of a log as lines of output, each as `log_line` returns it. Plain text, the usual case, is handled
    as a whole, which is faster."""
    text = data.decode("utf-8", "replace")
    if not color and not _UNSAFE.search(text):
        return FRONT.sub(r"\1| " if prefix else "", text)
    return "".join(_stored_line(line, prefix, color) for line in text.split("\n")[:-1])


def _stored_line(stored: str, prefix: bool, color: bool) -> str:
    front = FRONT.match(stored)
    host, text = (int(front[1]), stored[front.end() :]) if front else (0, stored)
    return log_line({"host": host, "at": "", "text": text}, prefix=prefix, color=color) + "\n"


def numbered_line(line: WindowLine, *, prefix: bool, hit: bool, color: bool) -> str:
    """Return a line after its number, as `grep -n` prints it: `:` after the number of a hit, `-` after that of a line
    of context."""
    front = f"{line['line']}{':' if hit else '-'}"
    text = f"{paint(front, 'bold' if hit else 'dim', color)} {clean(line['text'])}"
    if line["cut"]:
        text += f" ... {many(line['cut'], 'byte')} more"
    return after_host(line["host"], text, color) if prefix else text


def progress_line(job: JobView, *, bar: int = 20) -> str:
    """Return step, loss and checkpoint on a line, with a bar if the number of steps is known; a group's summary."""
    if job.get("elements"):
        return job.get("why", "")
    parts: list[str] = []
    step, steps = job["step"], job["steps"]
    if step is not None and steps:
        filled = round(bar * min(1.0, max(0, step) / steps))
        parts.append(f"[{'=' * filled}{' ' * (bar - filled)}] {100 * step // steps}%")
    if step is not None:
        parts.append(f"step {step}" + (f" of {steps}" if steps else ""))
    if steps_per_s := job.get("steps_per_s"):
        parts.append(f"{number(steps_per_s)} steps/s")
    if (left_s := job.get("left_s")) is not None:
        parts.append(f"{'about ' if job.get('found') else ''}{span(left_s)} left")
    if loss := words.loss(job):
        parts.append(f"loss {loss}")
    if job["checkpoint"] is not None:
        parts.append(f"checkpoint {job['checkpoint']}")
    if job.get("found"):
        parts.append("(found in the output)")
    return "  ".join(parts)


def labelled(label: str, text: str, columns: int, color: bool) -> list[str]:
    """Return the lines of a label and its text, wrapped at words; no lines for an empty text."""
    if not text:
        return []
    lines = wrap(clean(text), max(20, columns - LABEL - 2))
    first = paint(pad(label, LABEL), "dim", color)
    return [f"  {first}{lines[0]}", *(" " * (LABEL + 2) + line for line in lines[1:])]


def job_title(job: JobView, color: bool) -> str:
    """Return the job's id, name and state."""
    title = paint(f"Job {clean(job['id'])}  {clean(job['name'])}", "bold", color)
    return f"{title}  {paint(clean(job['state']), STATE_STYLE.get(job['state'], ''), color)}"


def elapsed(at: str | None, now: float) -> float | None:
    """Return the seconds from a view's time to `now`; None for an unknown time."""
    since = seconds(at)
    return None if since is None else now - since
