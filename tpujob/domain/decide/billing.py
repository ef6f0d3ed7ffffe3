"""The billed time of a slice, by the cloud's own times where no poll saw its beginning or its end. Pure.

The cloud bills a slice while it is ready. It tells when a node was created, but not when it became ready or was
preempted. So a slice that no poll saw before it was ready counts from the creation of its node; of one that was
ready and lost unseen, the bounds are stored.
"""

from dataclasses import replace

from tpujob.domain.actions import Decision
from tpujob.domain.events import EventKind, SliceBilled
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Job, Slice, State
from tpujob.domain.money.ledger import FREE_MINUTE
from tpujob.domain.observations import Observation, Present, SliceState

#: seconds for which a poll is young: what happened since then happened now
YOUNG = 60.0
#: when a slice was preempted that cost nothing
NEVER_BILLED = "before it was ready, or in its first minute"


def ready_since(slice: Slice, look: Present, seen: Observation, now: float) -> float:
    """Return when a slice that is seen ready for the first time, or lost, was ready at the earliest: now if a young
    poll saw it before that, or if the cloud has no time of it."""
    before = seen.last_seen.get(slice.name, 0.0)
    if not look.created_at or 0 <= now - before <= YOUNG:
        return now
    return min(now, max(slice.requested_at, look.created_at, before))


def certain_until(
    job: Job, slice: Slice, seen: Observation, now: float, lost_at: float | None = None
) -> float | None:
    """Return when a slice that is lost was last known to be alive, by polls and by its hosts' reports; None: just
    before `lost_at` (None: now), or it was never ready."""
    if slice.ready_at is None:
        return None
    attempts = [a for a in job.attempts if a.slice == slice.name]
    current = bool(attempts) and attempts[-1] is job.attempt
    reported = [now - report.age for report in seen.heard] if current else []
    stored = [
        at for a in attempts for at in (a.started_at, a.running_at, a.progress_at, a.ended_at)
    ]
    known = [at for at in (slice.ready_at, seen.last_seen.get(slice.name), *stored) if at]
    lost_at = now if lost_at is None else lost_at
    last = min(lost_at, max(*known, *reported, slice.ready_at))
    return None if lost_at - last <= YOUNG else last


def note(job: Job, seen: Observation, now: float) -> SliceBilled | None:
    """Return what the cloud shows about the billed time of a slice; None: nothing new."""
    for slice in () if job.state.final else job.slices:
        look = seen.of(slice)
        if slice.gone_at is not None or not isinstance(look, Present):
            continue
        if billed := _note(job, slice, look, seen, now):
            return billed
    return None


def with_note(job: Job, decision: Decision, billed: SliceBilled, now: float) -> Decision:
    """Return the decision, whose event stores the note with it. A decision without an event stores the note alone,
    unless a program is still to end on the slice: the event of that end will store it. `job`: with the note."""
    if decision.event:
        return replace(decision, event=replace(decision.event, billed=billed))
    runs = job.state in (State.PREPARING, State.RUNNING) and job.slice
    if runs and runs.name == billed.slice:
        return decision
    text = f"{billed.slice} was ready before it was deleted"
    if billed.preempted_at is not None:
        text = f"the cloud has preempted {billed.slice}"
    elif billed.certain_until is not None:
        text = f"{billed.slice} was lost unseen"
    return Decision(event(job, EventKind.SLICE_BILLED, now, text, billed), wake_in=0)


def _note(
    job: Job, slice: Slice, look: Present, seen: Observation, now: float
) -> SliceBilled | None:
    preempted = look.state is SliceState.PREEMPTED
    if slice.ready_at is None:
        lost = preempted or look.state is SliceState.STOPPED
        unused = look.state is SliceState.READY and (
            job.state is State.RELEASING or slice.lost_at is not None
        )
        return _note_unseen(slice, look, seen, now) if lost or unused else None
    if not preempted or slice.preempted_at is not None:
        return None
    at = min(now, seen.preempted.get(slice.name, now), slice.ends_at or now)
    return SliceBilled(slice.name, None, at, certain_until(job, slice, seen, now, at))


def _note_unseen(slice: Slice, look: Present, seen: Observation, now: float) -> SliceBilled | None:
    """Note a slice that no poll saw ready before it was lost, or before the job gave it up."""
    since = ready_since(slice, look, seen, now)
    if look.state is SliceState.READY:
        return SliceBilled(slice.name, since, endpoints=look.endpoints)
    preempted_at = now if look.state is SliceState.PREEMPTED else None
    free = preempted_at is not None and find_pricing(slice.pricing).preemptible
    if now - since >= (FREE_MINUTE if free else 1.0):
        return SliceBilled(slice.name, since, preempted_at, since)
    if preempted_at is None or slice.preempted_at is not None:
        return None
    return SliceBilled(slice.name, None, preempted_at)
