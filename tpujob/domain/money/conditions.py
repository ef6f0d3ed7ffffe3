"""What a job is to expect of a place: from what earlier jobs met there, elsewhere, and from a prior. Pure.

Where there is little history of spot slices the prior speaks. Its rates of waits and lives are *assumed*: they are
those of recorded spot availability of single GPU machines of another cloud in nine zones over 45 days, as no such
record of TPU slices is public. It counts as little as two preemptions that were seen. Waits, set-ups and releases of
which no job has met one are marked as not known: the forecast of such a job has no wait where it is not spot, and a
careful guess of set-up and release. A reserved slice has no wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tpujob.domain.money.durations import Rates, Stay, known_as, learned, likely, stated
from tpujob.domain.money.samples import SamplePlace, SliceSample

#: so many ends, at most, are believed: a zone has good days and bad ones
MOST_WEIGHT = 4.0
#: and of what was met elsewhere, with the same pricing, so many
ELSEWHERE = 2.0

Unknown = Literal["wait", "setup", "release"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What to expect of one slice: the first, or one after a loss."""

    wait: Rates
    life: Rates


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a job can expect of a place."""

    first: Turn
    later: Turn
    setup: tuple[float, ...]  #: equally likely seconds; never empty
    release: tuple[float, ...]  #: the same
    lost: tuple[float, ...]  #: empty: not known, any part of the time between two checkpoints
    slices: int  #: that were met at this place
    losses: int  #: of them
    stated: tuple[Literal["wait", "preemptions"], ...] = ()  #: what is not from history
    #: what no job has met yet and is not stated; forecasts are made without it, or with the prior
    unknown: tuple[Unknown, ...] = ()


# The prior: rates for each of `durations.AGES`. A first slice is asked for at any time, a later one in bad times.
_WEIGHT = 2.0
_FIRST_WAIT = Rates((16.0, 0.5, 0.35, 0.3, 0.24, 0.15, 0.07, 0.05), _WEIGHT)
_LATER_WAIT = Rates((1.0, 2.1, 1.5, 0.75, 0.4, 0.26, 0.14, 0.03), _WEIGHT)
_FIRST_LIFE = Rates((0.3, 0.6, 0.4, 0.25, 0.14, 0.08, 0.04, 0.028), _WEIGHT)
_LATER_LIFE = Rates((0.3, 2.0, 1.1, 0.8, 0.34, 0.15, 0.09, 0.027), _WEIGHT)
#: of what is not spot: hardware fails once in a month
_SAFE_LIFE = Rates((1 / 720,) * 8, _WEIGHT)
_NO_WAIT = (stated(0.0),) * 2
#: seconds, where no job has been measured
GUESSED_SETUP = (45.0, 120.0, 240.0, 480.0, 1200.0)
GUESSED_RELEASE = (5.0, 30.0, 60.0, 120.0, 300.0)
#: what one measurement says of the next, as few of them do not show how far they differ
_SPREAD = (0.125, 0.5, 1.0, 2.0, 8.0)


def conditions(
    met: Sequence[SliceSample],
    place: SamplePlace,
    program: str = "",
    *,
    wait: float | None = None,
    preempt_every: float | None = None,
) -> Conditions:
    """Return what a job with that program can expect there. `wait`, `preempt_every`: stated mean seconds; they count
    more than any history."""
    same = [m for m in met if m.place.pricing == place.pricing]
    here = [m for m in same if m.place == place]
    waits = _waits(place, same, here)
    safe = (_SAFE_LIFE, _SAFE_LIFE)
    lives = _rates(
        (_FIRST_LIFE, _LATER_LIFE) if place.pricing == "spot" else safe, same, here, "life"
    )
    if wait is not None:
        waits = (stated(wait),) * 2
    if preempt_every is not None:
        lives = (stated(preempt_every),) * 2
    mine = [m for m in same if m.program == program] if program else []
    setups, releases = _stays_of(met, "setup"), _stays_of(met, "release")
    unknown: list[Unknown] = []
    if wait is None and place.pricing != "reserved" and not any(m.wait.ended for m in same):
        unknown.append("wait")
    if not any(stay.ended for stay in setups):
        unknown.append("setup")
    if not releases:
        unknown.append("release")
    return Conditions(
        first=Turn(waits[0], lives[0]),
        later=Turn(waits[1], lives[1]),
        setup=_measured(_stays_of(mine, "setup"), setups, GUESSED_SETUP),
        release=_measured(_stays_of(same, "release"), releases, GUESSED_RELEASE),
        lost=tuple(m.lost for m in mine if m.lost is not None),
        slices=sum(m.life is not None for m in here),
        losses=sum(m.life is not None and m.life.ended for m in here),
        stated=(
            *(("wait",) if wait is not None else ()),
            *(("preemptions",) if preempt_every is not None else ()),
        ),
        unknown=tuple(unknown),
    )


def _waits(
    place: SamplePlace, same: Sequence[SliceSample], here: Sequence[SliceSample]
) -> tuple[Rates, ...]:
    """None for what is reserved. On-demand capacity is not like spot capacity, so its prior is the mean of its own
    waits."""
    if place.pricing == "reserved":
        return _NO_WAIT
    if place.pricing == "spot":
        return _rates((_FIRST_WAIT, _LATER_WAIT), same, here, "wait")
    ends = sum(m.wait.ended for m in same)
    if not ends:
        return _NO_WAIT
    mean = replace(stated(sum(m.wait.seconds for m in same) / ends), weight=_WEIGHT)
    return _rates((mean, mean), same, here, "wait")


def _stays_of(met: Sequence[SliceSample], what: Literal["setup", "release"]) -> list[Stay]:
    stays = (m.setup if what == "setup" else m.release for m in met)
    return [stay for stay in stays if stay is not None]


def _measured(
    own: Sequence[Stay], of_any: Sequence[Stay], guessed: tuple[float, ...]
) -> tuple[float, ...]:
    """Equally likely seconds: `own` measurements, with those of any job, spread, as the prior; `guessed` where there is
    none."""
    ended = [stay.seconds for stay in of_any if stay.ended]
    return likely(own, [seconds * times for seconds in ended for times in _SPREAD] or guessed)


def _rates(
    priors: tuple[Rates, Rates],
    same: Sequence[SliceSample],
    here: Sequence[SliceSample],
    what: Literal["wait", "life"],
) -> tuple[Rates, ...]:
    """What was met elsewhere makes the prior of what was met here."""
    there = known_as(learned(priors, _stays(same, what)), ELSEWHERE)
    return known_as(learned(there, _stays(here, what)), MOST_WEIGHT)


def _stays(met: Sequence[SliceSample], what: Literal["wait", "life"]) -> list[list[Stay]]:
    """Of first slices, and of later ones."""
    found: list[list[Stay]] = [[], []]
    for one in met:
        stay = one.wait if what == "wait" else one.life
        if stay is not None:
            found[one.later].append(stay)
    return found
