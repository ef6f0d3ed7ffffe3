"""What a job will probably take, as a range of time and dollars, with the slices that it loses; which place is best.

Pure. Losses of slices are a Poisson process whose rate is uncertain, so their number has a gamma-Poisson distribution.
A bound of a range takes the number of losses, and the wait, set-up and release of one slice, that each have its rank;
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

#: the shares of jobs that take less than each bound of a range
SHARES = (0.025, 0.1, 0.5, 0.9, 0.975)
#: shares that stand for all
_EVENLY = tuple((i + 0.5) / 50 for i in range(50))
_MANY = 10**9  #: losses


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """What is to be done."""

    seconds: float  #: of steps that count, without any interruption
    checkpoint: float = 600.0  #: seconds between two checkpoints
    #: seconds from a ready slice to the first step; None: as history shows
    setup: float | None = None
    preemptions: int = 100  #: the job fails at the next one
    wait: float | None = None  #: seconds of waiting for a slice after which it fails


class Range(NamedTuple, Generic[N]):
    """Nine of ten jobs are to end between `low` and `high`. Both are set for nineteen of twenty runs, as what comes
    is never quite like what was."""

    low: N  #: a run in forty takes less
    p10: N
    p50: N
    p90: N
    high: N  #: a run in forty takes more


@dataclass(frozen=True, slots=True)
class Forecast:
    """Times of jobs that fail are those until then."""

    wall: Range[float]  #: seconds from submission to the end
    billed: Range[float]  #: seconds for which slices are billed
    preemptions: Range[int]
    waiting: float  #: seconds without a ready slice, on average
    setup: float  #: seconds from ready to the first step, on average
    redone: float  #: seconds of steps that are made again, on average
    releasing: float  #: seconds from a program's end until its slice is gone, on average
    #: the probability that the job uses up the preemptions or the wait that it is allowed
    fails: float


def forecast(work: PlannedWork, expected: Conditions) -> Forecast:
    """What the job will probably take."""
    first, later = expected.first, expected.later
    setups = sorted(expected.setup if work.setup is None else (work.setup,))
    releases = sorted(expected.release)
    setup, release = fmean(setups), fmean(releases)
    # the part of the time between two checkpoints counts as one that was seen
    lost = min(fmean((work.checkpoint / 2, *expected.lost)), work.seconds / 2)
    losses, weight = _losses(work.seconds, setup, lost, expected), first.life.weight
    most = work.preemptions + 1
    mean = min(losses, float(most))
    limit = math.inf if work.wait is None else work.wait
    numbers, billed, walls = list[int](), list[float](), list[float]()
    for share in SHARES:
        number = bisect_left(range(_MANY), share, key=lambda n: _at_most(n, losses, weight))
        # below the median one less, as a loss may take less than the mean
        number = max(0, number - (share < 0.5))
        again = min(number, most - 1)  # slices after the first one
        time = work.seconds + _pick(setups, share) + number * (setup + lost)
        time *= min(1.0, most / (number + 1))  # else the last of the losses ends the job
        numbers.append(min(number, most))
        billed.append(time + _pick(releases, share) + again * release)
        waited = min(limit, first.wait.quantile(share)) + again * _wait(later.wait, limit, share)
        walls.append(billed[-1] + waited)
    waits = [fmean(_wait(turn.wait, limit, share) for share in _EVENLY) for turn in (first, later)]
    return Forecast(
        wall=Range(*sorted(walls)),  # jobs that fail may take less time than those that do not
        billed=Range(*sorted(billed)),
        preemptions=Range(*numbers),
        waiting=waits[0] + mean * waits[1],
        setup=(1 + mean) * setup,
        redone=mean * lost,
        releasing=(1 + mean) * release,
        fails=_fails(work, expected, losses),
    )


def _losses(seconds: float, setup: float, lost: float, expected: Conditions) -> float:
    """Return the expected number of losses, by Daly's formula for work with checkpoints. Their rate is that of slices
    that last as long as the work, or are lost before."""
    first, later, time = expected.first.life, expected.later.life, max(1.0, seconds + setup)
    after_first = (time - first.mean(time)) / later.mean(time)
    ends = (1 - math.exp(-life.expected(time)) for life in (first, later))
    rate = sum(share * slices for share, slices in zip(ends, (1, after_first), strict=True)) / time
    between = 2 * lost
    tries = rate * seconds if between == 0 else seconds / between * _grown(rate * between)
    return (1 + tries) * (1 + _grown(rate * setup)) - 1


def _grown(exponent: float) -> float:
    return math.expm1(min(exponent, 50.0))


def _at_most(number: int, mean: float, weight: float) -> float:
    """Return the probability of at most so many losses: of a Poisson distribution whose mean is known as well as after
    `weight` losses, by the approximation of Wilson and Hilferty."""
    if mean == 0:
        return 1.0
    own, spread = 1 / (9 * (number + 1)), 1 / (9 * weight)
    root = ((number + 1) / mean) ** (1 / 3)
    return NormalDist().cdf((root * (1 - own) - (1 - spread)) / math.sqrt(root**2 * own + spread))


def _wait(rates: Rates, limit: float, share: float) -> float:
    """Return the mean wait, up to the limit, when slices are scarcer than in that share of all times."""
    spread = 1 / (9 * rates.weight)
    root = 1 - spread + NormalDist().inv_cdf(1 - share) * math.sqrt(spread)
    return min(limit, rates.mean(limit) / max(0.02, root**3))


def _fails(work: PlannedWork, expected: Conditions, losses: float) -> float:
    """Return the probability that the job loses more slices, or waits longer, than it may."""
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
    """Micro-dollars that go with a range of time."""

    list: Range[int]
    pay: Range[int]  #: without what a grant pays for
    priced: bool  #: whether the slices are in it; without them it says next to nothing


def amounts(use: Use, found: Forecast, prices: PriceList = LIST) -> Amounts:
    """The estimate for each bound of the time for which slices are billed."""
    hours = (Decimal(str(round(seconds / 3600, 6))) for seconds in found.billed)
    each = [estimate(replace(use, hours=time), prices) for time in hours]
    return Amounts(
        Range(*(one.list_micros for one in each)),
        Range(*(one.pay_micros for one in each)),
        all(one.priced for one in each),
    )


class Outlook(NamedTuple):
    """What a job will probably take at one place, and what it will cost."""

    hours: float  #: of steps
    forecast: Forecast
    conditions: Conditions
    amounts: Amounts

    @property
    def ends(self) -> bool:
        """Whether it is more likely to end than to fail."""
        return self.forecast.fails <= 0.5


@dataclass(frozen=True, slots=True)
class PlaceOption:
    """One place where a job may run."""

    place: SamplePlace
    throughput: Throughput | None  #: None: unknown speed
    outlook: Outlook | None  #: None: the same


class Best(NamedTuple):
    cheapest: SamplePlace | None
    fastest: SamplePlace | None


def best(ways: Sequence[PlaceOption]) -> Best:
    """Of those that are known: the one with the least median cost, and the one with the least median time, without
    waits where one is not known; of several of these the cheaper one, then the first. Places where the job will more
    likely fail are not among them."""
    ending = [(way.outlook, way.place) for way in ways if way.outlook and way.outlook.ends]
    waits_known = not any("wait" in one.conditions.unknown for one, _ in ending)

    def cost(one: Outlook) -> tuple[float, float]:
        costs = one.amounts
        return (costs.pay.p50, costs.list.p50) if costs.priced else (math.inf, math.inf)

    def time(one: Outlook) -> tuple[float, ...]:
        found = one.forecast
        return (found.wall if waits_known else found.billed).p50, *cost(one)

    paid = [(cost(one), place) for one, place in ending if one.amounts.priced]
    timed = [(time(one), place) for one, place in ending]
    return Best(
        min(paid, key=itemgetter(0), default=(None, None))[1],
        min(timed, key=itemgetter(0), default=(None, None))[1],
    )
