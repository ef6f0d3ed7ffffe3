"""A slice that was swapped out as bad: stopped first, kept while that serves something, and then given back."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import NOW, job_in, with_condemned
from tpujob.domain.actions import DeleteSlice, StopProgram
from tpujob.domain.capacity import circuits
from tpujob.domain.decide import decide
from tpujob.domain.decide.condemned import MOST, MOST_REQUESTED, STOP_PATIENCE, give_back
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


def kept(
    age: float = 10.0, state: State = State.PROVISIONING, *, stopped: bool = True, **changes: Any
) -> Job:
    """A job whose bad slice was swapped out so many seconds ago, and which asks for another one since."""
    condemned = {"condemned_at": NOW - age, "stopped": stopped}
    return replace(with_condemned(job_in(state), condemned), state_since=NOW - 5, **changes)


def done_with(job: Job, look: SliceSeen = THERE) -> object:
    decision = give_back(
        job, Observation({BAD: look, "tj-000001-2": Present(SliceState.CREATING)}), NOW
    )
    return decision and decision.action


def test_the_program_on_a_condemned_slice_is_told_to_stop_until_it_has() -> None:
    assert done_with(kept(stopped=False)) == StopProgram(BAD)
    assert done_with(kept(stopped=False), Unknown("503")) == StopProgram(BAD)
    assert done_with(kept()) is None
    assert done_with(kept(state=State.QUEUED)) is None


@pytest.mark.parametrize("state", [s for s in SliceState if s is not SliceState.DELETING])
def test_a_condemned_slice_that_cannot_run_a_program_is_deleted(state: SliceState) -> None:
    lost = state in (SliceState.PREEMPTED, SliceState.FAILED, SliceState.STOPPED)
    assert done_with(kept(), Present(state)) == (DeleteSlice(BAD) if lost else None)


def test_an_unknown_condemned_slice_is_kept_and_an_absent_one_deleted() -> None:
    assert done_with(kept(), Unknown("503")) is None
    assert done_with(kept(), Absent()) == DeleteSlice(BAD)
    assert done_with(kept(), Present(SliceState.DELETING)) == DeleteSlice(BAD)


def test_the_wait_for_a_stop_that_is_not_confirmed_is_bounded() -> None:
    assert done_with(kept(STOP_PATIENCE + GRACE, stopped=False)) == StopProgram(BAD)
    assert done_with(kept(STOP_PATIENCE + GRACE + 1, stopped=False)) == DeleteSlice(BAD)


def test_a_condemned_slice_is_kept_for_a_quarter_of_an_hour_at_most() -> None:
    assert done_with(kept(MOST)) is None
    assert done_with(kept(MOST + 1)) == DeleteSlice(BAD)


def test_a_condemned_slice_is_looked_at_however_long_the_job_waits_for_another_one() -> None:
    """Here another job is to ask first, as the cloud has refused it for so long."""
    job = kept(state=State.QUEUED, wake=NOW - 60)
    names = (circuits.key(o, Cause.STOCKOUT) for o in circuits.allowed(job))
    closed = dict.fromkeys(names, Circuit(Cause.STOCKOUT, 9, NOW - 9000, NOW + 900))
    waits = decide(job, Observation({BAD: THERE}, circuits=closed), NOW)
    assert (waits.event, waits.action) == (None, None), "there is nothing to be done yet"
    assert waits.wake_in <= 30
    alone = replace(job, slices=())
    assert decide(alone, Observation(circuits=closed), NOW).wake_in == 900, "nothing is billed"


def test_a_condemned_slice_is_not_kept_for_a_request_that_only_waits() -> None:
    assert done_with(replace(kept(MOST_REQUESTED + 9), state_since=NOW - MOST_REQUESTED)) is None
    assert done_with(
        replace(kept(MOST_REQUESTED + 9), state_since=NOW - MOST_REQUESTED - 1)
    ) == DeleteSlice(BAD)
    queued = replace(kept(MOST_REQUESTED + 9, State.QUEUED), state_since=NOW - MOST_REQUESTED - 1)
    assert done_with(queued) is None, "it has not asked yet"


@pytest.mark.parametrize("state", [State.PREPARING, State.RUNNING, State.HOLDING, State.RELEASING])
def test_a_condemned_slice_is_deleted_once_its_replacement_is_ready(state: State) -> None:
    assert done_with(kept(state=state)) == DeleteSlice(BAD)


@pytest.mark.parametrize("wish", [DesiredState.CANCEL, DesiredState.RELEASE, DesiredState.CLEAN])
def test_a_condemned_slice_is_deleted_when_the_job_is_cancelled(wish: DesiredState) -> None:
    assert done_with(kept(wish=wish)) == DeleteSlice(BAD)


def test_the_deletion_of_a_condemned_slice_is_repeated_until_it_works() -> None:
    """The deletion may have failed since, whatever the job does now."""
    job = kept()
    requested = replace(
        job, slices=(replace(job.slices[0], delete_asked_at=NOW - 5), job.slices[1])
    )
    assert done_with(requested) == DeleteSlice(BAD)
    assert done_with(requested, Present(SliceState.DELETING)) is None


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
