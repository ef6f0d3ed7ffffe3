"""Where a job's time went: every moment of it belongs to exactly one part. Pure.

Read from the record alone, which the events make, so it works for any program. What a program says of its steps
divides its running time further: time until the first step, steps that count, and steps that were made again.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from tpujob.domain.model import Attempt, Cause, Job, Outcome, Slice
from tpujob.domain.money.ledger import moment
from tpujob.domain.money.pace import first_step_began, seconds_per_step
from tpujob.domain.progress import began_from, steps_kept


class Part(StrEnum):
    """In the order in which they are shown."""

    PRODUCTIVE = "productive"  #: steps that count, or a program that told no steps and succeeded
    WAITING = (
        "waiting"  #: no slice is asked for: back-off, or nothing may be asked for yet; not billed
    )
    PROVISIONING = "provisioning"  #: a slice is asked for and not there; not billed
    PREPARING = "preparing"  #: from a ready slice until the program runs on every host; pauses between retries
    COMPILING = "compiling"  #: the program runs, less than the time of its steps: it has not begun the first one
    REDONE = "redone"  #: steps that were lost, and made again by a later attempt
    HUNG = "hung"  #: the time without progress that ended in HANG
    HELD = "held"  #: cancelled, and the slice is kept for a resume
    CONDEMNED = "condemned"  #: a bad slice that is kept until another is there
    RELEASING = "releasing"  #: the program has ended and the slice is not yet gone
    UNKNOWN = "unknown"  #: the program ran; how much of its work counts is not known


class Span(NamedTuple):
    """One stretch of time, in microseconds since the epoch, that belongs to one part. A tuple, as a report makes
    hundreds of thousands."""

    part: Part
    start: int
    end: int
    slice: Slice | None = None  #: None: the job had none

    @property
    def billed(self) -> bool:
        return self.slice is not None and self.part is not Part.PROVISIONING


def spans(job: Job, now: float) -> list[Span]:
    """All time of the job up to `now`, from its creation to its end, without the rests between an end and a resume.
    Of each slice, the spans that are billed fill the time from ready to gone, without a gap or an overlap. A condemned
    slice runs beside the one that replaces it."""
    found = list(_waiting(job, now))
    kept = steps_kept(job)
    for one in job.slices:
        found += _of_slice(one, [a for a in job.attempts if a.slice == one.name], kept, now)
    return [span for span in found if span.end > span.start]


def _waiting(job: Job, now: float) -> Iterator[Span]:
    """The time in which no slice serves or is asked for."""
    busy = [(rest.start, rest.end) for rest in job.rests]
    for one in job.slices:
        ends = [at for at in (one.condemned_at, one.gone_at) if at is not None]
        busy.append((one.requested_at, min(ends, default=now)))
    reached = moment(job.created_at)
    for start, end in sorted(busy):
        yield Span(Part.WAITING, reached, moment(start))
        reached = max(reached, moment(end))
    yield Span(Part.WAITING, reached, moment(now if job.finished_at is None else job.finished_at))


# One slice -----------------------------------------------------------------------------------------------------------

_Mark = tuple[int, Part]  #: from this moment on it is that part


def _of_slice(
    one: Slice, attempts: Sequence[Attempt], kept: Mapping[int, int | None], now: float
) -> Iterator[Span]:
    gone = moment(now if one.gone_at is None else one.gone_at)
    ready = gone if one.ready_at is None else moment(one.ready_at)
    yield Span(Part.PROVISIONING, moment(one.requested_at), ready, one)
    if one.ready_at is None:
        return
    marks: list[_Mark] = [(ready, Part.HELD)]  # it was cancelled before a program ran on it
    for attempt in attempts:
        last = attempt is attempts[-1]
        marks += _of_attempt(attempt, kept, gone, then=_after(attempt, last=last))
    if one.condemned_at is not None:
        marks.append((moment(one.condemned_at), Part.CONDEMNED))
    elif one.delete_asked_at is not None:
        marks.append((moment(one.delete_asked_at), Part.RELEASING))
    reached = ready
    for (at, part), (next_at, _) in pairwise([*marks, (gone, Part.RELEASING)]):
        start = max(reached, min(at, gone))  # clocks of two backends may differ by a little
        reached = max(start, min(next_at, gone))
        yield Span(part, start, reached, one)


def _after(attempt: Attempt, *, last: bool) -> Part:
    """What the slice is for once the attempt has ended."""
    if attempt.cause is Cause.CANCELLED:
        return Part.HELD
    return Part.RELEASING if last else Part.PREPARING


# One attempt ---------------------------------------------------------------------------------------------------------


def _of_attempt(
    attempt: Attempt, kept: Mapping[int, int | None], gone: int, *, then: Part
) -> Iterator[_Mark]:
    yield moment(attempt.started_at), Part.PREPARING
    end = gone if attempt.ended_at is None else moment(attempt.ended_at)
    if attempt.running_at is not None:
        running = moment(attempt.running_at)
        stuck = max(running, end - moment(attempt.idle or 0.0))
        yield from _running(attempt, kept, running, stuck)
        if attempt.idle:
            yield stuck, Part.HUNG
    if attempt.ended_at is not None:
        yield end, then


def _running(
    attempt: Attempt, kept: Mapping[int, int | None], start: int, end: int
) -> Iterator[_Mark]:
    """From the moment at which every host had started the program, until it ended or stood still."""
    made = attempt.progress.step
    if made is None:
        yield start, _without_steps(attempt)
        return
    stepped = first_step_began(attempt, seconds_per_step(attempt))
    if stepped is not None:
        yield start, Part.COMPILING
        start = min(max(start, moment(stepped)), end)
    if attempt.number not in kept:
        yield start, Part.PRODUCTIVE
        return
    saved, first = kept[attempt.number], began_from(attempt)
    if saved is None or first is None:
        yield start, Part.UNKNOWN
        return
    share = max(0, min(saved, made) - first)
    yield start, Part.PRODUCTIVE
    if made <= first:
        yield start, Part.REDONE
    elif share < made - first:
        yield start + (end - start) * share // (made - first), Part.REDONE


def _without_steps(attempt: Attempt) -> Part:
    if attempt.progress.phase:  # it tells its steps, and has made none
        return Part.COMPILING
    return Part.PRODUCTIVE if attempt.outcome is Outcome.SUCCEEDED else Part.UNKNOWN
