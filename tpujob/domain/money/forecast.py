"""What a job will probably take, as a range of time and dollars, with the slices that it loses; which place is best.

Pure. Many runs of the job are simulated: each samples how scarce slices are this time, then wait, life and set-up of
each slice, as `conditions.py` expects them. The numbers behind the samples are always the same, so the same question
has the same answer.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import itemgetter
from statistics import NormalDist
from typing import Generic, NamedTuple, TypeVar

from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.money.conditions import Conditions
from tpujob.domain.money.durations import Rates
from tpujob.domain.money.estimate import estimate
from tpujob.domain.money.estimate_shapes import Use
from tpujob.domain.money.run_time import Throughput
from tpujob.domain.money.samples import SamplePlace

N = TypeVar("N", int, float)

#: runs: many, or fewer if each has many preemptions
MOST, LEAST = 600, 80
#: slices over all runs that are worth their time: this many take some 40 ms
SLICES = 9_000
#: a run that loses more slices counts as one that fails, whatever the job is allowed
LOSSES = 1_000


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
    """Of all runs. Those that fail count for what they took until then."""

    wall: Range[float]  #: seconds from submission to the end
    billed: Range[float]  #: seconds for which slices are billed
    preemptions: Range[float]
    waiting: float  #: seconds without a ready slice, on average
    setup: float  #: seconds from ready to the first step, on average
    redone: float  #: seconds of steps that are made again, on average
    releasing: float  #: seconds from a program's end until its slice is gone, on average
    #: the share of runs that use up the preemptions or the wait that the job is allowed
    fails: float


@dataclass(slots=True)
class _SimulatedRun:
    done: float = 0.0
    waiting: float = 0.0
    setup: float = 0.0
    redone: float = 0.0
    releasing: float = 0.0
    losses: int = 0
    failed: bool = False

    @property
    def billed(self) -> float:
        return self.setup + self.done + self.redone + self.releasing


def forecast(work: PlannedWork, expected: Conditions) -> Forecast:
    """What the job will probably take. The same arguments have the same answer."""
    simulation = _Simulation(work, expected)
    uniform = _uniform()
    pilot = [simulation.simulate(uniform, 0.5, 0.5) for _ in range(8)]
    slices = 1 + sum(run.losses for run in pilot) / len(pilot)
    count = max(LEAST, min(MOST, int(SLICES / slices)))
    # the factors of waits and of lives, evenly spread and paired without a pattern
    levels = [(i + 0.5) / count for i in range(count)]
    mixed = sorted(levels, key=lambda _: uniform())
    runs = [simulation.simulate(uniform, *pair) for pair in zip(levels, mixed, strict=True)]

    def mean(of: Callable[[_SimulatedRun], float]) -> float:
        return sum(of(run) for run in runs) / count

    return Forecast(
        wall=_range([c.billed + c.waiting for c in runs]),
        billed=_range([c.billed for c in runs]),
        preemptions=_range([c.losses for c in runs]),
        waiting=mean(lambda c: c.waiting),
        setup=mean(lambda c: c.setup),
        redone=mean(lambda c: c.redone),
        releasing=mean(lambda c: c.releasing),
        fails=mean(lambda c: c.failed),
    )


class _Simulation:
    """What all runs of one job share."""

    def __init__(self, work: PlannedWork, expected: Conditions) -> None:
        self.work = work
        turns = (expected.first, expected.later)
        self.turns = [(turn.wait.drawing(), turn.life.drawing()) for turn in turns]
        self.factors = _factor(expected.first.wait), _factor(expected.first.life)
        self.setups = expected.setup if work.setup is None else (work.setup,)
        self.releases = expected.release
        # the part of the time between two checkpoints counts as one that was seen
        parts = tuple(work.checkpoint * (2 * i + 1) / 10 for i in range(5))
        self.lost = (*parts, *(value for value in expected.lost for _ in parts))

    def simulate(
        self, uniform: Callable[[], float], wait_level: float, life_level: float
    ) -> _SimulatedRun:
        work, run = self.work, _SimulatedRun()
        scarce, short = self.factors[0](wait_level), self.factors[1](life_level)
        wait_of, life_of = self.turns[0]
        while True:
            waited = wait_of(-math.log(uniform()) / scarce)
            if work.wait is not None and waited > work.wait:
                run.waiting += work.wait
                return replace(run, failed=True)
            run.waiting += waited
            setup = _pick(self.setups, uniform())
            life = life_of(-math.log(uniform()) / short)
            run.releasing += _pick(self.releases, uniform())
            left = work.seconds - run.done
            if life >= setup + left:
                run.setup += setup
                run.done = work.seconds
                return run
            run.losses += 1
            run.setup += min(life, setup)
            ran = max(0.0, life - setup)
            lost = min(ran, _pick(self.lost, uniform()))
            run.redone += lost
            run.done += ran - lost
            if run.losses > min(work.preemptions, LOSSES):
                return replace(run, failed=True)
            wait_of, life_of = self.turns[1]


# Numbers -------------------------------------------------------------------------------------------------------------


def _uniform() -> Callable[[], float]:
    """Numbers between 0 and 1, always the same ones: Knuth's linear congruential generator of 64 bits."""
    state = 42

    def following() -> float:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        return ((state >> 11) + 0.5) / 2**53

    return following


def _factor(rates: Rates) -> Callable[[float], float]:
    """By how much the true rates may differ from these, as a function of a level between 0 and 1: gamma distributed
    with mean 1, by the approximation of Wilson and Hilferty."""
    if math.isinf(rates.weight):
        return lambda _: 1.0
    spread = 1 / (9 * rates.weight)
    normal = NormalDist()

    def factor(level: float) -> float:
        return max(0.02, (1 - spread + normal.inv_cdf(level) * math.sqrt(spread)) ** 3)

    return factor


def _pick(values: Sequence[float], level: float) -> float:
    return values[int(level * len(values))]


def _range(values: Sequence[float]) -> Range[float]:
    ordered = sorted(values)
    last = len(ordered) - 1

    def at(share: float) -> float:
        place = share * last
        i = min(int(place), last - 1)
        return ordered[i] + (ordered[i + 1] - ordered[i]) * (place - i)

    return Range(at(0.025), at(0.1), at(0.5), at(0.9), at(0.975))


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
        """Whether at least half of its runs do not fail."""
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
    """Of those that are known: the one of which half of all runs cost less than of any other, and the one of which
    half end sooner, without waits where one is not known; of several of these the cheaper one, then the first. A run
    that fails is no end: places where most do are not among them."""
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
