"""What jobs met, read from their records: waits, lives of slices, set-up, lost work, and the speed of steps. Pure.

All of it is as the backend saw it, every ten seconds or so. What makes a new job expect something is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tpujob.domain.model import Attempt, Cause, Job, Pricing, Slice
from tpujob.domain.money.durations import Stay
from tpujob.domain.money.pace import first_step_began, seconds_per_step
from tpujob.domain.progress import began_from

if TYPE_CHECKING:
    from tpujob.domain.spec import JobSpec  # pydantic: only for who reads job files

#: ends of an attempt in which the slice was lost, and not by the job's doing
LOSSES = frozenset({Cause.PREEMPTED, Cause.MAINTENANCE, Cause.LOST_CONTACT, Cause.BAD_HOST})
#: newest slices that are looked at
NEWEST = 2000


class SamplePlace(NamedTuple):
    """Where, and on which terms, a job may have a slice."""

    type: str
    zone: str
    pricing: Pricing
    tpu_slices: int = 1


class SliceSample(NamedTuple):
    """What a job met with one slice, or while it waited for one. None: nothing is known of it."""

    place: SamplePlace
    program: str  #: as `program_of` names it
    later: bool  #: the job had lost one before
    wait: Stay  #: from when it wanted a slice until one was ready
    life: Stay | None = None  #: from then until it was seen to be lost
    setup: Stay | None = None  #: from ready to the first step, or to a program without steps
    lost: float | None = None  #: seconds of steps that came to nothing with its loss
    release: Stay | None = None  #: from the end of its program until it was gone


def history(jobs: Iterable[Job], now: float) -> list[SliceSample]:
    """What these jobs met, the newest slices of them."""
    found = [each for job in jobs for each in _samples(job, now)]
    newest = sorted(found, key=lambda each: each[0])[-NEWEST:]
    return [met for _, met in newest]


def program_of(spec: JobSpec) -> str:
    """What tells its program from another: the bundled workload or the command."""
    return spec.run.workload or spec.run.command or ""


def _samples(job: Job, now: float) -> Iterator[tuple[float, SliceSample]]:
    """With the time at which each began."""
    program, pace = program_of(job.spec), _pace(job)
    since, later = job.created_at, False
    for one in job.slices:
        # the end of the last rest before this request
        since = max(
            [since, *(r.end for r in job.rests if since <= r.start and r.end <= one.requested_at)]
        )
        place = SamplePlace(one.type, one.zone, one.pricing, one.tpu_slices)
        if one.ready_at is None:
            if one is job.slices[-1]:  # else the next slice ends this wait
                end = now if job.finished_at is None else job.finished_at
                wait = Stay(max(0.0, end - since), ended=False)
                yield since, SliceSample(place, program, later, wait)
            continue
        attempts = [a for a in job.attempts if a.slice == one.name]
        final = attempts[-1] if attempts else None
        end = _end(one, final, now)
        lost = final is not None and final.cause in LOSSES
        yield (
            since,
            SliceSample(
                place,
                program,
                later,
                wait=Stay(max(0.0, one.ready_at - since), ended=True),
                life=Stay(max(0.0, end - one.ready_at), ended=lost),
                setup=_setup(attempts, one.ready_at, end, pace),
                lost=_lost(job.attempts, final, pace) if lost and final else None,
                release=None if one.gone_at is None else Stay(one.gone_at - end, ended=True),
            ),
        )
        ends = [at for at in (one.condemned_at, one.gone_at) if at is not None]
        since, later = min(ends, default=now), lost


def _pace(job: Job) -> float | None:
    """Seconds that a step takes when nothing delays it: as in the attempt that made the most, where a look that comes
    late matters least."""
    longest = max(job.attempts, key=_made, default=None)
    return None if longest is None else seconds_per_step(longest)


def _made(attempt: Attempt) -> int:
    return (attempt.progress.step or 0) - (attempt.first_step or 0)


def _end(one: Slice, final: Attempt | None, now: float) -> float:
    """Return when the slice was of no more use."""
    ends = [final.ended_at if final else None, one.gone_at]
    return min((at for at in ends if at is not None), default=now)


def _setup(attempts: Sequence[Attempt], ready: float, end: float, pace: float | None) -> Stay:
    """Before the program has worked it was cut short."""
    for attempt in attempts:
        began = first_step_began(attempt, pace)
        if began is not None:
            return Stay(max(0.0, began - ready), ended=True)
        silent = pace is None and not attempt.progress.phase  # it tells no steps
        if attempt.running_at is not None and silent:
            return Stay(max(0.0, attempt.running_at - ready), ended=True)
    return Stay(max(0.0, end - ready), ended=False)


def _lost(attempts: Sequence[Attempt], last: Attempt, pace: float | None) -> float | None:
    """What its time after the first step is more than the steps took from which the next attempt went on: steps that
    were made again, and the time until the loss was seen."""
    following = (a for a in attempts[last.number :] if a.progress.step is not None)
    next_one = next(following, None)
    began = began_from(next_one) if next_one else None
    if began is None or pace is None or last.first_step is None or last.first_step_at is None:
        return None
    if last.ended_at is None:
        return None
    kept = max(0, began - last.first_step)
    return max(0.0, last.ended_at - last.first_step_at - kept * pace)
