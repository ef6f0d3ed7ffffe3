"""The conditions that a job can expect at a place: from earlier jobs there and elsewhere, and from a prior. Pure.

The prior counts as much as two observed preemptions, so it matters where history is short. Its rates of waits and
lives are *assumed*: no record of TPU slices is public, so they are from recorded spot availability of single GPU
machines of another cloud, in nine zones over 45 days. What no job has had yet is marked as unknown: a wait with that
pricing, a set-up, a release. Forecasts use careful guesses of set-up and release, and no wait unless the slice is spot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.money.durations import (
    Rates,
    Stay,
    constant_rates,
    learn_rates,
    limit_weight,
    quantiles,
)
from tpujob.domain.money.samples import SamplePlace, SliceSample

#: the largest weight of history, in observed ends: a zone has good days and bad ones
MAX_WEIGHT = 4.0
#: the largest weight of history at other places with the same pricing
ELSEWHERE = 2.0

Unknown = Literal["wait", "setup", "release"]


@dataclass(frozen=True, slots=True)
class Turn:
    """The expected wait and life of one slice: the first, or a later one that replaces a lost one."""

    wait: Rates
    life: Rates


@dataclass(frozen=True, slots=True)
class Conditions:
    """Waits, lives, set-ups and losses that a job can expect at a place."""

    first: Turn
    later: Turn
    setup: tuple[float, ...]  #: equally likely seconds; never empty
    release: tuple[float, ...]  #: the same
    #: seconds of steps lost with a slice; empty: unknown, any part of a checkpoint's interval
    lost: tuple[float, ...]
    slices: int  #: count of slices that earlier jobs had at this place
    losses: int  #: count of these slices that were lost
    stated: tuple[Literal["wait", "preemptions"], ...] = ()  #: the values that the user stated
    #: neither in history nor stated: forecasts use the prior, a guess, or no wait
    unknown: tuple[Unknown, ...] = ()


# The prior: rates for each of `durations.AGES`. A first slice is requested at any time, a later one in bad times.
_WEIGHT = 2.0
_FIRST_WAIT = Rates((16.0, 0.5, 0.35, 0.3, 0.24, 0.15, 0.07, 0.05), _WEIGHT)
_LATER_WAIT = Rates((1.0, 2.1, 1.5, 0.75, 0.4, 0.26, 0.14, 0.03), _WEIGHT)
_FIRST_LIFE = Rates((0.3, 0.6, 0.4, 0.25, 0.14, 0.08, 0.04, 0.028), _WEIGHT)
_LATER_LIFE = Rates((0.3, 2.0, 1.1, 0.8, 0.34, 0.15, 0.09, 0.027), _WEIGHT)
#: the life of a slice that is not spot: hardware fails once in a month
_SAFE_LIFE = Rates((1 / 720,) * 8, _WEIGHT)
_NO_WAIT = (constant_rates(0.0),) * 2
#: seconds, where no job has been measured
GUESSED_SETUP = (45.0, 120.0, 240.0, 480.0, 1200.0)
GUESSED_RELEASE = (5.0, 30.0, 60.0, 120.0, 300.0)
#: factors that spread a measurement of another job, as a few measurements do not show how far jobs differ
_SPREAD = (0.125, 0.5, 1.0, 2.0, 8.0)


def conditions(
    samples: Sequence[SliceSample],
    place: SamplePlace,
    program: str = "",
    *,
    wait: float | None = None,
    preempt_every: float | None = None,
) -> Conditions:
    """Return what a job can expect at the place. `wait`, `preempt_every`: stated mean seconds; they replace history."""
    same_pricing = [m for m in samples if m.place.pricing == place.pricing]
    same_place = [m for m in same_pricing if m.place == place]
    waits = _waits(place, same_pricing, same_place)
    terms = find_pricing(place.pricing)
    priors = (_FIRST_LIFE, _LATER_LIFE) if terms.preemptible else (_SAFE_LIFE, _SAFE_LIFE)
    lives = _rates(priors, same_pricing, same_place, "life")
    if wait is not None:
        waits = (constant_rates(wait),) * 2
    if preempt_every is not None:
        lives = (constant_rates(preempt_every),) * 2
    same_program = [m for m in same_pricing if m.program == program] if program else []
    setups, releases = _stays_of(samples, "setup"), _stays_of(samples, "release")
    unknown: list[Unknown] = []
    if wait is None and terms.waits_in_queue and not any(m.wait.ended for m in same_pricing):
        unknown.append("wait")
    if not any(stay.ended for stay in setups):
        unknown.append("setup")
    if not releases:
        unknown.append("release")
    return Conditions(
        first=Turn(waits[0], lives[0]),
        later=Turn(waits[1], lives[1]),
        setup=_measured(_stays_of(same_program, "setup"), setups, GUESSED_SETUP),
        release=_measured(_stays_of(same_pricing, "release"), releases, GUESSED_RELEASE),
        lost=tuple(m.lost for m in same_program if m.lost is not None),
        slices=sum(m.life is not None for m in same_place),
        losses=sum(m.life is not None and m.life.ended for m in same_place),
        stated=(
            *(("wait",) if wait is not None else ()),
            *(("preemptions",) if preempt_every is not None else ()),
        ),
        unknown=tuple(unknown),
    )


def _waits(
    place: SamplePlace, same_pricing: Sequence[SliceSample], same_place: Sequence[SliceSample]
) -> tuple[Rates, ...]:
    """Return the rates at which waits for a first and for a later slice end. Reserved slices have no wait. The prior of
    on-demand slices is the mean of their own waits, as they are unlike spot slices."""
    terms = find_pricing(place.pricing)
    if not terms.waits_in_queue:
        return _NO_WAIT
    if terms.preemptible:
        return _rates((_FIRST_WAIT, _LATER_WAIT), same_pricing, same_place, "wait")
    ends = sum(m.wait.ended for m in same_pricing)
    if not ends:
        return _NO_WAIT
    mean = replace(constant_rates(sum(m.wait.seconds for m in same_pricing) / ends), weight=_WEIGHT)
    return _rates((mean, mean), same_pricing, same_place, "wait")


def _stays_of(samples: Sequence[SliceSample], kind: Literal["setup", "release"]) -> list[Stay]:
    stays = (m.setup if kind == "setup" else m.release for m in samples)
    return [stay for stay in stays if stay is not None]


def _measured(
    own: Sequence[Stay], of_all_jobs: Sequence[Stay], guess: tuple[float, ...]
) -> tuple[float, ...]:
    """Return equally likely seconds from `own` measurements; prior: the spread ones of all jobs, or else `guess`."""
    ended = [stay.seconds for stay in of_all_jobs if stay.ended]
    return quantiles(own, [seconds * factor for seconds in ended for factor in _SPREAD] or guess)


def _rates(
    priors: tuple[Rates, Rates],
    same_pricing: Sequence[SliceSample],
    same_place: Sequence[SliceSample],
    kind: Literal["wait", "life"],
) -> tuple[Rates, ...]:
    """Return the rates learned at this place; their prior is what all places with the same pricing teach."""
    elsewhere = limit_weight(learn_rates(priors, _stays(same_pricing, kind)), ELSEWHERE)
    return limit_weight(learn_rates(elsewhere, _stays(same_place, kind)), MAX_WEIGHT)


def _stays(samples: Sequence[SliceSample], kind: Literal["wait", "life"]) -> list[list[Stay]]:
    """Return the waits or the lives of first slices, and those of later slices."""
    stays: list[list[Stay]] = [[], []]
    for sample in samples:
        stay = sample.wait if kind == "wait" else sample.life
        if stay is not None:
            stays[sample.later].append(stay)
    return stays
