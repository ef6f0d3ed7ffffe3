"""Courses that a job may take from its submission to its end, and what they say of time and money together. Pure.

Each course is drawn from what a place's slices are like, first how scarce they are this time, then wait, life and
set-up of each. The numbers behind the draws are always the same, so the same question has the same answer.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

from tpujob.domain.money.forecast.durations import Rates
from tpujob.domain.money.forecast.experience import Conditions

#: courses: many, or fewer if each has many preemptions
MOST, LEAST = 600, 80
#: slices over all courses that are worth their time: this many take some 40 ms
SLICES = 9_000
#: a course of more preemptions goes on at the pace that it has shown
PATIENCE = 110
#: and is without hope when it takes so many times as long as its work
HOPELESS = 100.0


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done."""

    seconds: float  #: of steps that count, without any interruption
    checkpoint: float = 600.0  #: seconds between two checkpoints
    setup: float | None = (
        None  #: seconds from a ready slice to the first step; None: as history tells
    )
    preemptions: int | None = 100  #: of which the job fails at the next one; None: it never does
    wait: float | None = None  #: seconds of waiting for a slice after which it fails


class Range(NamedTuple):
    """Nine of ten jobs are to end between `low` and `high`. Both are set for nineteen of twenty courses, as what comes
    is never quite like what was."""

    low: float  #: a course in forty takes less
    p10: float
    p50: float
    p90: float
    high: float  #: a course in forty takes more


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of all courses. Those that fail count for what they took until then."""

    wall: Range  #: seconds from submission to the end
    billed: Range  #: seconds for which slices are billed
    preemptions: Range
    waiting: float  #: seconds without a ready slice, on average
    setup: float  #: seconds from ready to the first step, on average
    redone: float  #: seconds of steps that are made again, on average
    releasing: float  #: seconds from a program's end until its slice is gone, on average
    fails: float  #: the share of courses that use up the preemptions or the wait that the job is allowed
    courses: int


@dataclass(slots=True)
class _Course:
    done: float = 0.0
    waiting: float = 0.0
    setup: float = 0.0
    redone: float = 0.0
    releasing: float = 0.0
    losses: float = 0.0
    failed: bool = False

    @property
    def billed(self) -> float:
        return self.setup + self.done + self.redone + self.releasing


def forecast(work: Work, expected: Conditions) -> Forecast:
    """What the job will probably take. The same arguments have the same answer."""
    ways = _Ways(work, expected)
    uniform = _uniform()
    pilot = [ways.course(uniform, 0.5, 0.5) for _ in range(8)]
    slices = 1 + sum(course.losses for course in pilot) / len(pilot)
    count = max(LEAST, min(MOST, int(SLICES / min(slices, PATIENCE))))
    # the factors of waits and of lives, evenly spread and paired without a pattern
    levels = [(i + 0.5) / count for i in range(count)]
    mixed = sorted(levels, key=lambda _: uniform())
    courses = [ways.course(uniform, *pair) for pair in zip(levels, mixed, strict=True)]

    def mean(of: Callable[[_Course], float]) -> float:
        return sum(of(course) for course in courses) / count

    return Forecast(
        wall=_range([c.billed + c.waiting for c in courses]),
        billed=_range([c.billed for c in courses]),
        preemptions=_range([c.losses for c in courses]),
        waiting=mean(lambda c: c.waiting),
        setup=mean(lambda c: c.setup),
        redone=mean(lambda c: c.redone),
        releasing=mean(lambda c: c.releasing),
        fails=mean(lambda c: c.failed),
        courses=count,
    )


class _Ways:
    """What all courses of one job share."""

    def __init__(self, work: Work, expected: Conditions) -> None:
        self.work = work
        turns = (expected.first, expected.later)
        self.turns = [(turn.wait.drawing(), turn.life.drawing()) for turn in turns]
        self.factors = _factor(expected.first.wait), _factor(expected.first.life)
        self.setups = expected.setup if work.setup is None else (work.setup,)
        self.releases = expected.release
        # the part of the time between two checkpoints counts as one that was seen
        parts = tuple(work.checkpoint * (2 * i + 1) / 10 for i in range(5))
        self.lost = (*parts, *(value for value in expected.lost for _ in parts))

    def course(self, uniform: Callable[[], float], wait_level: float, life_level: float) -> _Course:
        work, course = self.work, _Course()
        scarce, short = self.factors[0](wait_level), self.factors[1](life_level)
        wait_of, life_of = self.turns[0]
        while course.losses < PATIENCE:
            waited = wait_of(-math.log(uniform()) / scarce)
            if work.wait is not None and waited > work.wait:
                course.waiting += work.wait
                return replace(course, failed=True)
            course.waiting += waited
            setup = _pick(self.setups, uniform())
            life = life_of(-math.log(uniform()) / short)
            course.releasing += _pick(self.releases, uniform())
            left = work.seconds - course.done
            if life >= setup + left:
                course.setup += setup
                course.done = work.seconds
                return course
            course.losses += 1
            course.setup += min(life, setup)
            ran = max(0.0, life - setup)
            lost = min(ran, _pick(self.lost, uniform()))
            course.redone += lost
            course.done += ran - lost
            if work.preemptions is not None and course.losses > work.preemptions:
                return replace(course, failed=True)
            wait_of, life_of = self.turns[1]
        return _at_that_pace(course, work)


def _at_that_pace(course: _Course, work: Work) -> _Course:
    """After many preemptions chance has evened out: the rest takes as long as what was done so far."""
    most = HOPELESS * work.seconds / max(course.billed, 1e-9)
    times = min(work.seconds / course.done, most) if course.done else most
    losses = course.losses * times
    limit = math.inf if work.preemptions is None else work.preemptions
    over = losses > limit
    if over:
        losses = limit + 1.0
        times = losses / course.losses
    return _Course(
        done=course.done * times,
        waiting=course.waiting * times,
        setup=course.setup * times,
        redone=course.redone * times,
        releasing=course.releasing * times,
        losses=losses,
        failed=over or course.done * times < work.seconds * 0.999,
    )


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


def _range(values: Sequence[float]) -> Range:
    ordered = sorted(values)
    last = len(ordered) - 1

    def at(share: float) -> float:
        place = share * last
        i = min(int(place), last - 1)
        return ordered[i] + (ordered[i + 1] - ordered[i]) * (place - i)

    return Range(at(0.025), at(0.1), at(0.5), at(0.9), at(0.975))
