"""Lines that several commands print: events, output, progress, and facts beside their labels. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tpujob.cli.render.text import clip, clock, pad, paint, wrap
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
#: what is not printed as it is
_STRANGE = re.compile(r"[^\n -~]")
LABEL = 10  #: columns of the labels of `show`


def event_line(event: EventView, columns: int = 0, *, color: bool = False) -> str:
    """One event on one line: its time of day, the state it caused, what happened. Cut, where there are columns."""
    text = clean(event["text"])
    return _beside(event, [clip(text, _room(columns)) if columns else text], color)


def event_lines(event: EventView, columns: int, *, color: bool = False) -> str:
    """As `event_line`, but wrapped instead of cut."""
    return _beside(event, wrap(clean(event["text"]), _room(columns)), color)


def job_event_line(event: JobEventView, columns: int, *, color: bool = False) -> str:
    """One event of any job, on one line: its day and time, its job, the state it caused, what happened."""
    when = f"{event['at'][5:10]} {clock(event['at'])}"
    state = paint(pad(clean(event["state"]), 12), STATE_STYLE.get(event["state"], ""), color)
    text = clean(event["text"])
    room = max(20, columns - 40)
    return f"{when}  {clean(event['job'])}  {state}  {clip(text, room) if columns else text}"


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


def log_text(data: bytes, *, prefix: bool, color: bool) -> str:
    """A block of a log as lines of output, each as `log_line` has it. Plain text, as most of it is, is not looked at
    line by line."""
    text = data.decode("utf-8", "replace")
    if not color and not _STRANGE.search(text):
        return FRONT.sub(r"\1| " if prefix else "", text)
    return "".join(_shown_line(line, prefix, color) for line in text.split("\n")[:-1])


def _shown_line(stored: str, prefix: bool, color: bool) -> str:
    found = FRONT.match(stored)
    host, text = (int(found[1]), stored[found.end() :]) if found else (0, stored)
    return log_line({"host": host, "at": "", "text": text}, prefix=prefix, color=color) + "\n"


def numbered_line(line: WindowLine, *, prefix: bool, hit: bool, color: bool) -> str:
    """A line with its number, as `grep -n` has it: `:` behind the number of a line that is looked for, `-` behind those
    of the lines around it."""
    front = f"{line['line']}{':' if hit else '-'}"
    text = f"{paint(front, 'bold' if hit else 'dim', color)} {clean(line['text'])}"
    if line["cut"]:
        text += f" ... {many(line['cut'], 'byte')} more"
    host = line["host"]
    if not prefix:
        return text
    return f"{paint(f'{host}|', HOST_STYLES[host % len(HOST_STYLES)], color)} {text}"


def progress_line(job: JobView, *, bar: int = 20) -> str:
    """Step, loss and checkpoint in one line, with a bar when the end is known; of a group how its elements stand."""
    if job.get("elements"):
        return job.get("why", "")
    parts: list[str] = []
    done, of = job["step"], job["steps"]
    if done is not None and of:
        filled = round(bar * min(1.0, max(0, done) / of))
        parts.append(f"[{'=' * filled}{' ' * (bar - filled)}] {100 * done // of}%")
    if done is not None:
        parts.append(f"step {done}" + (f" of {of}" if of else ""))
    if speed := job.get("steps_per_s"):
        parts.append(f"{number(speed)} steps/s")
    if (left := job.get("left_s")) is not None:
        parts.append(f"{span(left)} left")
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
