"""What is told of the events of a job, and of a job that has waited or stood still for too long.

A job that goes on by itself is not told of: a preemption, a retry or a swap is over before anybody could help.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tpujob.domain.events import (
    AttemptEnded,
    AttemptRepeated,
    BudgetWarned,
    Event,
    EventKind,
    ReleaseStarted,
    SliceHeld,
)
from tpujob.domain.failures.disclosure import ended_by, in_full
from tpujob.domain.model import Cause, Job, State
from tpujob.domain.notify.model import Kind, Note
from tpujob.domain.observations import Account
from tpujob.domain.placement import circuits, datasets
from tpujob.domain.text import dollars, duration, one_line

_E = EventKind
#: what a person asks for
_ASKED = frozenset({_E.CANCEL_REQUESTED, _E.RELEASE_REQUESTED, _E.CLEAN_REQUESTED})
_ENDS = {_E.SUCCEEDED: Kind.SUCCEEDED, _E.FAILED: Kind.FAILED, _E.CANCELLED: Kind.CANCELLED}
#: characters of a sentence in a note
LONGEST = 400


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds after which something is worth telling."""

    waiting: float = 3600.0  #: for hardware
    stuck: float = (
        1800.0  #: until a slice that is given back is gone; twice that until a program runs
    )


def of_events(job: Job, history: Sequence[Event], after: int) -> list[Note]:
    """What is told of the events with `seq > after`; `history` has all of them. The key of a note is made of the job,
    how often it was set going again, its attempt and the cause."""
    found: list[Note] = []
    ended = 0  #: how often the job had ended before
    asked_by = ""  #: who wanted its end, or its pause
    for happened in history:
        if happened.kind in _ASKED:
            asked_by = happened.by
        if happened.seq > after and (note := _note(job, happened, ended, asked_by)):
            found.append(note)
        if happened.kind in _ENDS:
            ended += 1
        if happened.kind is _E.RESUME_REQUESTED:
            asked_by = ""
    return found


def _note(job: Job, happened: Event, ended: int, asked_by: str) -> Note | None:
    cause = _cause(happened)
    if cause is Cause.BUDGET:
        return _of(job, Kind.BUDGET_USED_UP, happened, ended, cause)
    strangers = "" if asked_by == job.user else asked_by
    match happened.kind:
        case _E.SUCCEEDED | _E.FAILED:
            return _of(job, _ENDS[happened.kind], happened, ended, cause)
        case _E.CANCELLED if strangers:
            text = f"{strangers} has cancelled it; nothing is billed any more"
            return _of(job, Kind.CANCELLED, happened, ended, cause, text)
        case _E.HELD if asked_by != job.user:
            who = f"{strangers} has stopped it" if strangers else happened.text
            text = f"{who}; its slice is kept, and billed, for {duration(job.spec.hold)}"
            return _of(job, Kind.HELD, happened, ended, cause, text)
        case _E.ATTEMPT_ENDED | _E.ATTEMPT_RETRIED | _E.ATTEMPT_CONDEMNED if (
            cause is Cause.BAD_HOST
        ):
            return _of(job, Kind.HOST_REFUSED, happened, ended, cause)
        case _E.BUDGET_WARNED:
            assert isinstance(happened.payload, BudgetWarned)
            note = _of(job, Kind.BUDGET_WARNED, happened, ended, None)
            return replace(note, key=f"{job.id}/{Kind.BUDGET_WARNED}/{happened.payload.limit}")
        case _:
            return None


def _cause(happened: Event) -> Cause | None:
    match happened.payload:
        case AttemptEnded(end) | AttemptRepeated(end):
            return end.cause
        case SliceHeld(_, end):
            return end.cause if end else None
        case ReleaseStarted(_, cause):
            return cause
        case None:
            return None
        case payload:
            return getattr(payload, "cause", None)


def _of(
    job: Job, kind: Kind, happened: Event, ended: int, cause: Cause | None, text: str = ""
) -> Note:
    attempt = sum(a.started_at <= happened.at for a in job.attempts)
    slices = [s for s in job.slices if s.requested_at <= happened.at]
    with_zone = kind not in (Kind.SUCCEEDED, Kind.CANCELLED) and slices
    said = "" if kind is Kind.SUCCEEDED or cause is None else cause.value
    key = "/".join(filter(None, (job.id, str(attempt), kind, said, f"{ended}" if ended else "")))
    public = text or happened.text
    return Note(
        key=key,
        kind=kind,
        at=happened.at,
        text=one_line(in_full(public, ended_by(job, happened.at)), LONGEST),
        job=job.id,
        name=job.name,
        user=job.user,
        attempt=attempt,
        cause=said,
        zone=slices[-1].zone if with_zone else "",
        lines=_proof(job, attempt, cause),
        owner=job.owner,
        public=one_line(public, LONGEST),
    )


def _proof(job: Job, attempt: int, cause: Cause | None) -> tuple[str, ...]:
    """The one line that proves best why the attempt ended with that cause."""
    ended = next((a for a in job.attempts if a.number == attempt and a.cause is cause), None)
    if ended is None or cause is None:
        return ()
    own = [line.text for line in ended.evidence if line.host == ended.host]
    # a stack begins with its innermost frame; other output ends with what says most
    return (own[0 if cause is Cause.HANG else -1],) if own else ()


# What takes too long -------------------------------------------------------------------------------------------------


def overdue(job: Job, now: float, patience: Patience) -> tuple[Note | None, float | None]:
    """What takes too long, if anything does; and when something will, unless the job changes: None: never."""
    found = _expected(job, patience)
    if found is None:
        return None, None
    kind, since, due, what = found
    if now < due:
        return None, due
    slice = job.slices[-1] if job.slices else None
    waits = f"{what} for {duration(now - since)}: "
    note = Note(
        key=f"{job.id}/{len(job.attempts)}/{kind}/{since:.0f}",
        kind=kind,
        at=due,
        text=one_line(waits + in_full(job.message, job.attempts), LONGEST),
        job=job.id,
        name=job.name,
        user=job.user,
        attempt=len(job.attempts),
        zone=slice.zone if slice else "",
        owner=job.owner,
        public=one_line(waits + job.message, LONGEST),
    )
    return note, None


def _expected(job: Job, patience: Patience) -> tuple[Kind, float, float, str] | None:
    """What is due: its kind, since when, when that is too long, and in words."""
    match job.state:
        case State.QUEUED | State.PROVISIONING if not datasets.under_way(job):
            since = circuits.waiting_since(job)
            return Kind.WAITING, since, since + patience.waiting, "has waited for hardware"
        case State.PREPARING if job.attempt:
            since = job.attempt.started_at
            return Kind.STUCK, since, since + 2 * patience.stuck, "has been preparing its hosts"
        case State.RELEASING:
            since = job.state_since
            what = "has been giving its slice back, which is billed,"
            return Kind.STUCK, since, since + patience.stuck, what
        case _:
            return None


# What is about no single job -----------------------------------------------------------------------------------------


def leak(name: str, zone: str, at: float, text: str) -> Note:
    """A slice that no job claims."""
    return Note(f"{Kind.LEAK}/{zone}/{name}", Kind.LEAK, at, one_line(text, LONGEST), zone=zone)


def of_account(known: Account, *, warns: bool, used_up: bool) -> Note | None:
    """Of a budget that jobs share; None: nothing is to be told."""
    if not (warns or used_up):
        return None
    kind = Kind.BUDGET_USED_UP if used_up else Kind.BUDGET_WARNED
    said = "are used up" if used_up else "are spent"
    text = f"{dollars(known.used)} of the budget of {known.whose}, {dollars(known.limit)}, {said}"
    period = f"{known.until:.0f}" if known.until else ""
    key = f"{known.whose}/{kind}/{known.limit}/{period}"
    return Note(key, kind, known.at, text, user=known.whose.removeprefix("user "), cause="BUDGET")
