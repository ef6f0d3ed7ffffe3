"""`tpujob why`: on one screen, why a job is in its state, and what happens next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpujob.cli.render import words
from tpujob.cli.render.job_page import proof
from tpujob.cli.render.lines import LABEL, elapsed, event_line, job_title, labelled, progress_line
from tpujob.cli.render.text import clock, paint
from tpujob.domain.figures import span

if TYPE_CHECKING:
    from tpujob.api import AttemptView, EventView, JobView

LATELY, PROOF = 3, 5  #: events, and lines of evidence
STILL = 300.0  #: seconds without a new step that are worth a line


def why_page(
    job: JobView, events: Sequence[EventView], columns: int, now: float, *, color: bool = False
) -> str:
    """State, since when, the last cause and its evidence, what is tried again, retries, money, what comes next."""
    since = f"since {clock(job['state_since'])}, {span(elapsed(job['state_since'], now))}"
    out = [f"{job_title(job, color)} {since}", ""]
    for label, text in _reasons(job, now):
        out += labelled(label, text, columns, color)
    last = _last_end(job)
    if last:
        out += labelled("Last end", _ended(job, last, now), columns, color)
        out += labelled("Verdict", words.verdict_of(last), columns, color)
        out += labelled("Cure", words.cut_off(last), columns, color)
        out += proof(last, columns, color=color, indent=LABEL + 2, most=PROOF)
    for label, text in _prospects(job, now):
        out += labelled(label, text, columns, color)
    if events:
        out += ["", paint("Lately", "bold", color)]
        out += [event_line(event, columns, color=color) for event in events[-LATELY:]]
    return "\n".join(out)


def _reasons(job: JobView, now: float) -> list[tuple[str, str]]:
    queued = (job["waiting"] or job.get("copying")) and job["state"] == "queued"
    reasons = [
        ("Now", "" if queued else job["message"]),
        ("Data", words.copying(job)),
        ("Waiting", job["waiting"]),
        ("Told", words.told(job)),
        ("Swap", words.condemned(job)),
        ("Trouble", words.trouble(job)),
        ("Upcoming", words.maintenance(job, now)),
    ]
    if job["state"] == "running" or job["step"] is not None:
        reasons += _progress(job, now)
    return reasons


def _prospects(job: JobView, now: float) -> list[tuple[str, str]]:
    retries = "" if job["state"] == "succeeded" else _retries(job)
    return [
        ("Retries", retries),
        ("Cost", words.cost(job)),
        ("Budget", words.spending(job)),
        ("Next", words.what_next(job, now)),
    ]


def _progress(job: JobView, now: float) -> list[tuple[str, str]]:
    age = elapsed(job["progress_at"], now)
    limit = span(job["stall_s"]) if job["stall_s"] else ""
    if job["step"] is None:
        return [("Progress", _without_steps(job, limit))]
    line = ("Progress", progress_line(job, bar=10))
    if age is None:
        return [line]
    if age > STILL:
        stall = f"; stall at {limit}" if limit else ""
        return [line, ("Stuck", f"no new step for {span(age)}{stall}")]
    return [line, ("Moving", f"newest step {span(age)} ago")]


def _without_steps(job: JobView, limit: str) -> str:
    """As many programs never report a step, what counts as progress instead."""
    watch: dict[str, object] = job["spec"].get("watch") or {}
    if job["phase"] or watch.get("progress"):
        return "no step reported yet" + (f"; {limit} without progress is a hang" if limit else "")
    hang = f"; {limit} without either is a hang" if limit else ""
    return f"this program reports no steps: its output and CPU time count instead{hang}"


def _last_end(job: JobView) -> AttemptView | None:
    ended = [a for a in job["attempts"] if a["outcome"] and a["outcome"] != "succeeded"]
    return ended[-1] if ended and job["state"] != "succeeded" else None


def _ended(job: JobView, attempt: AttemptView, now: float) -> str:
    """Without the attempt's message where the job's own is about the same end."""
    ago = f", {span(elapsed(attempt['ended_at'], now))} ago" if attempt["ended_at"] else ""
    said = f"attempt {attempt['number']}: {words.end_of(attempt)}{ago}"
    since_then = attempt["ended_at"] == job["state_since"]
    known = since_then or (job["state"] == "failed" and job["cause"] == attempt["cause"])
    return said if known or not attempt["message"] else f"{said}: {attempt['message']}"


def _retries(job: JobView) -> str:
    """Of those that end the job when they are used up."""
    bounded = [one for one in job.get("budgets", ()) if one["limit"] is not None]
    return "; ".join(
        f"{one['name']}: {one['used']} used, {one['left']} left"
        if one["limit"]
        else f"{one['name']}: no retry is allowed"
        for one in bounded
    )
