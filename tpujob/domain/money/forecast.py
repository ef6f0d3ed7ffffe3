"""Forecasts: the range of a job's time and cost, with the slices that it will lose, and the best place for the job.

Pure. Losses of slices are a Poisson process with an uncertain rate, so their number has a gamma-Poisson distribution.
For each bound of a range, the number of losses, the first wait, one set-up and one release are quantiles of its share;
every further slice takes the means.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import itemgetter
from statistics import NormalDist, fmean
from typing import Generic, NamedTuple, TypeVar

from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.money.conditions import Conditions
from tpujob.domain.money.durations import Rates
from tpujob.domain.money.estimate import estimate
from tpujob.domain.money.estimate_shapes import Use
from tpujob.domain.money.run_time import Throughput
from tpujob.domain.money.samples import SamplePlace

N = TypeVar("N", int, float)

#: for each bound of a range, the share of jobs that take less
SHARES = (0.025, 0.1, 0.5, 0.9, 0.975)
#: evenly spaced shares, for a mean over all of them
_EVENLY = tuple((i + 0.5) / 50 for i in range(50))
_MANY = 10**9  #: more losses than any job has


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """The work of a job, and its limits."""

    seconds: float  #: seconds of steps that count, without any interruption
    checkpoint: float = 600.0  #: seconds between two checkpoints
    #: seconds from a ready slice to the first step; None: from history
    setup: float | None = None
    preemptions: int = 100  #: the job fails at the next preemption
    wait: float | None = None  #: the job fails if it waits more seconds for a slice
    #: seconds from ready until the program is stopped for the planned end of its slice; None: no end is planned
    run_for: float | None = None
    planned_ends: int = 0  #: the job fails at the next planned end


class Range(NamedTuple, Generic[N]):
    """A range for nine of ten jobs. By the model it has nineteen of twenty, as the future differs from history."""

    low: N  #: a job in forty takes less
    p10: N
    p50: N
    p90: N
    high: N  #: a job in forty takes more


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected times and losses of a job. With one loss too many it ends. A wait beyond its limit counts as if a
    slice came at the limit; only `fails` has the jobs that give up waiting."""

    wall: Range[float]  #: seconds from submission to the end
    billed: Range[float]  #: seconds for which slices are billed
    preemptions: Range[int]
    planned_ends: int  #: slices that end as planned before the work is done
    waiting: float  #: seconds without a ready slice, on average
    setup: float  #: seconds from ready to the first step, on average
    redone: float  #: seconds of steps that are repeated, on average
    releasing: float  #: seconds from a program's end until its slice is gone, on average
    #: the probability that the job uses up its preemptions, its wait or its planned ends
    fails: float


def forecast(work: PlannedWork, expected: Conditions) -> Forecast:
    """Return the forecast of the work in these conditions."""
    first, later = expected.first, expected.later
    setups = sorted(expected.setup if work.setup is None else (work.setup,))
    releases = sorted(expected.release)
    setup, release = fmean(setups), fmean(releases)
    # half of the time between two checkpoints counts as one more observed loss
    lost_steps = min(fmean((work.checkpoint / 2, *expected.lost)), work.seconds / 2)
    losses, weight = _losses(work.seconds, setup, lost_steps, expected), first.life.weight
    most_losses = work.preemptions + 1
    mean_losses = min(losses, float(most_losses))
    wait_limit = math.inf if work.wait is None else work.wait
    ends = _planned_ends(work, setup)
    numbers, billed, walls = list[int](), list[float](), list[float]()
    for share in SHARES:
        count = bisect_left(range(_MANY), share, key=lambda n: _at_most(n, losses, weight))
        # one loss less below the median, as a loss may take less than the mean
        count = max(0, count - (share < 0.5))
        later_slices = min(count, most_losses - 1)  # slices after the first one
        seconds = work.seconds + _pick(setups, share) + count * (setup + lost_steps)
        seconds += ends * setup
        seconds *= min(1.0, most_losses / (count + 1))  # the last allowed loss ends the job
        numbers.append(min(count, most_losses))
        later_slices += ends
        billed.append(seconds + _pick(releases, share) + later_slices * release)
        first_wait = min(wait_limit, first.wait.quantile(share))
        later_wait = _wait(later.wait, wait_limit, share)
        walls.append(billed[-1] + (first_wait + later_slices * later_wait))
    waits = [fmean(_wait(t.wait, wait_limit, share) for share in _EVENLY) for t in (first, later)]
    return Forecast(
        wall=Range(*sorted(walls)),  # jobs that fail may take less time than those that do not
        billed=Range(*sorted(billed)),
        preemptions=Range(*numbers),
        planned_ends=ends,
        waiting=waits[0] + (mean_losses + ends) * waits[1],
        setup=(1 + mean_losses + ends) * setup,
        redone=mean_losses * lost_steps,
        releasing=(1 + mean_losses + ends) * release,
        fails=1.0 if ends > work.planned_ends else _fails(work, expected, losses),
    )


def _planned_ends(work: PlannedWork, setup: float) -> int:
    """Return how many slices end as planned before the work is done."""
    if work.run_for is None:
        return 0
    return max(1, math.ceil(work.seconds / max(60.0, work.run_for - setup))) - 1


def _losses(seconds: float, setup: float, lost: float, expected: Conditions) -> float:
    """Return the expected number of losses, by Daly's formula for work with checkpoints. The rate is that of slices
    that last for the whole work or are lost before. `lost`: seconds of steps that a loss costs."""
    first, later = expected.first.life, expected.later.life
    time = max(1.0, seconds + setup)
    later_slices = (time - first.mean(time)) / later.mean(time)
    first_ends, later_ends = (1 - math.exp(-life.expected(time)) for life in (first, later))
    rate = (first_ends + later_ends * later_slices) / time
    interval = 2 * lost
    tries = rate * seconds if interval == 0 else seconds / interval * _expm1(rate * interval)
    return (1 + tries) * (1 + _expm1(rate * setup)) - 1


def _expm1(exponent: float) -> float:
    """Return `math.expm1` of the exponent, limited to 50."""
    return math.expm1(min(exponent, 50.0))


def _at_most(number: int, mean: float, weight: float) -> float:
    """Return the probability of at most `number` losses, by the approximation of Wilson and Hilferty. The mean of the
    Poisson distribution is as certain as after `weight` observed losses."""
    if mean == 0:
        return 1.0
    own, spread = 1 / (9 * (number + 1)), 1 / (9 * weight)
    root = ((number + 1) / mean) ** (1 / 3)
    return NormalDist().cdf((root * (1 - own) - (1 - spread)) / math.sqrt(root**2 * own + spread))


def _wait(rates: Rates, limit: float, share: float) -> float:
    """Return the mean wait, up to the limit, at a time when slices are scarcer than at `share` of all times."""
    spread = 1 / (9 * rates.weight)
    root = 1 - spread + NormalDist().inv_cdf(1 - share) * math.sqrt(spread)
    return min(limit, rates.mean(limit) / max(0.02, root**3))


def _fails(work: PlannedWork, expected: Conditions, losses: float) -> float:
    """Return the probability that the job loses more slices, or waits longer, than its limits."""
    weight = expected.first.life.weight
    ends = _at_most(work.preemptions, losses, weight)
    if work.wait is not None:
        ends *= 1 - expected.first.wait.survival(work.wait)
        ends *= _at_most(0, losses * expected.later.wait.survival(work.wait), weight)
    return 1 - ends


def _pick(ordered: Sequence[float], share: float) -> float:
    return ordered[int(share * len(ordered))]


@dataclass(frozen=True, slots=True)
class Amounts:
    """The range of a job's cost, in micro-dollars."""

    list: Range[int]
    pay: Range[int]  #: without slices that a grant pays for
    priced: bool  #: whether the price of the slices is known; without it the amounts mean little


def amounts(use: Use, forecast: Forecast, prices: PriceList = LIST) -> Amounts:
    """Return the cost of each bound of the time for which slices are billed."""
    hours = (Decimal(str(round(seconds / 3600, 6))) for seconds in forecast.billed)
    estimates = [estimate(replace(use, hours=time), prices) for time in hours]
    return Amounts(
        Range(*(e.list_micros for e in estimates)),
        Range(*(e.pay_micros for e in estimates)),
        all(e.priced for e in estimates),
    )


class Outlook(NamedTuple):
    """The forecast of a job's time and cost at one place."""

    hours: float  #: hours of steps
    forecast: Forecast
    conditions: Conditions
    amounts: Amounts

    @property
    def ends(self) -> bool:
        """Whether the job is more likely to succeed than to fail."""
        return self.forecast.fails <= 0.5


@dataclass(frozen=True, slots=True)
class PlaceOption:
    """One place where a job may run."""

    place: SamplePlace
    throughput: Throughput | None  #: None: unknown speed
    outlook: Outlook | None  #: None: unknown speed


class Best(NamedTuple):
    """The best places for a job; None: unknown, or the job would fail everywhere."""

    cheapest: SamplePlace | None
    fastest: SamplePlace | None


def best(options: Sequence[PlaceOption]) -> Best:
    """Return the places with the least median cost and the least median time, of those where the job will likely end.
    If the wait at a place is unknown, times are without waits. Of equally fast places, prefer the cheaper one."""
    ending = [
        (option.outlook, option.place)
        for option in options
        if option.outlook and option.outlook.ends
    ]
    waits_known = not any("wait" in outlook.conditions.unknown for outlook, _ in ending)

    def cost(outlook: Outlook) -> tuple[float, float]:
        costs = outlook.amounts
        return (costs.pay.p50, costs.list.p50) if costs.priced else (math.inf, math.inf)

    def time(outlook: Outlook) -> tuple[float, ...]:
        forecast = outlook.forecast
        return (forecast.wall if waits_known else forecast.billed).p50, *cost(outlook)

    costs = [(cost(outlook), place) for outlook, place in ending if outlook.amounts.priced]
    times = [(time(outlook), place) for outlook, place in ending]
    return Best(
        cheapest=min(costs, key=itemgetter(0), default=(None, None))[1],
        fastest=min(times, key=itemgetter(0), default=(None, None))[1],
    )
