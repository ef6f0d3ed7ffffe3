"""Forecasts of jobs: cases that can be computed by hand, and properties of any case."""

import math
from dataclasses import replace
from random import Random
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.domain.money.test_goodput import DONE, LOST, attempt, job_of, slice_of
from tpujob.domain.model import (
    Cause,
    Edge,
    GaveWay,
    IdlePeriod,
    Job,
    Outcome,
    Progress,
    State,
)
from tpujob.domain.money.conditions import Conditions, Turn, conditions
from tpujob.domain.money.durations import AGES, Rates, Stay, constant_rates, learn_rates, quantiles
from tpujob.domain.money.forecast import PlannedWork, forecast
from tpujob.domain.money.samples import SamplePlace, SliceSample, history
from tpujob.domain.spec import dump, parse

HOUR = 3600.0
PLACE = SamplePlace("v4-16", "us-central2-b", "spot")
ELSEWHERE = SamplePlace("v5e-16", "us-west4-a", "spot")


def expect(*, wait: float = 600.0, life: float = 1e9, **changes: tuple[float, ...]) -> Conditions:
    turn = Turn(constant_rates(wait), constant_rates(life))
    stays = {"setup": (300.0,), "release": (60.0,), "lost": ()} | changes
    return Conditions(turn, turn, slices=0, losses=0, **stays)


# By hand -------------------------------------------------------------------------------------------------------------


def test_without_preemptions_a_job_is_billed_for_its_work_its_setup_and_its_release():
    result = forecast(PlannedWork(2 * HOUR), expect())
    assert set(result.billed) == {2 * HOUR + 300 + 60}
    assert set(result.preemptions) == {0}
    assert result.redone == pytest.approx(0, abs=0.01)
    assert result.waiting == pytest.approx(600, rel=0.1)


@pytest.mark.parametrize(("hours", "ends"), [(2.9, 0), (3.1, 1), (8.9, 2)])
def test_each_planned_end_costs_a_setup_a_release_and_a_wait(hours: float, ends: int):
    """A slice serves for three hours besides its set-up."""
    work = PlannedWork(hours * HOUR, run_for=3 * HOUR + 300, planned_ends=2)
    result = forecast(work, expect())
    assert result.planned_ends == ends
    assert result.billed.p50 == pytest.approx(hours * HOUR + (ends + 1) * (300 + 60))
    assert result.waiting == pytest.approx((ends + 1) * 600, rel=0.1)
    assert result.redone == pytest.approx(0, abs=0.01)
    assert result.fails < 0.01


def test_a_job_fails_whose_planned_ends_are_too_few():
    work = PlannedWork(10 * HOUR, run_for=3 * HOUR, planned_ends=2)
    assert forecast(work, expect()).fails == 1


def test_the_expected_number_of_preemptions_is_that_of_a_poisson_process():
    """Each hour of a slice loses 1/4; without set-up, and with a checkpoint at once, 40 hours lose 10."""
    result = forecast(
        PlannedWork(40 * HOUR, checkpoint=0.0, setup=0.0), expect(life=4 * HOUR, release=(0.0,))
    )
    assert result.preemptions.p50 == pytest.approx(10, abs=1)
    assert result.preemptions.low == pytest.approx(4, abs=1.1)  # of Poisson(10)
    assert result.preemptions.high == pytest.approx(17, abs=1.1)
    assert max(result.billed) - min(result.billed) == pytest.approx(0, abs=1e-3)


def test_each_preemption_redoes_half_of_the_time_between_two_checkpoints():
    result = forecast(PlannedWork(40 * HOUR, checkpoint=1200.0, setup=0.0), expect(life=4 * HOUR))
    losses = result.releasing / 60 - 1
    assert result.redone / losses == pytest.approx(600, rel=0.1)


def test_work_that_was_lost_before_is_lost_again():
    saved = forecast(PlannedWork(40 * HOUR), expect(life=4 * HOUR, lost=(0.0,) * 50))
    lost = forecast(PlannedWork(40 * HOUR), expect(life=4 * HOUR, lost=(1800.0,) * 50))
    assert saved.redone < HOUR < 3 * HOUR < lost.redone


def test_a_setup_longer_than_any_life_makes_no_progress():
    result = forecast(PlannedWork(10 * HOUR, setup=3600.0), expect(life=60.0, release=(60.0,)))
    assert result.fails == 1


def test_a_job_fails_at_the_preemption_after_the_last_that_it_may_have():
    result = forecast(PlannedWork(100 * HOUR, preemptions=3), expect(life=HOUR))
    assert result.fails == 1
    assert set(result.preemptions) == {4}
    assert forecast(PlannedWork(100 * HOUR, preemptions=1000), expect(life=HOUR)).fails == 0


def test_years_of_work_are_no_reason_to_fail():
    result = forecast(PlannedWork(20 * 8766 * HOUR, preemptions=1000), expect(life=720 * HOUR))
    assert result.fails < 0.001
    assert result.billed.p50 == pytest.approx(20 * 8766 * HOUR, rel=0.01)


def test_a_job_without_retries_fails_as_often_as_a_slice_is_lost():
    result = forecast(PlannedWork(HOUR, setup=0.0, preemptions=0), expect(life=HOUR))
    assert result.fails == pytest.approx(1 - 1 / math.e, abs=0.05)
    assert result.billed.p50 == pytest.approx(HOUR * math.log(2), rel=0.25)


def test_more_losses_than_allowed_are_no_certainty_where_rates_are_little_known():
    turn = Turn(constant_rates(0.0), replace(constant_rates(4 * HOUR), weight=2.0))
    expected = replace(expect(), first=turn, later=turn)
    result = forecast(PlannedWork(48 * HOUR, preemptions=10), expected)
    assert 0.4 < result.fails < 0.6  # 12 losses are expected, and half as many are as likely as not
    assert result.preemptions.low < 6 < 11 == result.preemptions.high


def test_slices_that_have_lived_for_long_are_lost_seldom():
    """One of two slices is lost in its first hour; the other one lasts."""
    life = Rates((*[math.log(2)] * 4, *[1e-6] * 4), math.inf)
    turn = Turn(constant_rates(0.0), life)
    result = forecast(PlannedWork(200 * HOUR), replace(expect(), first=turn, later=turn))
    assert result.preemptions.high <= 5
    assert result.billed.p50 < 203 * HOUR


def test_no_loss_takes_more_than_was_made():
    result = forecast(PlannedWork(60.0, checkpoint=3 * HOUR, setup=60.0), expect(life=HOUR))
    assert result.fails == pytest.approx(0, abs=1e-3)
    assert result.billed.high < 400


@pytest.mark.parametrize("wait", [0.0, None])
@pytest.mark.parametrize("preemptions", [0, 1_000_000])
def test_more_losses_are_never_cheaper_nor_safer(wait: float | None, preemptions: int):
    work = PlannedWork(20 * HOUR, preemptions=preemptions, wait=wait)
    lives = (1e300, 1e9, 1e6, 1e5, 3e4, 1e4, 3e3, 1e3, 1.0)
    forecasts = [forecast(work, expect(life=life)) for life in lives]
    assert [f.fails for f in forecasts] == sorted(f.fails for f in forecasts)
    if preemptions:
        for costs in zip(*(f.billed for f in forecasts), strict=True):
            assert list(costs) == sorted(costs)


def test_a_job_fails_that_may_wait_no_longer():
    result = forecast(PlannedWork(HOUR, wait=600.0), expect(wait=600.0))
    assert result.fails == pytest.approx(1 / 2.718, abs=0.05)  # of an exponential wait of that mean
    assert result.wall.high <= 600 + HOUR + 300 + 60


# Conditions ----------------------------------------------------------------------------------------------------------


def sample(
    wait: float, life: float, *, ended: bool = True, setup: float | None = None
) -> SliceSample:
    took = None if setup is None else Stay(setup, ended=True)
    return SliceSample(PLACE, "train", False, Stay(wait, ended=True), Stay(life, ended=ended), took)


def test_rates_are_learned_from_stays_that_ended_and_from_those_that_did_not():
    true, random = Rates((2.0, 2.0, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1), 2.0), Random(1)
    exact = replace(true, weight=math.inf)
    lives = [exact.quantile(random.random()) for _ in range(2000)]
    limit = 6 * HOUR
    stays = [Stay(min(life, limit), ended=life < limit) for life in lives]
    (result,) = learn_rates([Rates((1.0,) * len(AGES), 2.0)], [stays])
    for known_rate, rate in zip(true.per_hour[:6], result.per_hour[:6], strict=True):
        assert rate == pytest.approx(known_rate, rel=0.2)
    assert result.weight == 2 + sum(life < limit for life in lives)


def test_a_place_of_long_lives_promises_fewer_preemptions():
    calm = conditions([sample(60, 40 * HOUR, ended=False)] * 5, PLACE)
    wild = conditions([sample(60, 0.4 * HOUR)] * 5, PLACE)
    middle = conditions([], PLACE)
    counts = [sum(forecast(PlannedWork(20 * HOUR), c).preemptions) for c in (calm, middle, wild)]
    assert counts == sorted(counts)
    assert counts[0] < counts[2] / 3
    assert (wild.slices, wild.losses) == (5, 5)
    assert (calm.slices, calm.losses) == (5, 0)


def test_history_elsewhere_counts_less_and_with_other_pricing_not_at_all():
    prior = conditions([], PLACE).first.life.expected(10 * HOUR)
    wild = [sample(60, 600)] * 20
    near = conditions(wild, PLACE).first.life.expected(10 * HOUR)
    far = conditions([m._replace(place=ELSEWHERE) for m in wild], PLACE)
    assert prior < far.first.life.expected(10 * HOUR) < near
    assert far.first.life.weight < 3
    assert far.slices == 0
    bought = conditions(wild, PLACE._replace(pricing="on-demand"))
    assert bought.first.life == conditions([], PLACE._replace(pricing="on-demand")).first.life


def test_stated_values_replace_history():
    result = conditions([sample(60, 600)] * 20, PLACE, wait=1800.0, preempt_every=2 * HOUR)
    assert result.stated == ("wait", "preemptions")
    assert result.later.life.expected(2 * HOUR) == pytest.approx(1)
    assert result.first.wait.expected(1800) == pytest.approx(1)


def test_setup_is_that_of_the_same_program():
    seen = [sample(60, 600, setup=33.0)] * 50
    assert conditions(seen, PLACE, "train").setup.count(33.0) > 50
    others = [sample(60, 600, setup=700.0)._replace(program="another")] * 50
    assert conditions([*seen, *others], PLACE, "train").setup.count(33.0) > 50


def test_one_measurement_is_spread_and_many_are_taken_as_they_are():
    measured = sample(60, 600, setup=32.0)._replace(release=Stay(20.0, ended=True))
    for program in ("train", "another"):
        result = conditions([measured], PLACE, program)
        assert (median(result.setup), median(result.release)) == (32, 20)
        for seen, values in ((32, result.setup), (20, result.release)):
            assert min(values) <= seen / 2
            assert max(values) >= seen * 4
        assert result.unknown == ()
    hundred = conditions([measured] * 100, PLACE, "train").setup
    assert hundred.count(32.0) / len(hundred) > 0.95


def test_values_without_a_measurement_are_guessed_and_named_as_unknown():
    result = conditions([], PLACE, "train")
    assert result.unknown == ("wait", "setup", "release")
    assert forecast(PlannedWork(HOUR), result).billed.low >= HOUR + 50
    assert conditions([sample(60, 600, setup=33.0)], PLACE).unknown == ("release",)


def test_waits_of_spot_slices_say_nothing_of_those_on_demand():
    spot, bought = [sample(HOUR, 600)] * 20, PLACE._replace(pricing="on-demand")
    assert "wait" in conditions(spot, bought).unknown
    assert "wait" not in conditions(spot, PLACE).unknown
    own = [sample(90, HOUR, ended=False)._replace(place=bought)] * 3
    result = conditions([*spot, *own], bought)
    assert "wait" not in result.unknown
    assert result.first.wait.half == pytest.approx(90 * math.log(2), rel=0.5)
    assert "wait" not in conditions([], bought, wait=60.0).unknown


def test_a_reserved_slice_has_no_wait():
    result = conditions([sample(HOUR, 600)] * 20, PLACE._replace(pricing="reserved"))
    assert "wait" not in result.unknown
    assert forecast(PlannedWork(HOUR), result).waiting < 1


def test_a_setup_that_was_cut_short_is_as_long_as_those_that_came_as_far():
    """Take five set-ups of 100 s and five of 900 s, and five that were cut short at 150 s."""
    whole = [Stay(100.0, ended=True)] * 5 + [Stay(900.0, ended=True)] * 5
    cut = [Stay(150.0, ended=False)] * 5
    values = quantiles([*whole, *cut], [100.0])
    assert sum(value == 900 for value in values) / len(values) == pytest.approx(2 / 3, abs=0.1)


# Samples -------------------------------------------------------------------------------------------------------------


def preempted_once() -> Job:
    """Waits 100 s; loses its slice after 900 s, at step 60, continues from 50, and succeeds. A step takes 10 s."""
    return job_of(
        [slice_of(1, 50, 100, 1050), slice_of(2, 1060, 1400, 4000)],
        [
            attempt(1, 1, 100, 160, 1000, first_step_at=420.0, first_step=2, step=60, resumed_from=0, **LOST),
            attempt(
                2, 2, 1400, 1500, 3110, first_step_at=1610.0, first_step=51, step=201,
                resumed_from=50, **DONE,
            ),
        ],
        4000,
        created_at=0.0,
    )  # fmt: skip


def test_a_record_shows_waits_lives_setups_and_lost_work():
    first, second = history([preempted_once()], 1e6)
    assert (first.wait, first.life) == (Stay(100, ended=True), Stay(900, ended=True))
    assert first.setup == Stay(300, ended=True)  # two steps were made when the first look saw any
    assert first.lost == 100  # 48 of the steps after the second count, in the 580 s until the end
    assert first.release == Stay(50, ended=True)
    assert (second.wait, second.life) == (Stay(350, ended=True), Stay(1710, ended=False))
    assert second.setup == Stay(200, ended=True)
    assert (second.lost, second.release) == (None, Stay(890, ended=True))
    assert (first.later, second.later) == (False, True)


def test_a_setup_that_a_preemption_ends_is_known_to_take_longer():
    job = preempted_once()
    cut = replace(job.attempts[0], first_step_at=None, first_step=None, progress=Progress())
    first, _ = history([replace(job, attempts=(cut, job.attempts[1]))], 1e6)
    assert first.setup == Stay(900, ended=False)


def test_an_open_wait_counts_up_to_now():
    job = replace(preempted_once(), slices=(slice_of(1, 500, None, None),), attempts=())
    (sample,) = history([replace(job, state=State.PROVISIONING, finished_at=None)], 900.0)
    assert (sample.wait, sample.life) == (Stay(900, ended=False), None)
    (sample,) = history([replace(job, finished_at=700.0)], 900.0)
    assert sample.wait == Stay(700, ended=False)


def test_refused_requests_are_part_of_a_wait_and_rests_are_not():
    """Refused at 20; asked again, ready at 100, done at 200; rests until 1,000; asked again, ready at 1,030."""
    job = job_of(
        [slice_of(1, 10, None, 20), slice_of(2, 40, 100, 200), slice_of(3, 1010, 1030, 1100)],
        [attempt(1, 2, 100, 110, 190, **DONE), attempt(2, 3, 1030, 1040, 1090, **DONE)],
        1100,
        created_at=0.0,
        idle_periods=(IdlePeriod(200.0, 1000.0),),
    )
    assert [m.wait for m in history([job], 1e6)] == [Stay(100, ended=True), Stay(30, ended=True)]


def test_the_time_after_a_job_gave_way_is_no_wait_for_the_cloud():
    """It gives up a slice at 200 and a request at 3,200; it requests the next slices when chips are free again."""
    gone = {
        name: {"gave_way": GaveWay("000002", at)} for name, at in (("had", 190), ("asked", 3200))
    }
    slices = [
        slice_of(1, 10, 100, 200, **gone["had"]),
        slice_of(2, 3000, None, 3200, **gone["asked"]),
        slice_of(3, 9000, 9060, None),
    ]
    stopped = attempt(1, 1, 100, 110, 190, outcome=Outcome.INTERRUPTED, cause=Cause.GAVE_WAY)
    job = job_of(slices, [stopped], 9500, created_at=0.0)
    first, last = history([job], 1e6)
    assert [first.wait, last.wait] == [Stay(100, ended=True), Stay(60, ended=True)]
    assert (first.life, first.lost, last.later) == (Stay(90, ended=False), None, False)


def test_a_slice_of_another_job_ends_no_wait_for_the_cloud():
    received = slice_of(1, 900, 900, None, received_from="000002")
    job = job_of([received], [], 2000, created_at=0.0)
    assert [sample.wait for sample in history([job], 1e6)] == [Stay(900, ended=False)]


@pytest.mark.parametrize(
    ("changes", "release"),
    [({"delete_asked_at": 950.0}, Stay(50, ended=True)), ({"handed_to": "000002"}, None)],
)
def test_the_time_of_a_kept_slice_is_no_release(changes: dict[str, Any], release: Stay | None):
    """Cancelled at 500; the slice is held until 950, or until another job gets it."""
    cancelled = attempt(1, 1, 0, 0, 500, outcome=Outcome.INTERRUPTED, cause=Cause.CANCELLED)
    (sample,) = history([job_of([slice_of(1, 0, 0, 1000, **changes)], [cancelled], 1000)], 1e6)
    assert sample.release == release


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"not_before": "2026-12-01T09:00Z"}},
        {"spec": {"start": "held"}},
        {"edges": (Edge("000007", "success"),)},
        {"queued_at": 9000.0},
        {"group": "000007"},
    ],
)
def test_a_job_that_was_put_off_waits_from_the_first_request_on(changes: dict[str, Any]):
    job = replace(preempted_once(), created_at=0.0)
    slices = (slice_of(1, 9000, None, 9050), slice_of(2, 9100, 9150, None))
    put_off = changes | {"spec": parse({**dump(job.spec), **changes.pop("spec", {})})}
    (sample,) = history([replace(job, slices=slices, **put_off)], 1e6)
    assert sample.wait == Stay(150, ended=True)


# Any case ------------------------------------------------------------------------------------------------------------

seconds = st.floats(0, 1e6)


@settings(max_examples=25)
@given(
    work=st.builds(
        PlannedWork, seconds, st.floats(0, 1e4), st.none() | seconds, st.integers(0, 200),
        st.none() | seconds,
    ),
    stays=st.lists(st.tuples(seconds, seconds, st.booleans()), max_size=20),
)  # fmt: skip
def test_ranges_are_in_order(work: PlannedWork, stays: list[tuple[float, float, bool]]):
    expected = conditions([sample(w, life, ended=ended) for w, life, ended in stays], PLACE)
    result = forecast(work, expected)
    for span in (result.wall, result.billed, result.preemptions):
        assert list(span) == sorted(span)
        assert span[0] >= 0
    assert result.wall.p50 >= result.billed.low
    assert 0 <= result.fails <= 1
