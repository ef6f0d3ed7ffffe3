"""Where a job's time went: every moment belongs to exactly one part; and the same in order, with causes and costs.

Pure. Read from the record alone, which the events make, so it works for any program. What a program reports of its
steps divides its running time further: time until the first step, steps that count, and steps that were made again.
Requests that came to nothing are part of the wait that they belong to, as there may be hundreds.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Literal, NamedTuple

from tpujob.domain.model import Attempt, Cause, Job, Outcome, Progress, Slice
from tpujob.domain.money import ledger
from tpujob.domain.money.ledger import moment
from tpujob.domain.money.pace import first_step_began, seconds_per_step
from tpujob.domain.progress import began_from, steps_kept, with_live


class TimePart(StrEnum):
    """In the order in which they are shown."""

    #: steps that count, or a program that reported no steps and succeeded
    PRODUCTIVE = "productive"
    #: no slice is asked for: back-off, or nothing may be asked for yet; not billed
    WAITING = "waiting"
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

    part: TimePart
    start: int
    end: int
    slice: Slice | None = None  #: None: the job had none

    @property
    def billed(self) -> bool:
        return self.slice is not None and self.part is not TimePart.PROVISIONING


def spans(job: Job, now: float) -> list[Span]:
    """All time of the job up to `now`, from its creation to its end, without the rests between an end and a resume.
    Of each slice, the spans that are billed fill the time from ready to gone, without a gap or an overlap. A condemned
    slice runs beside the one that replaces it. A group has none: its elements have their own."""
    if job.spec.is_group:
        return []
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
        yield Span(TimePart.WAITING, reached, moment(start))
        reached = max(reached, moment(end))
    yield Span(
        TimePart.WAITING, reached, moment(now if job.finished_at is None else job.finished_at)
    )


# One slice -----------------------------------------------------------------------------------------------------------

_Mark = tuple[int, TimePart]  #: from this moment on it is that part


def _of_slice(
    one: Slice, attempts: Sequence[Attempt], kept: Mapping[int, int | None], now: float
) -> Iterator[Span]:
    gone = moment(now if one.gone_at is None else one.gone_at)
    ready = gone if one.ready_at is None else moment(one.ready_at)
    yield Span(TimePart.PROVISIONING, moment(one.requested_at), ready, one)
    if one.ready_at is None:
        return
    marks: list[_Mark] = [(ready, TimePart.HELD)]  # it was cancelled before a program ran on it
    for attempt in attempts:
        last = attempt is attempts[-1]
        marks += _of_attempt(attempt, kept, gone, then=_after(attempt, last=last))
    if one.condemned_at is not None:
        marks.append((moment(one.condemned_at), TimePart.CONDEMNED))
    elif one.delete_asked_at is not None:
        marks.append((moment(one.delete_asked_at), TimePart.RELEASING))
    reached = ready
    for (at, part), (next_at, _) in pairwise([*marks, (gone, TimePart.RELEASING)]):
        start = max(reached, min(at, gone))  # clocks of two backends may differ by a little
        reached = max(start, min(next_at, gone))
        yield Span(part, start, reached, one)


def _after(attempt: Attempt, *, last: bool) -> TimePart:
    """What the slice is for once the attempt has ended."""
    if attempt.cause is Cause.CANCELLED:
        return TimePart.HELD
    return TimePart.RELEASING if last else TimePart.PREPARING


# One attempt ---------------------------------------------------------------------------------------------------------


def _of_attempt(
    attempt: Attempt, kept: Mapping[int, int | None], gone: int, *, then: TimePart
) -> Iterator[_Mark]:
    yield moment(attempt.started_at), TimePart.PREPARING
    end = gone if attempt.ended_at is None else moment(attempt.ended_at)
    if attempt.running_at is not None:
        running = moment(attempt.running_at)
        stuck = max(running, end - moment(attempt.idle or 0.0))
        yield from _running(attempt, kept, running, stuck)
        if attempt.idle:
            yield stuck, TimePart.HUNG
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
        yield start, TimePart.COMPILING
        start = min(max(start, moment(stepped)), end)
    if attempt.number not in kept:
        yield start, TimePart.PRODUCTIVE
        return
    saved, first = kept[attempt.number], began_from(attempt)
    if saved is None or first is None:
        yield start, TimePart.UNKNOWN
        return
    share = max(0, min(saved, made) - first)
    yield start, TimePart.PRODUCTIVE
    if made <= first:
        yield start, TimePart.REDONE
    elif share < made - first:
        yield start + (end - start) * share // (made - first), TimePart.REDONE


def _without_steps(attempt: Attempt) -> TimePart:
    if attempt.progress.phase:  # it tells its steps, and has made none
        return TimePart.COMPILING
    return TimePart.PRODUCTIVE if attempt.outcome is Outcome.SUCCEEDED else TimePart.UNKNOWN


@dataclass(frozen=True, slots=True)
class Stretch:
    """Times are in microseconds since the epoch."""

    kind: TimePart | Literal["copying"]
    start: int
    end: int
    open: bool = False  #: it goes on
    slice: Slice | None = None  #: None: the job had none
    attempt: Attempt | None = None
    cause: Cause | None = None  #: why it ended; of what follows an end or a refusal, that
    text: str = ""  #: the same in one line
    requests: int = 0  #: for a slice, that came to nothing in this time
    micros: int | None = 0  #: that it cost by list price; None: unknown price


def timeline(job: Job, now: float, done: Progress | None = None) -> list[Stretch]:
    """Of all its time, oldest first. `done`: how far the program of the newest attempt has come, if that is known
    better than its record does."""
    job = with_live(job, done)
    attempts: dict[str, list[Attempt]] = {}
    for attempt in job.attempts:
        attempts.setdefault(attempt.slice, []).append(attempt)
    free = {one.name for one in job.slices if ledger.free(job, one)}
    found: list[Stretch] = []
    in_order = sorted(spans(job, now), key=lambda s: (s.start, s.part is TimePart.CONDEMNED, s.end))
    for span in in_order:
        had = attempts.get(span.slice.name, []) if span.slice else []
        going = not job.state.final and span.end >= moment(now)
        found.append(_stretch(span, had, going=going, free=free))
    return [part for one in _joined(found) for part in _with_copies(job, one, now)]


_AFTER = (TimePart.HELD, TimePart.CONDEMNED, TimePart.RELEASING)  #: an attempt


def _stretch(span: Span, had: Sequence[Attempt], *, going: bool, free: Collection[str]) -> Stretch:
    """`had`: the attempts on its slice. The line that tells an end stands once, where the attempt ended."""
    one = span.slice
    plain = Stretch(span.part, span.start, span.end, going, one)
    if one is None:
        return plain
    if span.part is TimePart.PROVISIONING:
        return replace(plain, cause=one.refused, text=one.delete_reason if one.refused else "")
    attempt = next((a for a in reversed(had) if moment(a.started_at) <= span.start), None)
    plain = replace(plain, attempt=attempt, micros=0 if one.name in free else _micros(one, span))
    if attempt and attempt.ended_at is not None:
        if span.part in _AFTER:
            return replace(plain, cause=attempt.cause)
        if moment(attempt.ended_at) == span.end:
            return replace(plain, cause=attempt.cause, text=attempt.message)
    return plain


def _micros(one: Slice, span: Span) -> int | None:
    rate = ledger.rate(one)
    if one.ready_at is None or rate is None:
        return 0 if one.ready_at is None else None
    return ledger.between(rate, moment(one.ready_at), span.start, span.end)


# Waits ---------------------------------------------------------------------------------------------------------------


def _joined(stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """With one wait for each time without a slice. It has the cause of the last refusal, or else of what was lost."""
    waits: Stretch | None = None
    led: Stretch | None = None  #: to the wait
    for one in stretches:
        fruitless = _fruitless(one)
        if one.kind is not TimePart.WAITING and not fruitless:
            if waits:
                yield waits
            waits, led = None, one if one.cause else led
            yield one
            continue
        if waits is None:
            waits = Stretch(TimePart.WAITING, one.start, one.end)
            if led:
                waits = replace(waits, cause=led.cause)
            led = None
        waits = replace(waits, end=max(waits.end, one.end), open=one.open)
        if fruitless:
            waits = replace(waits, cause=one.cause, text=one.text, requests=waits.requests + 1)
    if waits:
        yield waits


def _fruitless(one: Stretch) -> bool:
    """Whether it is a request that never became a slice."""
    asked = one.slice if one.kind is TimePart.PROVISIONING else None
    return asked is not None and asked.gone_at is not None and asked.ready_at is None


def _with_copies(job: Job, one: Stretch, now: float) -> Iterable[Stretch]:
    """A wait divided where data was copied for the job, as it asks for no slice then."""
    if one.kind is not TimePart.WAITING:
        return [one]
    found: list[Stretch] = []
    reached = one.start
    for copy in job.copies:
        start = max(reached, moment(copy.started_at))
        end = min(one.end, moment(now if copy.done_at is None else copy.done_at))
        if copy.refused or start >= end:
            continue
        if start > reached:
            found.append(replace(one, start=reached, end=start, open=False))
        text = f"{copy.name} to {copy.region}"
        found.append(
            Stretch(
                "copying", start, end, one.open and end == one.end, text=text, micros=copy.micros
            )
        )
        reached = end
    return [*found, replace(one, start=reached)] if reached < one.end else found
