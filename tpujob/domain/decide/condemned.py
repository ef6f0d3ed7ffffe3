"""Condemned slices: swapped out as bad, kept only so that the same hardware is not handed out again at once.

Pure. No program runs on one, nothing is started elsewhere before its program is stopped, and it is billed until it is
gone: so it goes as soon as another slice is there, or will not be there soon.
"""

from __future__ import annotations

from tpujob.domain.actions import Decision, StopProgram
from tpujob.domain.decide import releasing
from tpujob.domain.decide.looks import look_at
from tpujob.domain.model import Job, Slice, State, Wish
from tpujob.domain.observations import Absent, Present, Seen, SliceSeen, SliceState

#: seconds that a condemned slice is kept, at most; while another one only waits in the cloud's queue, less
MOST, QUEUED = 15 * 60.0, 2 * 60.0
#: condemned slices that are billed while another one is asked for, at most
MOST_KEPT = 2
#: a stop that nobody confirms is given up this many seconds after the program's grace, and the slice deleted
STOP_PATIENCE = 90.0

#: states in which a slice carries no program any more
LOST = frozenset({SliceState.PREEMPTED, SliceState.FAILED, SliceState.STOPPED})
_NO_USE = LOST | {SliceState.DELETING}


def give_back(job: Job, seen: Seen, now: float) -> Decision | None:
    """What a condemned slice needs next: its program stopped, then its end, then a look that it is gone. Of several,
    what is known comes first, then programs to stop, then deletions that nobody has asked for: one that fails again
    and again keeps nothing else waiting.
    """
    steps = [_next(job, one, seen, now) for one in releasing.fresh_first(job.condemned)]
    due = [step for step in steps if step and (step.event or step.action)]
    return min(due, key=_rank, default=None)


def _next(job: Job, one: Slice, seen: Seen, now: float) -> Decision | None:
    if one.delete_asked_at is not None or _may_go(job, one, look_at(one, seen), now):
        return releasing.leaving(job, one, seen, now)
    return None if one.stopped else Decision(action=StopProgram(one.name), wake_in=2)


def _rank(step: Decision) -> tuple[bool, bool]:
    return not step.event, not isinstance(step.action, StopProgram)


def _may_go(job: Job, one: Slice, look: SliceSeen, now: float) -> bool:
    """Whether keeping a condemned slice serves nothing any more: another one is there, or will not be soon."""
    age = now - (one.condemned_at or now)
    replaced = one is not job.condemned[-1]
    lost = isinstance(look, Absent) or (isinstance(look, Present) and look.state in _NO_USE)
    unstoppable = not one.stopped and age > STOP_PATIENCE + job.spec.stop_grace
    wanted = job.state in (State.QUEUED, State.PROVISIONING) and job.wish is Wish.RUN
    queued = job.state is State.PROVISIONING and now - job.state_since > QUEUED
    return replaced or lost or unstoppable or not wanted or queued or age > MOST


def too_many(job: Job, seen: Seen) -> bool:
    """Whether another slice would be one too many to be billed for: those that are being deleted are not."""
    return sum(one.name not in seen.leaving for one in job.condemned) > MOST_KEPT


def still_running(job: Job) -> bool:
    """Whether the program of a condemned slice may still run: two must never write into one workdir."""
    return any(not one.stopped for one in job.condemned)


def is_condemned(job: Job, name: str) -> bool:
    return any(s.name == name for s in job.condemned)
