"""HOLDING: the program is stopped; the slice is kept for a resume, until the hold runs out. Pure.

A job that has reached a limit, or returns to the queue, is here until its program is stopped; then its slice is
released.
"""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.actions import Decision, StartProgram, StopProgram
from tpujob.domain.decide import billing, limits, planned_end, releasing
from tpujob.domain.decide.attempt_end import (
    best_progress,
    end_attempt,
    next_try,
    ran_since,
    slice_name,
)
from tpujob.domain.decide.condemned import STOP_PATIENCE, still_running
from tpujob.domain.decide.limits import ReachedLimit
from tpujob.domain.events import Event, EventKind, Progressed, ReleaseStarted, SliceHeld
from tpujob.domain.failures import retry, triage
from tpujob.domain.failures.starts import OVERTAKEN
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, DesiredState, End, Job, Outcome, State
from tpujob.domain.observations import Absent, HostReport, Observation, Present, Unknown
from tpujob.domain.text import duration
from tpujob.protocol import Phase

#: seconds after the grace within which the hosts of a stopped program should report its end
REPORTED_WITHIN = 20.0

_E = EventKind


def decide(job: Job, seen: Observation, now: float) -> Decision:
    ended = _succeeded(job, seen, now) or _lost(job, seen, now)
    return ended or _progressed(job, seen, now) or _kept(job, seen, now)


def _succeeded(job: Job, seen: Observation, now: float) -> Decision | None:
    """If the last reports show that the program had succeeded before it was stopped, release its slice."""
    end = triage.succeeded(seen.heard, job.hosts) if _ran_here(job) else None
    return Decision(end_attempt(job, end, seen.heard, now), wake_in=0) if end else None


def _ran_here(job: Job) -> bool:
    """Return whether the newest attempt ran on this slice and was stopped by its user or a limit."""
    attempt = job.attempt
    return bool(attempt and attempt.slice == slice_name(job) and attempt.cause in OVERTAKEN)


def _lost(job: Job, seen: Observation, now: float) -> Decision | None:
    match seen.serving(job):
        case Present(state) if state.lost:
            why = f"{slice_name(job)} was lost while it was held: {state}"
        case Absent() if job.slice:
            unsure = releasing.look_again(job, job.slice, seen, now)
            if unsure:
                return unsure
            why = releasing.vanished(job.slice)
        case _:
            return None
    if _awaits_reports(job, seen, now):
        return Decision(wake_in=1)
    if job.attempt and _ended_as_planned(job):
        why = job.attempt.message
    return _progressed(job, seen, now, lost=True) or _release(job, now, why)


def _kept(job: Job, seen: Observation, now: float) -> Decision:
    limit = limits.used_up(job, seen, now)
    if job.desired is DesiredState.RUN and not limit and job.next_state is None:
        return _resume(job, now)
    until = None if job.hold_until is None else retry.due_at(job.hold_until, now, job.spec.hold)
    expired = until is not None and now >= until
    if job.desired is DesiredState.CANCEL and not limit and not expired and job.next_state is None:
        if not job.stopped:
            return Decision(action=StopProgram(), wake_in=2)
        return Decision(wake_in=min(30.0, (until or now) - now))
    patience = STOP_PATIENCE + job.spec.stop_grace
    if not job.stopped and now - job.state_since < patience:
        return Decision(action=StopProgram(), wake_in=2)
    if _awaits_reports(job, seen, now):
        return Decision(wake_in=1)
    if limit or job.next_state is not None:
        why = limit.text if limit else job.message
        if (
            job.attempt and job.next_state is not None
        ):  # the reason for which the program was stopped
            why = job.attempt.message
        fails = limit.cause if limit and job.desired is DesiredState.RUN else None
        return _release(job, now, why, fails=fails)
    if expired:  # without a deletion: another job may get the slice first
        return replace(_release(job, now, "the hold ran out"), action=None)
    return _release(job, now, "cancelled")


def _release(job: Job, now: float, text: str, *, fails: Cause | None = None) -> Decision:
    """Release the slice. A job fails if a limit stopped it, unless the user had cancelled it before (`fails`: the cause
    of a limit that is reached now)."""
    if job.next_state is State.QUEUED and not fails and _ended_as_planned(job):
        policy = retry.POLICIES[Cause.PLANNED_END]
        again = ReleaseStarted(State.QUEUED, Cause.PLANNED_END, policy.budget)
        return releasing.start(job, now, text, again)
    if job.next_state is State.QUEUED and not fails:
        started = ReleaseStarted(State.QUEUED, None)  # no deletion yet: another job may get it
        return Decision(event(job, _E.RELEASE_STARTED, now, text, started), wake_in=0)
    if fails or job.next_state is not None:
        # the limit that stopped the program comes before one that is reached since
        cause = fails if job.next_state is not State.FAILED else job.cause
        return releasing.start(job, now, text, ReleaseStarted(State.FAILED, cause))
    return releasing.cancel(job, now, text)


def _ended_as_planned(job: Job) -> bool:
    """Return whether the program was stopped because this slice ends."""
    attempt = job.attempt
    return bool(attempt and attempt.cause is Cause.PLANNED_END and attempt.slice == slice_name(job))


def _resume(job: Job, now: float) -> Decision:
    if still_running(job):
        return Decision(wake_in=2)
    if planned_end.is_due(job, now):
        text = f"the held {slice_name(job)} is about to end"
        return releasing.start(job, now, text, ReleaseStarted(State.QUEUED, None))
    text = f"attempt {len(job.attempts) + 1} is being started on the held {slice_name(job)}"
    return Decision(event(job, _E.RESUMED, now, text), StartProgram(), wake_in=1)


# What the hosts reported last -----------------------------------------------------------------------------------------


def _progressed(job: Job, seen: Observation, now: float, *, lost: bool = False) -> Decision | None:
    """Store the program's last progress, once no more reports are expected. Some hosts may have ended without a last
    report. `lost`: the slice is lost."""
    if not _ran_here(job) or _awaits_reports(job, seen, now):
        return None
    if not lost and all(r.phase == Phase.RUNNING for r in seen.heard):  # the stop has not begun
        return None
    progress = best_progress(seen.heard)
    if progress.step is None or (job.attempt and progress == job.attempt.progress):
        return None
    text, began = f"stopped at step {progress.step}", ran_since(job, seen.heard, now)
    happened = event(job, _E.PROGRESSED, now, text, Progressed(progress, running_at=began))
    return Decision(happened, wake_in=0)


def _awaits_reports(job: Job, seen: Observation, now: float) -> bool:
    """Return whether hosts should report the end of their program soon. Without any report the program has not begun,
    unless its start is stored."""
    if not _ran_here(job) or now - job.state_since >= job.spec.stop_grace + REPORTED_WITHIN:
        return False
    began = bool(seen.heard) or (job.attempt and job.attempt.running_at is not None)
    ended = sum(r.phase == Phase.EXITED for r in seen.heard)
    return isinstance(seen.reports, Unknown) or bool(began and ended < job.hosts)


# The ways in ---------------------------------------------------------------------------------------------------------


def unused(job: Job, look: Present, seen: Observation, now: float) -> Event:
    """Hold a slice that has just become ready."""
    ready_at = billing.ready_since(job.slice, look, seen, now) if job.slice else now
    ends_at = planned_end.end_of(job.slice, look, ready_at) if job.slice else None
    held = SliceHeld(now + job.spec.hold, None, look.endpoints, ready_at, ends_at=ends_at)
    return event(job, _E.HELD, now, held_text(job), held)


def stop(job: Job, reports: Sequence[HostReport], now: float) -> Event:
    """End the attempt and hold its slice; for a job that returns to the queue, only until its program is stopped."""
    back = job.next_state is State.QUEUED and job.desired is DesiredState.RUN
    why = "put back into the queue" if back else "cancelled"
    until, then = (now, job.next_state) if back else (now + job.spec.hold, None)
    held = SliceHeld(until, _stopped(job, Cause.CANCELLED, why, reports, now), next_state=then)
    return event(job, _E.HELD, now, f"{why}; stopping the program", held)


def give_way(job: Job, to: str, reports: Sequence[HostReport], now: float) -> Event:
    """End the attempt; its slice is handed on or released as soon as the program is stopped, and the job queued."""
    why = f"gave way to job {to}"
    end = _stopped(job, Cause.GAVE_WAY, why, reports, now)
    held = SliceHeld(now, end, next_state=State.QUEUED, gives_way_to=to)
    return event(job, _E.HELD, now, f"gives way to job {to}; stopping the program", held)


def go_back(job: Job, why: str, reports: Sequence[HostReport], now: float) -> Event:
    """End the attempt; once its program is stopped, its slice is released and the job queued again."""
    end = _stopped(job, Cause.CANCELLED, why, reports, now)
    held = SliceHeld(now, end, next_state=State.QUEUED)
    return event(job, _E.HELD, now, f"{why}; stopping the program", held)


def stop_for_good(
    job: Job, limit: ReachedLimit, reports: Sequence[HostReport], now: float
) -> Event:
    """End the attempt; its slice is released as soon as the program is stopped."""
    end = _stopped(job, limit.cause, limit.text, reports, now)
    held = SliceHeld(now, end, next_state=State.FAILED)
    return event(job, _E.HELD, now, f"{limit.text}; stopping the program", held)


def stop_before_end(job: Job, reports: Sequence[HostReport], now: float) -> Event:
    """End the attempt before the planned end of its slice, which is released as soon as the program is stopped; then
    the job is queued again, or fails."""
    ends_in = max(0.0, (job.slice.ends_at or now) - now) if job.slice else 0.0
    why = f"{slice_name(job)} ends in {duration(ends_in)}, as planned"
    end = _stopped(job, Cause.PLANNED_END, why, reports, now)
    follows, then = next_try(job, end, reports, now), State.QUEUED
    if isinstance(follows, retry.GiveUp):
        why, then = f"{why}; {follows.why}", State.FAILED
    held = SliceHeld(now, replace(end, message=why), next_state=then)
    return event(job, _E.HELD, now, f"{why}; stopping the program", held)


def _stopped(job: Job, cause: Cause, why: str, reports: Sequence[HostReport], now: float) -> End:
    progress = best_progress(reports) if reports else None
    began = ran_since(job, reports, now)
    return End(Outcome.INTERRUPTED, cause, None, why, progress=progress, running_at=began)


def held_text(job: Job) -> str:
    if job.next_state is not None or job.desired in (DesiredState.RELEASE, DesiredState.CLEAN):
        return f"the program is stopped; {slice_name(job)} is being released"
    usd = job.slice.usd_per_hour if job.slice else None
    price = "" if usd is None else f" at ${usd:.2f}/h"
    return f"stopped; {slice_name(job)} is held{price} until the hold runs out"
