"""A job's time in the order in which it went by: what it did, why that ended, and what it cost. Pure.

The parts are those of `goodput.py`; here they are joined with their attempts, their causes and their money. Requests
that came to nothing are part of the wait that they belong to, as there may be hundreds.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tpujob.domain.model import Attempt, Cause, Job, Progress, Slice
from tpujob.domain.money import ledger
from tpujob.domain.money.goodput import Part, Span, spans
from tpujob.domain.money.ledger import moment
from tpujob.domain.progress import with_live


@dataclass(frozen=True, slots=True)
class Stretch:
    """Times are in microseconds since the epoch."""

    kind: Part | Literal["copying"]
    start: int
    end: int
    open: bool = False  #: it goes on
    slice: Slice | None = None  #: None: the job had none
    attempt: Attempt | None = None
    cause: Cause | None = None  #: why it ended; of what follows an end or a refusal, that
    text: str = ""  #: the same in one line
    requests: int = 0  #: for a slice, that came to nothing in this time
    micros: int | None = 0  #: that it cost by list price; None: nobody knows the price


def timeline(job: Job, now: float, done: Progress | None = None) -> list[Stretch]:
    """Of all its time, oldest first. `done`: how far the program of the newest attempt has come, if that is known
    better than its record does."""
    job = with_live(job, done)
    attempts: dict[str, list[Attempt]] = {}
    for attempt in job.attempts:
        attempts.setdefault(attempt.slice, []).append(attempt)
    free = {one.name for one in job.slices if ledger.free(job, one)}
    found: list[Stretch] = []
    for span in sorted(spans(job, now), key=_order):
        had = attempts.get(span.slice.name, []) if span.slice else []
        going = not job.state.final and span.end >= moment(now)
        found.append(_stretch(span, had, going=going, free=free))
    return [part for one in _joined(found) for part in _with_copies(job, one, now)]


def _order(span: Span) -> tuple[int, bool, int]:
    return span.start, span.part is Part.CONDEMNED, span.end


_AFTER = (Part.HELD, Part.CONDEMNED, Part.RELEASING)  #: an attempt


def _stretch(span: Span, had: Sequence[Attempt], *, going: bool, free: Collection[str]) -> Stretch:
    """`had`: the attempts on its slice. The line that tells an end stands once, where the attempt ended."""
    one = span.slice
    plain = Stretch(span.part, span.start, span.end, going, one)
    if one is None:
        return plain
    if span.part is Part.PROVISIONING:
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
        if one.kind is not Part.WAITING and not fruitless:
            if waits:
                yield waits
            waits, led = None, one if one.cause else led
            yield one
            continue
        if waits is None:
            waits = Stretch(Part.WAITING, one.start, one.end)
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
    asked = one.slice if one.kind is Part.PROVISIONING else None
    return asked is not None and asked.gone_at is not None and asked.ready_at is None


def _with_copies(job: Job, one: Stretch, now: float) -> Iterable[Stretch]:
    """A wait divided where data was copied for the job, as it asks for no slice then."""
    if one.kind is not Part.WAITING:
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
