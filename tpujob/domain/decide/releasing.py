"""RELEASING: the slice is deleted and watched until it is gone; then the job is requeued or ends. Pure.

One poll may miss a slice that exists, is billed and runs a program. So a slice is gone when a second poll agrees. One
poll suffices if the slice was seen being deleted, or was never ready.

A slice that the cloud is suspending is deleted after that: public code, quoting Google, warns that a forced deletion
may leave it stuck (axlearn, `tpu.py`). The duration of a suspension is not documented, so the wait has a limit.
"""

from collections.abc import Iterable

from tpujob.domain.actions import Decision, DeleteSlice, HandOn, soon
from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.entries import HANDED_WITHIN, gives_until
from tpujob.domain.decide import billing, limits
from tpujob.domain.events import (
    AboutSlice,
    Event,
    EventKind,
    Finished,
    ReleaseStarted,
    Requeued,
    SliceHandedOn,
    SliceKept,
)
from tpujob.domain.failures import retry
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Cause, DesiredState, Job, Slice, State
from tpujob.domain.observations import Absent, Observation, Present, SliceState
from tpujob.domain.text import duration

#: minimum seconds between two polls that together confirm an absent slice as gone
SECOND_LOOK = 60.0
#: maximum seconds between them: the slice may have existed between two polls that are hours apart
AGREES_FOR = 240.0
#: maximum seconds for which a deletion waits while the cloud is suspending the slice; then it is forced
SUSPENDED_WITHIN = 600.0
#: maximum seconds between two polls of a slice that is kept; a job that fits wakes it earlier
KEPT_LOOK = 60.0
#: seconds until the next poll of a missing slice
LOOK_AGAIN = 15.0

_E = EventKind


def decide(job: Job, seen: Observation, now: float) -> Decision:
    held = [s for s in job.slices if s.gone_at is None]
    if not held:
        return Decision(_arrive(job, seen.circuits, now), wake_in=0)
    gives = gives_until(job)
    gives = retry.due_at(gives, now, gives - job.state_since + HANDED_WITHIN)
    if job.slice and _is_ready(job.slice, seen) and now < gives:
        if seen.hand_over.heir:
            return Decision(action=HandOn(job.slice.name, seen.hand_over.heir), wake_in=2)
        if decision := _keep(job, seen, now):
            return decision
    steps = (leaving(job, slice, seen, now) for slice in fresh_first(held))
    return min(steps, key=lambda step: (not step.event, not step.action, step.wake_in))


# The way in ----------------------------------------------------------------------------------------------------------


def start(job: Job, now: float, text: str, started: ReleaseStarted) -> Decision:
    """Leave PROVISIONING or HOLDING for RELEASING, and delete the slice."""
    name = job.slice.name if job.slice else ""
    return Decision(
        event(job, _E.RELEASE_STARTED, now, text, started), DeleteSlice(name), wake_in=0
    )


def cancel(job: Job, now: float, text: str) -> Decision:
    return start(job, now, text, ReleaseStarted(State.CANCELLED, Cause.CANCELLED))


# Handing it on --------------------------------------------------------------------------------------------------------


def _is_ready(slice: Slice, seen: Observation) -> bool:
    look = seen.of(slice)
    return isinstance(look, Present) and look.state is SliceState.READY and not look.suspending


def _keep(job: Job, seen: Observation, now: float) -> Decision | None:
    """Keep the slice of a program that has ended for a later job; None: it is not kept, or not any longer."""
    keep = seen.hand_over.keep
    if not keep or job.next_state is State.QUEUED or limits.used_up(job, seen, now):
        return None
    if job.hold_until is None:
        text = f"its slice is kept for {duration(keep)}, for the next job that fits"
        payload = SliceKept(job.state_since + keep)
        return Decision(event(job, _E.SLICE_KEPT, now, text, payload), wake_in=0)
    left = retry.due_at(job.hold_until, now, keep) - now
    return Decision(wake_in=min(left, KEPT_LOOK)) if left > 0 else None


def handed_on(job: Job, name: str, to: str, now: float) -> Event:
    text = f"{name} is handed on to job {to}"
    return event(job, _E.SLICE_HANDED_ON, now, text, SliceHandedOn(name, to))


# One slice -----------------------------------------------------------------------------------------------------------


def fresh_first(slices: Iterable[Slice]) -> list[Slice]:
    """Return the slices, first those without a requested deletion: they are billed while another deletion runs."""
    return sorted(slices, key=lambda slice: slice.delete_asked_at is not None)


def leaving(job: Job, slice: Slice, seen: Observation, now: float) -> Decision:
    """Return the next step for a slice that is not needed any more: to wait for its suspension, delete it, or confirm
    that it is gone."""
    look, overdue = seen.of(slice), suspended_for(slice, now) >= SUSPENDED_WITHIN
    if isinstance(look, Present) and look.suspending and not overdue:
        return _wait_until_suspended(job, slice, now)
    again = Decision(action=DeleteSlice(slice.name, overdue), wake_in=soon(job, now))
    if slice.delete_asked_at is None:
        return again
    match look:
        case Present(SliceState.DELETING):
            return Decision(wake_in=soon(job, now))
        case Present():  # the deletion was accepted, and has failed since
            return Decision(note_found(job, slice, now), again.action, again.wake_in)
        case Absent():
            unsure = None if deletion_is_sure(slice, seen) else look_again(job, slice, seen, now)
            gone = event(
                job, _E.SLICE_GONE, now, f"{slice.name} is released", AboutSlice(slice.name)
            )
            return unsure or Decision(gone, wake_in=0)
        case _:
            return again


def suspended_for(slice: Slice, now: float) -> float:
    """Return for how long the cloud has been suspending a slice that was to be deleted, in seconds."""
    return 0.0 if slice.suspending_since is None else now - slice.suspending_since


def _wait_until_suspended(job: Job, slice: Slice, now: float) -> Decision:
    left = SUSPENDED_WITHIN - suspended_for(slice, now)
    wake_in = min(soon(job, now), left)
    if slice.suspending_since is not None:
        return Decision(note_found(job, slice, now), wake_in=wake_in)
    text = f"the cloud is suspending {slice.name}; it is deleted after that, in {duration(left)} at the latest"
    happened = event(job, _E.SLICE_SUSPENDING, now, text, AboutSlice(slice.name))
    return Decision(happened, wake_in=wake_in)


def deletion_is_sure(slice: Slice, seen: Observation) -> bool:
    """Return whether one poll that misses the slice proves that it is gone: its deletion was seen; or it was never
    ready, so that no program runs on it, and the sweep finds it if the poll was wrong."""
    return slice.ready_at is None or slice.name in seen.deleting


def look_again(job: Job, slice: Slice, seen: Observation, now: float) -> Decision | None:
    """Return the next poll of a slice that this poll missed; None: an earlier poll agrees, so it is gone. A poll may
    take long: SECOND_LOOK counts from the end of the earlier one to the start of this one."""
    if missing_twice(slice, now):
        return None
    if slice.missing_since is not None and now - slice.missing_since <= AGREES_FOR:
        return Decision(wake_in=LOOK_AGAIN)
    text = f"{slice.name} was not found; checking again in a minute"
    about = AboutSlice(slice.name, certain_until=billing.certain_until(job, slice, seen, now))
    missing = event(job, _E.SLICE_MISSING, now + seen.took, text, about)
    return Decision(missing, wake_in=LOOK_AGAIN)


def missing_twice(slice: Slice, now: float) -> bool:
    """Return whether an earlier poll agrees with a poll at `now` that misses the slice."""
    return (
        slice.missing_since is not None and SECOND_LOOK <= now - slice.missing_since <= AGREES_FOR
    )


def vanished(slice: Slice) -> str:
    return f"{slice.name} is gone, deleted outside tpujob or lost"


def note_found(job: Job, slice: Slice, now: float) -> Event | None:
    """Return the event that a missed slice is listed again; None: no poll had missed it."""
    if slice.missing_since is None:
        return None
    return event(job, _E.SLICE_FOUND, now, f"{slice.name} is listed again", AboutSlice(slice.name))


# The way out ---------------------------------------------------------------------------------------------------------


def _arrive(job: Job, refused: circuits.Circuits, now: float) -> Event:
    """Return the event that ends RELEASING: as planned, unless the user has requested something else since."""
    then = job.next_state or State.CANCELLED
    if then is State.QUEUED and job.desired is not DesiredState.RUN:
        return event(job, _E.CANCELLED, now, "cancelled", Finished(Cause.CANCELLED))
    if then is State.QUEUED or (then is State.CANCELLED and job.desired is DesiredState.RUN):
        delay = _requeue_delay(job, refused, now)
        text = _requeue_text(job, refused, delay, now)
        return event(job, _E.REQUEUED, now, text, Requeued(delay))
    kind = {State.SUCCEEDED: _E.SUCCEEDED, State.FAILED: _E.FAILED}.get(then, _E.CANCELLED)
    return event(job, kind, now, _reason(job, then), Finished(job.cause))


def _requeue_delay(job: Job, refused: circuits.Circuits, now: float) -> float:
    """Return the seconds until the next request: until an offer may be requested, if the circuit of the last refused
    one is known; else the back-off of the cause, of whose budget this retry is used already."""
    if job.cause is None:
        return 0.0
    policy = retry.POLICIES[job.cause]
    used = max(0, job.retries_used.get(policy.budget, 1) - 1)
    plain = retry.backoff(policy, used, seed=f"{job.id}:{policy.budget}:{used}")
    tried = circuits.refusals(job)
    if not tried or not circuits.retry_at(tried[-1], refused):
        return plain  # nothing was refused, or by another backend alone
    if job.cause is Cause.QUOTA:
        return 1.0  # its circuit says until when, and opens when a slice is gone
    _, opens = circuits.first_available(circuits.requestable(job, now), refused)
    return round(max(1.0, opens - now), 2)


def _requeue_text(job: Job, refused: circuits.Circuits, delay: float, now: float) -> str:
    after = f" (after {job.cause})" if job.cause else ""
    if job.held_by:
        return f"queued again{after}"
    if job.slices and (left := job.slices[-1].gave_way):
        return f"gave way to job {left.to}, and waits for chips again"
    waits = f"requesting another slice in {delay:.0f} s{after}"
    return circuits.waiting(job, refused, now) or waits


def _reason(job: Job, then: State) -> str:
    if then is State.CANCELLED:
        return "cancelled; no longer billed"
    return job.newest_slice.delete_reason if job.newest_slice else job.message
