"""`tpujob why`: on one screen, why a job stands where it stands, and what happens next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.render import words
from tpujob.cli.render.job_page import proof
from tpujob.cli.render.lines import LABEL, elapsed, event_line, job_title, labelled, progress_line
from tpujob.cli.render.text import clock, dollars, paint, rate, seconds, span

if TYPE_CHECKING:
    from tpujob.api import AttemptView, EventView, JobView

LATELY, PROOF = 3, 5  #: events, and lines of evidence
STILL = 300.0  #: seconds without a new step that are worth a word


def why_page(
    job: JobView, events: Sequence[EventView], columns: int, now: float, *, color: bool = False
) -> str:
    """State, since when, the last cause and its evidence, what is tried again, budgets, what comes next."""
    since = f"since {clock(job['state_since'])}, {span(elapsed(job['state_since'], now))}"
    out = [f"{job_title(job, color)} {since}", ""]
    for label, text in _reasons(job, now):
        out += labelled(label, text, columns, color)
    last = _last_end(job)
    if last:
        out += labelled("Last end", _ended(job, last, now), columns, color)
        verdict = words.verdict_of(last)
        out += labelled("Verdict", verdict, columns, color) if verdict else []
        out += proof(last, columns, color=color, indent=LABEL + 2, most=PROOF)
    for label, text in _prospects(job, now):
        out += labelled(label, text, columns, color)
    if events:
        out += ["", paint("Lately", "bold", color)]
        out += [event_line(event, columns, color=color) for event in events[-LATELY:]]
    return "\n".join(out)


def _reasons(job: JobView, now: float) -> list[tuple[str, str]]:
    queued = job["waiting"] and job["state"] == "queued"
    reasons = [] if queued else [("Now", _message(job))]
    if job["waiting"]:
        reasons.append(("Waiting", job["waiting"]))
        reasons.append(("Told", _told(job)))
    if job["condemned"]:
        reasons.append(("Swap", words.condemned(job)))
    if job["trouble"]:
        since = f", since {clock(job['trouble_since'])}" if job["trouble_since"] else ""
        reasons.append(("Trouble", f"{job['trouble']}{since}; it is tried again"))
    if job["state"] == "running" or job["step"] is not None:
        reasons += _progress(job, now)
    return reasons


def _prospects(job: JobView, now: float) -> list[tuple[str, str]]:
    prospects: list[tuple[str, str]] = []
    budgets = _budgets(job)
    if budgets and job["state"] != "succeeded":
        prospects.append(("Budgets", budgets))
    cost = f"{rate(job['usd_per_hour'])} now, {dollars(job['usd_spent'])} so far"
    return [*prospects, ("Cost", cost), ("Next", _next(job, now))]


def _message(job: JobView) -> str:
    """Without the trouble, which has a line of its own."""
    trouble = f"; {job['trouble']}"
    return job["message"].removesuffix(trouble) if job["trouble"] else job["message"]


def _told(job: JobView) -> str:
    """What the cloud said to the newest request that came to nothing."""
    said = [s["reason"] for s in job["slices"] if s["reason"] and not s["ready_at"]]
    return said[-1] if said else "nothing yet"


def _progress(job: JobView, now: float) -> list[tuple[str, str]]:
    age = elapsed(job["progress_at"], now)
    limit = span(job["stall_s"]) if job["stall_s"] else ""
    if job["step"] is None:  # many programs never tell one: what they print is progress, too
        after = "" if age is None else f", {span(age)} after it started"
        hang = f"; {limit} without progress is a hang" if limit else ""
        return [("Progress", f"the program has told no step yet{after}{hang}")]
    line = ("Progress", progress_line(job, bar=10))
    if age is None:
        return [line]
    if age > STILL:
        stall = f"; stall at {limit}" if limit else ""
        return [line, ("Stuck", f"no new step for {span(age)}{stall}")]
    return [line, ("Moving", f"newest step {span(age)} ago")]


def _last_end(job: JobView) -> AttemptView | None:
    ended = [a for a in job["attempts"] if a["outcome"] and a["outcome"] != "succeeded"]
    return ended[-1] if ended and job["state"] != "succeeded" else None


def _ended(job: JobView, attempt: AttemptView, now: float) -> str:
    ago = f", {span(elapsed(attempt['ended_at'], now))} ago" if attempt["ended_at"] else ""
    said = f"attempt {attempt['number']}: {words.end_of(attempt)}{ago}"
    known = not attempt["message"] or attempt["message"] in job["message"]
    return said if known else f"{said}: {words.why_ended(attempt)}"


def _budgets(job: JobView) -> str:
    """Of those that end the job when they are used up."""
    limits: dict[str, object] = job["spec"].get("recovery") or {}
    parts: list[str] = []
    for name, limit in limits.items():
        if isinstance(limit, int) and not isinstance(limit, bool):
            used = job["spent"].get(name, 0)
            parts.append(f"{name}: {used} used, {max(0, limit - used)} left")
    return "; ".join(parts)


def _next(job: JobView, now: float) -> str:
    coming = words.what_next(job)
    due = seconds(job["wake_at"])
    if due is None or due <= now or job["wish"] != "run":
        return coming
    if job["state"] == "preparing":
        coming = "the program is started again on the same slice"
    return f"in {span(due - now)}, at {clock(job['wake_at'])}: {coming}"
