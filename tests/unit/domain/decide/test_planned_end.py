"""When a slice ends as planned, and when its program is stopped before that."""

from dataclasses import replace

import pytest

from tests.support.records import NOW, a_slice, job_in, respec
from tpujob.domain.decide import decide, planned_end
from tpujob.domain.decide.condemned import STOP_PATIENCE
from tpujob.domain.events import EventKind
from tpujob.domain.model import Cause, End, Job, Outcome, State
from tpujob.domain.money.budget import LOOK
from tpujob.domain.observations import Observation, Present, SliceState

READY = Present(SliceState.READY)
LOST = End(Outcome.INTERRUPTED, Cause.PREEMPTED, None, "the cloud's words")


def ending(state: State = State.RUNNING, *, ends_at: float = NOW + 300, **slice: object) -> Job:
    """A job whose slice ends at that time."""
    job = job_in(state)
    [held] = job.slices
    return replace(job, slices=(replace(held, ends_at=ends_at, **slice),))


@pytest.mark.parametrize(
    ("look", "end"),
    [
        (replace(READY, ends_at=NOW + 7), NOW + 7),
        (replace(READY, created_at=NOW - 40), NOW + 3560),
        (replace(READY, created_at=NOW + 40), NOW + 3600),  # by a clock that is ahead
        (READY, NOW + 3600),
    ],
)
def test_the_end_is_the_clouds_else_counts_from_the_creation(look: Present, end: float) -> None:
    assert planned_end.end_of(a_slice(run_for=3600), look, NOW) == end


def test_a_slice_for_any_time_has_no_planned_end() -> None:
    assert planned_end.end_of(a_slice(), replace(READY, created_at=NOW - 40), NOW) is None
    job = job_in(State.RUNNING)
    assert not planned_end.is_due(job, NOW + 1e9)
    assert planned_end.due_in(job, NOW) is None


def test_a_program_is_stopped_early_enough_for_a_tick_and_its_grace() -> None:
    job = ending()
    job = replace(job, spec=respec(job.spec).model_copy(update={"stop_grace": 45}))
    at = NOW + 300 - LOOK - 45
    assert planned_end.due_in(job, at - 10) == 10
    assert [planned_end.is_due(job, when) for when in (at - 1, at)] == [False, True]


def test_a_stop_that_took_longer_before_begins_earlier() -> None:
    job = ending()
    [attempt] = job.attempts
    stopped = replace(attempt, slice="tj-0", cause=Cause.PLANNED_END, ended_at=NOW - 1000)
    old = a_slice(name="tj-0", delete_asked_at=NOW - 1000 + 70)
    slow = replace(job, slices=(old, *job.slices), attempts=(stopped, attempt))
    assert planned_end.stops_at(slow) == NOW + 300 - LOOK - 70
    stuck = replace(slow, slices=(replace(old, delete_asked_at=NOW), *job.slices))
    assert planned_end.stops_at(stuck) == NOW + 300 - LOOK - 30 - STOP_PATIENCE, "not the deletion"
    cancelled = replace(slow, attempts=(replace(stopped, cause=Cause.CANCELLED), attempt))
    assert planned_end.stops_at(cancelled) == planned_end.stops_at(job), "held, not saving"


@pytest.mark.parametrize("state", [State.PREPARING, State.RUNNING])
@pytest.mark.parametrize(("allowed", "then"), [(0, State.FAILED), (1, State.QUEUED)])
def test_the_attempt_ends_and_another_slice_follows_if_the_job_wants_one(
    state: State, allowed: int, then: State
) -> None:
    job = ending(state, ends_at=NOW + 60)
    job = replace(job, spec=respec(job.spec, recovery={"planned_ends": allowed}))
    [held] = job.slices
    happened = decide(job, Observation({held.name: READY}), NOW).event
    assert happened is not None
    assert happened.kind is EventKind.HELD
    assert (happened.payload.end.cause, happened.payload.next_state) == (Cause.PLANNED_END, then)
    assert ("`recovery.planned_ends` is 0" in happened.text) is not allowed


@pytest.mark.parametrize(
    ("slice", "cause"),
    [
        ({"ends_at": NOW + 61}, Cause.PREEMPTED),
        ({"ends_at": NOW + 59}, Cause.PLANNED_END),
        ({"ends_at": NOW - 300}, Cause.PLANNED_END),
        ({"ends_at": NOW, "preempted_at": NOW - 61}, Cause.PREEMPTED),
        ({"ends_at": NOW, "preempted_at": NOW, "certain_until": NOW - 601}, Cause.PREEMPTED),
        ({"ends_at": NOW, "preempted_at": NOW, "certain_until": NOW - 599}, Cause.PLANNED_END),
    ],
)
def test_a_loss_is_the_planned_end_if_the_slice_lived_until_then(
    slice: dict[str, float], cause: Cause
) -> None:
    job = ending(**slice)
    assert planned_end.as_planned(job, LOST, (), NOW).cause is cause
    assert (
        planned_end.as_planned(job, replace(LOST, cause=Cause.CRASH), (), NOW).cause is Cause.CRASH
    )


def test_only_terms_that_take_a_time_request_one() -> None:
    spec = {"type": ["v6e-8"], "zones": [], "pricing": "flex-start", "run_for": "6h"}
    job = job_in(State.QUEUED)
    job = replace(job, spec=respec(job.spec, tpu=spec))
    assert planned_end.requested_for(job, "flex-start") == 6 * 3600
    assert planned_end.requested_for(job, "on-demand") is None
