"""The end of an attempt: whether another one follows, on which slice, and what it costs of a retry budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.events import AttemptEnded, AttemptRepeated, Event, EventKind
from tpujob.domain.failures import nonfinite, retry
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, End, Job, Progress, State
from tpujob.domain.observations import Report

_E = EventKind


def end_attempt(job: Job, end: End, reports: Sequence[Report], now: float) -> Event:
    """The end of the newest attempt, and where the job goes from there."""
    progress = best_progress(reports) if reports else None
    end = replace(end, progress=progress, physical=machines(job, reports))
    if end.cause is None:
        text = f"attempt {number(job)} succeeded: {end.message}"
        return event(job, _E.ATTEMPT_ENDED, now, text, AttemptEnded(end, State.SUCCEEDED))
    said = f"attempt {number(job)} ended, {end.cause}: {end.message}"
    next_try = _next_try(job, end, now)
    if isinstance(next_try, retry.GiveUp):
        text = f"{said}; {next_try.why}"
        return event(job, _E.ATTEMPT_ENDED, now, text, AttemptEnded(end, State.FAILED))
    left = "" if next_try.left is None else f" ({next_try.left} more {next_try.budget} allowed)"
    repeated = AttemptRepeated(end, next_try.delay, next_try.budget)
    slice_is_lost = any(r.notice for r in reports)
    if next_try.same_slice and not slice_is_lost:
        text = f"{said}; starting again on the same slice in {next_try.delay:.0f} s{left}"
        return event(job, _E.ATTEMPT_RETRIED, now, text, repeated)
    if next_try.bad_slice and not slice_is_lost and job.spec.recovery.on_bad_host == "swap":
        text = f"{said}; {slice_name(job)} is kept until another slice is there{left}"
        return event(job, _E.ATTEMPT_CONDEMNED, now, text, repeated)
    ended = AttemptEnded(end, State.QUEUED, next_try.budget)
    return event(job, _E.ATTEMPT_ENDED, now, f"{said}{left}", ended)


def _next_try(job: Job, end: End, now: float) -> retry.Again | retry.GiveUp:
    assert end.cause is not None
    why = ""
    if end.cause is Cause.NONFINITE:
        why = nonfinite.is_maths(job, end.verdict, end.physical)
    elif end.cause is Cause.LOST_CONTACT:
        why = retry.kills_hosts(job, now)
    return retry.GiveUp(why) if why else retry.after(job, end.cause, late=end.late)


def machines(job: Job, reports: Sequence[Report]) -> tuple[str, ...]:
    """The physical machine below each host, by host; empty when none is known."""
    known = {r.host: r.physical for r in reports}
    found = tuple(known.get(host, "") for host in range(job.hosts))
    return found if any(found) else ()


def best_progress(reports: Sequence[Report]) -> Progress:
    """One progress for all hosts: of those that know a step, the one that is furthest behind; host 0's metrics."""
    if not reports:
        return Progress()
    first = min(reports, key=lambda r: r.host).progress
    stepping = [r.progress for r in reports if r.progress.step is not None]
    behind = min(stepping, key=lambda p: p.step or 0, default=first)
    return Progress(
        step=behind.step,
        steps=behind.steps,
        loss=behind.loss,
        phase=first.phase,
        checkpoint=max(
            (p.checkpoint for p in stepping if p.checkpoint is not None), default=first.checkpoint
        ),
        resumed_from=first.resumed_from if first.resumed_from is not None else behind.resumed_from,
        metrics=first.metrics,
    )


def slice_name(job: Job) -> str:
    return job.slice.name if job.slice else "the slice"


def number(job: Job) -> int:
    return job.attempt.number if job.attempt else 0
