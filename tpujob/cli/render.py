"""What the commands print of jobs: (views, width, now) -> text. Pure.

The words for what comes next are in `words.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpujob.cli import words
from tpujob.cli.table import Column, table
from tpujob.cli.text import (
    age,
    clean,
    clip,
    clip_middle,
    clock,
    count,
    dollars,
    number,
    pad,
    paint,
    rate,
    seconds,
    span,
    width,
)

if TYPE_CHECKING:
    from tpujob.ports import AttemptView, EventView, JobView, LogLine, PlanView, SliceView

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

NO_JOBS = """\
No jobs. Make the first one:
  tpujob create configs/quickstart.yaml
See one run from start to end, preemption included:
  tpujob demo"""
NO_LIVE_JOBS = "No job is going on. `tpujob list --all` also shows those that have ended."

#: narrow terminals cost first what is long by chance, then what the id tells as well
_JOB_COLUMNS = (
    Column("Job ID"),
    Column("User", floors=(8, 6, 4)),
    Column("Name", floors=(16, 12, 8)),
    Column("Accelerator", floors=(8, 7, 6), cut=clip_middle),
    Column("Zone", floors=(14, 13, 8), cut=clip_middle),
    Column("Host0 IP"),
    Column("Status", floors=(12, 12, 9), style=lambda cell: STATE_STYLE.get(cell, "")),
    Column("Step", floors=(11, 11, 5), right=True),
    Column("Age", right=True),
)


def job_table(
    jobs: Sequence[JobView], columns: int, now: float, *, color: bool = False, all: bool = True
) -> str:
    """`tpujob list`. Several jobs, one line each; the way to a first job when there are none."""
    if not jobs:
        return NO_JOBS if all else NO_LIVE_JOBS
    rows = [
        (
            clean(job["id"]),
            clean(job["user"]),
            clean(job["name"]),
            clean(job["type"]),
            clean(job["zone"]) or "-",
            clean(job["host0_ip"]) or "-",
            clean(job["state"]),
            step(job),
            age(_since(job["created_at"], now)),
        )
        for job in jobs
    ]
    return table(_JOB_COLUMNS, rows, columns, color=color)


def step(job: JobView) -> str:
    """How far it is: `480/600`, `480` or `-`."""
    if job["step"] is None:
        return "-"
    of = f"/{count(job['steps'])}" if job["steps"] else ""
    return count(job["step"]) + of


def job_page(
    job: JobView,
    events: Sequence[EventView],
    columns: int,
    now: float,
    *,
    color: bool = False,
    last: int = 8,
) -> str:
    """`tpujob show`: all facts, and what happens next."""
    state = paint(clean(job["state"]), STATE_STYLE.get(job["state"], ""), color)
    since = span(_since(job["state_since"], now))
    title = paint(f"Job {clean(job['id'])}  {clean(job['name'])}", "bold", color)
    out = [f"{title}  {state} for {since}", ""]
    for label, text in _facts(job, now):
        out += labelled(label, text, columns, color)
    if job["slices"]:
        out += ["", paint("Slices", "bold", color)]
        out += [line for s in job["slices"] for line in _slice(s, columns)]
    if job["attempts"]:
        out += ["", paint("Attempts", "bold", color)]
        out += [line for a in job["attempts"] for line in _attempt(a, columns, now, color)]
    if events:
        out += ["", paint("Last events", "bold", color)]
        out += [event_line(event, columns, color=color) for event in events[-last:]]
    return "\n".join(out)


def _facts(job: JobView, now: float) -> list[tuple[str, str]]:
    hosts = _many(job["hosts"], "host")
    hardware = (
        f"{job['type']}: {_many(job['chips'], 'chip')} on {hosts}, topology {job['topology']}"
    )
    facts = [("Now", job["message"]), ("Next", words.what_next(job))]
    if job["step"] is not None:
        facts.append(("Progress", progress_line(job)))
    if job["metrics"]:
        pairs = (f"{name} {number(value)}" for name, value in job["metrics"].items())
        facts.append(("Metrics", ", ".join(pairs)))
    facts += [
        ("TPU", f"{hardware}, {job['pricing']}, {job['zone'] or 'no zone yet'}"),
        ("Cost", f"{rate(job['usd_per_hour'])} now, {dollars(job['usd_spent'])} so far"),
        ("User", job["user"]),
        ("Workdir", job["workdir"]),
        ("Created", f"{span(_since(job['created_at'], now))} ago, {clock(job['created_at'])}"),
    ]
    if job["outcome"] or job["cause"]:
        facts.append(("Outcome", " ".join(filter(None, (job["outcome"], job["cause"])))))
    return facts


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


def _slice(slice: SliceView, columns: int) -> list[str]:
    if slice["gone_at"]:
        state = "gone"
    elif slice["ready_at"]:
        state = "held" if slice["role"] == "serving" else slice["role"]
    else:
        state = "asked for"
    cost = f"{dollars(slice['usd'])} at {rate(slice['usd_per_hour'])}"
    name, kind = clean(slice["name"]), f"{slice['pricing']} {slice['type']} in {slice['zone']}"
    out = [clip(f"  {name}  {state:9}  {clean(kind)}  {cost}", columns)]
    if slice["hosts"] and not slice["gone_at"]:
        hosts = "  ".join(f"{i}: {clean(ip)}" for i, ip in enumerate(slice["hosts"][:8]))
        more = f"  … {len(slice['hosts']) - 8} more" if len(slice["hosts"]) > 8 else ""
        out.append(clip(f"    hosts  {hosts}{more}", columns))
    return out


def _attempt(attempt: AttemptView, columns: int, now: float, color: bool) -> list[str]:
    began, ended = seconds(attempt["started_at"]), seconds(attempt["ended_at"])
    took = span((ended if ended is not None else now) - began) if began is not None else "?"
    end = words.end_of(attempt)
    steps = words.steps_of(attempt)
    head = f"  {attempt['number']}  {end} after {took} on {attempt['slice']}{steps}"
    out = [clip(clean(head), columns)]
    if attempt["message"] and attempt["outcome"] != "succeeded":
        out += [
            f"     {line}" for line in wrap(clean(words.why_ended(attempt)), max(20, columns - 5))
        ]
    return out + proof(attempt, columns, color=color, indent=5)


def proof(
    attempt: AttemptView, columns: int, *, color: bool, indent: int, most: int = 24
) -> list[str]:
    """The lines that prove an attempt's cause, wrapped; `most` lines of them, and a word on what was left out."""
    room = max(20, columns - indent - 2)
    wrapped = [wrap(clean(line), room) for line in attempt["evidence"]]
    lines = [
        ("| " if first else "  ") + clip(part, room)
        for parts in wrapped
        for first, part in zip((True, *[False] * len(parts)), parts, strict=False)
    ]
    if len(lines) > most:
        lines[most - 1 :] = ["  … `tpujob show` has it all"]
    return [" " * indent + paint(line, "dim", color) for line in lines]


def event_line(event: EventView, columns: int = 0, *, color: bool = False) -> str:
    """One event on one line: its time of day, the state it caused, what happened."""
    state = paint(pad(clean(event["state"]), 12), STATE_STYLE.get(event["state"], ""), color)
    text = clean(event["text"])
    room = max(20, columns - 24) if columns else 0
    return f"  {clock(event['at'])}  {state}  {clip(text, room) if room else text}"


def plan_page(plan: PlanView, columns: int, *, color: bool = False) -> str:
    """`tpujob create --dry-run`."""
    zones = ", ".join(plan["zones"])
    facts = [
        ("TPU", f"{plan['type']} ({plan['generation']}), {plan['pricing']}"),
        (
            "Hosts",
            f"{_many(plan['hosts'], 'host')}, {_many(plan['chips'], 'chip')}, topology {plan['topology']}",
        ),
        ("Memory", f"{plan['hbm_gib']} GiB of HBM"),
        ("Peak", f"{plan['peak_bf16_tflops']:,.0f} bf16 TFLOP/s"),
        ("Zone", plan["zone"] + (f" (of {zones})" if len(plan["zones"]) > 1 else "")),
        ("Software", plan["runtime_version"]),
        ("Cost", rate(plan["usd_per_hour"])),
        ("Bucket", plan["bucket"]),
        ("Program", plan["command"]),
    ]
    title = f"{clean(plan['name'])} would get (nothing was submitted):"
    out = [paint(title, "bold", color)]
    for label, text in facts:
        out += labelled(label, text, columns, color)
    return "\n".join(out)


def created_text(job: JobView, columns: int, list_price: float | None, *, color: bool) -> str:
    """What `tpujob create` says: the id, what was asked for, its price, and the next commands."""
    name = paint(f"{job['id']}  {clean(job['name'])}", "bold", color)
    asked = (
        f"{job['pricing']} {job['type']}: {_many(job['hosts'], 'host')}, {_many(job['chips'], 'chip')}, "
        f"{rate(list_price)} while it holds the slice"
    )
    return "\n".join(
        [
            f"Created job {name}",
            *labelled("Asked for", clean(asked), columns, color),
            *next_commands(job["id"], ("show", "logs -f", "cancel")),
        ]
    )


def steered_text(job: JobView, columns: int, *, color: bool = False) -> str:
    """What a command that steered a job says: where it stands now and what happens next."""
    state = paint(clean(job["state"]), STATE_STYLE.get(job["state"], ""), color)
    title = f"Job {clean(job['id'])} ({clean(job['name'])}): {state}"
    facts = [("Now", job["message"]), ("Next", words.what_next(job))]
    lines = [line for label, text in facts for line in labelled(label, text, columns, color)]
    return "\n".join([title, *lines])


def stop_question(job: JobView, verb: str, *, checkpoints: bool) -> str:
    """What a person is asked before a job is deleted or cleaned; empty: nothing would be lost."""
    held = [s for s in job["slices"] if not s["gone_at"]]
    if not held and not (job["attempts"] and verb == "Clean") and not checkpoints:
        return ""
    out = [f"{verb} job {clean(job['id'])} ({clean(job['name'])})?"]
    if held:
        cost = rate(held[-1]["usd_per_hour"])
        out.append(f"It gives back {clean(held[-1]['name'])}, a {held[-1]['type']} at {cost}.")
    if verb == "Clean":
        what = "logs, record and checkpoints" if checkpoints else "logs and record"
        out.append(f"Its {what} are removed for good.")
    return " ".join(out)


NEXT = {
    "show": "what it does and why",
    "logs -f": "its output, as it comes",
    "logs": "its output",
    "cancel": "stop the program, keep the slice a while",
    "resume": "go on from the last checkpoint",
    "delete": "stop it and give the slice back",
    "clean": "remove its logs and its record",
    "wait": "until it has ended",
}


def next_commands(job_id: str, commands: Sequence[str]) -> list[str]:
    """One line for each command that makes sense now."""
    shown = {c: f"tpujob {c.split()[0]} {job_id}{c[len(c.split()[0]) :]}" for c in commands}
    room = max(map(len, shown.values()))
    return [f"  {line:{room}}  {NEXT[c]}" for c, line in shown.items()]


def stack_page(processes: Sequence[Mapping[str, Any]], columns: int, *, color: bool) -> str:
    """`tpujob status`: what runs of the local stack."""
    titles = (
        Column("Process"),
        Column("State", style=lambda cell: "green" if cell == "up" else "dim"),
        Column("Pid"),
        Column("Address"),
    )
    rows = [
        (p["name"], "up" if p["running"] else "down", str(p["pid"] or "-"), p["url"] or "-")
        for p in processes
    ]
    return table(titles, rows, columns, color=color)


def log_line(line: LogLine, *, prefix: bool, color: bool) -> str:
    """One line of output, harmless, with its host in front where several are merged."""
    text = clean(line["text"])
    if not prefix:
        return text
    host = line["host"]
    return f"{paint(f'{host}|', HOST_STYLES[host % len(HOST_STYLES)], color)} {text}"


def labelled(label: str, text: str, columns: int, color: bool) -> list[str]:
    """The label once, the text beside it, wrapped at words."""
    lines = wrap(clean(text), max(20, columns - LABEL - 2))
    first = paint(pad(label, LABEL), "dim", color)
    return [f"  {first}{lines[0]}", *(" " * (LABEL + 2) + line for line in lines[1:])]


def wrap(text: str, columns: int) -> list[str]:
    """Lines of at most that many columns. Words, and commands in backquotes, stay whole, to be copied."""
    lines = [""]
    for word in re.findall(r"`[^`]*`\S*|\S+|(?<= )(?= )", text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if width(longer) <= columns or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line.rstrip() for line in lines]


def _since(at: str, now: float) -> float | None:
    began = seconds(at)
    return None if began is None else now - began


def _many(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"
