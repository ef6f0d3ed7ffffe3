"""A slice that is not to be seen: when it is believed gone, and what is done until then."""

from dataclasses import replace

import pytest

from tests.support.records import NOW, job_in
from tpujob.domain.actions import CreateSlice, DeleteSlice, HandOn, StopProgram
from tpujob.domain.decide.dispatch import decide
from tpujob.domain.decide.releasing import AGREES_FOR, SECOND_LOOK, SUSPENDED_WITHIN
from tpujob.domain.events import AboutSlice, EventKind, SliceBilled
from tpujob.domain.lifecycle import apply, with_billed
from tpujob.domain.model import Job, SliceRole, State
from tpujob.domain.observations import (
    Absent,
    HandOver,
    Observation,
    Present,
    SliceSeen,
    SliceState,
    Unknown,
)

NAME = "tj-000001-1"
K = EventKind


def releasing(*, missing: float | None = None, ready: bool = True) -> Job:
    """Return a job whose slice's deletion was accepted; the slice was missed first so many seconds ago."""
    job = job_in(State.RELEASING, deleted=True)
    since = None if missing is None else NOW - missing
    slice_ = replace(job.slices[0], missing_since=since, ready_at=NOW - 400 if ready else None)
    return replace(job, slices=(slice_,))


def step(job: Job, look: SliceSeen, *, watched: bool = False) -> tuple[EventKind | None, object]:
    seen = Observation({NAME: look}, deleting=frozenset({NAME}) if watched else frozenset())
    decision = decide(job, seen, NOW)
    return decision.event.kind if decision.event else None, decision.action


@pytest.mark.parametrize(
    ("missing", "watched", "ready", "kind"),
    [
        (
            None,
            False,
            True,
            K.SLICE_MISSING,
        ),  # the deletion may have failed, and the look missed it
        (None, True, True, K.SLICE_GONE),
        (None, False, False, K.SLICE_GONE),  # nothing ever ran on it
        (SECOND_LOOK - 1, False, True, None),
        (SECOND_LOOK, False, True, K.SLICE_GONE),
        (AGREES_FOR, False, True, K.SLICE_GONE),
        (AGREES_FOR + 1, False, True, K.SLICE_MISSING),  # too long ago to agree with
    ],
)
def test_after_its_deletion(
    missing: float | None, watched: bool, ready: bool, kind: EventKind | None
) -> None:
    job = releasing(missing=missing, ready=ready)
    assert step(job, Absent(), watched=watched) == (kind, None)


def test_a_slice_that_is_there_again_is_deleted_again_and_its_absence_forgotten() -> None:
    job = releasing(missing=30.0)
    ready = Present(SliceState.READY)
    assert step(job, ready) == (K.SLICE_FOUND, DeleteSlice(NAME))
    event = decide(job, Observation({NAME: ready}), NOW).event
    assert event is not None
    assert apply(job, event).slices[0].missing_since is None


@pytest.mark.parametrize("state", [State.PREPARING, State.RUNNING, State.HOLDING])
def test_a_serving_slice_is_lost_only_when_two_looks_agree(state: State) -> None:
    job = job_in(state)
    assert step(job, Absent())[0] is K.SLICE_MISSING

    def missed(seconds: float) -> EventKind | None:
        slice_ = replace(job.slices[0], missing_since=NOW - seconds)
        return step(replace(job, slices=(slice_,)), Absent())[0]

    assert missed(SECOND_LOOK - 1) is None
    assert missed(SECOND_LOOK) in (K.ATTEMPT_ENDED, K.RELEASE_STARTED)
    assert missed(AGREES_FOR + 1) is K.SLICE_MISSING, "what was seen in between, nobody knows"


def test_the_minute_between_two_looks_counts_from_the_end_of_the_first() -> None:
    """One of them took half a minute, and only its last call missed the slice."""
    job = job_in(State.RUNNING)
    event = decide(job, Observation({job.slices[0].name: Absent()}, took=30.0), NOW).event
    assert event is not None
    assert apply(job, event).slices[0].missing_since == NOW + 30


def test_the_deletion_of_a_slice_that_cannot_be_seen_is_repeated() -> None:
    assert step(releasing(), Unknown("503")) == (None, DeleteSlice(NAME))
    assert step(releasing(), Present(SliceState.DELETING)) == (None, None)


def test_of_two_slices_none_is_billed_while_the_other_ones_deletion_takes_its_time() -> None:
    job = releasing()
    other = replace(job.slices[0], name="tj-000001-2", k=2, delete_asked_at=None)
    job = replace(job, slices=(replace(job.slices[0], role=SliceRole.CONDEMNED), other))
    going, ready = Present(SliceState.DELETING), Present(SliceState.READY)
    seen = Observation({NAME: going, other.name: ready})
    assert decide(job, seen, NOW).action == DeleteSlice(other.name)
    gone = Observation({NAME: Absent(), other.name: ready}, deleting=frozenset({NAME}))
    event = decide(job, gone, NOW).event
    assert event.payload == AboutSlice(NAME), "and what is gone is billed no longer"


def test_a_deletion_that_fails_again_and_again_keeps_no_program_running() -> None:
    condemned = {"role": SliceRole.CONDEMNED, "condemned_at": NOW - 20, "delete_reason": "bad"}
    fails = replace(releasing().slices[0], stopped=True, **condemned)
    runs = replace(fails, name="tj-000001-2", k=2, stopped=False, delete_asked_at=None)
    job = replace(job_in(State.QUEUED), slices=(fails, runs), wake=NOW + 60)
    ready = Present(SliceState.READY)
    seen = Observation({NAME: ready, runs.name: ready})
    assert decide(job, seen, NOW).action == StopProgram(runs.name)


def test_no_further_slice_is_asked_for_while_three_are_condemned_and_billed() -> None:
    """Their deletions fail, or nobody sees what became of them."""
    condemned = {"role": SliceRole.CONDEMNED, "condemned_at": NOW - 20, "stopped": True}
    bad = [replace(releasing().slices[0], name=f"tj-000001-{k}", k=k) for k in (1, 2, 3)]
    three = tuple(replace(slice_, delete_reason="bad", **condemned) for slice_ in bad)
    job = replace(job_in(State.QUEUED), slices=three)
    seen = {slice_.name: Present(SliceState.READY) for slice_ in three}
    assert isinstance(decide(job, Observation(seen), NOW).action, DeleteSlice)
    one_goes = Observation(seen, deleting=frozenset({NAME}))
    assert decide(job, one_goes, NOW).action == CreateSlice()


SUSPENDING = Present(SliceState.PREEMPTED, suspending=True)


def preempted(job: Job) -> Job:
    """Return the job with what the cloud reported of its slice."""
    return with_billed(job, SliceBilled(NAME, preempted_at=NOW))


@pytest.mark.parametrize("delete_asked", [True, False], ids=["deleted-before", "not-yet"])
def test_the_deletion_of_a_slice_waits_while_the_cloud_is_suspending_it(delete_asked: bool) -> None:
    """The time is counted from the record, so that another backend goes on counting."""
    job = job_in(State.RELEASING, deleted=delete_asked)
    assert step(job, SUSPENDING) == (K.SLICE_SUSPENDING, None)
    event = decide(job, Observation({NAME: SUSPENDING}), NOW).event
    assert (
        event.text
        == f"the cloud is suspending {NAME}; it is deleted after that, in 10 min at the latest"
    )
    since = apply(job, event)
    assert since.slices[0].preempted_at == NOW, "stored with it"
    assert since.message == event.text, "`show` says it"
    for waited, action in (
        (0.0, None),
        (SUSPENDED_WITHIN - 1, None),
        (SUSPENDED_WITHIN, DeleteSlice(NAME, even_suspending=True)),
    ):
        decision = decide(since, Observation({NAME: SUSPENDING}), NOW + waited)
        assert (decision.event, decision.action) == (None, action), waited
        assert action or decision.wake_in <= SUSPENDED_WITHIN - waited, "looked at when it is over"


def test_a_slice_that_is_suspended_is_deleted_without_force() -> None:
    slice_ = replace(releasing().slices[0], suspending_since=NOW - 30, delete_asked_at=None)
    job = preempted(replace(releasing(), slices=(slice_,)))
    assert step(job, Present(SliceState.PREEMPTED)) == (None, DeleteSlice(NAME))


def test_a_slice_that_is_being_suspended_is_there() -> None:
    """Two looks that missed it, one before and one after, do not agree."""
    slice_ = replace(releasing(missing=70).slices[0], suspending_since=NOW - 60)
    job = preempted(replace(releasing(), slices=(slice_,)))
    assert step(job, SUSPENDING)[0] is K.SLICE_FOUND


def test_a_condemned_slice_is_given_its_time_to_be_suspended_too() -> None:
    condemned = {"role": SliceRole.CONDEMNED, "condemned_at": NOW - 20, "delete_reason": "bad"}
    slice_ = replace(releasing().slices[0], delete_asked_at=None, stopped=True, **condemned)
    job = preempted(replace(job_in(State.QUEUED), slices=(slice_,), wake=NOW + 60))
    assert step(job, SUSPENDING) == (K.SLICE_SUSPENDING, None)


def test_a_slice_is_not_kept_for_the_time_by_which_a_clock_was_ahead() -> None:
    """The program has ended by a clock that was two hours ahead; another job may have the slice for a minute."""
    job = job_in(State.RELEASING)
    job = replace(job, next_state=State.SUCCEEDED, cause=None)
    heir = HandOver(heir="000002")
    seen = Observation({NAME: Present(SliceState.READY)}, hand_over=heir)
    for since, action in ((NOW - 5, HandOn(NAME, "000002")), (NOW + 7200, DeleteSlice(NAME))):
        assert decide(replace(job, state_since=since), seen, NOW).action == action
