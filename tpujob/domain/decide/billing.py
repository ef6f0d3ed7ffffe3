"""The billed time of a slice, by the cloud's own times where no poll saw its beginning or its end. Pure.

The cloud bills a slice while it is ready. It tells when a node was created, but not when it became ready or was
preempted. So a slice that no poll saw before it was ready counts from the creation of its node; of one that was
ready and lost unseen, the bounds are stored.
"""

from tpujob.domain.actions import Decision
from tpujob.domain.events import AboutSlice, EventKind
from tpujob.domain.lifecycle import event
from tpujob.domain.model import Job, Slice, State
from tpujob.domain.money.ledger import FREE_MINUTE
from tpujob.domain.observations import Observation, Present, SliceState
from tpujob.domain.text import duration

#: seconds for which a poll is young: what happened since then happened now
YOUNG = 60.0
#: when a slice was preempted that cost nothing
NEVER_BILLED = "before it was ready, or in its first minute"

_E = EventKind


def ready_since(slice: Slice, look: Present, seen: Observation, now: float) -> float:
    """Return when a slice that is seen ready for the first time, or lost, was ready at the earliest: now if a young
    poll saw it before that, or if the cloud has no time of it."""
    before = seen.last_seen.get(slice.name, 0.0)
    if not look.created_at or 0 <= now - before <= YOUNG:
        return now
    return min(now, max(slice.requested_at, look.created_at, before))


def certain_until(job: Job, slice: Slice, seen: Observation, now: float) -> float | None:
    """Return when a slice that is lost was last known to be alive, by polls and by its hosts' reports; None: just
    now, or it was never ready."""
    if slice.ready_at is None:
        return None
    attempts = [a for a in job.attempts if a.slice == slice.name]
    current = bool(attempts) and attempts[-1] is job.attempt
    reported = [now - report.age for report in seen.heard] if current else []
    stored = [
        at for a in attempts for at in (a.started_at, a.running_at, a.progress_at, a.ended_at)
    ]
    known = [at for at in (slice.ready_at, seen.last_seen.get(slice.name), *stored) if at]
    last = min(now, max(*known, *reported, slice.ready_at))
    return None if now - last <= YOUNG else last


def note(job: Job, seen: Observation, now: float) -> Decision | None:
    """Return the event that stores what the cloud shows about the billed time of a slice; None: nothing new."""
    for slice in () if job.state.final else job.slices:
        look = seen.of(slice)
        if slice.gone_at is not None or not isinstance(look, Present):
            continue
        if decision := _note(job, slice, look, seen, now):
            return decision
    return None


def _note(job: Job, slice: Slice, look: Present, seen: Observation, now: float) -> Decision | None:
    preempted = look.state is SliceState.PREEMPTED
    if slice.ready_at is None:
        lost = preempted or look.state is SliceState.STOPPED
        unused = look.state is SliceState.READY and job.state is State.RELEASING
        return _note_unseen(job, slice, look, seen, now) if lost or unused else None
    if not preempted or slice.preempted_at is not None:
        return None
    about = AboutSlice(slice.name, certain_until=certain_until(job, slice, seen, now))
    return _stored(job, _E.SLICE_PREEMPTED, about, f"the cloud has preempted {slice.name}", now)


def _note_unseen(
    job: Job, slice: Slice, look: Present, seen: Observation, now: float
) -> Decision | None:
    """Note a slice that no poll saw ready before it was lost, or before the job gave it up."""
    since, preempted = ready_since(slice, look, seen, now), look.state is SliceState.PREEMPTED
    if look.state is SliceState.READY:
        about, text = AboutSlice(slice.name, since), f"{slice.name} was ready before it was deleted"
        return _stored(job, _E.SLICE_BILLED, about, text, now)
    if now - since < (FREE_MINUTE if preempted and slice.pricing == "spot" else 1.0):
        if not preempted or slice.preempted_at is not None:
            return None
        text = f"the cloud has preempted {slice.name} {NEVER_BILLED}"
        return _stored(job, _E.SLICE_PREEMPTED, AboutSlice(slice.name), text, now)
    about = AboutSlice(slice.name, since, since)
    text = f"{slice.name} was lost unseen; it may have been ready for up to {duration(now - since)}"
    kind = _E.SLICE_PREEMPTED if preempted else _E.SLICE_BILLED
    return _stored(job, kind, about, text, now)


def _stored(job: Job, kind: EventKind, about: AboutSlice, text: str, now: float) -> Decision:
    return Decision(event(job, kind, now, text, about), wake_in=0)
