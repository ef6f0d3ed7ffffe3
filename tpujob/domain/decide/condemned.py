"""Condemned slices, in any state: swapped out as bad, and kept so that the same hardware is not handed out again. Pure.

Its program is stopped first, and none is started elsewhere before that. It is billed until it is gone, so it is
deleted as soon as another slice is ready, or is not expected soon.
"""

from tpujob.domain.actions import Decision, StopProgram
from tpujob.domain.decide import limits, releasing
from tpujob.domain.model import DesiredState, Job, Slice, State
from tpujob.domain.observations import Absent, Observation, Present, SliceSeen, SliceState

#: maximum seconds for which a condemned slice is kept
MAX_KEPT_S = 15 * 60.0
#: the maximum after the request for its replacement
MAX_REQUESTED_S = 2 * 60.0
#: maximum number of condemned slices whose deletion was not seen, while another slice is requested
MAX_UNSEEN = 2
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
    leaves = slice.delete_asked_at is not None or limits.keeps_nothing(job, seen, now)
    if leaves or may_go(job, slice, seen.of(slice), now):
        return releasing.leaving(job, slice, seen, now)
    return None if slice.stopped else Decision(action=StopProgram(slice.name), wake_in=2)


def may_go(job: Job, slice: Slice, look: SliceSeen, now: float) -> bool:
    """Return whether a condemned slice need not be kept any longer: its replacement is ready or not expected soon, a
    newer one is condemned, it is lost, or its program cannot be stopped."""
    age = now - (slice.condemned_at or now)
    replaced = slice is not job.condemned[-1]
    lost = isinstance(look, Absent) or (
        isinstance(look, Present) and (look.state.lost or look.state is SliceState.DELETING)
    )
    unstoppable = not slice.stopped and age > STOP_PATIENCE + job.spec.stop_grace
    needs_another = (
        job.state in (State.QUEUED, State.PROVISIONING) and job.desired is DesiredState.RUN
    )
    slow = job.state is State.PROVISIONING and now - job.state_since > MAX_REQUESTED_S
    return replaced or lost or unstoppable or not needs_another or slow or age > MAX_KEPT_S


def too_many(job: Job, seen: Observation) -> bool:
    """Return whether so many are kept that no other slice may be requested. Those seen being deleted do not count."""
    return sum(slice.name not in seen.deleting for slice in job.condemned) > MAX_UNSEEN


def still_running(job: Job) -> bool:
    """Return whether the program of a condemned slice may still run. Two programs must never write to one workdir."""
    return any(not slice.stopped for slice in job.condemned)
