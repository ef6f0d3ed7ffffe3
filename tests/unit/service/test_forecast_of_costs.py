"""Forecasts of the service: preemptions, and several types and zones, from the records of earlier jobs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.estimates import compare_view, estimate_view
from tests.unit.domain.money.test_goodput import attempt, job_of, slice_of
from tpujob.domain.capacity.site import EVERYWHERE
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.model import Cause, Grant, Job, Outcome
from tpujob.domain.money.estimate_shapes import DataToCopy
from tpujob.domain.spec import JobSpec, parse
from tpujob.errors import BadRequest, BadSpec

HOUR = 3600.0
SPEC: dict[str, Any] = {
    "name": "x",
    "tpu": {"type": "v4-16", "zones": ["us-central2-b"]},
    "run": {"workload": "mlp", "args": {"steps": 3600, "checkpoint_every": 100, "batch": 8}},
}


def earlier(
    number: int, *, type: str = "v4-16", pace: float = 2.0, lost: bool = False, **metrics: float
) -> Job:
    """Return a job that ran 1,000 steps on one slice, which may have been lost after them."""
    end = 500 + 1000 * pace
    ended = (
        {"outcome": Outcome.INTERRUPTED, "cause": Cause.PREEMPTED}
        if lost
        else {"outcome": Outcome.SUCCEEDED}
    )
    job = job_of(
        [replace(slice_of(1, 10, 100, end + 60), type=type)],
        [
            attempt(
                1, 1, 100, 200, end, first_step_at=500.0, first_step=0, step=1000,
                metrics=metrics, **ended,
            )
        ],
        end + 60,
        created_at=0.0,
    )  # fmt: skip
    args = {**SPEC["run"]["args"], "steps": 1000}
    spec = parse({**SPEC, "run": {"workload": "mlp", "args": args}})
    return replace(job, id=f"{number:06d}", spec=spec)


# An estimate ---------------------------------------------------------------------------------------------------------


def test_a_spot_job_gets_a_range_around_its_estimate():
    estimate = estimate_view(SPEC, {"hours": 10})
    forecast = estimate["forecast"]
    assert forecast["work_hours"] == 10
    assert forecast["billed_hours"]["low"] >= 10
    assert forecast["billed_hours"]["p90"] > 10
    pay = forecast["pay_micros"]
    assert estimate["pay_micros"] <= pay["low"] <= pay["p50"] < pay["p90"] <= pay["high"]
    assert (forecast["slices"], forecast["stated"]) == (0, [])


def test_what_no_job_has_met_is_not_known_in_place_of_a_number():
    for pricing in ("spot", "on-demand"):
        spec = {**SPEC, "tpu": {**SPEC["tpu"], "pricing": pricing}}
        forecast = estimate_view(spec, {"hours": 10})["forecast"]
        assert (forecast["wall_hours"], forecast["waiting_hours"]) == (None, None)
        assert (forecast["setup_hours"], forecast["releasing_hours"]) == (None, None)
        halves = forecast["half_seconds"]
        assert (halves["first_wait"], halves["setup"], halves["release"]) == (None, None, None)
    forecast = estimate_view(SPEC, {"hours": 10, "preempt_every": 1e9}, [earlier(1)])["forecast"]
    assert forecast["wall_hours"] is not None
    assert (forecast["half_seconds"]["setup"], forecast["half_seconds"]["release"]) == (400, 60)
    assert 400 / 3600 < forecast["setup_hours"] < 800 / 3600
    spec = {**SPEC, "tpu": {**SPEC["tpu"], "pricing": "reserved"}}
    assert estimate_view(spec, {"hours": 10})["forecast"]["waiting_hours"] == 0


def test_without_a_length_there_is_no_range():
    assert "forecast" not in estimate_view({**SPEC, "run": {"command": "true"}})


def test_stated_rates_count():
    calm = estimate_view(SPEC, {"hours": 10, "wait": 60, "preempt_every": 1e7})["forecast"]
    wild = estimate_view(SPEC, {"hours": 10, "wait": 60, "preempt_every": 1800})["forecast"]
    assert calm["preemptions"]["p90"] == 0 < wild["preemptions"]["low"]
    assert calm["waiting_hours"] == pytest.approx(60 / 3600, rel=0.1)
    assert wild["stated"] == ["wait", "preemptions"]
    often = estimate_view(
        SPEC, {"hours": 10, "wait": 60, "preempt_every": 1800, "checkpoint_every": 60}
    )["forecast"]
    assert often["redone_hours"] < wild["redone_hours"]


def test_what_earlier_jobs_met_counts():
    good = estimate_view(SPEC, {"hours": 10}, [earlier(n) for n in range(9)])["forecast"]
    bad = estimate_view(SPEC, {"hours": 10}, [earlier(n, lost=True) for n in range(9)])["forecast"]
    assert (good["slices"], good["losses"], bad["losses"]) == (9, 0, 9)
    assert good["preemptions"]["p50"] < bad["preemptions"]["p50"]


@pytest.mark.parametrize("refused", [False, True])
def test_many_jobs_that_got_no_slice_hide_no_measurement(refused: bool):
    """A sweep of 2,500 was cancelled, before or after its requests."""
    met = [earlier(n, lost=n < 4) for n in range(1, 13)]
    asked = (replace(slice_of(1, 20_000, None, 20_100)),) if refused else ()
    bare = replace(met[0], slices=asked, attempts=(), created_at=20_000.0, finished_at=20_100.0)
    sweep = [replace(bare, id=f"{n:06d}") for n in range(100, 2600)]
    for jobs in (met, [*sweep, *met]):
        forecast = estimate_view(SPEC, {"hours": 10}, jobs)["forecast"]
        assert (forecast["slices"], forecast["losses"]) == (12, 3)
        assert forecast["setup_hours"] is not None


def test_the_time_of_the_job_file_is_the_work_where_nothing_was_measured():
    estimate = estimate_view({**SPEC, "time": "2h"})
    assert (estimate["hours"], estimate["length_by"]) == (2.0, "stated")
    assert estimate["length"] == "as stated by `time` in the job file"
    assert estimate["forecast"]["work_hours"] == 2.0
    assert estimate_view({**SPEC, "time": "2h"}, {"hours": 3})["hours"] == 3.0


def test_the_work_is_the_steps_at_their_measured_pace_without_the_setup():
    estimate = estimate_view(SPEC, {"steps": 3600}, [earlier(1)])
    assert estimate["forecast"]["work_hours"] == pytest.approx(2.0)  # 3,600 steps of 2 s
    assert estimate["hours"] == pytest.approx(2 + 400 / 3600)  # and 400 s of set-up


def test_a_place_without_a_price_has_hours_and_no_dollars():
    spec = {**SPEC, "tpu": {"type": "v6e-8", "zones": ["us-central2-b"]}}
    forecast = estimate_view(spec, {"hours": 3})["forecast"]
    assert forecast["list_micros"] is None
    assert forecast["pay_micros"] is None
    assert forecast["billed_hours"]["p50"] >= 3


# Side by side --------------------------------------------------------------------------------------------------------


def test_measured_and_stated_types_are_set_side_by_side():
    """v4-16: measured, 0.5 steps/s. v5e-16: stated, twice as fast. v6e-8: nobody knows."""
    comparison = compare_view(
        SPEC,
        {"wait": 600, "preempt_every": 1e7},
        {"types": ["v4-16", "v5e-16", "v6e-8"], "throughput": {"v5e-16": 1.0}},
        [earlier(1)],
    )
    assert (comparison["unit"], comparison["amount"]) == ("steps", 3600)
    ways = {(way["type"], way["zone"]): way for way in comparison["ways"]}
    v4 = ways["v4-16", "us-central2-b"]
    assert (v4["throughput_by"], v4["per_second"], v4["measured_jobs"]) == ("measured", 0.5, 1)
    assert v4["forecast"]["work_hours"] == pytest.approx(2)
    v5e = [way for way in comparison["ways"] if way["type"] == "v5litepod-16"]
    assert {way["throughput_by"] for way in v5e} == {"stated"}
    assert {way["forecast"]["work_hours"] for way in v5e if way["forecast"]} == {1.0}
    unknown = [way for way in comparison["ways"] if way["type"] == "v6e-8"]
    assert all(way["forecast"] is None and "--throughput v6e-8=N" in way["note"] for way in unknown)
    (cheapest,) = [way for way in comparison["ways"] if way["cheapest"]]
    (fastest,) = [way for way in comparison["ways"] if way["fastest"]]
    pays = [
        f["pay_micros"]["p50"]
        for way in comparison["ways"]
        if (f := way["forecast"]) and f["pay_micros"]
    ]
    assert comparison["ways"][0] == cheapest
    assert min(pays) == pays[0]
    assert fastest["type"] == "v5litepod-16"


def test_what_a_compile_check_found_gives_way_to_what_was_measured_or_said():
    types = ["v4-16", "v5e-16", "v6e-8"]
    comparison = compare_view(
        SPEC,
        {"wait": 600, "preempt_every": 1e7},
        {
            "types": types,
            "zones": ["us-central2-b", "us-central1-a"],
            "throughput": {"v5e-16": 1.0},
            "rooflines": dict.fromkeys(types, 9.0),
        },
        [earlier(1)],
    )
    by = {way["type"]: (way["throughput_by"], way["per_second"]) for way in comparison["ways"]}
    assert by == {
        "v4-16": ("measured", 0.5),
        "v5litepod-16": ("stated", 1.0),
        "v6e-8": ("roofline", 9.0),
    }
    notes = {way["note"] for way in comparison["ways"] if way["type"] == "v6e-8"}
    assert "the speed on v6e-8 is that of a compile check: no job ran it there" in notes


def test_of_places_that_end_at_once_the_cheapest_is_the_fastest():
    zones = ["us-central1-a", "us-west4-a", "europe-west4-b"]
    spec = {**SPEC, "tpu": {"type": "v5e-8", "zones": zones}}
    stated = {"wait": 60, "preempt_every": 1e9}
    comparison = compare_view(spec, stated, {"throughput": {"v5e-8": 1.0}})
    walls = {
        f["wall_hours"]["p50"]
        for w in comparison["ways"]
        if (f := w["forecast"]) and f["wall_hours"]
    }
    assert (len(comparison["ways"]), len(walls)) == (3, 1)
    (best,) = [way["zone"] for way in comparison["ways"] if way["cheapest"]]
    assert [way["zone"] for way in comparison["ways"] if way["fastest"]] == [best]
    assert best != min(zones)


@pytest.mark.parametrize("held", ["us-central1-a", "us-west4-a"])
def test_a_grant_that_pays_for_another_slice_in_one_zone_pays_in_another_zone(held: str):
    zones = ["us-central1-a", "us-west4-a"]
    grants = tuple(Grant("v5e", zone, "spot", 8) for zone in zones)
    paid = replace(slice_of(1, 10, 100, None), type="v5litepod-8", zone=held)
    holder = replace(earlier(1), slices=(paid,), grants=grants)
    spec = {**SPEC, "tpu": {"type": "v5e-8", "zones": zones}}
    comparison = compare_view(
        spec, {}, {"throughput": {"v5e-8": 1.0}}, [holder], replace(EVERYWHERE, grants=grants)
    )
    granted = {
        way["zone"]: f["pay_micros"]["p50"] < f["list_micros"]["p50"]
        for way in comparison["ways"]
        if (f := way["forecast"]) and f["pay_micros"] and f["list_micros"]
    }
    assert granted == {zone: zone != held for zone in zones}


def test_data_is_copied_to_each_region_that_lacks_it():
    spec = {
        **SPEC,
        "tpu": {"type": "v5e-8", "zones": ["us-central1-a", "us-west4-a", "us-west4-b"]},
    }
    lookups: list[str] = []

    def to_copy(_: JobSpec, zone: str) -> Sequence[DataToCopy]:
        lookups.append(zone)
        is_near = zone.startswith("us-central1")
        return () if is_near else (DataToCopy("c4", "us-central1", region_of(zone), 1, 10**15),)

    comparison = compare_view(spec, {}, {"throughput": {"v5e-8": 1.0}}, to_copy=to_copy)
    dear = {
        way["zone"]: f["list_micros"]["p50"] > 10**10
        for way in comparison["ways"]
        if (f := way["forecast"]) and f["list_micros"]
    }
    assert dear == {"us-central1-a": False, "us-west4-a": True, "us-west4-b": True}
    assert len(lookups) == 2, "the storage is asked once for a region"


def test_tokens_are_measured_by_a_metric_that_a_program_reports():
    jobs = [earlier(1, tokens_per_second=1e6), earlier(2, tokens_per_second=3e6), earlier(3)]
    comparison = compare_view(SPEC, {}, {"unit": "tokens", "amount": 3.6e9}, jobs)
    (way,) = comparison["ways"]
    assert (way["per_second"], way["measured_jobs"]) == (2e6, 2)
    assert way["forecast"]["work_hours"] == pytest.approx(0.5)


def test_jobs_with_other_arguments_measure_nothing():
    other = {**SPEC, "run": {"workload": "mlp", "args": {"steps": 10, "batch": 64}}}
    (way,) = compare_view(other, {}, {}, [earlier(1)])["ways"]
    assert (way["per_second"], way["throughput_by"]) == (None, "")
    assert not way["cheapest"]
    assert not way["fastest"]


@pytest.mark.parametrize(
    "query",
    [
        {"unit": "epochs", "amount": 3},
        {"unit": "tokens"},
        {"amount": -1},
        {"amount": float("nan")},
        {"amount": 10**400},
        {"amount": 1e300, "throughput": {"v4-16": 1.0}},
        {"amount": 1, "throughput": {"v4-16": 1e-300}},
        {"throughput": {"v4-16": 0}},
        {"zones": ["us-east5-a"]},
        {"types": [f"v5e-{2**n}" for n in range(9)]},
        {"types": ["v4-banana"]},
    ],
)
def test_what_cannot_be_compared_is_refused(query: Any):
    with pytest.raises((BadRequest, BadSpec)):
        compare_view(SPEC, {}, query)
