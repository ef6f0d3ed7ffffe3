"""What a job will probably take, as a range of time and dollars, with the slices that it loses; which place is best.

Pure. Losses of slices are a Poisson process whose rate is uncertain, so their number has a gamma-Poisson distribution.
A bound of a range takes the number of losses, and the wait, set-up and release of one slice, that each have its rank;
every further slice takes the means.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import itemgetter
from statistics import NormalDist, fmean
from typing import Generic, NamedTuple, TypeVar

from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.money.conditions import Conditions
from tpujob.domain.money.durations import HOUR, Rates
from tpujob.domain.money.estimate import estimate
from tpujob.domain.money.estimate_shapes import Use
from tpujob.domain.money.run_time import Throughput
from tpujob.domain.money.samples import SamplePlace

N = TypeVar("N", int, float)

#: the shares of jobs that take less than each bound of a range
SHARES = (0.025, 0.1, 0.5, 0.9, 0.975)
#: seconds of a slice's life whose mean rate of losses counts for all of it
TYPICAL = 4 * HOUR


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
    # the part of the time between two checkpoints counts as one that was seen
    lost = fmean((work.checkpoint / 2, *expected.lost))
    setup, release = fmean(setups), fmean(releases)
    per_second = (first.life.expected(TYPICAL) + later.life.expected(TYPICAL)) / 2 / TYPICAL
    # each loss makes more time in which slices can be lost
    progress = 1 - per_second * (setup + lost)
    time = max(1.0, work.seconds + setup)
    losses = per_second * time / progress if progress > 0 else math.inf
    most = work.preemptions + 1
    mean = min(losses, float(most))

    def wait_of(rates: Rates, share: float) -> float:
        seconds = rates.quantile(share)
        return seconds if work.wait is None else min(seconds, work.wait)

    shares = [(i + 0.5) / 50 for i in range(50)]
    first_wait, later_wait = (fmean(wait_of(t.wait, s) for s in shares) for t in (first, later))
    numbers, billed, walls = list[int](), list[float](), list[float]()
    for share, number in zip(SHARES, _numbers(losses, first.life.weight, most), strict=True):
        numbers.append(min(number, most))
        time = _pick(setups, share) + _pick(releases, share)
        time += numbers[-1] * (setup + release + lost)
        billed.append(min(work.seconds, most / per_second) + time)
        walls.append(billed[-1] + wait_of(first.wait, share) + numbers[-1] * later_wait)
    return Forecast(
        wall=Range(*walls),
        billed=Range(*billed),
        preemptions=Range(*numbers),
        waiting=first_wait + mean * later_wait,
        setup=(1 + mean) * setup,
        redone=mean * lost,
        releasing=(1 + mean) * release,
        fails=_fails(work, expected, losses, mean),
    )


def _numbers(mean: float, weight: float, most: int) -> list[int]:
    """Return the numbers of losses at `SHARES`: of a Poisson distribution whose mean is known as well as after `weight`
    losses, by the approximation of Wilson and Hilferty. Below the median they are rounded down."""
    if mean >= most:
        return [most] * len(SHARES)
    spread = (1 / mean + 1 / weight) / 9
    roots = (1 - spread + NormalDist().inv_cdf(share) * math.sqrt(spread) for share in SHARES)
    numbers = [mean * max(0.0, root) ** 3 for root in roots]
    return [
        math.floor(number) if share < 0.5 else round(number)
        for number, share in zip(numbers, SHARES, strict=True)
    ]


def _fails(work: PlannedWork, expected: Conditions, losses: float, mean: float) -> float:
    """Return the probability that the job loses more slices, or waits longer, than it may."""
    most, ends = work.preemptions + 1, 0.0
    if losses < most:
        spread = (1 / losses + 1 / expected.first.life.weight) / 9
        root = (most / losses) ** (1 / 3)
        ends = NormalDist().cdf((root - 1 + spread) / math.sqrt(spread))
    if work.wait is not None:
        ends *= 1 - expected.first.wait.survival(work.wait)
        ends *= (1 - expected.later.wait.survival(work.wait)) ** mean
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
