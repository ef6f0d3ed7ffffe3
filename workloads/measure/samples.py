"""Times of several ways of doing one thing, taken in turn, and what they say. Machines are noisy: what is compared was
measured in the same round, and each figure comes with how far it may be trusted.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

#: Does the work and returns when its result is there.
Way = Callable[[], object]
Clock = Callable[[], float]


class Interval(NamedTuple):
    """A median, and the interval that holds it with 95% probability whatever the distribution of the samples."""

    median: float
    low: float
    high: float

    def times(self, factor: float) -> Interval:
        return Interval(self.median * factor, self.low * factor, self.high * factor)


def interval(samples: Sequence[float]) -> Interval:
    """By order statistics: the k-th smallest and the k-th largest sample enclose the true median with the probability
    that a fair coin, thrown once a sample, shows either side at least k times. Under six samples it is their range,
    which encloses the median less surely (five: 94%, three: 75%)."""
    ordered, n = sorted(samples), len(samples)
    k, outside = 1, 2 / 2**n
    while (outside := outside + 2 * math.comb(n, k) / 2**n) <= 0.05:
        k += 1
    return Interval(statistics.median(ordered), ordered[k - 1], ordered[n - k])


def in_turn(
    ways: Mapping[str, Way],
    rounds: int,
    sample_s: float = 0.01,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of a call of each way, a sample a round; the order moves on by one from round to round.

    Each way is called twice before, once to compile and once to see how often it must be called for a sample of
    `sample_s`. A sample is the mean of its calls.
    """
    calls = {name: _calls(way, sample_s, clock) for name, way in ways.items()}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            taken[name].append(_seconds(ways[name], calls[name], clock) / calls[name])
    return taken


def ratio(of: Sequence[float], to: Sequence[float]) -> Interval:
    """Return the ratio of `of` to `to`, from samples of the same rounds."""
    return interval([left / right for left, right in zip(of, to, strict=True)])


def _calls(way: Way, sample_s: float, clock: Clock) -> int:
    way()
    return max(1, math.ceil(sample_s / max(_seconds(way, 1, clock), 1e-7)))


def _seconds(way: Way, calls: int, clock: Clock) -> float:
    start = clock()
    for _ in range(calls):
        way()
    return clock() - start
