"""Samples taken in turn by a clock that the test turns, and what they say of noise."""

import random

import pytest

from workloads.measure import text
from workloads.measure.samples import Interval, in_turn, interval, ratio


class HandClock:
    def __init__(self) -> None:
        self.now, self.order = 0.0, ""

    def __call__(self) -> float:
        return self.now

    def way(self, name: str, seconds: float):
        def call() -> None:
            self.order += name
            self.now += seconds

        return call


def test_ways_are_called_in_turn_and_each_comes_first_equally_often() -> None:
    clock = HandClock()
    ways = {name: clock.way(name, 1.0) for name in "abc"}
    taken = in_turn(ways, rounds=3, sample_s=0.5, clock=clock)
    assert clock.order == "aabbcc" + "abc" + "bca" + "cab", "two calls before, then the rounds"
    assert taken == {name: [1.0] * 3 for name in "abc"}


def test_a_quick_way_is_called_often_enough_for_a_sample() -> None:
    clock = HandClock()
    taken = in_turn({"a": clock.way("a", 0.25)}, rounds=2, sample_s=1.0, clock=clock)
    assert clock.order == "aa" + "aaaa" * 2
    assert taken == {"a": [0.25, 0.25]}, "a sample is the time of one call"


@pytest.mark.parametrize(
    ("count", "low", "high"), [(6, 1, 6), (9, 2, 8), (15, 4, 12), (20, 6, 15), (31, 10, 22)]
)
def test_the_interval_has_the_ranks_of_the_sign_test(count: int, low: int, high: int) -> None:
    bounds = interval(random.sample(range(1, count + 1), count))
    assert (bounds.low, bounds.high) == (low, high)


def test_the_interval_of_one_sample_is_that_sample() -> None:
    assert interval([3.0]) == Interval(3.0, 3.0, 3.0)


def test_a_ratio_is_taken_within_each_round_so_that_a_slow_minute_does_not_matter() -> None:
    slow, quick = [10.0, 1000.0, 20.0], [1.0, 100.0, 2.0]
    assert ratio(slow, quick) == Interval(10.0, 10.0, 10.0)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(7.36e-3, "7.36 ms"), (1.2, "1.2 s"), (146e-6, "146 us"), (37.24e-6, "37.2 us"), (2e-9, "2 ns")],
)  # fmt: skip
def test_seconds_are_shown_with_three_digits_in_their_unit(seconds: float, shown: str) -> None:
    assert text.seconds(seconds) == shown


def test_columns_are_aligned_and_have_no_blanks_at_their_ends() -> None:
    rows = [("", "time", "note"), ("loop", "1 s", "slow"), ("vmap + jit", "12 ms", "")]
    assert text.columns(rows).splitlines() == [
        "             time  note",
        "loop          1 s  slow",
        "vmap + jit  12 ms",
    ]
