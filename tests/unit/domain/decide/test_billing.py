"""The billed time of a slice whose beginning or end no poll saw."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import ENDPOINTS, NOW, a_slice, job_in, report
from tpujob.domain.decide import decide
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Cause, DesiredState, Job, Slice, State
from tpujob.domain.money.goodput import TimePart, spans
from tpujob.domain.money.ledger import US, usd
from tpujob.domain.money.report import report as cost_report
from tpujob.domain.observations import Absent, Observation, Present, SliceState

NAME, HOUR = "tj-000001-1", 3600.0
READY = Present(SliceState.READY, ENDPOINTS)
ASKED = NOW - 2.5 * HOUR


def waiting(**fields: Any) -> Job:
    """Return a job whose slice was requested 2.5 hours ago, at $1 an hour."""
    slice = a_slice(requested_at=ASKED, **fields)
    return replace(job_in(State.PROVISIONING), slices=(slice,), created_at=ASKED)


def settled(job: Job, look: Any, until: State, now: float = NOW, **seen: Any) -> Job:
    """Apply what is decided while the slice looks like that, until the job is in that state."""
    for _ in range(9):
        if job.state is until:
            return job
        event = decide(job, Observation({NAME: look}, **seen), now).event
        assert event is not None
        job = apply(job, event)
    raise AssertionError(job)


def released(job: Job, now: float = NOW) -> Job:
    """Return the job once its slice is seen to be gone."""
    slices = tuple(replace(s, delete_asked_at=s.delete_asked_at or now) for s in job.slices)
    seen = Observation({NAME: Absent()}, deleting=frozenset({NAME}))
    happened = decide(replace(job, slices=slices), seen, now).event
    return apply(replace(job, slices=slices), happened)


@pytest.mark.parametrize(
    ("last_seen", "created", "ready_at"),
    [
        (None, NOW - 2 * HOUR, NOW - 2 * HOUR),
        (NOW - 10, NOW - 2 * HOUR, NOW),  # a young look saw it in creation
        (NOW - HOUR, NOW - 2 * HOUR, NOW - HOUR),  # an old one did
        (None, NOW - 9 * HOUR, ASKED),  # the clocks differ
        (None, NOW + HOUR, NOW),
        (NOW + HOUR, NOW - 2 * HOUR, NOW),  # a clock was set back
        (None, 0.0, NOW),  # the cloud does not say
    ],
)
@pytest.mark.parametrize("wish", [DesiredState.RUN, DesiredState.CANCEL])
def test_a_slice_that_was_ready_unseen_counts_from_the_creation_of_its_node(
    wish: DesiredState, last_seen: float | None, created: float, ready_at: float
) -> None:
    seen = {} if last_seen is None else {NAME: last_seen}
    then = State.PREPARING if wish is DesiredState.RUN else State.HOLDING
    look = replace(READY, created_at=created)
    job = settled(replace(waiting(), desired=wish), look, then, last_seen=seen)
    assert job.slices[0].ready_at == ready_at
    parts = {span.part for span in spans(job, NOW + 60) if span.billed and span.end <= NOW * US}
    assert parts == ({TimePart.PREPARING} if ready_at < NOW else set())


@pytest.mark.parametrize("state", [SliceState.PREEMPTED, SliceState.STOPPED])
def test_a_slice_that_was_ready_and_lost_unseen_costs_an_uncertain_amount(
    state: SliceState,
) -> None:
    look = Present(state, created_at=NOW - 2 * HOUR)
    job = released(settled(waiting(), look, State.RELEASING))
    assert "before it was ready" not in job.message + job.slices[0].delete_reason
    total = cost_report([job], NOW, "job").total
    assert (total.list, total.unsure) == (2_000_000, 2_000_000)
    assert (job.slices[0].preempted_at == NOW) is (state is SliceState.PREEMPTED)


@pytest.mark.parametrize(
    ("look", "last_seen"),
    [
        (Present(SliceState.PREEMPTED, created_at=NOW - 50), {}),
        (Present(SliceState.PREEMPTED, created_at=NOW - 2 * HOUR), {NAME: NOW - 50}),
    ],
)
def test_a_slice_that_cannot_have_been_ready_for_a_minute_is_free(
    look: Any, last_seen: Any
) -> None:
    job = settled(waiting(), look, State.RELEASING, last_seen=last_seen)
    assert "before it was ready, or in its first minute" in job.message
    assert (job.slices[0].ready_at, job.slices[0].preempted_at) == (None, NOW)
    assert usd(released(job).slices, NOW) == 0


def test_a_slice_that_is_given_up_and_was_ready_unseen_is_counted() -> None:
    job = replace(waiting(), desired=DesiredState.RELEASE)
    seen = Observation({NAME: replace(READY, created_at=NOW - HOUR)})
    job = apply(job, decide(job, seen, NOW).event)
    assert job.state is State.RELEASING
    job = apply(job, decide(job, seen, NOW).event)
    assert (job.slices[0].ready_at, usd(released(job).slices, NOW)) == (NOW - HOUR, 1.0)


def held(**fields: Any) -> Slice:
    return a_slice(ready_at=NOW - 2 * HOUR, endpoints=ENDPOINTS, **fields)


@pytest.mark.parametrize(
    ("reports", "last_seen", "certain"),
    [
        ((report(0, age=HOUR), report(1, age=1.5 * HOUR)), {}, NOW - HOUR),
        ((), {NAME: NOW - 0.5 * HOUR}, NOW - 0.5 * HOUR),
        ((), {}, NOW - 1.9 * HOUR),  # when the attempt began
        ((report(0, age=20), report(1, age=20)), {}, None),
        ((), {NAME: NOW - 20}, None),
    ],
)
def test_the_end_of_a_slice_that_was_lost_unseen_is_uncertain(
    reports: Any, last_seen: Any, certain: float | None
) -> None:
    attempt = replace(job_in(State.RUNNING).attempts[0], started_at=NOW - 1.9 * HOUR)
    job = replace(job_in(State.RUNNING), slices=(held(),), attempts=(attempt,))
    for look in (Present(SliceState.PREEMPTED), Absent()):
        seen = Observation({NAME: look}, reports, last_seen=last_seen)
        after = apply(job, decide(job, seen, NOW).event).slices[0]
        assert after.certain_until == certain
        assert (after.preempted_at, after.missing_since).count(NOW) == 1


def test_the_end_of_an_attempt_stores_when_its_slice_was_seen_preempted_first() -> None:
    """No commit of its own is made before the end, while the program may be saving."""
    slice_ = a_slice(ready_at=NOW - 70, endpoints=ENDPOINTS)
    job = replace(job_in(State.RUNNING), slices=(slice_,))
    seen = Observation({NAME: Present(SliceState.PREEMPTED)}, preempted={NAME: NOW - 15})
    saves = replace(seen, reports=(report(0, age=1), report(1, age=1)))
    assert decide(job, saves, NOW).event is None
    ended = apply(job, decide(job, seen, NOW).event)
    assert (ended.state, ended.attempts[-1].cause) == (State.RELEASING, Cause.PREEMPTED)
    assert ended.slices[0].preempted_at == NOW - 15
    assert usd(ended.slices, NOW) == 0, "it was preempted in its first minute"


def test_a_slice_that_is_found_again_is_certain_again() -> None:
    missing = held(missing_since=NOW - 20, certain_until=NOW - HOUR)
    job = replace(job_in(State.RUNNING), slices=(missing,))
    found = apply(job, decide(job, Observation({NAME: READY}), NOW).event).slices[0]
    assert (found.missing_since, found.certain_until) == (None, None)


def test_what_the_cloud_reports_is_stored_once() -> None:
    lost = Observation({NAME: Present(SliceState.PREEMPTED)})
    job = replace(job_in(State.RELEASING, deleted=True), slices=(held(delete_asked_at=NOW - 5),))
    job = apply(job, decide(job, lost, NOW).event)
    assert decide(job, lost, NOW + HOUR).event is None
