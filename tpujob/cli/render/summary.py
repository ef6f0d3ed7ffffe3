"""What `tpujob demo` prints at the end: a timeline of the attempts, steps lost, what it would have cost. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpujob.cli.render.answers import next_commands
from tpujob.cli.render.text import clip, clock, pad, paint
from tpujob.domain.figures import rate, seconds, span, usd
from tpujob.domain.text import clean, many

if TYPE_CHECKING:
    from tpujob.api import AttemptView, JobView

MIN_ACCURACY = 0.98
ACCURACY = "test_accuracy"  #: the metric of the quickstart's program


def steps_lost(job: JobView) -> int | None:
    """Steps of all attempts that do not count, as later ones made them again. None: not known."""
    lost = [attempt.get("redone") for attempt in job["attempts"]]
    return sum(filter(None, lost)) if None not in lost else None


def shortcomings(job: JobView, *, attempts: int) -> list[str]:
    """Why the demo is no success; empty: it is one."""
    wrong: list[str] = []
    accuracy = job["metrics"].get(ACCURACY)
    if job["state"] != "succeeded":
        wrong.append(f"the job is {job['state']}: {clean(job['message'])}")
    elif accuracy is None:
        wrong.append("the program reported no test accuracy")
    elif accuracy < MIN_ACCURACY:
        wrong.append(f"the test accuracy is {accuracy:.1%}, less than {MIN_ACCURACY:.0%}")
    if len(job["attempts"]) != attempts:
        took = len(job["attempts"])
        wrong.append(f"it took {many(took, 'attempt')} instead of {attempts}")
    return wrong


def summary(
    job: JobView, columns: int, *, list_price: float | None, attempts: int, color: bool = False
) -> str:
    """The whole text."""
    wrong = shortcomings(job, attempts=attempts)
    style, verdict = ("red", "; ".join(wrong)) if wrong else ("green", _good(job))
    out = ["", paint(verdict, style, color), ""]
    out += [clip(line, columns) for line in _timeline(job)]
    return "\n".join([*out, "", *_facts(job, list_price)])


def try_next(job: JobView) -> str:
    """The commands that a person may want to type after the demo."""
    out = ["Try next:"]
    out += next_commands(job["id"], ("show", "logs", "clean"))
    out += ["  tpujob create configs/hello.yaml --follow", "  tpujob emulator --help"]
    return "\n".join(out)


def _good(job: JobView) -> str:
    preempted = sum(a["cause"] == "PREEMPTED" for a in job["attempts"])
    through = f" through {many(preempted, 'preemption')}" if preempted else ""
    return f"Job {job['id']} succeeded{through}."


def _facts(job: JobView, list_price: float | None) -> list[str]:
    accuracy = job["metrics"].get(ACCURACY)
    lost = steps_lost(job)
    facts = {
        "Test accuracy": "unknown" if accuracy is None else f"{accuracy:.2%}",
        "Steps lost": "unknown"
        if lost is None
        else f"{lost} of {job['steps'] or job['step'] or 0}",
        "On Google Cloud": f"about {usd(job['usd_spent'])}, at {rate(list_price)} for a "
        f"{job['pricing']} {job['type']} from ready to gone",
        "Here": "$0.00, on this machine's emulator",
    }
    return [f"  {label:16} {text}" for label, text in facts.items()]


def _timeline(job: JobView, bar: int = 30) -> list[str]:
    began = seconds(job["created_at"]) or 0.0
    ended = max(_end(job, a, began) for a in job["attempts"]) if job["attempts"] else began + 1
    scale = bar / max(1.0, ended - began)
    asked = {s["name"]: seconds(s["requested_at"]) for s in job["slices"]}
    out: list[str] = []
    for attempt in job["attempts"]:
        start = seconds(attempt["running_at"]) or seconds(attempt["started_at"]) or began
        wait = asked.get(attempt["slice"]) or start
        first = min(bar - 1, round((start - began) * scale))
        idle = min(first, round((wait - began) * scale))
        last = max(first + 1, min(bar, round((_end(job, attempt, began) - began) * scale)))
        drawn = pad(" " * idle + "·" * (first - idle) + "█" * (last - first), bar)
        out.append(f"  attempt {attempt['number']}  {drawn}  {_outcome(attempt)}")
    head = f"{clock(job['created_at'])}"
    tail = f"+{span(ended - began)}"
    legend = f"  {'':9}  · waiting for the slice  █ running"
    return [f"  {'':9}  {pad(head, bar - len(tail))}{tail}", *out, legend]


def _end(job: JobView, attempt: AttemptView, fallback: float) -> float:
    end = attempt["ended_at"] or job["finished_at"]
    return seconds(end) or seconds(attempt["started_at"]) or fallback


def _outcome(attempt: AttemptView) -> str:
    first, last = attempt.get("first_step"), attempt["step"]
    steps = "" if last is None else f"to step {last}" if first is None else f"steps {first}-{last}"
    end = " ".join(filter(None, (attempt["outcome"] or "going on", attempt["cause"])))
    return f"{steps}  {end}" if steps else end
