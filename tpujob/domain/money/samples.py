"""Samples of history, read from jobs' records: waits, lives of slices, set-up, lost work and releases. Pure.

Times are as precise as the backend's polls: about ten seconds. `conditions.py` makes expectations of samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from tpujob.domain.model import Attempt, Cause, Job, Slice, SliceRole
from tpujob.domain.money.durations import Stay
from tpujob.domain.pace import first_step_began, seconds_per_step
from tpujob.domain.progress import began_from

#: causes with which a slice is lost, not through the job itself
LOSSES = frozenset({Cause.PREEMPTED, Cause.MAINTENANCE, Cause.LOST_CONTACT, Cause.BAD_HOST})
#: number of newest slices that make history
NEWEST = 2000


class SamplePlace(NamedTuple):
    """A place for a slice, with its terms: type, zone, pricing and number of slices."""

    type: str
    zone: str
    pricing: str
    tpu_slices: int = 1


class SliceSample(NamedTuple):
    """The durations of one slice of a job, or of a wait for a slice. None: unknown."""

    place: SamplePlace
    program: str  #: `Run.program`
    later: bool  #: the job had lost its slice before
    wait: Stay  #: from the need of a slice until it was ready
    life: Stay | None = None  #: from ready until the slice was seen lost
    #: from ready to the first step, or to the start of a program without steps
    setup: Stay | None = None
    lost: float | None = None  #: seconds of training that the loss of the slice cost
    release: Stay | None = None  #: from the request of the deletion until the slice was gone


def history(jobs: Iterable[Job], now: float) -> list[SliceSample]:
    """Return the samples of the newest slices of these jobs, and of as many waits for a slice that did not come: many
    of these hide no slice."""
    dated = [pair for job in jobs for pair in _dated_samples(job, now)]
    dated.sort(key=itemgetter(0))
    held = [pair for pair in dated if pair[1].life is not None][-NEWEST:]
    waits = [pair for pair in dated if pair[1].life is None][-NEWEST:]
    return [sample for _, sample in sorted([*held, *waits], key=itemgetter(0))]


def _dated_samples(job: Job, now: float) -> Iterator[tuple[float, SliceSample]]:
    """Yield each sample of the job, with the time at which its wait began."""
    program, pace = job.spec.run.program, _pace(job)
    since, later = _first_need(job), False  # of the wait for the next slice
    gave_way = False
    for slice in job.slices:
        if slice.role is SliceRole.CANDIDATE:
            if wait := _wait_of_candidate(slice):
                place = SamplePlace(slice.type, slice.zone, slice.pricing, slice.tpu_slices)
                yield slice.requested_at, SliceSample(place, program, later, wait)
            continue
        if gave_way:  # what came before is no wait for the cloud
            since = max(since, slice.requested_at)
        gave_way = slice.gave_way is not None
        rests = (r for r in job.idle_periods if since <= r.start and r.end <= slice.requested_at)
        since = max([since, *(rest.end for rest in rests)])
        place = SamplePlace(slice.type, slice.zone, slice.pricing, slice.tpu_slices)
        if slice.ready_at is None or slice.certain_until == slice.ready_at:  # lost unseen
            if slice is job.newest_slice:  # else the next slice ends this wait
                end = now if job.finished_at is None else job.finished_at
                end = slice.gave_way.at if slice.gave_way else end
                wait = Stay(max(0.0, end - since), ended=False)
                yield since, SliceSample(place, program, later, wait)
            continue
        attempts = [a for a in job.attempts if a.slice == slice.name]
        final = attempts[-1] if attempts else None
        end = _end_of_use(slice, final, now)
        lost = final is not None and final.cause in LOSSES
        cost = _lost_training(job.attempts, final, pace) if final and lost else None
        sample = SliceSample(
            place,
            program,
            later,
            # a slice of another job cuts the wait for the cloud short
            wait=Stay(max(0.0, slice.ready_at - since), ended=not slice.received_from),
            life=Stay(max(0.0, end - slice.ready_at), ended=lost),
            setup=_setup(attempts, slice.ready_at, end, pace),
            lost=cost,
            release=_release(slice, end),
        )
        yield since, sample
        ends = [at for at in (slice.condemned_at, slice.gone_at) if at is not None]
        since, later = min(ends, default=now), lost


def _wait_of_candidate(slice: Slice) -> Stay | None:
    """Return how long a candidate has waited: until it was ready, or at least until another slice was; None: it waits,
    or it was refused."""
    ends = [at for at in (slice.ready_at, slice.lost_at) if at is not None]
    if not ends or slice.refused:
        return None
    return Stay(max(0.0, min(ends) - slice.requested_at), ended=slice.ready_at is not None)


def _first_need(job: Job) -> float:
    """Return when the job first needed a slice: at its creation; after another job, a time or a person that it waited
    for, at its first request."""
    spec = job.spec
    put_off = job.edges or job.group or job.queued_at or spec.not_before or spec.start == "held"
    return job.slices[0].requested_at if put_off and job.slices else job.created_at


def _release(slice: Slice, end_of_use: float) -> Stay | None:
    """Return the time of the deletion, without the time for which the slice was held or kept; None: it is not gone."""
    if slice.gone_at is None or slice.handed_to:
        return None
    began = end_of_use if slice.delete_asked_at is None else max(end_of_use, slice.delete_asked_at)
    return Stay(max(0.0, slice.gone_at - began), ended=True)


def _pace(job: Job) -> float | None:
    """Return the seconds of a step in the attempt with the most steps, where a late poll matters least."""
    longest = max(job.attempts, key=_number_of_steps, default=None)
    return None if longest is None else seconds_per_step(longest)


def _number_of_steps(attempt: Attempt) -> int:
    return (attempt.progress.step or 0) - (attempt.first_step or 0)


def _end_of_use(slice: Slice, final: Attempt | None, now: float) -> float:
    """Return when the slice's last attempt ended or the slice was gone, whichever is earlier; else `now`."""
    ends = [final.ended_at if final else None, slice.gone_at]
    return min((at for at in ends if at is not None), default=now)


def _setup(attempts: Sequence[Attempt], ready: float, end: float, pace: float | None) -> Stay:
    """Return the set-up time; not `ended` if the slice was lost before the first step."""
    for attempt in attempts:
        began = first_step_began(attempt, pace)
        if began is not None:
            return Stay(max(0.0, began - ready), ended=True)
        reports_no_steps = pace is None and not attempt.progress.phase
        if attempt.running_at is not None and reports_no_steps:
            return Stay(max(0.0, attempt.running_at - ready), ended=True)
    return Stay(max(0.0, end - ready), ended=False)


def _lost_training(attempts: Sequence[Attempt], last: Attempt, pace: float | None) -> float | None:
    """Return the seconds of training that the loss of the slice cost: time since the first step, minus the time of the
    steps that the next attempt kept."""
    following = next((a for a in attempts[last.number :] if a.progress.step is not None), None)
    began = began_from(following) if following else None
    if began is None or pace is None or last.first_step is None:
        return None
    if last.first_step_at is None or last.ended_at is None:
        return None
    kept_steps = max(0, began - last.first_step)
    return max(0.0, last.ended_at - last.first_step_at - kept_steps * pace)
