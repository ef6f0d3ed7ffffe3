"""What earlier jobs met: waits, lives of slices, set-up, lost work; and what a new job is to expect of a place. Pure.

Where there is little history the prior speaks. Its rates of waits and lives are *inferred*: they are those of recorded
spot availability of single GPU machines of another cloud in nine zones over 45 days, as no such record of TPU slices
is public. It counts as little as two preemptions that were seen. Its other figures are careful guesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tpujob.domain.model import Attempt, Cause, Job, Pricing, Rest, Slice
from tpujob.domain.money.forecast.durations import Rates, Stay, known_as, learned, stated
from tpujob.domain.money.goodput import Part, spans
from tpujob.domain.money.ledger import US
from tpujob.domain.spec import JobSpec

#: ends of an attempt in which the slice was lost, and not by the job's doing
LOSSES = frozenset({Cause.PREEMPTED, Cause.MAINTENANCE, Cause.LOST_CONTACT, Cause.BAD_HOST})
#: so many ends, at most, are believed: a zone of last month is not quite that of today
MOST_WEIGHT = 20.0
#: and of what was met elsewhere, with the same pricing, so many
ELSEWHERE = 2.0
#: newest slices that are looked at
NEWEST = 2000


class Place(NamedTuple):
    """Where, and on which terms, a job may have a slice."""

    type: str
    zone: str
    pricing: Pricing
    tpu_slices: int = 1


@dataclass(frozen=True, slots=True)
class Met:
    """What a job met with one slice, or while it waited for one. None: nothing is known of it."""

    place: Place
    program: str  #: the bundled workload or the command
    later: bool  #: the job had lost one before
    wait: Stay  #: from when it wanted a slice until one was ready
    life: Stay | None = None  #: from then until it was lost
    setup: float | None = (
        None  #: seconds from ready to the first step, or to a program without steps
    )
    lost: float | None = None  #: seconds of steps that were made again after its loss
    release: float | None = None  #: seconds from the end of its program until it was gone


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be expected of one slice: the first, or one after a loss."""

    wait: Rates
    life: Rates


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a job is to expect of a place."""

    first: Turn
    later: Turn
    setup: tuple[float, ...]  #: equally likely seconds; never empty
    release: tuple[float, ...]
    lost: tuple[float, ...]  #: empty: not known, any part of the time between two checkpoints
    slices: int  #: that were met at this place
    losses: int  #: of them
    stated: tuple[Literal["wait", "preemptions"], ...] = ()  #: what is not from history


# The prior: rates for each of `durations.AGES`. A first slice is asked for at any time, a later one in bad times.
_WEIGHT = 2.0
_FIRST_WAIT = Rates((16.0, 0.5, 0.35, 0.3, 0.24, 0.15, 0.07, 0.05), _WEIGHT)
_LATER_WAIT = Rates((1.0, 2.1, 1.5, 0.75, 0.4, 0.26, 0.14, 0.03), _WEIGHT)
_FIRST_LIFE = Rates((0.3, 0.6, 0.4, 0.25, 0.14, 0.08, 0.04, 0.028), _WEIGHT)
_LATER_LIFE = Rates((0.3, 2.0, 1.1, 0.8, 0.34, 0.15, 0.09, 0.027), _WEIGHT)
#: of what is not spot: hardware fails once in a month
_SAFE_LIFE = Rates((1 / 720,) * 8, _WEIGHT)
_SETUP = (90.0, 150.0, 240.0, 420.0, 900.0)
_RELEASE = (15.0, 60.0, 120.0, 180.0, 300.0)


def history(jobs: Iterable[Job], now: float) -> list[Met]:
    """What these jobs met, the newest slices of them."""
    found = [(met, at) for job in jobs for met, at in _met(job, now)]
    newest = sorted(found, key=lambda each: each[1])[-NEWEST:]
    return [met for met, _ in newest]


def conditions(
    met: Sequence[Met],
    place: Place,
    program: str = "",
    *,
    wait: float | None = None,
    preempt_every: float | None = None,
) -> Conditions:
    """What a job with that program is to expect there. `wait`, `preempt_every`: mean seconds that somebody states; they
    count more than any history."""
    same = [m for m in met if m.place.pricing == place.pricing]
    here = [m for m in same if m.place == place]
    waits = _rates((_FIRST_WAIT, _LATER_WAIT), same, here, "wait")
    safe = (_SAFE_LIFE, _SAFE_LIFE)
    lives = _rates(
        (_FIRST_LIFE, _LATER_LIFE) if place.pricing == "spot" else safe, same, here, "life"
    )
    if wait is not None:
        waits = (stated(wait),) * 2
    if preempt_every is not None:
        lives = (stated(preempt_every),) * 2
    mine = [m for m in same if m.program == program] if program else []
    return Conditions(
        first=Turn(waits[0], lives[0]),
        later=Turn(waits[1], lives[1]),
        setup=_values([m.setup for m in mine], _SETUP),
        release=_values([m.release for m in same], _RELEASE),
        lost=tuple(m.lost for m in mine if m.lost is not None),
        slices=sum(m.life is not None for m in here),
        losses=sum(m.life is not None and m.life.ended for m in here),
        stated=(
            *(("wait",) if wait is not None else ()),
            *(("preemptions",) if preempt_every is not None else ()),
        ),
    )


def _rates(
    priors: tuple[Rates, Rates],
    same: Sequence[Met],
    here: Sequence[Met],
    what: Literal["wait", "life"],
) -> tuple[Rates, ...]:
    """What was met elsewhere makes the prior of what was met here."""
    there = known_as(learned(priors, _stays(same, what)), ELSEWHERE)
    return known_as(learned(there, _stays(here, what)), MOST_WEIGHT)


def _stays(met: Sequence[Met], what: Literal["wait", "life"]) -> list[list[Stay]]:
    """Of first slices, and of later ones."""
    found: list[list[Stay]] = [[], []]
    for one in met:
        stay = one.wait if what == "wait" else one.life
        if stay is not None:
            found[one.later].append(stay)
    return found


def _values(seen: Sequence[float | None], prior: Sequence[float]) -> tuple[float, ...]:
    """As they were seen; the prior counts as one of them."""
    known = [value for value in seen if value is not None]
    return tuple(sorted([*(v for v in known for _ in prior), *prior]))


# One job -------------------------------------------------------------------------------------------------------------


def program_of(spec: JobSpec) -> str:
    """What tells its program from another: the bundled workload or the command."""
    return spec.run.workload or spec.run.command or ""


def _met(job: Job, now: float) -> Iterator[tuple[Met, float]]:
    """With the time at which each began."""
    parts = _parts(job, now)
    since, later = job.created_at, False
    for one in job.slices:
        since = max(since, _rested(job.rests, since, one.requested_at))
        last = one is job.slices[-1]
        place = Place(one.type, one.zone, one.pricing, one.tpu_slices)
        met = Met(place, program_of(job.spec), later, Stay(0.0, ended=False))
        if one.ready_at is None:
            if last:  # else the next slice ends this wait
                end = now if job.finished_at is None else job.finished_at
                yield replace(met, wait=Stay(max(0.0, end - since), ended=False)), since
            continue
        wait = Stay(max(0.0, one.ready_at - since), ended=True)
        attempts = [a for a in job.attempts if a.slice == one.name]
        final = attempts[-1] if attempts else None
        lost = final is not None and final.cause in LOSSES
        yield (
            replace(
                met,
                wait=wait,
                life=Stay(max(0.0, _end(one, final, now) - one.ready_at), ended=lost),
                **_took(parts.get(one.name, {}), one, lost=lost),
            ),
            since,
        )
        ends = [at for at in (one.condemned_at, one.gone_at) if at is not None]
        since, later = min(ends, default=now), lost


def _end(one: Slice, final: Attempt | None, now: float) -> float:
    """When it was of no more use."""
    ends = [final.ended_at if final else None, one.gone_at]
    return min((at for at in ends if at is not None), default=now)


def _took(parts: dict[Part, float], one: Slice, *, lost: bool) -> dict[str, float | None]:
    """Set-up counts once it is over; work is lost with the slice; the release counts once the slice is gone."""
    worked = any(parts.get(p) for p in (Part.PRODUCTIVE, Part.REDONE, Part.UNTOLD))
    told = worked and not parts.get(Part.UNTOLD)
    return {
        "setup": parts.get(Part.PREPARING, 0.0) + parts.get(Part.COMPILING, 0.0)
        if worked
        else None,
        "lost": parts.get(Part.REDONE, 0.0) if lost and told else None,
        "release": None if one.gone_at is None else parts.get(Part.RELEASING),
    }


def _parts(job: Job, now: float) -> dict[str, dict[Part, float]]:
    """Seconds of each part, by slice."""
    found: dict[str, dict[Part, float]] = {}
    for span in spans(job, now):
        if span.slice is not None:
            parts = found.setdefault(span.slice.name, {})
            parts[span.part] = parts.get(span.part, 0.0) + (span.end - span.start) / US
    return found


def _rested(rests: Sequence[Rest], since: float, until: float) -> float:
    """The end of the last rest between the two times; or `since`."""
    return max((r.end for r in rests if since <= r.start and r.end <= until), default=since)
