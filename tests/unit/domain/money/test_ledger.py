"""The cost of slices over their lives, in whole micro-dollars, and the slices that a grant pays for."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.records import a_job, job_in
from tpujob.domain.model import Attempt, Cause, Grant, Job, Slice, State
from tpujob.domain.money.budget import account
from tpujob.domain.money.ledger import EVER, BilledSlice, accrued, cost, covered, free, usd
from tpujob.domain.money.ledger import HOUR as HOUR_US
from tpujob.domain.money.report import report

HOUR = 3600.0
SLICE = replace(a_job().slices[0], usd_per_hour=8.0, requested_at=1000.0, endpoints=())
GRANT = Grant("v4", "us-central2-b", "spot", 16)


def job_with(*slices: Slice, **changes: Any) -> Job:
    return replace(job_in(State.FAILED), slices=slices, **changes)


def test_a_slice_is_billed_from_ready_to_gone() -> None:
    assert usd((SLICE,), 5000.0) == 0.0, "waiting is free"
    ready = replace(SLICE, ready_at=2000.0)
    assert usd((ready,), 2000.0 + HOUR / 2) == 4.0
    assert usd((ready,), 1000.0) == 0.0, "a clock that was set back earns nothing"
    deleted = replace(ready, delete_asked_at=2000.0 + HOUR)
    assert usd((deleted,), 2000.0 + 2 * HOUR) == 16.0, "billed until it is gone"
    gone = replace(deleted, gone_at=2000.0 + 2 * HOUR)
    assert usd((gone,), 2000.0 + 9 * HOUR) == 16.0
    assert usd((gone,), 2000.0 + HOUR) == 16.0, "also by a clock that is behind"


def test_a_job_costs_what_all_its_slices_cost() -> None:
    first = replace(SLICE, ready_at=0.0, gone_at=HOUR)
    second = replace(SLICE, k=2, ready_at=2 * HOUR)
    waiting = replace(SLICE, k=3, usd_per_hour=None)
    assert usd((), HOUR) == 0.0
    assert usd((first, second, waiting), 2.5 * HOUR) == 12.0
    unknown = replace(waiting, ready_at=0.0)
    assert usd((first, unknown), HOUR) is None, "an unknown part, an unknown sum"


@pytest.mark.parametrize(
    ("seconds", "fields", "is_free"),
    [
        (59.0, {}, True),
        (60.0, {}, False),
        (59.0, {"pricing": "on-demand"}, False),
        (59.0, {"epoch": 1}, False),
    ],
)
def test_a_spot_slice_that_the_cloud_preempts_in_its_first_minute_is_free(
    seconds: float, fields: dict[str, Any], is_free: bool
) -> None:
    preempted = replace(SLICE, ready_at=2000.0, gone_at=2300.0, preempted_at=2000.0 + seconds)
    preempted = replace(preempted, **fields)
    job = job_with(preempted)
    assert free(preempted) is is_free
    assert (usd(job.slices, 9000.0) == 0.0) is is_free
    assert (report([job], 9000.0, "job").total.list == 0) is is_free


@pytest.mark.parametrize("cause", list(Cause))
def test_no_cause_of_an_attempt_makes_a_slice_free(cause: Cause) -> None:
    gone = replace(
        SLICE, ready_at=2000.0, missing_since=2030.0, suspending_since=2030.0, gone_at=2300.0
    )
    ended = Attempt(1, gone.name, 2010.0, ended_at=2030.0, cause=cause)
    assert usd(job_with(gone, attempts=(ended,)).slices, 9000.0) == round(8.0 * 300 / HOUR, 6)


def test_what_no_poll_saw_is_in_the_report_as_uncertain_and_in_no_budget() -> None:
    lost = replace(SLICE, ready_at=0.0, certain_until=HOUR, preempted_at=3 * HOUR, gone_at=3 * HOUR)
    job = replace(job_with(lost), spend_limit=100_000_000)
    total = report([job], 9 * HOUR, "job").total
    assert (total.list, total.unsure) == (24_000_000, 16_000_000)
    assert account(job, 9 * HOUR).used == 8_000_000
    unseen = replace(lost, certain_until=0.0)
    assert account(replace(job, slices=(unseen,)), 9 * HOUR).used == 0
    assert report([job_with(unseen)], 9 * HOUR, "job").total.unsure == 24_000_000


@pytest.mark.parametrize("grants", [(), (GRANT,)])
def test_a_slice_that_is_missing_costs_between_two_amounts(grants: tuple[Grant, ...]) -> None:
    missing = replace(SLICE, ready_at=0.0, missing_since=HOUR)
    job = job_with(missing, grants=grants)
    total = report([job], 2 * HOUR, "job", covered([job])).total
    assert (total.list, total.unsure) == (16_000_000, 8_000_000)
    gone = replace(missing, gone_at=1.5 * HOUR)
    total = report([job_with(gone)], 2 * HOUR, "job").total
    assert (total.list, total.unsure) == (12_000_000, 0)


@given(st.integers(0, 10**10), st.lists(st.integers(0, 10**12), min_size=2))
def test_the_parts_of_a_time_cost_what_the_whole_costs(rate: int, cuts: list[int]) -> None:
    cuts = sorted(cuts)
    row = BilledSlice(10**9, None, rate)
    parts = [cost([row], b, a) or 0 for a, b in pairwise(cuts)]
    assert sum(parts) == cost([row], cuts[-1], cuts[0])
    assert all(part >= 0 for part in parts)
    ended = row._replace(gone=cuts[-1])
    assert cost([ended]) == cost([ended], EVER, -EVER) == cost([row], cuts[-1]), "up to its end"
    assert abs(accrued(rate, cuts[-1]) - rate * cuts[-1] / HOUR_US) <= 1


def test_a_grant_covers_its_chips_and_no_more() -> None:
    first = replace(SLICE, name="a", ready_at=0.0, gone_at=HOUR)  # v4-16: 8 chips
    second = replace(first, name="b", ready_at=10.0, gone_at=2 * HOUR)
    third = replace(first, name="c", ready_at=20.0)
    later = replace(first, name="d", ready_at=HOUR, gone_at=None)
    job = job_with(first, second, third, later, grants=(GRANT,))
    assert covered([job]) == {(job.id, name) for name in "abd"}
    assert covered([replace(job, grants=())]) == frozenset()


@pytest.mark.parametrize(
    "other",
    [{"zone": "us-central2-a"}, {"pricing": "on-demand"}, {"type": "v5p-16"}, {"ready_at": None}],
)
def test_a_grant_covers_only_its_type_zone_and_pricing(other: dict[str, Any]) -> None:
    granted = replace(SLICE, ready_at=0.0)
    assert covered([job_with(granted, grants=(GRANT,))])
    away = replace(granted, **other)
    assert covered([job_with(away, grants=(GRANT,))]) == frozenset()
