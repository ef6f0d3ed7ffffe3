"""Rules of notifications: which events are reported, on which channels, and which states last too long. Pure.

A job that continues by itself is not reported: a preemption, a retry or a swap is over before a person could help. A
loss that is not finite is, once in an attempt: it is more often the model's or the data's than a machine's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tpujob.domain.capacity import circuits, datasets
from tpujob.domain.events import BudgetWarned, Event, EventKind
from tpujob.domain.failures.disclosure import ended_by, in_full
from tpujob.domain.model import Cause, End, Job, SliceRole, State
from tpujob.domain.money import budget
from tpujob.domain.notifications.model import Notification, NotificationKind
from tpujob.domain.observations import Account
from tpujob.domain.text import dollars, duration, one_line

_E, _K = EventKind, NotificationKind
_REQUESTED = frozenset({_E.CANCEL_REQUESTED, _E.RELEASE_REQUESTED, _E.CLEAN_REQUESTED})
_ENDS = frozenset({_E.SUCCEEDED, _E.FAILED, _E.CANCELLED})
#: kinds for people who run the backend, not for owners of jobs
_OPERATORS = frozenset({_K.LEAK, _K.HOST_REFUSED})
#: begins a line of the output that is the agent's, and proves nothing
_OF_AGENT = "[tpujob] "
#: most characters of a sentence
MAX_SENTENCE = 400


@dataclass(frozen=True, slots=True)
class ChannelRule:
    """The facts that are reported on some channels."""

    channels: tuple[str, ...]
    #: users whose jobs and budgets are reported; empty: all, and facts that concern no user
    users: tuple[str, ...] = ()
    on: frozenset[NotificationKind] = frozenset()  #: empty: every kind that concerns these users

    def matches(self, fact: Notification) -> bool:
        if self.users and fact.user not in self.users:
            return False
        if self.on:
            return fact.kind in self.on
        return not self.users or fact.kind not in _OPERATORS


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Seconds after which a state is reported."""

    waiting: float = 3600.0  #: of a wait for hardware
    stuck: float = 1800.0  #: until a released slice is gone; twice that until a program runs


def select_channels(
    rules: Iterable[ChannelRule], fact: Notification, of_job: Sequence[str] = ()
) -> list[str]:
    """Return the channels that report the fact. `of_job`: those that the job's own file names."""
    channels = list(of_job) if fact.kind not in _OPERATORS else []
    for rule in rules:
        if rule.matches(fact):
            channels += rule.channels
    return list(dict.fromkeys(channels))


# Events --------------------------------------------------------------------------------------------------------------


def read_events(job: Job, history: Sequence[Event], after: int) -> list[Notification]:
    """Return what the job's events with `seq > after` report; `history` has all its events. A key has the job, its
    attempt, the kind, the cause, and how often the job had ended before; of a budget's warning, the limit."""
    notifications: list[Notification] = []
    ended = 0
    requested_by = ""  #: the user who requested the next end or hold
    for event in history:
        if event.kind in _REQUESTED:
            requested_by = event.by
        if event.seq > after and (fact := _read_event(job, event, ended, requested_by)):
            notifications.append(fact)
        if event.kind in _ENDS:
            ended += 1
        if event.kind is _E.RESUME_REQUESTED:
            requested_by = ""
    return notifications


def _read_event(job: Job, event: Event, ended: int, requested_by: str) -> Notification | None:
    cause = _cause(event)
    kind, text = None, ""
    match event.kind:
        case _ if cause is Cause.BUDGET:
            kind = _K.BUDGET_USED_UP
        case _E.SUCCEEDED:
            kind = _K.SUCCEEDED
        case _E.FAILED:
            kind = _K.FAILED
        case _E.CANCELLED if requested_by not in ("", job.user):
            kind, text = _K.CANCELLED, f"{requested_by} has cancelled it; it is no longer billed"
        case _E.HELD if getattr(
            event.payload, "next_state", None
        ):  # only until its program is stopped
            pass
        case _E.HELD if requested_by != job.user:
            why = f"{requested_by} has stopped it" if requested_by else event.text
            text = f"{why}; its slice is kept, and billed, for {duration(job.spec.hold)}"
            kind = _K.HELD
        case _E.LOSS_NONFINITE:
            kind = _K.NONFINITE
        case _E.ATTEMPT_ENDED | _E.ATTEMPT_CONDEMNED | _E.ATTEMPT_SWAPPED if (
            cause is Cause.NONFINITE
        ):
            kind, cause = (
                _K.NONFINITE,
                None,
            )  # of the same key as the event before it, if there was one
        case _E.ATTEMPT_ENDED | _E.ATTEMPT_RETRIED | _E.ATTEMPT_CONDEMNED | _E.ATTEMPT_SWAPPED:
            kind = _K.HOST_REFUSED if cause is Cause.BAD_HOST else None
        case _E.BUDGET_WARNED:
            kind, cause = _K.BUDGET_WARNED, None
        case _E.DEADLINE_MISSED:
            kind = _K.DEADLINE_MISSED
        case _:
            pass
    if kind is None:
        return None
    fact = _make(job, kind, event, ended, cause, text)
    if isinstance(event.payload, BudgetWarned):
        return replace(fact, key=f"{job.id}/{kind}/{event.payload.limit}")
    return fact


def _cause(event: Event) -> Cause | None:
    end: End | None = getattr(event.payload, "end", None)
    return end.cause if end else getattr(event.payload, "cause", None)


def _make(
    job: Job, kind: NotificationKind, event: Event, ended: int, cause: Cause | None, text: str
) -> Notification:
    attempt = sum(a.started_at <= event.at for a in job.attempts)
    slices = [
        s for s in job.slices if s.requested_at <= event.at and s.role is not SliceRole.CANDIDATE
    ]
    with_zone = kind not in (_K.SUCCEEDED, _K.CANCELLED) and slices
    why = "" if kind is _K.SUCCEEDED or cause is None else cause.value
    key = "/".join(filter(None, (job.id, str(attempt), kind, why, f"{ended}" if ended else "")))
    public = text or event.text
    return Notification(
        key=key,
        kind=kind,
        at=event.at,
        text=one_line(in_full(public, ended_by(job, event.at)), MAX_SENTENCE),
        job=job.id,
        name=job.name,
        user=job.user,
        attempt=attempt,
        cause=why,
        zone=slices[-1].zone if with_zone else "",
        lines=_evidence(job, attempt, cause),
        owner=job.owner,
        public=one_line(public, MAX_SENTENCE),
    )


def _evidence(job: Job, attempt: int, cause: Cause | None) -> tuple[str, ...]:
    """Return a tuple of the program's line that proves the cause best; empty: no attempt ended with it, or no line
    does."""
    ended = next((a for a in job.attempts if a.number == attempt and a.cause is cause), None)
    if ended is None or cause is None:
        return ()
    own = [line.text for line in ended.evidence if line.host == ended.host]
    own = [text for text in own if not text.startswith(_OF_AGENT)]
    # a stack begins with its innermost frame; other output ends with what says most
    return (own[0 if cause is Cause.HANG else -1],) if own else ()


# States that last too long -------------------------------------------------------------------------------------------


def find_overdue(
    job: Job, now: float, thresholds: Thresholds
) -> tuple[Notification | None, float | None]:
    """Return the report of a state that lasts too long; else the time from which it will. None, None: it never will."""
    deadline = _deadline(job, thresholds)
    if deadline is None:
        return None, None
    kind, since, due, subject = deadline
    if now < due:
        return None, due
    slice = job.newest_slice
    lasts = f"{subject} for {duration(now - since)}: "
    fact = Notification(
        key=f"{job.id}/{len(job.attempts)}/{kind}/{since:.0f}",
        kind=kind,
        at=due,
        text=one_line(lasts + in_full(job.message, job.attempts), MAX_SENTENCE),
        job=job.id,
        name=job.name,
        user=job.user,
        attempt=len(job.attempts),
        zone=slice.zone if slice else "",
        owner=job.owner,
        public=one_line(lasts + job.message, MAX_SENTENCE),
    )
    return fact, None


def _deadline(
    job: Job, thresholds: Thresholds
) -> tuple[NotificationKind, float, float, str] | None:
    """Return the kind of report for a state that lasts too long, its beginning, its deadline, and its words."""
    match job.state:
        case State.QUEUED if job.spec.is_group or job.group:  # elements may wait for each other
            return None
        case State.QUEUED if job.held_by or (job.edges and not job.slices):
            return None  # it waits for a person or another job
        case State.QUEUED | State.PROVISIONING if not datasets.under_way(job):
            since = max(circuits.waiting_since(job), job.queued_at, job.spec.not_before or 0.0)
            return _K.WAITING, since, since + thresholds.waiting, "has waited for hardware"
        case State.PREPARING if job.attempt:
            since = job.attempt.started_at
            return _K.STUCK, since, since + 2 * thresholds.stuck, "has been preparing its hosts"
        case State.RELEASING:
            since = max(job.state_since, job.hold_until or 0.0)
            subject = "has been releasing its slice, which is billed,"
            return _K.STUCK, since, since + thresholds.stuck, subject
        case _:
            return None


# Facts about no single job -------------------------------------------------------------------------------------------


def report_leak(
    name: str, zone: str, kind: str, created_at: float, now: float, unclear: str = ""
) -> Notification:
    """Return the report of a slice that no job claims. `unclear`: its job's record cannot be read."""
    age = duration(max(0.0, now - created_at))
    text = f"{name} in {zone}{kind} is {age} old and no job claims it; it is being deleted"
    key = f"{_K.LEAK}/{zone}/{name}"
    if unclear:
        text = (
            f"{name} in {zone}{kind} is {age} old; the record of its job {unclear} cannot be read, so it is kept and "
            f"billed: `tpujob sweep --slice {name}` releases it"
        )
        key += "/unclear"
    return Notification(key, _K.LEAK, now, one_line(text, MAX_SENTENCE), zone=zone)


def report_account(account: Account) -> Notification | None:
    """Return the report of a budget that jobs share; None: it is not low."""
    used_up = budget.used_up(account)
    if not (used_up or budget.warns(account)):
        return None
    kind = _K.BUDGET_USED_UP if used_up else _K.BUDGET_WARNED
    spent = "are used up" if used_up else "are spent"
    text = f"{dollars(account.used)} of the budget of {account.whose}, {dollars(account.limit)}, {spent}"
    period = f"{account.until:.0f}" if account.until else ""
    key = f"{account.whose}/{kind}/{account.limit}/{period}"
    user = account.whose.removeprefix("user ")
    return Notification(key, kind, account.at, text, user=user, cause="BUDGET")
