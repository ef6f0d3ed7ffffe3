"""Durations of waits and of slices' lives: their rates, learned from those that ended and those that did not. Pure.

A duration ends at a rate that depends on its age: waits and lives of spot capacity are either short or very long, so
one mean says little. A duration that has not ended, or that something else cut short, counts up to the age it reached.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

HOUR = 3600.0
#: seconds of age at which the rate changes; the last rate holds for ever
AGES = (0.0, 300.0, 900.0, 1800.0, 3600.0, 10_800.0, 36_000.0, 108_000.0)
#: weight of one age's prior rate, in observed ends
SHAPE = 4.0
#: number of equally likely values that `quantiles` returns
LEVELS = 60
#: weight of the prior of `quantiles`, in observed durations
PRIOR = 2.0


class Stay(NamedTuple):
    """One duration."""

    seconds: float
    ended: bool  #: False: not ended yet, or cut short by something else


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates at which a duration ends, one for each of `AGES`."""

    per_hour: tuple[float, ...]
    weight: float  #: certainty of the rates, in observed ends; `inf`: exact, as stated by the user

    def expected(self, seconds: float) -> float:
        """Return the expected number of ends within so many seconds."""
        return sum(r * t for r, t in zip(self.per_hour, _spent(seconds), strict=True)) / HOUR

    @property
    def half(self) -> float:
        """The seconds after which half have ended, if the rates are exact."""
        return self._age_of_ends(math.log(2))

    def quantile(self, share: float) -> float:
        """Return the seconds after which that share has ended. Uncertain rates spread the quantiles wider."""
        left, weight = 1 - share, self.weight
        if math.isinf(weight):
            return self._age_of_ends(-math.log(left))
        return self._age_of_ends(weight * (left ** (-1 / weight) - 1))

    def survival(self, seconds: float) -> float:
        """Return the share of durations that last longer; the inverse of `quantile`."""
        due, weight = self.expected(seconds), self.weight
        return math.exp(-due) if math.isinf(weight) else (1 + due / weight) ** -weight

    def mean(self, limit: float = math.inf) -> float:
        """Return the mean seconds, each counted up to `limit`, if the rates are exact."""
        left, mean = 1.0, 0.0
        for rate, spent in zip(self.per_hour, _spent(limit), strict=True):
            ended = left * -math.expm1(-rate * spent / HOUR)
            mean += ended * HOUR / rate
            left -= ended
        return mean

    def _age_of_ends(self, due: float) -> float:
        """Return the seconds within which `due` ends are expected: the inverse of `expected`."""
        rates = [rate / HOUR for rate in self.per_hour]
        spans = [(end - start) * r for (start, end), r in zip(pairwise(AGES), rates, strict=False)]
        passed = [0.0, *accumulate(spans)]
        i = bisect_right(passed, due) - 1
        return AGES[i] + (due - passed[i]) / rates[i]


def constant_rates(mean: float) -> Rates:
    """Return exact rates of a duration that lasts `mean` seconds on average and ends at any age alike."""
    return Rates((HOUR / max(mean, 1e-3),) * len(AGES), float("inf"))


def learn_rates(priors: Sequence[Rates], observed: Sequence[Sequence[Stay]]) -> tuple[Rates, ...]:
    """Return each prior, updated with the observed durations of its kind. All kinds share one factor: the scarcity of
    their place. Beyond the factor, each age's rate follows the ends at that age. The weight counts all ends."""
    weight = priors[0].weight
    ends = sum(stay.ended for stays in observed for stay in stays)
    kinds = zip(priors, observed, strict=True)
    due = sum(prior.expected(stay.seconds) for prior, stays in kinds for stay in stays)
    factor = (weight + ends) / (weight + due)
    return tuple(
        Rates(_shaped([rate * factor for rate in prior.per_hour], stays), weight + ends)
        for prior, stays in zip(priors, observed, strict=True)
    )


def quantiles(stays: Sequence[Stay], prior: Sequence[float]) -> tuple[float, ...]:
    """Return `LEVELS` equally likely seconds of a duration that varies little; the prior weighs `PRIOR` observations.
    By the product limit of Kaplan and Meier: a stay that was cut short is assumed to be like those as long."""
    entries = [(stay, 1.0) for stay in stays]
    entries += [(Stay(value, ended=True), PRIOR / len(prior)) for value in prior]
    entries.sort(key=lambda entry: (entry[0].seconds, not entry[0].ended))
    left = sum(weight for _, weight in entries)
    values, shares, share = list[float](), list[float](), 1.0
    for stay, weight in entries:
        if stay.ended:
            passed = share * weight / left
            share -= passed
            values.append(stay.seconds)
            shares.append(passed)
        left -= weight
    ends = [*accumulate(shares)]
    last = len(values) - 1
    levels = ((i + 0.5) / LEVELS for i in range(LEVELS))
    return tuple(values[min(bisect_right(ends, level), last)] for level in levels)


def limit_weight(rates: Sequence[Rates], weight: float) -> tuple[Rates, ...]:
    """Return the same rates with a weight of at most `weight`."""
    return tuple(replace(rate, weight=min(rate.weight, weight)) for rate in rates)


def _shaped(rates: Sequence[float], stays: Sequence[Stay]) -> tuple[float, ...]:
    """Return the rates, each moved towards the rate of ends observed at its age."""
    ends = [0] * len(AGES)
    spent = [0.0] * len(AGES)
    for stay in stays:
        for i, time in enumerate(_spent(stay.seconds)):
            spent[i] += time
        ends[_age(stay.seconds)] += stay.ended
    return tuple(
        rate * (SHAPE + end) / (SHAPE + rate * time / HOUR)
        for rate, end, time in zip(rates, ends, spent, strict=True)
    )


def _age(seconds: float) -> int:
    return max(0, bisect_right(AGES, seconds) - 1)


def _spent(seconds: float) -> list[float]:
    """Return the seconds that a duration of that length spent in each age."""
    ends = (*AGES[1:], float("inf"))
    return [max(0.0, min(seconds, end) - start) for start, end in zip(AGES, ends, strict=True)]
