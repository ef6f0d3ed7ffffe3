"""How things end: an attempt, the request for a slice, a hold, the release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tpujob.domain.actions import Decision, DeleteSlice
from tpujob.domain.failures import nonfinite, retry
from tpujob.domain.failures.triage import End
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, Event, EventKind, Job, Outcome, Progress, State, Wish
from tpujob.domain.observations import Report
from tpujob.domain.placement import circuits as capacity

_E = EventKind


def end_attempt(job: Job, end: End, reports: Sequence[Report], now: float) -> Event:
    """The end of the newest attempt, and where the job goes from there."""
    physical = machines(job, reports)
    data: dict[str, Any] = {"outcome": end.outcome, "cause": end.cause, "host": end.host}
    data["progress"] = asdict(best_progress(reports)) if reports else None
    if any(physical):
        data["physical"] = physical
    if end.verdict:
        data["verdict"] = asdict(end.verdict)
    if end.evidence:
        data["evidence"] = list(end.evidence)
    if end.cause is None:
        text = f"attempt {number(job)} succeeded: {end.message}"
        return event(job, _E.ATTEMPT_ENDED, now, text, then=State.SUCCEEDED, **data)
    next_try = _next_try(job, end, physical, now)
    said = f"attempt {number(job)} ended, {end.cause}: {end.message}"
    if isinstance(next_try, retry.GiveUp):
        text = f"{said}; {next_try.why}"
        return event(job, _E.ATTEMPT_ENDED, now, text, then=State.FAILED, **data)
    data["budget"] = next_try.budget
    left = _left(next_try)
    lost_slice = any(r.notice for r in reports)
    if next_try.same_slice and not lost_slice:
        text = f"{said}; starting again on the same slice in {next_try.delay:.0f} s{left}"
        return event(job, _E.ATTEMPT_RETRIED, now, text, delay=next_try.delay, **data)
    if next_try.bad_slice and not lost_slice and job.spec.recovery.on_bad_host == "swap":
        text = f"{said}; {slice_name(job)} is kept until another slice is there{left}"
        return event(job, _E.ATTEMPT_CONDEMNED, now, text, delay=next_try.delay, **data)
    return event(job, _E.ATTEMPT_ENDED, now, f"{said}{left}", then=State.QUEUED, **data)


def _next_try(
    job: Job, end: End, physical: Sequence[str], now: float
) -> retry.Again | retry.GiveUp:
    assert end.cause is not None
    why = ""
    if end.cause is Cause.NONFINITE:
        why = nonfinite.is_maths(job, end.verdict, physical)
    elif end.cause is Cause.LOST_CONTACT:
        why = retry.kills_hosts(job, now)
    return retry.GiveUp(why) if why else retry.after(job, end.cause)


def machines(job: Job, reports: Sequence[Report]) -> list[str]:
    """The physical machine below each host, by host, as far as they are known."""
    known = {r.host: r.physical for r in reports}
    hosts = len(job.slice.endpoints) if job.slice else 0
    return [known.get(host, "") for host in range(hosts)]


def give_up_slice(job: Job, cause: Cause, error: str, now: float) -> Event:
    """The request for a slice came to nothing: another one, later or elsewhere, or the end of the job."""
    next_try = retry.after(job, cause)
    text = f"no slice in {zone(job)}, {cause}: {error}"
    data: dict[str, Any] = {"cause": cause}
    if cause in capacity.FOR_NOW or cause in _REFUSED_FOR_GOOD:
        data["refused"] = cause
    if isinstance(next_try, retry.Again):
        data["budget"] = next_try.budget
    elif cause not in _REFUSED_FOR_GOOD or not _others(job):
        return event(job, _E.RELEASE_STARTED, now, text, then=State.FAILED, **data)
    return event(job, _E.RELEASE_STARTED, now, text, then=State.QUEUED, **data)


#: what a cloud says that will not have this job: often it is of one zone alone, and what it says does not tell
_REFUSED_FOR_GOOD = frozenset({Cause.PERMISSION, Cause.BAD_SPEC})


def _others(job: Job) -> bool:
    """Whether the job may ask for something else than for what it asks now."""
    here = job.slice
    return any(
        here is None or (o.zone, o.type) != (here.zone, here.type) for o in capacity.offers(job)
    )


def release(job: Job, now: float, text: str, *, then: State, cause: Cause) -> Decision:
    name = job.slice.name if job.slice else ""
    return Decision(
        event(job, _E.RELEASE_STARTED, now, text, then=then, cause=cause),
        DeleteSlice(name),
        wake_in=0,
    )


def hold(job: Job, now: float, reports: Sequence[Report], **data: Any) -> Event:
    """The end of the attempt, if there is one, and the slice kept for the spec's `hold`."""
    until = now + job.spec.hold
    text = "cancelled; stopping the program" if "endpoints" not in data else held_text(job)
    given = {"outcome": Outcome.INTERRUPTED, "cause": Cause.CANCELLED, "hold_until": until, **data}
    progress = asdict(best_progress(reports)) if reports else None
    return event(job, _E.HELD, now, text, progress=progress, **given)


def arrive(job: Job, circuits: capacity.Circuits, now: float) -> Event:
    """The end of RELEASING: what was planned, unless the user has asked for something else since."""
    then = job.then or State.CANCELLED
    if then is State.QUEUED and job.wish is not Wish.RUN:
        return event(job, _E.CANCELLED, now, "cancelled", cause=Cause.CANCELLED)
    if then is State.QUEUED or (then is State.CANCELLED and job.wish is Wish.RUN):
        delay = _requeue_delay(job, circuits, now)
        return event(job, _E.REQUEUED, now, _requeue_text(job, circuits, delay, now), delay=delay)
    kind = {State.SUCCEEDED: _E.SUCCEEDED, State.FAILED: _E.FAILED}.get(then, _E.CANCELLED)
    return event(job, kind, now, _reason(job, then), cause=job.cause)


def _requeue_delay(job: Job, circuits: capacity.Circuits, now: float) -> float:
    """Until an offer may be asked for again, where one was refused; else the back-off of the cause that led here
    (its budget is spent already)."""
    if job.cause is None:
        return 0.0
    policy = retry.POLICIES[job.cause]
    used = max(0, job.spent.get(policy.budget, 1) - 1)
    plain = retry.backoff(policy, used, seed=f"{job.id}:{policy.budget}:{used}")
    tried = capacity.refusals(job)
    if not tried or not capacity.opens_at(tried[-1], circuits):
        return plain  # not for want of capacity, or another backend was refused
    _, opens = capacity.first_to_open(capacity.offers(job), circuits)
    return round(max(1.0, opens - now), 2)


def _requeue_text(job: Job, circuits: capacity.Circuits, delay: float, now: float) -> str:
    after = f" (after {job.cause})" if job.cause else ""
    waits = f"waiting {delay:.0f} s, then asking for another slice{after}"
    return capacity.waiting(job, circuits, now) or waits


def _reason(job: Job, then: State) -> str:
    if then is State.CANCELLED:
        return "cancelled; nothing is billed any more"
    return job.slices[-1].delete_reason if job.slices else job.message


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


def _left(again: retry.Again) -> str:
    return "" if again.left is None else f" ({again.left} more {again.budget} allowed)"


def held_text(job: Job) -> str:
    price = (
        f" at ${job.slice.usd_per_hour:.2f}/h"
        if job.slice and job.slice.usd_per_hour is not None
        else ""
    )
    return f"stopped; {slice_name(job)} is held{price} until the hold runs out"


# Words ---------------------------------------------------------------------------------------------------------------


def slice_name(job: Job) -> str:
    return job.slice.name if job.slice else "the slice"


def zone(job: Job) -> str:
    return job.slice.zone if job.slice else "any zone"


def number(job: Job) -> int:
    return job.attempt.number if job.attempt else 0
