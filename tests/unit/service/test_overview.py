"""The lab as a whole: the events of all jobs, and how each offer fares."""

from dataclasses import replace

import pytest

from tests.flow.page import lab
from tests.support.stage import SPEC, Stage
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Attempt, Cause, Outcome, Slice, State
from tpujob.domain.observations import Circuit
from tpujob.errors import BadRequest
from tpujob.service.backend import capacity

NOW = lab.NOW


def a_slice(number: int, **fields: object) -> Slice:
    name = f"tj-000001-{number}"
    made = Slice(name, number, "v4-16", "us-central2-b", "spot", CLOUD_TPU, "rt", 7.0, NOW - 1000)
    return replace(made, **fields)  # pyright: ignore[reportArgumentType]


def test_an_offer_counts_what_is_held_and_asked_and_requests_within_the_day() -> None:
    ended = {"ended_at": NOW - 300, "outcome": Outcome.INTERRUPTED, "cause": Cause.PREEMPTED}
    gone = Attempt(1, "tj-000001-2", NOW - 500, **ended)  # pyright: ignore[reportArgumentType]
    old = replace(gone, slice="tj-000001-9", ended_at=NOW - 2 * capacity.DAY)
    job = replace(
        next(iter(lab.full())),
        slices=(
            a_slice(1, gone_at=NOW - 900, refused=Cause.STOCKOUT),
            a_slice(2, ready_at=NOW - 940, gone_at=NOW - 200),
            a_slice(3, ready_at=NOW - 600),
            a_slice(4, requested_at=NOW - 50),
            a_slice(
                9, requested_at=NOW - 3 * capacity.DAY, ready_at=NOW - 3 * capacity.DAY, gone_at=1.0
            ),
        ),
        attempts=(gone, old),
    )
    (offer,) = capacity.offers([job], NOW)
    assert (offer["type"], offer["zone"], offer["pricing"]) == ("v4-16", "us-central2-b", "spot")
    assert (offer["held"], offer["held_chips"], offer["usd_per_hour"]) == (1, 8, 7.0)
    assert (offer["asked"], offer["asked_chips"]) == (1, 8)
    assert (offer["ready"], offer["wait_p50_s"], offer["wait_p90_s"]) == (2, 60.0, 400.0)
    assert (offer["refused"], offer["preempted"]) == (1, 1), "an older one counts no more"


def test_a_slice_of_unknown_price_makes_the_sum_unknown() -> None:
    job = replace(next(iter(lab.full())), slices=(a_slice(1, ready_at=NOW, usd_per_hour=None),))
    assert capacity.offers([job], NOW)[0]["usd_per_hour"] is None


def test_what_the_cloud_refuses_says_until_when() -> None:
    shut = Circuit("us-east5-a/v5p-16/spot", Cause.STOCKOUT, 3, NOW - 60, NOW + 40)
    half = Circuit("us-east5/v5p/spot", Cause.QUOTA, 1, NOW - 60, NOW - 1)
    by_offer = {f"{circuit.pool}/8": circuit for circuit in (shut, half)}
    circuits = capacity.open_circuits(by_offer, NOW)
    assert [(circuit["what"], circuit["place"], circuit["open"]) for circuit in circuits] == [
        ("v5p-16", "us-east5-a", True),
        ("v5p", "us-east5", False),
    ]


def test_events_of_all_jobs_come_in_pages_with_the_name_of_their_job(stage: Stage) -> None:
    for name in ("first", "second"):
        stage.api.create({**SPEC, "name": name})
        stage.clock.time += 1
    stage.api.cancel("000001")
    page = stage.api.happened(limit=2)
    assert [(e["job"], e["name"], e["kind"]) for e in page["events"]] == [
        ("000001", "first", "cancel_requested"),
        ("000002", "second", "created"),
    ]
    rest = stage.api.happened(limit=2, before=page["next"])
    assert [(e["job"], e["kind"]) for e in rest["events"]] == [("000001", "created")]
    assert rest["next"] == "", "there is nothing older"
    assert stage.api.happened(limit=3)["next"] == "", "no link leads to an empty page"
    assert stage.api.happened(limit=1, kinds=["cancel_requested"])["next"] == ""


def test_events_of_one_kind_are_found_behind_any_number_of_others(stage: Stage) -> None:
    stage.api.create(SPEC)
    for _ in range(12):
        stage.clock.time += 1
        stage.api.resume("000001", budget=100.0 + stage.clock.time)
    page = stage.api.happened(kinds=["created"], limit=3)
    assert [e["kind"] for e in page["events"]] == ["created"]
    assert page["next"] == ""


def test_an_admin_reads_the_error_of_a_failed_job_as_among_the_events_of_that_job(
    stage: Stage,
) -> None:
    for shard in (17, 18):
        job = stage.started(recovery={"failures": 0})
        stage.finish(job, 1, 1)
        for host in range(2):
            stage.last_words(job, host, "Traceback (most recent call last):", f"KeyError: {shard}")
        stage.until(job, State.FAILED)
    failed = stage.api.happened(kinds=["failed"])["events"]
    assert [e["text"] for e in failed] == [stage.api.events(e["job"])[-1]["text"] for e in failed]
    assert ["KeyError: 18" in failed[0]["text"], "KeyError: 17" in failed[1]["text"]] == [True] * 2


def test_events_that_make_no_sense_are_refused(stage: Stage) -> None:
    with pytest.raises(BadRequest, match="no events 'exploded'"):
        stage.api.happened(kinds=["exploded"])
    with pytest.raises(BadRequest, match="not a place among the events"):
        stage.api.happened(before="yesterday")
    with pytest.raises(BadRequest, match="1 to 1000"):
        stage.api.happened(limit=0)


def test_the_capacity_of_a_lab_knows_jobs_that_wait_and_such_as_have_ended(stage: Stage) -> None:
    stage.api.create(SPEC)
    assert stage.api.capacity()["waiting"] == 1
    lab.store_jobs(stage.store, lab.full())
    stage.clock.time = NOW
    report = stage.api.capacity()
    assert sum(offer["held"] for offer in report["offers"]) > 0
    assert report["waiting"] > 1
