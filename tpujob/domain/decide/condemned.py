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
    steps = [_next(job, slice, seen, now) for slice in releasing.fresh_first(job.condemned)]
    due = [step for step in steps if step and (step.event or step.action)]
    due.sort(key=lambda step: (not step.event, not isinstance(step.action, StopProgram)))
    return due[0] if due else None


def _next(job: Job, slice: Slice, seen: Observation, now: float) -> Decision | None:
    leaves = slice.delete_asked_at is not None or spending.keeps_nothing(job, seen, now)
    if leaves or may_go(job, slice, seen.of(slice), now):
        return releasing.leaving(job, slice, seen, now)
    return None if slice.stopped else Decision(action=StopProgram(slice.name), wake_in=2)


def may_go(job: Job, slice: Slice, look: SliceSeen, now: float) -> bool:
    """Return whether a condemned slice need not be kept any longer: its replacement is ready, or will not be soon."""
    age = now - (slice.condemned_at or now)
    replaced = slice is not job.condemned[-1]
    lost = isinstance(look, Absent) or (
        isinstance(look, Present) and (look.state.lost or look.state is SliceState.DELETING)
    )
    unstoppable = not slice.stopped and age > STOP_PATIENCE + job.spec.stop_grace
    needs_another = job.state in (State.QUEUED, State.PROVISIONING) and job.wish is DesiredState.RUN
    queued = job.state is State.PROVISIONING and now - job.state_since > QUEUED
    return replaced or lost or unstoppable or not needs_another or queued or age > MOST


def too_many(job: Job, seen: Observation) -> bool:
    """Return whether so many are billed that no other slice may be requested; deletions in progress don't count."""
    return sum(slice.name not in seen.leaving for slice in job.condemned) > MOST_KEPT


def still_running(job: Job) -> bool:
    """Return whether the program of a condemned slice may still run: two must never write into one workdir."""
    return any(not slice.stopped for slice in job.condemned)
