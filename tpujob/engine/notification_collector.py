"""Creates messages from events of jobs, states that last too long, leaked slices, and shared budgets that run low.
`domain/notifications/rules.py` decides what is reported."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tpujob.domain.events import EventKind
from tpujob.domain.model import Job
from tpujob.domain.notifications import rules
from tpujob.domain.notifications.delivery import message_for
from tpujob.domain.notifications.model import MESSAGE_TTL, Message, Notification, ReadPosition
from tpujob.domain.notifications.rules import ChannelRule, Thresholds
from tpujob.domain.observations import Account
from tpujob.errors import NotFound, StoreError
from tpujob.ports import Clock, Outbox, Owned, Sink, Store

log = logging.getLogger(__name__)

#: seconds for which the position is not stored when there was nothing to report: a restart reads these events again
STORED_EVERY = 60.0
#: seconds between reads of shared budgets
MONEY_EVERY = 60.0
#: what happened longer ago is not reported: its message might be forgotten already
OLDEST = MESSAGE_TTL / 2
#: events that are never reported, and come often
_IGNORED = frozenset({EventKind.PROGRESSED, EventKind.LOSS_FINITE, EventKind.COPY_ADVANCED})


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel as the context has it."""

    kind: Literal["slack", "email", "webhook"]
    #: its destination, for people; no secret
    to: str
    sink: Sink


@dataclass(frozen=True, slots=True)
class NotificationSetup:
    """The notification settings of a context."""

    channels: Mapping[str, Channel] = field(default_factory=dict[str, Channel])
    rules: tuple[ChannelRule, ...] = ()
    thresholds: Thresholds = field(default_factory=Thresholds)


class Collector:
    """`poll` is called by one thread at a time. All that is kept beside the outbox can be read again."""

    def __init__(
        self,
        store: Store,
        outbox: Outbox,
        setup: NotificationSetup,
        clock: Clock,
        accounts: Callable[[], Sequence[Account]] = tuple,
    ) -> None:
        """`accounts`: of the budgets that jobs share."""
        self._store, self._outbox, self._setup, self._clock = store, outbox, setup, clock
        self._accounts = accounts
        self._position: ReadPosition | None = None  #: None: not yet read
        self._stored_at = self._money_at = 0.0
        self._read: dict[str, int] = {}  #: of each job, the newest event that was read
        self._due: dict[str, float] = {}  #: when the state of a job takes too long
        self._unknown: set[str] = set()  #: names of channels that the log has warned of
        self._unread: set[str] = set()  #: jobs that could not be read

    def poll(self) -> bool:
        """Store messages about what happened since the last poll. Returns whether there are any. Raises as the stores
        do; then nothing was missed, and the next poll continues from there."""
        now = self._clock.now()
        position = self._position or self._begin(now)
        newest, changed = self._store.changes(position.change)
        reading: dict[str, int] = {}
        facts = [
            message
            for job_id in {*changed, *self._unread}
            for message in self._read_job(job_id, position.since, now, reading)
        ]
        late = [job_id for job_id, due in self._due.items() if due <= now]
        facts += [message for job_id in late for message in self._read_overdue(job_id, now)]
        facts += self._read_budgets(now)
        moved = replace(position, change=max(newest, position.change))
        if facts or (moved != position and now - self._stored_at >= STORED_EVERY):
            self._outbox.add(facts, moved)
            self._stored_at = now
        self._position = moved  # from here on it counts as read
        self._read |= reading
        self._unread -= reading.keys()
        for job_id in late:
            if self._due.get(job_id, now) <= now:
                self._due.pop(job_id, None)
        return bool(facts)

    def report_leaks(self, leaked: Sequence[Owned], unclear: Sequence[Owned] = ()) -> None:
        """Store messages about slices that no job claims, and that are about to be deleted; and about slices whose
        job's record cannot be read."""
        now = self._clock.now()
        messages: list[Message] = []
        for owned in (*leaked, *unclear):
            kind = f", {owned.type} {owned.pricing}" if owned.type else ""
            job = owned.job_id if owned in unclear else ""
            fact = rules.report_leak(owned.name, owned.zone, kind, owned.created_at, now, job)
            messages += self._messages(fact)
        if messages:
            self._outbox.add(messages)

    def _begin(self, now: float) -> ReadPosition:
        position = self._outbox.position()
        if position is None:  # what has happened until now is not reported
            position = ReadPosition(self._store.newest(), now)
            self._outbox.add([], position)
        for job in self._store.list(live=True):
            self._watch(job, now)
        return position

    def _read_job(
        self, job_id: str, since: float, now: float, reading: dict[str, int]
    ) -> list[Message]:
        after = self._read.get(job_id, 0)
        try:
            job = self._store.peek(job_id)
            events = self._store.events(job_id, after=after)
            self._watch(job, now)
            facts: list[Notification] = []
            if any(event.kind not in _IGNORED for event in events):
                history = self._store.events(job_id) if after else events
                facts = rules.read_events(job, history, after)
        except NotFound:
            for read in (self._read, self._due):
                read.pop(job_id, None)
            self._unread.discard(job_id)
            return []
        except StoreError as error:
            if job_id not in self._unread:
                log.warning("job %s is not reported until it can be read: %s", job_id, error)
            self._unread.add(job_id)
            return []
        reading[job_id] = events[-1].seq if events else after
        new = [fact for fact in facts if fact.at >= max(since, now - OLDEST)]
        return [message for fact in new for message in self._messages(fact, job)]

    def _watch(self, job: Job, now: float) -> None:
        fact, due = rules.find_overdue(job, now, self._setup.thresholds)
        if fact or due is not None:
            self._due[job.id] = now if due is None else due
        else:
            self._due.pop(job.id, None)

    def _read_overdue(self, job_id: str, now: float) -> list[Message]:
        try:
            job = self._store.peek(job_id)
        except (NotFound, StoreError):
            return []
        fact, due = rules.find_overdue(job, now, self._setup.thresholds)
        if due is not None:
            self._due[job_id] = due
        return self._messages(fact, job) if fact and fact.at >= now - OLDEST else []

    def _read_budgets(self, now: float) -> list[Message]:
        if 0 <= now - self._money_at < MONEY_EVERY:
            return []
        self._money_at = now
        facts = map(rules.report_account, self._accounts())
        return [message for fact in facts if fact for message in self._messages(fact)]

    def _messages(self, fact: Notification, job: Job | None = None) -> list[Message]:
        channels = rules.select_channels(self._setup.rules, fact, job.spec.notify if job else ())
        unknown = {name for name in channels if name not in self._setup.channels} - self._unknown
        if unknown:
            self._unknown |= unknown
            log.warning("no such notification channel: %s", ", ".join(unknown))
        return [message_for(name, fact) for name in channels if name in self._setup.channels]
