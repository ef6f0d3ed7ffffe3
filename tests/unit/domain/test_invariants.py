"""The rules of records: what is healthy breaks none of them, and each planted fault breaks its own."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.changes import broken_by
from tests.support.records import NOW, SPEC, a_slice, job_in, respec
from tpujob.domain import invariants
from tpujob.domain.events import (
    AboutSlice,
    Event,
    EventKind,
    Payload,
    ReleaseStarted,
    Requeued,
    SliceRequested,
)
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import REFUSALS, Attempt, Cause, Job, Outcome, Slice, SliceRole, State
from tpujob.domain.spec import parse

K = EventKind


def refused(k: int) -> Slice:
    fields = {"delete_reason": "no slice", "delete_asked_at": NOW, "gone_at": NOW}
    return a_slice(k, refused=Cause.STOCKOUT, **fields)


CONDEMNED = a_slice(1, role=SliceRole.CONDEMNED, ready_at=NOW - 400, delete_reason="BAD_HOST")
GONE = {"delete_reason": "done", "delete_asked_at": NOW, "gone_at": NOW}


def rules(job: Job) -> list[str]:
    return [broken.rule for broken in invariants.of_job(job)]


@pytest.mark.parametrize("state", list(State))
def test_a_healthy_record_breaks_nothing(state: State) -> None:
    job = job_in(state)
    if state.final:
        job = replace(job, finished_at=NOW)
    if state is State.RELEASING:
        job = replace(job, next_state=State.QUEUED)
    assert invariants.of_job(job) == []


def test_a_job_without_a_serving_slice_may_keep_a_condemned_one() -> None:
    assert rules(queued(CONDEMNED)) == []
    asking = replace(job_in(State.PROVISIONING), slices=(CONDEMNED, a_slice(2)))
    assert rules(asking) == []


def test_forgotten_requests_leave_gaps_in_the_numbers() -> None:
    assert rules(queued(refused(3), refused(7))) == []


def queued(*slices: Slice, **changes: Any) -> Job:
    return replace(job_in(State.QUEUED), slices=slices, **changes)


def failed(*slices: Slice, finished_at: float | None = NOW) -> Job:
    return replace(job_in(State.FAILED), slices=slices, finished_at=finished_at)


def ended(number: int) -> Attempt:
    return Attempt(number, "s", NOW, outcome=Outcome.FAILED)


BEGUN = Attempt(1, "s", NOW)
PLANTED: dict[str, tuple[str, Job]] = {
    "two serve at once": (
        "I1",
        replace(job_in(State.PROVISIONING), slices=(a_slice(1), a_slice(2))),
    ),
    "queued with a slice": ("I2", queued(a_slice(1))),
    "final with a slice": ("I2", failed(a_slice(1))),
    "final with a condemned slice": ("I2", failed(CONDEMNED)),
    "condemned without a reason": ("I5", queued(replace(CONDEMNED, delete_reason=""))),
    "deleted without a reason": ("I5", queued(a_slice(1, **{**GONE, "delete_reason": ""}))),
    "gone by itself": ("I2", queued(a_slice(1, **{**GONE, "delete_asked_at": None}))),
    "a number twice": ("I1", queued(a_slice(2, **GONE), a_slice(2, **GONE))),
    "a number that goes back": ("I1", queued(a_slice(2, **GONE), a_slice(1, **GONE))),
    "releasing to nowhere": ("I6", replace(job_in(State.RELEASING), next_state=None)),
    "an attempt skipped": ("I1", queued(attempts=(ended(2),))),
    "an attempt without an end": ("I6", queued(attempts=(BEGUN,))),
    "an earlier attempt without an end": ("I6", queued(attempts=(BEGUN, ended(2)))),
    "live with an end": ("I6", queued(finished_at=NOW)),
    "final without a time": ("I6", failed(finished_at=None)),
    "a budget overspent": ("I8", queued(retries_used={"preemptions": 101})),
    "a common budget overspent": ("I8", queued(retries_used={"memory": 2})),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_fault_breaks_its_rule(name: str) -> None:
    rule, job = PLANTED[name]
    assert rules(job) == [rule], invariants.of_job(job)


@pytest.mark.parametrize(
    ("failures", "spent", "broken"),
    [(0, {}, []), (0, {"failures": 1}, ["I8"]), (9, {"failures": 9}, [])],
)
def test_a_job_may_have_other_limits_than_the_usual_ones(
    failures: int, spent: dict[str, int], broken: list[str]
) -> None:
    spec = respec(SPEC, recovery={"failures": failures})
    assert rules(queued(spec=spec, retries_used=spent)) == broken


def test_a_fault_names_the_slice_that_it_is_about() -> None:
    gone = a_slice(2, **GONE)
    (broken,) = invariants.of_job(failed(CONDEMNED, gone))
    assert broken.text == "it is failed, and tj-000001-1 (condemned) is not gone"


# Steps ---------------------------------------------------------------------------------------------------------------


def step(before: Job, **changes: Any) -> list[str]:
    after = replace(before, version=before.version + 1, **changes)
    return [broken.text for broken in broken_by(before, after)]


def test_only_the_oldest_requests_that_came_to_nothing_may_be_forgotten() -> None:
    slices = tuple(refused(k) for k in range(1, REFUSALS + 3))
    job = queued(*slices, a_slice(99, **GONE))
    assert step(job) == []
    assert step(job, slices=job.slices[2:]) == []
    assert step(job, slices=job.slices[3:]) == ["tj-000001-3 was taken out of the record"]
    assert step(job, slices=job.slices[:-1]) == ["tj-000001-99 was taken out of the record"]
    few = replace(job, slices=(refused(1), a_slice(2, **GONE)))
    assert step(few, slices=few.slices[1:]) == ["tj-000001-1 was taken out of the record"]


def test_gone_and_condemned_slices_stay_so() -> None:
    job = queued(CONDEMNED, a_slice(2, **GONE))
    back = (CONDEMNED, replace(job.slices[1], gone_at=None))
    assert step(job, slices=back) == ["tj-000001-2 was gone and is listed again"]
    assert step(replace(job, slices=back), slices=job.slices) == [], "it goes"
    served = (replace(CONDEMNED, role=SliceRole.SERVING), job.slices[1])
    assert step(job, slices=served) == ["tj-000001-1 was condemned and serves again"]
    assert step(job, slices=(a_slice(1, **GONE), job.slices[1])) != []


def test_a_version_and_the_past_are_not_written_over() -> None:
    job = queued(attempts=(ended(1),))
    assert [b.rule for b in broken_by(job, job)] == ["I6"]
    assert step(job, name="other") == ["name was changed after creation"]
    assert step(job, attempts=()) == ["an attempt was taken out of the record"]
    other = replace(job.attempts[0], outcome=Outcome.SUCCEEDED)
    assert step(job, attempts=(other,)) == ["the outcome of attempt 1 was overwritten"]
    moved = replace(job.attempts[0], slice="t")
    assert step(job, attempts=(moved,)) == ["attempt 1 on s became attempt 1 on t"]


# Histories -----------------------------------------------------------------------------------------------------------


def history() -> tuple[list[Event], Job]:
    """A job that was refused so often that its record has forgotten some of it."""
    job = invariants.first_record(queued(attempts=()))
    events = [Event(K.CREATED, job.created_at, State.QUEUED, "created", seq=1)]

    def happen(kind: EventKind, payload: Payload) -> None:
        nonlocal job
        happened = replace(event(job, kind, NOW, kind.value, payload), seq=len(events) + 1)
        events.append(happened)
        job = replace(apply(job, happened), version=len(events))

    for k in range(1, REFUSALS + 5):
        name, full = f"tj-000001-{k}", Cause.STOCKOUT
        request = SliceRequested(name, k, "v4-16", "us-central2-b", "spot", "cloud-tpu", "r", 1.0)
        happen(K.SLICE_REQUESTED, request)
        happen(K.RELEASE_STARTED, ReleaseStarted(State.QUEUED, full, refused=full))
        happen(K.DELETE_ASKED, AboutSlice(name))
        happen(K.SLICE_GONE, AboutSlice(name))
        happen(K.REQUEUED, Requeued(1.0))
    return events, job


def test_a_history_leads_to_its_record() -> None:
    events, job = history()
    assert len(job.slices) < REFUSALS + 4, "some are forgotten"
    assert invariants.of_job(job) == []
    assert invariants.of_history(invariants.first_record(job), events, job) == []


def test_a_history_that_does_not_lead_to_its_record_is_reported() -> None:
    events, job = history()
    first = invariants.first_record(job)

    def told(events: list[Event], job: Job) -> str:
        return str([broken.text for broken in invariants.of_history(first, events, job)])

    assert "has events" in told(events[:-1], job)
    assert "do not lead to its record" in told(events, replace(job, slices=job.slices[1:]))
    assert "do not lead" in told(events, replace(job, state=State.FAILED))
    twice = [*events[:1], replace(events[0], seq=2), *events[2:]]
    assert "created" in told(twice, job)


# Groups --------------------------------------------------------------------------------------------------------------


def test_what_must_hold_of_a_group_and_its_elements() -> None:
    spec = parse({"name": "s", "tpu": {"type": "v4-8"}, "run": {"command": "true"}, "array": 2})
    group = replace(job_in(State.QUEUED), spec=spec, id="000010", group_size=2, submitted=2)
    element = replace(job_in(State.QUEUED), group="000010", group_size=2, index=0)
    second = replace(element, id="000012", index=1)
    assert of_group(group, element, second) == []
    broken = {
        "2 elements were made of 1": (replace(group, group_size=1),),
        "it succeeded with 1 elements of 2": (
            replace(group, state=State.SUCCEEDED, submitted=1, finished_at=1.0),
        ),
        "it is a group, and owns slices or attempts itself": (
            replace(group, slices=(refused(1),)),
        ),
        "it is element 2 of 2": (group, replace(element, index=2)),
        "it is element 0 of group 000010, and so is 000001": (
            group,
            element,
            replace(second, index=0),
        ),
        "its group 000010 is not there": (element,),
        "it is queued, and its group 000010 has ended": (
            replace(group, state=State.FAILED, finished_at=1.0),
            element,
        ),
    }
    for text, jobs in broken.items():
        assert text in of_group(*jobs)


def of_group(*jobs: Job) -> list[str]:
    violations = [violation for job in jobs for violation in invariants.of_job(job)]
    return [violation.text for violation in (*violations, *invariants.of_groups(jobs))]
