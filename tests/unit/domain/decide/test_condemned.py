"""A condemned slice: its program is stopped, it is kept for a while, and then deleted."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import NOW, job_in, with_condemned
from tpujob.domain.actions import DeleteSlice, StopProgram
from tpujob.domain.capacity import circuits
from tpujob.domain.decide import decide
from tpujob.domain.decide.condemned import MAX_KEPT_S, MAX_REQUESTED_S, STOP_PATIENCE, give_back
from tpujob.domain.model import Cause, DesiredState, Job, State
from tpujob.domain.observations import (
    Absent,
    Circuit,
    Observation,
    Present,
    SliceSeen,
    SliceState,
    Unknown,
)

BAD, GRACE = "tj-000001-1", 30.0
THERE = Present(SliceState.READY)
#: states of a job whose replacement is ready, and of a slice that need not be kept
_REPLACED = (State.PREPARING, State.RUNNING, State.HOLDING, State.RELEASING)
_USELESS = (SliceState.PREEMPTED, SliceState.FAILED, SliceState.STOPPED, SliceState.DELETING)


def kept(
    age: float = 10.0,
    state: State = State.PROVISIONING,
    *,
    stopped: bool = True,
    since: float = 5.0,
    **changes: Any,
) -> Job:
    """Return a job with a slice condemned `age` seconds ago; it has been in `state` for `since` seconds."""
    condemned = {"condemned_at": NOW - age, "stopped": stopped}
    return replace(with_condemned(job_in(state), condemned), state_since=NOW - since, **changes)


def action_for(job: Job, look: SliceSeen = THERE) -> object:
    decision = give_back(
        job, Observation({BAD: look, "tj-000001-2": Present(SliceState.CREATING)}), NOW
    )
    return decision and decision.action


STOP, DELETE = StopProgram(BAD), DeleteSlice(BAD)


@pytest.mark.parametrize(
    ("job", "look", "action"),
    [
        (kept(stopped=False), THERE, STOP),
        (kept(stopped=False), Unknown("503"), STOP),
        (kept(STOP_PATIENCE + GRACE, stopped=False), THERE, STOP),
        (kept(STOP_PATIENCE + GRACE + 1, stopped=False), THERE, DELETE),
        (kept(), THERE, None),
        (kept(state=State.QUEUED), THERE, None),
        (kept(), Unknown("503"), None),
        (kept(), Absent(), DELETE),
        (kept(MAX_KEPT_S), THERE, None),
        (kept(MAX_KEPT_S + 1), THERE, DELETE),
        (kept(MAX_REQUESTED_S + 9, since=MAX_REQUESTED_S), THERE, None),
        (kept(MAX_REQUESTED_S + 9, since=MAX_REQUESTED_S + 1), THERE, DELETE),
        (kept(MAX_REQUESTED_S + 9, State.QUEUED, since=MAX_REQUESTED_S + 1), THERE, None),
        *((kept(state=state), THERE, DELETE) for state in _REPLACED),
        *(
            (kept(desired=wish), THERE, DELETE)
            for wish in DesiredState
            if wish is not DesiredState.RUN
        ),
        *((kept(), Present(state), DELETE if state in _USELESS else None) for state in SliceState),
    ],
)
def test_a_condemned_slice_is_kept_and_deleted(job: Job, look: SliceSeen, action: object) -> None:
    assert action_for(job, look) == action


def test_a_condemned_slice_is_polled_however_long_the_job_waits_for_another_one() -> None:
    """All circuits of the job are open for 15 minutes."""
    job = kept(state=State.QUEUED, wake=NOW - 60)
    names = (circuits.key(o, Cause.STOCKOUT) for o in circuits.allowed(job))
    closed = {name: Circuit(name, Cause.STOCKOUT, 9, NOW - 9000, NOW + 900) for name in names}
    waits = decide(job, Observation({BAD: THERE}, circuits=closed), NOW)
    assert (waits.event, waits.action) == (None, None), "there is nothing to be done yet"
    assert waits.wake_in <= 30
    alone = replace(job, slices=())
    assert decide(alone, Observation(circuits=closed), NOW).wake_in == 900, "nothing is billed"


def test_the_deletion_of_a_condemned_slice_is_repeated_until_it_works() -> None:
    """The deletion may have failed since, whatever the job does now."""
    job = kept()
    requested = replace(
        job, slices=(replace(job.slices[0], delete_asked_at=NOW - 5), job.slices[1])
    )
    assert action_for(requested) == DeleteSlice(BAD)
    assert action_for(requested, Present(SliceState.DELETING)) is None


def test_of_several_condemned_slices_only_the_last_is_kept() -> None:
    job = kept()
    older = replace(job.slices[0], name="tj-000001-0", k=0)
    both = replace(job, slices=(older, *job.slices))
    looks = Observation(
        {"tj-000001-0": THERE, BAD: THERE, "tj-000001-2": Present(SliceState.CREATING)}
    )
    first = give_back(both, looks, NOW)
    assert first.action == DeleteSlice("tj-000001-0")
    going = replace(older, delete_asked_at=NOW - 5)
    leaving = replace(looks, slices={**looks.slices, "tj-000001-0": Present(SliceState.DELETING)})
    assert give_back(replace(both, slices=(going, *job.slices)), leaving, NOW) is None
