"""What to do next with one job: `decide(job, seen, now)`, and `follow_up` for what an action came to.

Pure. One function for each state. What is Unknown decides nothing: it is waited out and said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from tpujob.domain.actions import (
    Action,
    CreateSlice,
    Decision,
    DeleteSlice,
    Denied,
    Done,
    Result,
    StartProgram,
    StopProgram,
    WipeJob,
)
from tpujob.domain.decide import attempt_end, releasing
from tpujob.domain.decide.acquire import provisioning, queued
from tpujob.domain.decide.active import ended, in_touch, interrupted, stalled
from tpujob.domain.decide.condemned import (
    LOST,
    STOP_PATIENCE,
    give_back,
    is_condemned,
    still_running,
)
from tpujob.domain.decide.looks import host_count, reports_of, serving, soon
from tpujob.domain.failures import triage
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, Event, EventKind, Job, Outcome, Progress, State, Wish
from tpujob.domain.observations import Absent, Present, Report, Seen, Unknown
from tpujob.domain.text import duration, list_hosts, many

#: hosts that never reported their agent: the slice is given back after this many seconds
LAUNCH_DEADLINE = 30 * 60.0
#: hosts that report, but do not come to start the program: the slice is not billed for longer than these seconds
SETUP_DEADLINE = 2 * 3600.0
#: progress is stored at most this often, in seconds; between, it is read from the reports, which costs no write
PROGRESS_EVERY = 600.0

_E = EventKind
_LEAVING = (Wish.RELEASE, Wish.CLEAN)


def decide(job: Job, seen: Seen, now: float) -> Decision:
    """At most one event and one action for `job`, given what was seen of the world at `now`."""
    decision = _BY_STATE[job.state](job, seen, now)
    if job.condemned and decision.event is None and decision.action is None:
        return give_back(job, seen, now) or decision
    return decision


def follow_up(job: Job, action: Action, result: Result, now: float) -> Event | None:
    """The event that the result of an action makes; None: nothing new is known."""
    match action, result:
        case CreateSlice(), Denied(cause, error):
            return attempt_end.give_up_slice(job, cause, error, now)
        case StartProgram(), Denied(cause, error):
            return attempt_end.end_attempt(
                job, triage.End(Outcome.FAILED, cause, None, error), (), now
            )
        case StopProgram(name), Done() if is_condemned(job, name):
            text = f"the program on {name} is stopped"
            return event(job, _E.CONDEMNED_STOPPED, now, text, slice=name)
        case StopProgram(""), Done() if job.state is State.HOLDING and not job.stopped:
            return event(job, _E.PROGRAM_STOPPED, now, attempt_end.held_text(job))
        case DeleteSlice(name), Done() if not _delete_asked(job, name):
            return event(job, _E.DELETE_ASKED, now, f"{name} is being deleted", slice=name)
        case _:
            return None


def _delete_asked(job: Job, name: str) -> bool:
    return any(s.name == name and s.delete_asked_at is not None for s in job.slices)


# One function for each state -----------------------------------------------------------------------------------------


def _preparing(job: Job, seen: Seen, now: float) -> Decision:
    urgent = interrupted(job, seen, now)
    if urgent:
        return urgent
    if isinstance(seen.reports, Unknown) or now < job.wake:
        return Decision(wake_in=max(1.0, job.wake - now))
    over = ended(job, seen.reports, now)
    if over:
        return over
    expected = host_count(job)
    if sum(r.phase in ("running", "exited") for r in seen.reports) == expected:
        text = f"attempt {attempt_end.number(job)} runs on {many(expected, 'host')}"
        said = [dict(r.versions) for r in seen.reports if r.versions]
        data = {"versions": said[0]} if said else {}
        return Decision(event(job, _E.ATTEMPT_RUNNING, now, text, **data), wake_in=1)
    if len(seen.reports) == expected:
        late = _late(job, seen.reports, now)
        return late or stalled(job, seen, seen.reports, now) or Decision(wake_in=2)
    waited = now - max(job.attempt.started_at, job.wake) if job.attempt else 0.0
    if waited > LAUNCH_DEADLINE and in_touch(job, seen):
        unheard = sorted(set(range(expected)) - {r.host for r in seen.reports})
        message = f"no word from {list_hosts(unheard)} in {duration(LAUNCH_DEADLINE)}"
        lost = triage.End(Outcome.INTERRUPTED, Cause.LOST_CONTACT, unheard[0], message)
        return Decision(attempt_end.end_attempt(job, lost, seen.reports, now), wake_in=0)
    return Decision(action=StartProgram(), wake_in=max(2.0, soon(job, now)))


def _late(job: Job, reports: Sequence[Report], now: float) -> Decision | None:
    """Set-up without an end."""
    waits = [r for r in reports if r.phase not in ("running", "exited")]
    if not job.attempt or not waits or now - job.attempt.started_at < SETUP_DEADLINE:
        return None
    message = f"host {waits[0].host} is still in {waits[0].phase} after {duration(SETUP_DEADLINE)}"
    end = triage.End(Outcome.FAILED, Cause.SETUP, waits[0].host, message)
    return Decision(attempt_end.end_attempt(job, end, reports, now), wake_in=0)


def _running(job: Job, seen: Seen, now: float) -> Decision:
    urgent = interrupted(job, seen, now)
    if urgent:
        return urgent
    if isinstance(seen.reports, Unknown):
        return Decision()
    over = ended(job, seen.reports, now)
    if over:
        return over
    stuck = stalled(job, seen, seen.reports, now)
    if stuck:
        return stuck
    progress = attempt_end.best_progress(seen.reports)
    if job.attempt and _worth_storing(
        job.attempt.progress, job.attempt.progress_at or job.state_since, progress, now
    ):
        text = f"step {progress.step}"
        return Decision(event(job, _E.PROGRESSED, now, text, progress=asdict(progress)))
    return Decision(
        wake_in=2 if any(r.phase != "running" or r.notice for r in seen.reports) else 10
    )


def _holding(job: Job, seen: Seen, now: float) -> Decision:
    slice_seen = serving(job, seen)
    if isinstance(slice_seen, Present) and slice_seen.state in LOST:
        text = f"{attempt_end.slice_name(job)} was lost while it was held: {slice_seen.state}"
        return attempt_end.release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
    if isinstance(slice_seen, Absent) and job.slice:
        if not releasing.missing_twice(job.slice, now):
            return releasing.look_again(job, job.slice, now)
        text = releasing.vanished(job.slice)
        return attempt_end.release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
    if job.wish is Wish.RUN and still_running(job):
        return Decision(wake_in=2)
    if job.wish is Wish.RUN:
        text = f"attempt {len(job.attempts) + 1} is being started on the held {attempt_end.slice_name(job)}"
        return Decision(event(job, _E.RESUMED, now, text), StartProgram(), wake_in=1)
    expired = job.hold_until is not None and now >= job.hold_until
    if job.wish in _LEAVING or expired:
        patience = STOP_PATIENCE + job.spec.stop_grace
        if not job.stopped and now - job.state_since < patience:
            return Decision(action=StopProgram(), wake_in=2)
        text = "the hold ran out" if expired else "cancelled"
        return attempt_end.release(job, now, text, then=State.CANCELLED, cause=Cause.CANCELLED)
    if not job.stopped:
        return Decision(action=StopProgram(), wake_in=2)
    saved = _saved(job, reports_of(seen), now)
    return Decision(saved, wake_in=1 if saved else min(30.0, (job.hold_until or now) - now))


def _releasing(job: Job, seen: Seen, now: float) -> Decision:
    held = [s for s in job.slices if s.gone_at is None]
    if not held:
        return Decision(attempt_end.arrive(job, seen.circuits, now), wake_in=0)
    steps = (releasing.leaving(job, one, seen, now) for one in releasing.fresh_first(held))
    return min(steps, key=lambda step: (not step.event, not step.action, step.wake_in))


def _final(job: Job, seen: Seen, now: float) -> Decision:
    return Decision(action=WipeJob()) if job.wish is Wish.CLEAN else Decision(wake_in=3600)


_BY_STATE: Mapping[State, Callable[[Job, Seen, float], Decision]] = {
    State.QUEUED: queued,
    State.PROVISIONING: provisioning,
    State.PREPARING: _preparing,
    State.RUNNING: _running,
    State.HOLDING: _holding,
    State.RELEASING: _releasing,
    State.SUCCEEDED: _final,
    State.FAILED: _final,
    State.CANCELLED: _final,
}


def _saved(job: Job, reports: Sequence[Report], now: float) -> Event | None:
    """What the program still did while it was being stopped."""
    progress = attempt_end.best_progress(reports)
    stored = job.attempt.progress if job.attempt else None
    if progress.step is None or progress == stored or any(r.phase != "exited" for r in reports):
        return None
    text = f"stopped at step {progress.step}"
    return event(job, _E.PROGRESSED, now, text, progress=asdict(progress))


def _worth_storing(stored: Progress, since: float, fresh: Progress, now: float) -> bool:
    return fresh.step is not None and fresh.step != stored.step and now - since >= PROGRESS_EVERY
