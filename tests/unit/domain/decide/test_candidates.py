"""A race: who is requested, who serves, what is released first, and what a candidate's end means."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import ENDPOINTS, NOW, a_slice, job_in, respec
from tpujob.domain.actions import CreateSlice, DeleteSlice, Denied, HandOn, StartProgram
from tpujob.domain.capacity import circuits, race
from tpujob.domain.capacity.entries import entry
from tpujob.domain.decide import decide, follow_up
from tpujob.domain.decide.candidates import CREATE_DEADLINE, RUNNER_UP_KEPT
from tpujob.domain.events import AttemptRunning, EventKind
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import (
    REFUSALS,
    Cause,
    DesiredState,
    ExpectedRun,
    Job,
    Slice,
    SliceRole,
    State,
)
from tpujob.domain.observations import (
    Absent,
    HandOver,
    Observation,
    Present,
    SliceSeen,
    SliceState,
    Unknown,
)
from tpujob.domain.spec import dump, parse

E = EventKind
ZONES = ["us-east5-b", "us-east5-a", "us-east5-c"]
NAMES = ["tj-000001-1", "tj-000001-2", "tj-000001-3"]
SPEC = parse(
    {
        "name": "x",
        "tpu": {"type": "v6e-8", "zones": ZONES, "race": 3},
        "run": {"command": "true"},
    }
)
WAITS, MAKING = Present(SliceState.WAITING), Present(SliceState.CREATING)
READY = Present(SliceState.READY, ENDPOINTS)
FULL = Present(SliceState.FAILED, (), "no more capacity", Cause.STOCKOUT)
EVERY = frozenset(f"{zone}/v6e-8/spot" for zone in ZONES)


def in_zone(k: int, **fields: Any) -> Slice:
    more = {"type": "v6e-8", "zone": ZONES[k - 1], "race": 3, "requested_at": NOW - 60}
    return a_slice(k, **{**more, "in_queue": True, **fields})


def racing(state: State = State.PROVISIONING, **changes: Any) -> Job:
    """A job whose first slice serves, beside two candidates."""
    ready = {"ready_at": NOW - 5, "endpoints": ENDPOINTS} if state is not State.PROVISIONING else {}
    beside = (in_zone(k, role=SliceRole.CANDIDATE) for k in (2, 3))
    job = replace(job_in(state), spec=SPEC, state_since=NOW - 60)
    return replace(job, **{"slices": (in_zone(1, **ready), *beside), **changes})


def seen(*looks: SliceSeen, **more: Any) -> Observation:
    return Observation(dict(zip(NAMES, looks, strict=False)), race=EVERY, **more)


def after(job: Job, *looks: SliceSeen, **more: Any) -> Job:
    happened = decide(job, seen(*looks, **more), NOW).event
    assert happened is not None
    return apply(job, happened)


def alone(**changes: Any) -> Job:
    return racing(slices=(in_zone(1),), **changes)


def test_places_are_asked_in_order_each_with_its_intent_first() -> None:
    first = decide(alone(), seen(WAITS), NOW)
    assert (first.event and first.event.kind, first.action) == (
        E.CANDIDATE_REQUESTED,
        CreateSlice(NAMES[1]),
    )
    job = after(alone(), WAITS)
    assert [(s.zone, s.role, s.k) for s in job.slices[1:]] == [(ZONES[1], SliceRole.CANDIDATE, 2)]
    assert decide(job, seen(WAITS, Absent()), NOW).action == CreateSlice(NAMES[1]), "once more"
    job = after(job, WAITS, WAITS)
    assert [s.zone for s in job.candidates] == ZONES[1:]
    assert decide(job, seen(WAITS, WAITS, WAITS), NOW).event is None, "three are enough"


@pytest.mark.parametrize(
    "why",
    [
        {"race": frozenset()},
        {"circuits": circuits.refused({}, in_zone(2, refused=Cause.STOCKOUT), NOW)},
    ],
)
def test_no_place_is_asked_that_the_plan_or_a_circuit_closes(why: dict[str, Any]) -> None:
    job = alone(spec=respec(SPEC, tpu={"zones": ZONES[:2]}))
    observed = replace(seen(WAITS), **why)
    assert decide(job, observed, NOW).event is None


def test_a_place_that_lost_without_a_refusal_is_not_asked_again_in_this_race() -> None:
    lost = in_zone(2, role=SliceRole.CANDIDATE, lost_at=NOW - 1, delete_reason="gone", gone_at=NOW)
    job = racing(slices=(in_zone(1), lost))
    assert [offer.zone for offer in race.places(job, None)] == ZONES[2:]
    refused = racing(slices=(in_zone(1), replace(lost, refused=Cause.STOCKOUT)))
    assert [offer.zone for offer in race.places(refused, None)] == ZONES[1:], (
        "its circuit says when"
    )


@pytest.mark.parametrize(
    ("looks", "serves", "stay"),
    [
        ((READY, WAITS, WAITS), 1, [2, 3]),
        ((READY, READY, READY), 1, []),
        ((WAITS, READY, MAKING), 2, [1]),
        ((MAKING, WAITS, READY), 3, [2]),
        ((Unknown("503"), READY, Absent()), 2, []),
    ],
)
def test_one_commit_changes_the_roles(
    looks: tuple[SliceSeen, ...], serves: int, stay: list[int]
) -> None:
    job = after(racing(), *looks)
    assert job.slice is not None
    assert (job.state, job.slice.k, job.hosts) == (State.PREPARING, serves, len(ENDPOINTS))
    assert [s.k for s in job.candidates] == stay
    assert [s.k for s in job.losers] == [k for k in (1, 2, 3) if k not in (serves, *stay)]
    assert all(s.delete_reason and s.refused is None for s in job.losers)


def test_what_lost_is_released_before_the_program_starts() -> None:
    job = after(racing(), READY, MAKING, MAKING)
    first = decide(job, seen(READY, MAKING, MAKING), NOW)
    other = decide(job, seen(READY, MAKING, MAKING), NOW + 1)
    deletions = {DeleteSlice(name) for name in NAMES[1:]}
    assert {first.action, other.action} == deletions, "they take turns, as one may fail"
    slices = tuple(replace(s, delete_asked_at=NOW) if s.lost_at else s for s in job.slices)
    deleted = replace(job, slices=slices, wake=0.0)
    going = Present(SliceState.DELETING)
    assert decide(deleted, seen(READY, going, going), NOW).action == StartProgram()


def test_a_slice_that_the_cloud_is_suspending_does_not_hold_up_the_program() -> None:
    job = after(racing(), READY, MAKING, WAITS)
    suspending = Present(SliceState.STOPPED, suspending=True)
    noted = after(job, READY, suspending, WAITS)
    assert decide(noted, seen(READY, suspending, WAITS), NOW).action == StartProgram()


def test_a_ready_loser_is_handed_on_once_its_billing_is_noted() -> None:
    job = after(racing(), READY, READY, WAITS)
    noted = after(job, READY, READY, WAITS)
    assert noted.slices[1].ready_at is not None
    assert noted.slices[1].endpoints == ENDPOINTS
    heir = HandOver(losers={NAMES[1]: "000002"})
    decision = decide(noted, seen(READY, READY, WAITS, hand_over=heir), NOW)
    assert decision.action == HandOn(NAMES[1], "000002")
    assert decide(noted, seen(READY, READY, WAITS), NOW).action == DeleteSlice(NAMES[1])


def test_a_refused_candidate_is_a_refusal_and_the_race_goes_on() -> None:
    job = after(racing(), WAITS, FULL, WAITS)
    assert (job.state, job.slices[1].refused) == (State.PROVISIONING, Cause.STOCKOUT)
    assert [s.k for s in job.candidates] == [3]
    assert [s.k for s in job.failed_requests] == [1, 2]
    denied = follow_up(racing(), CreateSlice(NAMES[2]), Denied(Cause.PERMISSION, "no"), NOW)
    assert denied is not None
    assert apply(racing(), denied).slices[2].refused is Cause.PERMISSION


def test_a_candidate_takes_the_place_of_a_request_that_failed() -> None:
    job = after(racing(), FULL, WAITS, WAITS)
    assert job.slice is not None
    assert (job.state, job.slice.k) == (State.PROVISIONING, 2)
    assert (job.slices[0].refused, job.slices[0].lost_at) == (Cause.STOCKOUT, NOW)
    assert [s.k for s in circuits.refusals(job)] == [1]
    ready = after(job, FULL, READY, WAITS)
    assert ready.failed_requests == [], "it has a slice"


def test_a_candidate_that_is_created_for_an_hour_is_given_up() -> None:
    slow = in_zone(2, role=SliceRole.CANDIDATE, requested_at=NOW - CREATE_DEADLINE - 1)
    job = racing(slices=(in_zone(1), slow))
    assert after(job, WAITS, MAKING).slices[1].refused is Cause.STOCKOUT


@pytest.mark.parametrize(
    ("look", "since", "stays"),
    [
        (WAITS, 60.0, True),
        (Unknown("503"), 60.0, True),
        (WAITS, RUNNER_UP_KEPT + 1, False),
        (MAKING, 60.0, False),
        (READY, 60.0, False),
        (Absent(), 60.0, False),
    ],
)
def test_only_what_costs_nothing_stays_while_the_winner_is_prepared(
    look: SliceSeen, since: float, *, stays: bool
) -> None:
    job = racing(
        State.PREPARING, state_since=NOW - since, slices=racing(State.PREPARING).slices[:2]
    )
    happened = decide(job, replace(seen(READY, look), reports=Unknown("503")), NOW).event
    assert (happened is None) == stays
    if happened:
        assert happened.kind is E.CANDIDATE_LOST


def test_every_way_out_lets_all_candidates_lose() -> None:
    job = after(racing(desired=DesiredState.RELEASE), WAITS, WAITS, WAITS)
    assert (job.state, job.candidates, len(job.losers)) == (State.RELEASING, (), 2)
    running = event(racing(State.PREPARING), E.ATTEMPT_RUNNING, NOW, "it runs", AttemptRunning())
    assert len(apply(racing(State.PREPARING), running).losers) == 2


def test_the_record_forgets_the_oldest_that_lost() -> None:
    lost = {"role": SliceRole.CANDIDATE, "lost_at": NOW, "delete_reason": "x", "gone_at": NOW}
    old = (replace(in_zone(3, **lost), k=k, name=f"tj-000001-{k}") for k in range(2, 60))
    newest = replace(in_zone(1), k=60, name="tj-000001-60")
    job = racing(slices=(*old, newest), state_since=NOW - 30)
    happened = decide(job, Observation({"tj-000001-60": WAITS}, race=EVERY), NOW).event
    assert happened is not None
    assert len(apply(job, happened).slices) == REFUSALS + 2


# Where races meet other rules ----------------------------------------------------------------------------------------


def asks_for(tpu: dict[str, Any], **more: Any) -> Job:
    """A job with these terms whose first request waits."""
    document = {**dump(SPEC), **more, "tpu": {"type": "v6e-8", "zones": ZONES, "race": 3, **tpu}}
    return alone(spec=parse(document))


def test_a_candidate_is_requested_on_the_terms_of_its_pricing() -> None:
    job = asks_for({"pricing": "flex-start", "run_for": "6h"})
    every = frozenset(f"{zone}/v6e-8/flex-start" for zone in ZONES)
    asked = decide(job, replace(seen(WAITS), race=every), NOW).event
    assert asked
    assert apply(job, asked).candidates[0].run_for == 6 * 3600


def test_an_elastic_job_races_for_one_size() -> None:
    run = {"command": "true", "env": {"TPUJOB_ELASTIC": "1"}}
    job = asks_for({"type": ["v6e-8", "v6e-4"], "elastic": True}, run=run)
    assert {offer.type for offer in circuits.allowed(job)} == {"v6e-8", "v6e-4"}
    assert {offer.type for offer in race.places(job, NOW)} == {"v6e-8"}


def test_a_job_ahead_of_its_deadline_races_for_what_may_be_preempted_alone() -> None:
    job = asks_for({"pricing": ["spot", "on-demand"]}, finish_by="1970-01-02T03:46:40Z")
    job = replace(job, created_at=NOW, expected=ExpectedRun(work=600, start=60, wait=60, lost=60))
    assert {offer.pricing for offer in race.places(job, None)} == {"spot", "on-demand"}
    assert {offer.pricing for offer in race.places(job, NOW)} == {"spot"}


def test_a_loser_that_ends_by_itself_is_not_handed_on() -> None:
    lost = in_zone(2, role=SliceRole.CANDIDATE, lost_at=NOW, ready_at=NOW - 5, endpoints=ENDPOINTS)
    for pricing, given in (("spot", True), ("flex-start", False)):
        job = racing(State.RUNNING)
        job = replace(job, slices=(job.slices[0], replace(lost, pricing=pricing)))
        assert [bool(e.gives_until) for e in entry(job).beside] == [given], pricing


def test_a_candidate_has_no_workdir() -> None:
    lost = in_zone(2, role=SliceRole.CANDIDATE, lost_at=NOW, gone_at=NOW, bucket="gs://other")
    job = replace(racing(State.RUNNING), bucket="gs://first")
    job = replace(job, slices=(replace(job.slices[0], bucket="gs://first"), lost))
    assert [workdir.partition("/jobs")[0] for workdir in job.workdirs] == ["gs://first"]
