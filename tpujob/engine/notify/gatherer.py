"""From the store to notes: the events of jobs that changed, jobs for which something takes too long, leaks, shared
budgets that run low, and the summary of a day."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tpujob.domain.events import EventKind
from tpujob.domain.model import Job
from tpujob.domain.money import budget
from tpujob.domain.notify import facts, summary
from tpujob.domain.notify.model import KEPT, Note, Progress
from tpujob.domain.notify.rules import recipients
from tpujob.domain.observations import Account
from tpujob.engine.notify.outlets import Setup
from tpujob.errors import NotFound, StoreError
from tpujob.ports import Clock, Outbox, Owned, Store

log = logging.getLogger(__name__)

#: seconds for which the progress is not stored when there was nothing to tell: after a start that is read again
STORED_EVERY = 60.0
#: seconds between looks at shared budgets
MONEY_EVERY = 60.0
#: what happened longer ago than this is not told: its key might be forgotten
OLDEST = KEPT / 2
#: events of which nothing is ever told, and which come often
_QUIET = frozenset({EventKind.PROGRESSED, EventKind.COPY_ADVANCED})


class Gatherer:
    """For one thread. What it knows beside the outbox can be read again."""

    def __init__(
        self,
        store: Store,
        outbox: Outbox,
        setup: Setup,
        clock: Clock,
        accounts: Callable[[], Sequence[Account]] = tuple,
    ) -> None:
        """`accounts`: of the budgets that jobs share."""
        self._store, self._outbox, self._setup, self._clock = store, outbox, setup, clock
        self._accounts = accounts
        self._progress: Progress | None = None  #: None: not yet read
        self._stored_at = 0.0
        self._read: dict[str, int] = {}  #: of each job, the newest event that was read
        self._due: dict[str, float] = {}  #: when something takes too long
        self._summed: dict[str, float] = {}  #: of each channel, the day that was summed up last
        self._money_at = 0.0
        self._unknown: set[str] = set()  #: names of channels that were complained of
        self._again: set[str] = set()  #: jobs that could not be read
        # of the look that is going on
        self._reading: dict[str, int] = {}
        self._summing: dict[str, float] = {}
        self._told_late: list[str] = []

    def look(self) -> set[str]:
        """Keep what is to be told since the last look. Returns the channels that have got something. Raises as the
        store does; then nothing was missed, and the next look goes on from there."""
        now = self._clock.now()
        self._reading, self._summing, self._told_late = {}, {}, []
        if self._progress is None:
            self._begin(now)
        assert self._progress is not None
        newest, changed = self._store.changes(self._progress.change)
        found = [each for job_id in {*changed, *self._again} for each in self._of_job(job_id, now)]
        late = [job_id for job_id, due in self._due.items() if due <= now]
        found += [each for job_id in late for each in self._overdue(job_id, now)]
        found += [*self._of_budgets(now), *self._of_days(now)]
        moved = replace(self._progress, change=max(newest, self._progress.change))
        worth = newest > self._progress.change and now - self._stored_at >= STORED_EVERY
        if found or worth:
            self._outbox.note(found, moved)
            self._stored_at = now
        self._progress = moved
        self._kept()
        return {channel for channel, _ in found}

    def _kept(self) -> None:
        """What was found is in the outbox: only now it counts as read."""
        self._read |= self._reading
        self._summed |= self._summing
        for job_id in self._told_late:
            self._due.pop(job_id, None)

    def leaked(self, found: Sequence[Owned]) -> set[str]:
        """Slices that no job claims, and that are about to be deleted."""
        now = self._clock.now()
        notes = [
            (channel, note)
            for owned in found
            for note in [facts.leak(owned.name, owned.zone, now, _leak_text(owned, now))]
            for channel in self._channels(note)
        ]
        if notes:
            self._outbox.note(notes)
        return {channel for channel, _ in notes}

    def _begin(self, now: float) -> None:
        self._progress = self._outbox.progress()
        if self._progress is None:  # what has happened until now is told to nobody
            self._progress = Progress(self._store.changes(0)[0], now)
            self._outbox.note([], self._progress)
        for job in self._store.list(live=True):
            self._watch(job, now)

    def _of_job(self, job_id: str, now: float) -> list[tuple[str, Note]]:
        assert self._progress is not None
        try:
            job = self._store.peek(job_id)
            after = self._read.get(job_id, 0)
            fresh = self._store.events(job_id, after=after)
            self._watch(job, now)
            notes: list[Note] = []
            if any(each.kind not in _QUIET for each in fresh):
                history = self._store.events(job_id) if after else fresh
                notes = facts.of_events(job, history, after)
        except NotFound:
            self._read.pop(job_id, None)
            self._due.pop(job_id, None)
            self._again.discard(job_id)
            return []
        except StoreError as error:
            if job_id not in self._again:
                log.warning("job %s is not told of until it can be read: %s", job_id, error)
            self._again.add(job_id)
            return []
        self._again.discard(job_id)
        if fresh:
            self._reading[job_id] = fresh[-1].seq
        since = max(self._progress.since, now - OLDEST)
        new = [note for note in notes if note.at >= since]
        return [(channel, note) for note in new for channel in self._channels(note, job)]

    def _watch(self, job: Job, now: float) -> None:
        note, due = facts.overdue(job, now, self._setup.patience)
        if note or due is not None:
            self._due[job.id] = now if due is None else due
        else:
            self._due.pop(job.id, None)

    def _overdue(self, job_id: str, now: float) -> list[tuple[str, Note]]:
        try:
            job = self._store.peek(job_id)
        except (NotFound, StoreError):
            self._told_late.append(job_id)
            return []
        note, due = facts.overdue(job, now, self._setup.patience)
        if due is not None:
            self._due[job_id] = due
            return []
        self._told_late.append(job_id)
        return [(channel, note) for channel in self._channels(note, job)] if note else []

    def _of_budgets(self, now: float) -> list[tuple[str, Note]]:
        if 0 <= now - self._money_at < MONEY_EVERY:
            return []
        self._money_at = now
        notes = [
            facts.of_account(known, warns=budget.warns(known), used_up=budget.used_up(known))
            for known in self._accounts()
        ]
        return [(channel, note) for note in notes if note for channel in self._channels(note)]

    def _of_days(self, now: float) -> list[tuple[str, Note]]:
        assert self._progress is not None
        found: list[tuple[str, Note]] = []
        for name, outlet in self._setup.outlets.items():
            if outlet.daily is None:
                continue
            at = outlet.daily.last(now)
            if at > max(self._summed.get(name, 0.0), self._progress.since):
                jobs = self._jobs_of(name)
                found.append((name, summary.of_day(jobs, name, at, now)))
                self._summing[name] = at
        return found

    def _jobs_of(self, channel: str) -> Iterable[Job]:
        """Of whom the channel is told, and those that name it."""
        rules = [rule for rule in self._setup.rules if channel in rule.channels]
        everybody = any(not rule.users for rule in rules)
        users = {user for rule in rules for user in rule.users}
        for job in self._store.list():
            if everybody or job.user in users or channel in job.spec.notify:
                yield job

    def _channels(self, note: Note, job: Job | None = None) -> list[str]:
        wanted = recipients(self._setup.rules, note, job.spec.notify if job else ())
        unknown = {name for name in wanted if name not in self._setup.outlets} - self._unknown
        if unknown:
            self._unknown |= unknown
            log.warning("nobody is told on %s: no such channel is set up", ", ".join(unknown))
        return [name for name in wanted if name in self._setup.outlets]


def _leak_text(owned: Owned, now: float) -> str:
    age = facts.duration(max(0.0, now - owned.created_at))
    kind = f", {owned.type} {owned.pricing}" if owned.type else ""
    return (
        f"{owned.name} in {owned.zone}{kind} is {age} old and no job claims it; it is being deleted"
    )
