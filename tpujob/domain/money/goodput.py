"""Goodput: divides a job's time into parts, one for every moment, and makes a timeline with causes and costs.

Pure. Reads the job's record alone, so it works for any program. A program that reports steps has its running time
divided further: time until the first step, steps that count, and repeated steps.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Literal, NamedTuple

from tpujob.domain.model import (
    Attempt,
    Cause,
    Job,
    Outcome,
    Progress,
    Slice,
    SliceRole,
)
from tpujob.domain.money import ledger
from tpujob.domain.money.ledger import moment
from tpujob.domain.pace import first_step_began, seconds_per_step
from tpujob.domain.progress import began_from, first_step, good_step, steps_kept, with_live


class TimePart(StrEnum):
    """The parts of a job's time, in the order in which they are shown."""

    #: steps that count, or a program that reported no steps and succeeded
    PRODUCTIVE = "productive"
    #: no slice is requested; not billed. Reports count the time after a refused request alone
    WAITING = "waiting"
    PROVISIONING = "provisioning"  #: a slice is requested and not ready; not billed
    PREPARING = "preparing"  #: from a ready slice until the program runs on every host; pauses between retries
    COMPILING = "compiling"  #: the program runs and has not begun its first step
    REDONE = "redone"  #: steps that were lost, and repeated by a later attempt
    NONFINITE = "nonfinite"  #: steps with a loss that is not finite
    HUNG = "hung"  #: the time without progress that ended in HANG
    HELD = "held"  #: cancelled, and the slice is kept for a resume
    CONDEMNED = "condemned"  #: a bad slice is kept until its replacement is ready
    CANDIDATE = "candidate"  #: a slice that lost a race is ready, until it is handed on or deleted
    RELEASING = "releasing"  #: the program has ended and the slice is not yet gone
    UNKNOWN = "unknown"  #: the program ran; how many of its steps count is unknown


#: parts that lie beside those of the serving slice
BESIDE = (TimePart.CONDEMNED, TimePart.CANDIDATE)


class Span(NamedTuple):
    """A span of one part, in microseconds since the epoch. A tuple, as a report makes hundreds of thousands."""

    part: TimePart
    start: int
    end: int
    slice: Slice | None = None  #: None: the job had none

    @property
    def billed(self) -> bool:
        return self.slice is not None and self.part is not TimePart.PROVISIONING


def spans(job: Job, now: float) -> list[Span]:
    """Return the time of the job from its creation to its end, or `now`, without the rests between an end and a resume.
    The billed spans of a slice fill its time from ready to gone, without gap or overlap. Spans of a condemned slice lie
    beside those of its replacement, and those of candidates beside those of the slice that serves. A group has no
    spans: its elements have their own."""
    if job.spec.is_group:
        return []
    all_spans = list(_spans_without_slice(job, now))
    kept_steps = steps_kept(job)
    for slice in job.slices:
        attempts = [a for a in job.attempts if a.slice == slice.name]
        all_spans += _spans_of_slice(slice, attempts, kept_steps, now)
    return [span for span in all_spans if span.end > span.start]


def _spans_without_slice(job: Job, now: float) -> Iterator[Span]:
    """Yield the spans in which no slice serves or is requested."""
    busy = [(rest.start, rest.end) for rest in job.idle_periods]
    for slice in (s for s in job.slices if s.role is not SliceRole.CANDIDATE):
        ends = [at for at in (slice.condemned_at, slice.gone_at) if at is not None]
        busy.append((slice.requested_at, min(ends, default=now)))
    reached = moment(job.created_at)
    for start, end in sorted(busy):
        yield Span(TimePart.WAITING, reached, moment(start))
        reached = max(reached, moment(end))
    end = now if job.finished_at is None else job.finished_at
    yield Span(TimePart.WAITING, reached, moment(end))


def waits_for_cloud(job: Job, span: Span) -> bool:
    """Return whether the span without a slice follows a request that became none: another request is to come. What
    a job waits for otherwise, such as other jobs, a person or a date, is no wait for the cloud."""
    before = [s for s in job.slices if s.gone_at is not None and moment(s.gone_at) <= span.start]
    return bool(before) and before[-1].ready_at is None


# One slice -----------------------------------------------------------------------------------------------------------

_Mark = tuple[int, TimePart]  #: the moment at which a part begins


def _spans_of_slice(
    slice: Slice, attempts: Sequence[Attempt], kept_steps: Mapping[int, int | None], now: float
) -> Iterator[Span]:
    gone = moment(now if slice.gone_at is None else slice.gone_at)
    ready = gone if slice.ready_at is None else moment(slice.ready_at)
    if slice.role is SliceRole.CANDIDATE:
        yield Span(TimePart.CANDIDATE, ready, gone, slice)
        return
    yield Span(TimePart.PROVISIONING, moment(slice.requested_at), ready, slice)
    if slice.ready_at is None:
        return
    marks: list[_Mark] = [(ready, TimePart.PREPARING)]
    if slice.certain_until is None or slice.certain_until > slice.ready_at:  # a poll saw it
        seen_at = ready if slice.seen_at is None else moment(slice.seen_at)
        marks.append((seen_at, TimePart.HELD))  # of a job cancelled before its program ran
    for attempt in attempts:
        next_part = _part_after(attempt, last=attempt is attempts[-1])
        marks += _marks_of_attempt(attempt, kept_steps, gone, next_part)
    if slice.condemned_at is not None:
        marks.append((moment(slice.condemned_at), TimePart.CONDEMNED))
    elif slice.delete_asked_at is not None:
        marks.append((moment(slice.delete_asked_at), TimePart.RELEASING))
    reached = ready
    for (at, part), (next_at, _) in pairwise([*marks, (gone, TimePart.RELEASING)]):
        start = max(reached, min(at, gone))  # clocks of two backends may differ by a little
        reached = max(start, min(next_at, gone))
        yield Span(part, start, reached, slice)


def _part_after(attempt: Attempt, *, last: bool) -> TimePart:
    """Return the part that begins on the slice when the attempt ends."""
    if attempt.cause is Cause.CANCELLED:
        return TimePart.HELD
    return TimePart.RELEASING if last else TimePart.PREPARING


# One attempt ---------------------------------------------------------------------------------------------------------


def _marks_of_attempt(
    attempt: Attempt, kept_steps: Mapping[int, int | None], gone: int, next_part: TimePart
) -> Iterator[_Mark]:
    yield moment(attempt.started_at), TimePart.PREPARING
    end = gone if attempt.ended_at is None else moment(attempt.ended_at)
    if attempt.running_at is not None:
        running = moment(attempt.running_at)
        hung_at = max(running, end - moment(attempt.idle or 0.0))
        yield from _marks_while_running(attempt, kept_steps, running, hung_at)
        if attempt.idle:
            yield hung_at, TimePart.HUNG
    if attempt.ended_at is not None:
        yield end, next_part


def _marks_while_running(
    attempt: Attempt, kept_steps: Mapping[int, int | None], start: int, end: int
) -> Iterator[_Mark]:
    """Yield the marks from `start`, when every host had started the program, until it ended or hung at `end`."""
    step, good = attempt.progress.step, good_step(attempt.progress)
    if step is None or good is None:
        yield start, _part_without_steps(attempt)
        return
    step_began = first_step_began(attempt, seconds_per_step(attempt))
    if step_began is not None:
        yield start, TimePart.COMPILING
        start = min(max(start, moment(step_began)), end)
    bad_at = end
    if good < step:
        first = began_from(attempt)
        before = min(good, (first_step(attempt) or 1) - 1 if first is None else first)
        bad_at = start + (end - start) * (good - before) // (step - before)
    yield from _marks_of_steps(attempt, good, kept_steps, start, bad_at)
    if bad_at < end:
        yield bad_at, TimePart.NONFINITE


def _marks_of_steps(
    attempt: Attempt, step: int, kept_steps: Mapping[int, int | None], start: int, end: int
) -> Iterator[_Mark]:
    """Yield the marks of the steps up to `step`, which was made at `end`."""
    if attempt.number not in kept_steps:
        yield start, TimePart.PRODUCTIVE
        return
    saved, first = kept_steps[attempt.number], began_from(attempt)
    if saved is None or first is None:
        yield start, TimePart.UNKNOWN
        return
    counting = max(0, min(saved, step) - first)
    yield start, TimePart.PRODUCTIVE
    if step <= first:
        yield start, TimePart.REDONE
    elif counting < step - first:
        yield start + (end - start) * counting // (step - first), TimePart.REDONE


def _part_without_steps(attempt: Attempt) -> TimePart:
    if attempt.progress.phase:  # the program reports steps, and has made none
        return TimePart.COMPILING
    return TimePart.PRODUCTIVE if attempt.outcome is Outcome.SUCCEEDED else TimePart.UNKNOWN


@dataclass(frozen=True, slots=True)
class Stretch:
    """A line of a job's timeline. Times are in microseconds since the epoch."""

    kind: TimePart | Literal["copying"]
    start: int
    end: int
    open: bool = False  #: not yet ended
    slice: Slice | None = None  #: None: the job had none
    attempt: Attempt | None = None
    #: why the stretch ended, or why the attempt or request before it ended
    cause: Cause | None = None
    text: str = ""  #: the cause in one line
    requests: int = 0  #: number of requests in this time that became no slice
    micros: int | None = 0  #: micro-dollars by list price; None: unknown price


def timeline(job: Job, now: float, done: Progress | None = None) -> list[Stretch]:
    """Return the job's timeline, oldest first. `done`: newer progress of the running attempt than the record's."""
    job = with_live(job, done)
    attempts: dict[str, list[Attempt]] = {}
    for attempt in job.attempts:
        attempts.setdefault(attempt.slice, []).append(attempt)
    stretches: list[Stretch] = []
    in_order = sorted(spans(job, now), key=lambda s: (s.start, s.part in BESIDE, s.end))
    for span in in_order:
        slice_attempts = attempts.get(span.slice.name, []) if span.slice else []
        going = not job.state.final and span.end >= moment(now)
        stretches.append(_stretch(span, slice_attempts, going=going))
    return [part for stretch in _join_waits(stretches) for part in _with_copies(job, stretch, now)]


#: parts that follow the end of an attempt
_AFTER = (TimePart.HELD, TimePart.CONDEMNED, TimePart.RELEASING)


def _stretch(span: Span, attempts: Sequence[Attempt], *, going: bool) -> Stretch:
    """Return the stretch of a span. An attempt's message is on the span that it ends. `attempts`: on the same slice."""
    slice = span.slice
    stretch = Stretch(span.part, span.start, span.end, going, slice)
    if slice is None:
        return stretch
    if span.part is TimePart.PROVISIONING:
        text = slice.delete_reason if slice.refused else ""
        return replace(stretch, cause=slice.refused, text=text)
    attempt = next((a for a in reversed(attempts) if moment(a.started_at) <= span.start), None)
    cost = ledger.cost(ledger.rows([slice]), span.end, span.start)
    stretch = replace(stretch, attempt=attempt, micros=cost)
    if attempt and attempt.ended_at is not None:
        if span.part in _AFTER:
            return replace(stretch, cause=attempt.cause)
        if moment(attempt.ended_at) == span.end:
            return replace(stretch, cause=attempt.cause, text=attempt.message)
    return stretch


# Waits ---------------------------------------------------------------------------------------------------------------


def _join_waits(stretches: Sequence[Stretch]) -> Iterator[Stretch]:
    """Yield the stretches, with one wait for each time without a slice, failed requests included. A wait has the cause
    of its last failed request, or else of the last stretch with a cause since the wait before."""
    wait: Stretch | None = None
    before: Stretch | None = None  #: the last stretch with a cause since the wait before
    for stretch in stretches:
        failed = _is_failed_request(stretch)
        if stretch.kind is not TimePart.WAITING and not failed:
            if wait:
                yield wait
            wait, before = None, stretch if stretch.cause else before
            yield stretch
            continue
        if wait is None:
            cause = before.cause if before else None
            wait = Stretch(TimePart.WAITING, stretch.start, stretch.end, cause=cause)
            before = None
        wait = replace(wait, end=max(wait.end, stretch.end), open=stretch.open)
        if failed:
            wait = replace(wait, cause=stretch.cause, text=stretch.text, requests=wait.requests + 1)
    if wait:
        yield wait


def _is_failed_request(stretch: Stretch) -> bool:
    """Return whether the stretch is a request that never became a slice."""
    if stretch.kind is not TimePart.PROVISIONING or stretch.slice is None:
        return False
    return stretch.slice.gone_at is not None and stretch.slice.ready_at is None


def _with_copies(job: Job, wait: Stretch, now: float) -> Iterable[Stretch]:
    """Return the stretch; a wait is divided where data was copied for the job, as it requests no slice then."""
    if wait.kind is not TimePart.WAITING:
        return [wait]
    parts: list[Stretch] = []
    reached = wait.start
    for copy in job.copies:
        start = max(reached, moment(copy.started_at))
        end = min(wait.end, moment(now if copy.done_at is None else copy.done_at))
        if copy.refused or start >= end:
            continue
        if start > reached:
            parts.append(replace(wait, start=reached, end=start, open=False))
        text = f"{copy.name} to {copy.region}"
        is_open = wait.open and end == wait.end
        parts.append(Stretch("copying", start, end, is_open, text=text, micros=copy.micros))
        reached = end
    return [*parts, replace(wait, start=reached)] if reached < wait.end else parts
