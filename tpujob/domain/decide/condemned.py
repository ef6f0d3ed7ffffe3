"""Condemned slices, in any state: swapped out as bad, and kept so that the same hardware is not handed out again. Pure.

No program runs on one, and nothing is started elsewhere before its program is stopped. It is billed until it is gone,
so it is deleted as soon as another slice is there, or will not be there soon.
"""

from tpujob.domain.actions import Decision, StopProgram
from tpujob.domain.decide import releasing, spending
from tpujob.domain.model import DesiredState, Job, Slice, State
from tpujob.domain.observations import Absent, Observation, Present, SliceSeen, SliceState

#: seconds that a condemned slice is kept, at most; while another one only waits in the cloud's queue, less
MOST, QUEUED = 15 * 60.0, 2 * 60.0
#: condemned slices that are billed while another one is asked for, at most
MOST_KEPT = 2
#: seconds after the program's grace at which an unconfirmed stop is given up, and the slice deleted
STOP_PATIENCE = 90.0


def give_back(job: Job, seen: Observation, now: float) -> Decision | None:
    """Return the next step for the condemned slices: stop the program, delete the slice, confirm that it is gone. Facts
    come first, then programs to stop, then deletions that were not requested yet. So a deletion that fails again and
    again delays nothing else."""
    steps = [_next(job, one, seen, now) for one in releasing.fresh_first(job.condemned)]
    due = [step for step in steps if step and (step.event or step.action)]
    due.sort(key=lambda step: (not step.event, not isinstance(step.action, StopProgram)))
    return due[0] if due else None


def _next(job: Job, one: Slice, seen: Observation, now: float) -> Decision | None:
    leaves = one.delete_asked_at is not None or spending.keeps_nothing(job, seen, now)
    if leaves or may_go(job, one, seen.of(one), now):
        return releasing.leaving(job, one, seen, now)
    return None if one.stopped else Decision(action=StopProgram(one.name), wake_in=2)


def may_go(job: Job, one: Slice, look: SliceSeen, now: float) -> bool:
    """Return whether a condemned slice need not be kept any longer: its replacement is ready, or will not be soon."""
    age = now - (one.condemned_at or now)
    replaced = one is not job.condemned[-1]
    lost = isinstance(look, Absent) or (
        isinstance(look, Present) and (look.state.lost or look.state is SliceState.DELETING)
    )
    unstoppable = not one.stopped and age > STOP_PATIENCE + job.spec.stop_grace
    wanted = job.state in (State.QUEUED, State.PROVISIONING) and job.wish is DesiredState.RUN
    queued = job.state is State.PROVISIONING and now - job.state_since > QUEUED
    return replaced or lost or unstoppable or not wanted or queued or age > MOST


def too_many(job: Job, seen: Observation) -> bool:
    """Return whether so many are billed that no other slice may be requested; deletions in progress don't count."""
    return sum(one.name not in seen.leaving for one in job.condemned) > MOST_KEPT


def still_running(job: Job) -> bool:
    """Return whether the program of a condemned slice may still run: two must never write into one workdir."""
    return any(not one.stopped for one in job.condemned)
