"""Requests of a job without a slice: what is requested, how long it is waited for, and what ends the wait."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import ENDPOINTS, NOW, V6E, A, B, job_in, request, respec
from tpujob.domain.actions import CreateSlice, Decision, DeleteSlice, StartProgram
from tpujob.domain.decide.dispatch import decide
from tpujob.domain.decide.provisioning import CREATE_DEADLINE, QUEUE_PATIENCE, QUEUED_LONG
from tpujob.domain.events import EventKind
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Cause, DesiredState, Job, SliceRole, State
from tpujob.domain.observations import (
    Absent,
    Circuit,
    Observation,
    Present,
    SliceSeen,
    SliceState,
    Unknown,
)

NAME = "tj-000001-1"
READY = Present(SliceState.READY, ENDPOINTS)


def asking(waited: float = 5.0, **changes: Any) -> Job:
    """A job whose request was made so many seconds ago."""
    job = replace(job_in(State.PROVISIONING), state_since=NOW - waited)
    requested = tuple(replace(slice, requested_at=NOW - waited) for slice in job.slices)
    return replace(job, **{"slices": requested, **changes})


def decided(job: Job, look: SliceSeen = READY, **seen: Any) -> Decision:
    return decide(job, Observation({NAME: look}, **seen), NOW)


def after(job: Job, decision: Decision) -> Job:
    assert decision.event is not None
    return apply(job, decision.event)


def with_wait(job: Job, seconds: int) -> Job:
    return replace(job, spec=respec(job.spec, recovery={"wait": f"{seconds}s"}))


# Queued --------------------------------------------------------------------------------------------------------------


def test_a_job_asks_for_the_best_offer_that_nothing_is_known_against() -> None:
    job = replace(job_in(State.QUEUED), spec=V6E, wake=NOW)
    first = decided(job)
    assert first.action == CreateSlice()
    requested = after(job, first).slices[-1]
    assert after(job, first).message == "requested a spot v6e-8 in us-east5-b"
    assert (requested.name, requested.k, requested.zone, requested.pricing) == (
        NAME,
        1,
        "us-east5-b",
        "spot",
    )
    closed = {
        pool: Circuit(pool, Cause.STOCKOUT, 1, NOW - 5, NOW + 15, NOW - 5)
        for pool in ("us-east5-a/v6e-8/spot", "us-east5-b/v6e-8/spot")
    }
    first_closed = {pool: c for pool, c in closed.items() if "us-east5-b" in pool}
    second = decided(job, circuits=first_closed)
    assert after(job, second).slices[-1].zone == "us-east5-a"
    assert decided(job, circuits=closed) == Decision(wake_in=15), "it waits for the first to open"


def test_a_name_is_never_used_twice_and_says_whose_store_it_is() -> None:
    tried = replace(
        job_in(State.QUEUED), spec=V6E, slices=(request(B, Cause.STOCKOUT, NOW - 60, 7),)
    )
    assert after(tried, decided(tried)).slices[-1].name == "tj-000001-8"
    now = replace(tried, suffix="5f0c9a1e")
    assert after(now, decided(now)).slices[-1].name == "tj-000001-8-5f0c9a1e", "one of a lost store"


def test_nothing_is_asked_for_before_its_time() -> None:
    assert decided(replace(job_in(State.QUEUED), wake=NOW + 7)) == Decision(wake_in=7)
    assert decided(replace(job_in(State.QUEUED), wake=NOW)).action == CreateSlice()


def test_a_job_that_waited_too_long_ends_for_what_it_was_refused_for() -> None:
    job = replace(job_in(State.QUEUED), spec=V6E, state_since=NOW - 60)
    assert decided(with_wait(job, 60)).action == CreateSlice(), "not longer than it may"
    ended = after(job, decided(with_wait(job, 59)))
    assert (ended.state, ended.cause) == (State.FAILED, Cause.STOCKOUT)
    assert ended.message == "no slice in 59 s, which `recovery.wait` allows"
    quota = replace(job, slices=(request(A, Cause.QUOTA, NOW - 9000),))
    ended = after(quota, decided(with_wait(quota, 8000)))
    assert ended.cause is Cause.QUOTA
    assert ended.message == "no slice in 2.2 h, which `recovery.wait` allows"
    resumed = replace(quota, fresh_at=NOW - 60)
    ended = after(resumed, decided(with_wait(resumed, 59)))
    assert ended.cause is Cause.STOCKOUT, "the refusal was before its resume"


@pytest.mark.parametrize("wish", [DesiredState.CANCEL, DesiredState.RELEASE, DesiredState.CLEAN])
def test_a_job_that_is_not_wanted_ends_once_it_owns_nothing(wish: DesiredState) -> None:
    job = job_in(State.QUEUED, desired=wish)
    ended = after(job, decided(job))
    assert (ended.state, ended.cause) == (State.CANCELLED, Cause.CANCELLED)
    served = request(B, None, NOW - 500, ready=True)
    bad = replace(served, role=SliceRole.CONDEMNED, delete_reason="wrong numbers", gone_at=None)
    owning = decided(replace(job, slices=(bad,)), Unknown("503"))
    assert (owning.event, owning.action) == (None, DeleteSlice(NAME))


# Provisioning --------------------------------------------------------------------------------------------------------


def test_a_slice_that_is_ready_gets_its_first_attempt() -> None:
    job = asking()
    decision = decided(job)
    assert decision.action == StartProgram()
    ready = after(job, decision)
    assert (ready.state, ready.message) == (
        State.PREPARING,
        "tj-000001-1 is ready with 2 hosts; attempt 1 is being started",
    )
    assert ready.slice.endpoints == ENDPOINTS


def test_a_slice_that_comes_at_the_last_moment_is_taken() -> None:
    job = with_wait(asking(waited=7200), 60)
    assert after(job, decided(job)).state is State.PREPARING
    late = decided(job, Present(SliceState.WAITING))
    assert late.action == DeleteSlice(NAME)
    ended = after(job, late)
    assert (ended.next_state, ended.cause) == (State.FAILED, Cause.STOCKOUT)


def test_a_slice_that_is_cancelled_just_as_it_is_ready_is_held_and_else_given_back() -> None:
    job = asking(desired=DesiredState.CANCEL)
    held = after(job, decided(job))
    assert (held.state, held.stopped, held.attempts) == (State.HOLDING, True, ())
    for other, look in (
        (job, Present(SliceState.CREATING)),
        (asking(desired=DesiredState.RELEASE), READY),
    ):
        gone = decided(other, look)
        assert gone.action == DeleteSlice(NAME)
        assert (after(other, gone).next_state, after(other, gone).cause) == (
            State.CANCELLED,
            Cause.CANCELLED,
        )


@pytest.mark.parametrize(
    ("look", "then", "cause", "text"),
    [
        (Present(SliceState.FAILED), State.QUEUED, Cause.STOCKOUT, "no slice in us-central2-b"),
        (Present(SliceState.FAILED, (), "full", Cause.QUOTA), State.QUEUED, Cause.QUOTA, "full"),
        (Present(SliceState.PREEMPTED), State.QUEUED, Cause.PREEMPTED, "before it was ready"),
        (Present(SliceState.STOPPED), State.CANCELLED, Cause.CANCELLED, "outside tpujob"),
    ],
)
def test_a_refusal_has_a_next_step(look: Present, then: State, cause: Cause, text: str) -> None:
    job = after(asking(), decided(asking(), look))
    assert (job.slices[0].preempted_at == NOW) is (look.state is SliceState.PREEMPTED)
    assert (job.state, job.next_state, job.cause) == (State.RELEASING, then, cause)
    assert text in job.message


def test_a_request_that_the_cloud_lost_is_made_again_under_the_same_name() -> None:
    again = decided(asking(), Absent())
    assert (again.event, again.action) == (None, CreateSlice())
    assert decided(asking(), Unknown("503")).action is None


def test_a_slice_that_the_cloud_never_finishes_is_given_up() -> None:
    making = Present(SliceState.CREATING)
    assert decided(asking(CREATE_DEADLINE), making).event is None
    job = asking(CREATE_DEADLINE + 1)
    given_up = after(job, decided(job, making))
    assert (given_up.next_state, given_up.cause) == (State.QUEUED, Cause.STOCKOUT)
    assert (
        given_up.message
        == "no slice in us-central2-b, STOCKOUT: the cloud has been creating it for 60 min"
    )
    assert given_up.slices[-1].refused is Cause.STOCKOUT, "so that others do not ask at once"


def test_waiting_in_the_clouds_queue_is_recorded_once() -> None:
    waits = Present(SliceState.WAITING)
    assert decided(asking(QUEUED_LONG - 1), waits).event is None
    job = asking(QUEUED_LONG)
    event = decided(job, waits)
    assert event.event.kind is EventKind.SLICE_WAITING
    assert decided(apply(job, event.event), waits).event is None


def test_a_place_in_the_queue_is_left_only_for_an_offer_that_may_be_had() -> None:
    def job(waited: float) -> Job:
        waiting = asking(waited, spec=V6E)
        current = replace(waiting.slices[0], type="v6e-8", zone="us-east5-b")
        return replace(waiting, slices=(replace(current, in_queue=True),))

    waits = Present(SliceState.WAITING)
    assert decided(job(QUEUE_PATIENCE - 1), waits).event is None
    changed = after(job(QUEUE_PATIENCE), decided(job(QUEUE_PATIENCE), waits))
    assert changed.next_state is State.QUEUED
    assert "has waited 30 min in the cloud's queue" in changed.message
    pool = "us-east5-a/v6e-8/spot"
    full = {pool: Circuit(pool, Cause.STOCKOUT, 1, NOW - 5, NOW + 15, NOW - 5)}
    assert decided(job(QUEUE_PATIENCE), waits, circuits=full).event is None


# Preparing ----------------------------------------------------------------------------------------------------------


def test_a_slice_is_looked_at_each_minute_until_the_program_is_started_again_on_it() -> None:
    job = replace(job_in(State.PREPARING), wake=NOW + 500)
    seen = Observation({s.name: Present(SliceState.READY) for s in job.slices})
    assert decide(job, seen, NOW) == Decision(wake_in=60)
    lost = Observation({s.name: Present(SliceState.PREEMPTED) for s in job.slices})
    assert decide(job, lost, NOW).event is not None, "it is let go of at once"
