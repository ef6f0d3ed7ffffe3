"""Every combination of what a job can be and what can be seen decides something legal and safe."""

from dataclasses import replace
from itertools import product

import pytest

from tests.support.changes import broken_by
from tests.support.records import NOW, SLICES, job_in, report
from tpujob.domain import invariants
from tpujob.domain.actions import (
    Action,
    CleanJob,
    CreateSlice,
    DeleteSlice,
    Denied,
    Done,
    NotYet,
    StartProgram,
    StopProgram,
)
from tpujob.domain.capacity import circuits
from tpujob.domain.decide.dispatch import decide, follow_up
from tpujob.domain.events import PAYLOADS, CleanRequested, EventKind
from tpujob.domain.lifecycle import TABLE, IllegalEvent, apply, event
from tpujob.domain.model import Cause, DesiredState, Job, Outcome, SliceRole, State
from tpujob.domain.observations import HostReport, Observation, Unknown

CODES = (0, 1, 65, 70, 71, 75, 76, 78, 134, 137, 143, -9, -15)
REPORTS: list[tuple[HostReport, ...] | Unknown] = [
    Unknown("503"),
    (),
    (report(0),),
    (report(0, "setup"), report(1)),
    (report(0), report(1)),
    *((report(0, "exited", a), report(1, "exited", b)) for a, b in product(CODES, (0, 1, 75, -9))),
    *((report(0, "exited", a), report(1)) for a in CODES),
    *((report(0, "exited", None, error="no", error_cause=c), report(1)) for c in Cause),
    (report(0, notice="preempted"), report(1, "exited", 75, notice="preempted")),
    (replace(report(0), age=10_000.0), report(1)),
]


@pytest.mark.parametrize("state", State)
def test_every_combination_decides_something_legal_and_safe(state: State) -> None:
    reported = REPORTS if state in (State.PREPARING, State.RUNNING) else REPORTS[:5]
    for wish, slice_seen, reports in product(DesiredState, SLICES, reported):
        for then in (State.QUEUED, State.SUCCEEDED, State.FAILED, State.CANCELLED):
            if then is not State.QUEUED and state is not State.RELEASING:
                continue
            for delete_asked in (False, True) if state is State.RELEASING else (False,):
                job = job_in(state, desired=wish, next_state=then, deleted=delete_asked)
                check(job, Observation({"tj-000001-1": slice_seen}, reports, readable_for=100.0))


def check(job: Job, seen: Observation) -> None:
    """Assert that the decision is legal and safe, whatever part of the world was seen."""
    decision, broken = decide(job, seen, NOW), invariants.of_job(job)
    where = (job.state, job.desired, job.slices, seen, decision)
    after = apply(job, decision.event) if decision.event else job  # raises IllegalEvent
    if not broken:
        assert not invariants.of_job(after), f"{invariants.of_job(after)}: {where}"
        if decision.event:
            stored = replace(after, version=job.version + 1)
            assert not broken_by(job, stored), where
    assert decision.wake_in >= 0, where
    match decision.action:
        case StartProgram():
            assert after.slice is not None, where
            assert all(s.stopped for s in job.condemned), f"two programs at once: {where}"
        case CreateSlice():
            assert after.slice is not None, where
            opens = circuits.retry_at(after.slice, seen.circuits)
            assert job.state is not State.QUEUED or opens <= NOW, f"it is refused: {where}"
        case DeleteSlice(name):
            slice = next(s for s in after.slices if s.name == name)
            assert slice.delete_reason, f"deletes without a stored reason: {where}"
            assert slice.role is SliceRole.CONDEMNED or after.state is State.RELEASING, where
            unseen = isinstance(seen.of(slice), Unknown) and job.desired is DesiredState.RUN
            leaves = slice.role is SliceRole.CONDEMNED or job.state is State.RELEASING
            assert leaves or not unseen, f"deletes what it cannot see: {where}"
        case StopProgram(name):
            assert name in [s.name for s in after.condemned] or (not name and after.slice), where
        case CleanJob():
            assert (job.state.final, job.desired) == (True, DesiredState.CLEAN), where
        case _:
            pass
    if after.state.final or after.state is State.QUEUED:
        assert after.slice is None or job.state is after.state, f"it owns a slice: {where}"
    if after.state.final:
        assert not [s for s in after.slices if s.gone_at is None], f"ends with a slice: {where}"
    if after.state is State.SUCCEEDED and not job.state.final:
        assert job.next_state is State.SUCCEEDED, where
    done = decision.action and follow_up(after, decision.action, Done(), NOW)
    assert not done or broken or not invariants.of_job(apply(after, done)), where


ACTIONS: dict[State, tuple[Action, EventKind | None, bool]] = {
    # what is done in that state, what its success is stored as, and whether a refusal is
    State.PROVISIONING: (CreateSlice(), None, True),
    State.PREPARING: (StartProgram(), None, True),
    State.HOLDING: (StopProgram(), EventKind.PROGRAM_STOPPED, False),
    State.RELEASING: (DeleteSlice("tj-000001-1"), EventKind.DELETE_ASKED, False),
}


@pytest.mark.parametrize("state", ACTIONS)
def test_the_result_of_an_action_is_stored_only_if_it_is_new(state: State) -> None:
    job, (action, done, refusals) = replace(job_in(state), stopped=False), ACTIONS[state]
    assert follow_up(job, action, NotYet("503"), NOW) is None
    happened = follow_up(job, action, Done(), NOW)
    assert (happened and happened.kind) == done
    if happened:
        assert follow_up(apply(job, happened), action, Done(), NOW) is None, "it is known"
    for cause in Cause:
        refused = follow_up(job, action, Denied(cause, "the cloud's words"), NOW)
        assert (refused is not None) is refusals, cause
        if refused:
            assert "the cloud's words" in refused.text
            after = apply(job, refused)
            assert (after.attempts[0].cause if job.attempts else after.cause) is cause


def test_an_outcome_once_set_is_never_overwritten() -> None:
    job = job_in(State.RUNNING)
    succeeded = decide(
        job, Observation({}, (report(0, "exited", 0), report(1, "exited", 0))), NOW
    ).event
    assert succeeded is not None
    done = apply(job, succeeded)
    assert done.attempt.outcome is Outcome.SUCCEEDED
    for kind in (
        EventKind.CANCEL_REQUESTED,
        EventKind.RELEASE_REQUESTED,
        EventKind.CLEAN_REQUESTED,
    ):
        payload = CleanRequested(False) if kind in PAYLOADS else None
        done = apply(done, event(done, kind, NOW, "asked", payload))
    assert done.attempt.outcome is Outcome.SUCCEEDED
    assert done.next_state is State.SUCCEEDED


def test_an_illegal_event_is_refused() -> None:
    with pytest.raises(IllegalEvent, match="slice_ready cannot happen to a job that is succeeded"):
        event(job_in(State.SUCCEEDED), EventKind.SLICE_READY, NOW, "no")


def test_every_state_can_be_reached_and_left_and_every_event_is_used() -> None:
    assert {s for _, s in TABLE.items()} | {State.QUEUED} == set(State)
    assert {k for _, k in TABLE} | {EventKind.CREATED} == set(EventKind)
    assert {s for s, _ in TABLE} == set(State)
