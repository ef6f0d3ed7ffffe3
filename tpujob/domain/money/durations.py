"""How long a wait or a slice's life lasts, learned from those that ended and those that did not. Pure.

A duration ends at a rate that depends on its age: waits and lives of spot capacity are either short or very long, so
one mean says little. What is still going on, or was cut short by something else, counts for the age that it reached.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

HOUR = 3600.0
#: seconds of age at which the rate changes; the last one holds for ever
AGES = (0.0, 300.0, 900.0, 1800.0, 3600.0, 10_800.0, 36_000.0, 108_000.0)
#: the shape of one age's rate counts as much as this many ends that were seen
SHAPE = 4.0
#: values that stand for a duration that is much the same each time
LEVELS = 60
#: so many of those that were seen count as much as what is guessed of it
PRIOR = 2.0


class Stay(NamedTuple):
    """One duration."""

    seconds: float
    ended: bool  #: False: it goes on, or something else ended it


@dataclass(frozen=True, slots=True)
class Rates:
    """Ends in an hour, for each of `AGES`."""

    per_hour: tuple[float, ...]
    #: known as well as after so many ends; `inf`: exactly, as it was stated
    weight: float

    def expected(self, seconds: float) -> float:
        """Return how often a duration of that length was expected to end meanwhile."""
        return sum(r * t for r, t in zip(self.per_hour, _spent(seconds), strict=True)) / HOUR

    @property
    def half(self) -> float:
        """Seconds after which half have ended, if the rates are right."""
        return self._reached(math.log(2))

    def quantile(self, share: float) -> float:
        """Return the seconds after which that share has ended: the less is known of the rates, the wider apart."""
        left, weight = 1 - share, self.weight
        exact = math.isinf(weight)
        return self._reached(-math.log(left) if exact else weight * (left ** (-1 / weight) - 1))

    def survival(self, seconds: float) -> float:
        """Return the share that lasts longer, as `quantile` has it."""
        due, weight = self.expected(seconds), self.weight
        return math.exp(-due) if math.isinf(weight) else (1 + due / weight) ** -weight

    def mean(self, most: float = math.inf) -> float:
        """Return the mean seconds, each counted up to `most`, if the rates are right."""
        left, mean = 1.0, 0.0
        for rate, spent in zip(self.per_hour, _spent(most), strict=True):
            ended = left * -math.expm1(-rate * spent / HOUR)
            mean += ended * HOUR / rate
            left -= ended
        return mean

    def _reached(self, due: float) -> float:
        """Return the seconds in which so many ends are expected."""
        rates = [rate / HOUR for rate in self.per_hour]
        spans = [(end - start) * r for (start, end), r in zip(pairwise(AGES), rates, strict=False)]
        passed = [0.0, *accumulate(spans)]
        i = bisect_right(passed, due) - 1
        return AGES[i] + (due - passed[i]) / rates[i]


def stated(mean: float) -> Rates:
    """Ends at any age alike, after so many seconds on average."""
    return Rates((HOUR / max(mean, 1e-3),) * len(AGES), float("inf"))


def learned(priors: Sequence[Rates], seen: Sequence[Sequence[Stay]]) -> tuple[Rates, ...]:
    """What each prior becomes after durations of its kind were seen. Kinds share one factor, as the same place's
    scarcity is in all of them; beyond that each age's rate follows what was seen of it. The result's weight counts the
    ends of all kinds."""
    weight = priors[0].weight
    ends = sum(stay.ended for stays in seen for stay in stays)
    due = sum(p.expected(s.seconds) for p, stays in zip(priors, seen, strict=True) for s in stays)
    factor = (weight + ends) / (weight + due)
    return tuple(
        Rates(_shaped([rate * factor for rate in prior.per_hour], stays), weight + ends)
        for prior, stays in zip(priors, seen, strict=True)
    )


def likely(seen: Sequence[Stay], prior: Sequence[float]) -> tuple[float, ...]:
    """`LEVELS` equally likely seconds of something that is much the same each time; the prior counts as `PRIOR` that
    were seen. By the product limit of Kaplan and Meier: what was cut short is taken to be like what lasted as long."""
    weighed = [(stay, 1.0) for stay in seen]
    weighed += [(Stay(value, ended=True), PRIOR / len(prior)) for value in prior]
    weighed.sort(key=lambda each: (each[0].seconds, not each[0].ended))
    left = sum(weight for _, weight in weighed)
    values, shares, share = list[float](), list[float](), 1.0
    for stay, weight in weighed:
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


def known_as(rates: Sequence[Rates], weight: float) -> tuple[Rates, ...]:
    """The same rates, known as well as after `weight` ends at most."""
    return tuple(replace(one, weight=min(one.weight, weight)) for one in rates)


def _shaped(rates: Sequence[float], stays: Sequence[Stay]) -> tuple[float, ...]:
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
    """Return how long a duration of that length was of each age."""
    ends = (*AGES[1:], float("inf"))
    return [max(0.0, min(seconds, end) - start) for start, end in zip(AGES, ends, strict=True)]
