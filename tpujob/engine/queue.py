"""The place of every job that waits, in the memory of one backend. The rules are in `domain/capacity/`.

The jobs that go on are read once, and after that those that changed. The plan is made again when one of them changed,
or when time alone may have changed it. Every backend makes its own from the same records: nothing rests on it but order
and limits, which two backends may overstep for a moment by what both request at once.
"""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import inf
from operator import attrgetter

from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.dependencies import JobEnd, facts_of
from tpujob.domain.capacity.entries import QueueEntry, entry
from tpujob.domain.capacity.planning import QueuePlan, plan
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.capacity.usage import RecentUsage, fade, sums, used
from tpujob.domain.events import Event, EventKind
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.model import Job, State
from tpujob.domain.observations import Circuit, HandOver, Place, ReasonKind
from tpujob.domain.spec.elements import at_once
from tpujob.engine.groups import GETS, STOPPED, Groups
from tpujob.errors import Conflict, DamagedRecord, NotFound, TpujobError, Transient
from tpujob.ports import Clock, Store

log = logging.getLogger(__name__)

#: seconds between two reads of what other backends changed, and after which time alone makes a new plan
REFRESH = 5.0
#: jobs that are planned a second, at most: a new plan waits until so much time has passed since the last one
PLANNED = 5000
#: what people have done to a group in the queue
_STEERED = attrgetter("held_by", "rank", "queued_at")
#: what a job waits for that is not overtaken: its owner's other jobs, or a slice that is to be its own
_OWN = (ReasonKind.HANDED_ON, ReasonKind.GROUP, ReasonKind.RUNNING, ReasonKind.CHIPS)
#: a job that may request nothing yet
WAITS = Place(0)


@dataclass(slots=True)
class _PastUsage:
    """What jobs that have ended have used: micro-dollars, as they counted at `at`."""

    at: float
    jobs: dict[str, float] = field(default_factory=dict[str, float])
    #: the same, by share and owner
    sums: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))

    def count(self, job: Job, now: float) -> None:
        """Count a job that has ended, and no longer count one that was resumed."""
        amount = used(job, now) / fade(1.0, now - self.at) if job.state.final else 0.0
        change = amount - self.jobs.pop(job.id, 0.0)
        if amount:
            self.jobs[job.id] = amount
        if change:
            self.sums[job.spec.share, job.submitter] += change


class Queue:
    """Thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        circuits: Callable[[], Mapping[str, Circuit]],
        groups: Groups,
        settings: QueueSettings,
        prices: PriceList = LIST,
    ) -> None:
        self._store, self._clock, self._circuits = store, clock, circuits
        self._groups = groups
        self.settings, self._prices = settings, prices
        self.news: Callable[[str], None] = lambda _: None  #: a job may start now, or never
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] | None = None  #: that go on; None: not yet read
        self._entries: dict[str, QueueEntry] = {}
        self._noted: dict[str, float] = {}  #: when: about to be written, and perhaps it was not
        self._ended = set[str]()  #: jobs whose slices may be handed on, and that no plan knows yet
        self.overtaken = Counter[str]()  #: jobs that wait, by how often they were passed
        self._ends: dict[str, JobEnd | None] = {}  #: of every job that was asked for
        self._limits: dict[str, tuple[str, int] | None] = {}  #: as `group` returns them
        self._past: _PastUsage | None = None  #: None: usage was not needed yet
        self._plan = QueuePlan({}, (), inf)
        self._planned_at, self._read_at, self._change = -inf, -inf, 0
        self._dirty = True

    # What others ask --------------------------------------------------------------------------------------------------

    def of(self, job: Job) -> Place:
        """Return the place of a job that waits, by the newest plan that is possible. Raises an error of the store when
        nothing was read yet."""
        with self._lock:
            self._read()
            self._learn_again(job)
            news = self._replan()
            found = self._plan.places.get(job.id, WAITS)
        self._announce(news, but=job.id)
        return found

    def hand_over(self, job: Job) -> HandOver:
        """Return what the slice of `job` may be used for, by a plan that includes the end of its program."""
        with self._lock:
            self._read()
            self._learn_again(job)
            news = self._replan(now_for=job.id)
            keep = 0.0 if job.id in self._plan.freed else self.settings.keep
            found = HandOver(self._plan.heirs.get(job.id, ""), keep)
        self._announce(news, but=job.id)
        return found

    def plan(self) -> QueuePlan:
        """Return the newest plan; jobs that may start now are woken. Raises an error of the store when nothing was read
        yet."""
        with self._lock:
            self._read()
            news = self._replan()
            found = self._plan
        self._announce(news)
        return found

    def read(self) -> None:
        """Read what has changed up to now. Raises an error of the store."""
        with self._lock:
            self._read_at = -inf
            self._read()
            if self._read_at == -inf:
                raise Transient("what has changed cannot be read")

    def learn(self, job: Job) -> None:
        """Include a record that this process has just stored, also for its group."""
        with self._lock:
            if self._jobs is None:  # it is read later
                self._groups.note(job)
                return
            try:
                self._learn_again(job)
            except TpujobError:
                self._noted[job.id] = self._clock.now()
                self._groups.note(job)

    def jobs(self) -> dict[str, Job]:
        """Return the active jobs, as this backend knows them, by id."""
        with self._lock:
            self._read()
            return dict(self._jobs or {})

    def usage(self) -> RecentUsage:
        """What owners and shares have used, as it counts now. Reads every record the first time."""
        with self._lock:
            self._read()
            return self._usage(self._clock.now())

    def note(self, before: Job, after: Job, happened: Event) -> None:
        """Include an event that is about to give a job a slice; other events count once they are written. Raises
        Conflict for a request that the plan does not allow any more."""
        if before.state is after.state and before.slice == after.slice:
            return
        with self._lock:
            if self._jobs is None:
                return
            known = self._jobs.get(after.id)
            if known and known.version > before.version:
                raise Conflict(f"job {after.id} was changed since it was read")
            self._noted[after.id] = self._clock.now()
            if happened.kind is EventKind.SLICE_REQUESTED and after.slice:
                place = self._plan.places.get(after.id, WAITS)
                if circuits.names(after.slice)[0] not in place.ask:
                    raise Conflict(f"job {after.id} is not next in the queue any more")
            if happened.kind in GETS and after.slice:
                self._count_overtaken(after.id, circuits.names(after.slice)[0])
                self._put(after)

    def _count_overtaken(self, job_id: str, shape: str) -> None:
        """Count for the first job in order that could have had the slice that it was passed, if another job gets it."""
        for one in takewhile(job_id.__ne__, self._plan.order):
            known, reasons = self._entries.get(one), self._plan.places[one].reasons
            if known is None or not any(way.shape == shape for way in known.wanted):
                continue
            if reasons[0].kind not in _OWN if reasons else known.refusals:
                self.overtaken[one] += 1
                break
        self.overtaken.pop(job_id, None)

    # What is known of all jobs ----------------------------------------------------------------------------------------

    def end(self, job_id: str) -> JobEnd | None:
        """As `capacity.Others`."""
        if job_id not in self._ends:
            try:
                self._ends[job_id] = facts_of(self._store.peek(job_id))
            except NotFound:
                self._ends[job_id] = None
            except DamagedRecord:  # perhaps until it is repaired
                return JobEnd(State.QUEUED)
        found = self._ends[job_id]
        if found and found.is_group:
            return replace(found, started=self._groups.begun(job_id))
        if found and found.state in STOPPED and self._groups.resumes(job_id, self._jobs or {}):
            return replace(found, state=State.QUEUED, finished_at=None)
        return found

    def element(self, group: str, index: int) -> str | None:
        """As `capacity.Others`."""
        return self._groups.element(group, index)

    def group(self, group: str) -> tuple[str, int] | None:
        """As `capacity.Others`."""
        if group not in self._limits:
            try:
                found = self._store.peek(group)
            except (NotFound, DamagedRecord):
                return None
            most = at_once(found.spec)
            self._limits[group] = None if most is None else (found.name, most)
        return self._limits[group]

    def _read(self) -> None:
        if self._jobs is None:
            began = self._clock.now()
            # before the list: what changes meanwhile is read again
            self._change = self._store.newest()
            jobs = self._store.list(live=True)
            self._jobs, self._read_at = {}, began
            for job in jobs:
                self._put(job)
                self._groups.note(job)
        now = self._clock.now()
        if 0 <= now - self._read_at < REFRESH:
            return
        try:
            newest, moved = self._store.changes(self._change)
            unsure = [job for job, at in self._noted.items() if not 0 <= now - at < REFRESH]
            self._read_again(dict.fromkeys((*moved, *unsure)))
        except TpujobError as error:
            log.warning("the queue is %.0f s old: %s", now - self._read_at, error)
            return
        self._change, self._read_at = newest, now  # after the reads: one that fails is made again
        for job_id in unsure:
            del self._noted[job_id]

    def _read_again(self, moved: Iterable[str]) -> None:
        assert self._jobs is not None
        for job_id in moved:
            try:
                job = self._store.peek(job_id)
            except NotFound:
                self._drop(job_id)
                self._groups.forget(job_id)
                self._ends[job_id] = None
                self._dirty = True
            except DamagedRecord:
                self._drop(job_id)
                self._dirty = True
            else:
                self._learn(job)

    def _learn_again(self, job: Job) -> None:
        """Learn a record that was read some time ago."""
        known = job.state.final or job.id in (self._jobs or {})
        self._learn(job if known else self._store.peek(job.id))  # it may have ended since

    def _learn(self, job: Job) -> None:
        """Replace an older record of the job, or one that was about to be written and was not."""
        known = (self._jobs or {}).get(job.id)
        if known and known.version >= job.version:
            unsure = known.state != job.state or job.id in self._noted
            if known.version > job.version or not unsure:
                return
        self._put(job)
        self._groups.note(job)

    def _put(self, job: Job) -> None:
        assert self._jobs is not None
        self._ends[job.id] = facts_of(job)
        self._dirty = True
        if self._past is not None:
            self._past.count(job, self._clock.now())
        if not job.state.final:
            known, self._jobs[job.id] = self._jobs.get(job.id), job
            if not job.spec.is_group:  # which gets no slice itself
                self._entries[job.id] = entry(job, self._prices, self._jobs.get(job.group))
                if self._entries[job.id].gives_until:
                    self._ended.add(job.id)
            elif known is None or _STEERED(known) != _STEERED(job):
                for one in self._jobs.values():
                    if one.group == job.id:
                        self._entries[one.id] = entry(one, self._prices, job)
            return
        self._drop(job.id)

    def _drop(self, job_id: str) -> None:
        assert self._jobs is not None
        self._jobs.pop(job_id, None)
        self._entries.pop(job_id, None)
        self.overtaken.pop(job_id, None)

    # The plan ---------------------------------------------------------------------------------------------------------

    def _replan(self, *, now_for: str = "") -> list[str]:
        """Make a new plan if it is time, or at once for a job whose program has ended since the last one. Returns the
        jobs that may start now, or never, and might not before, and those whose slices are wanted now."""
        now = self._clock.now()
        age = now - self._planned_at
        due = self._dirty or now >= self._plan.next_at or age >= REFRESH or age < 0
        if not due or (0 <= age < len(self._entries) / PLANNED and now_for not in self._ended):
            return []
        waiting = {(one.share, one.owner) for one in self._entries.values() if one.waits}
        usage = self._usage(now) if len(waiting) > 1 else RecentUsage()
        old, freed = self._plan.places, self._plan.freed
        self._plan = plan(self._entries.values(), self.settings, self._circuits(), usage, now, self)
        self._planned_at, self._dirty = now, False
        self._ended.clear()
        return [
            job_id
            for job_id, place in self._plan.places.items()
            if (place.ask or place.broken) and not _moves(old.get(job_id))
        ] + [*(self._plan.freed - freed)]

    def _announce(self, news: Iterable[str], but: str = "") -> None:
        for job_id in news:
            if job_id != but:
                self.news(job_id)

    # Usage ------------------------------------------------------------------------------------------------------------

    def _usage(self, now: float) -> RecentUsage:
        assert self._jobs is not None
        if self._past is None:
            past = _PastUsage(now)
            for job in self._store.walk():
                if job.id not in self._jobs:
                    past.count(job, now)
            self._past = past
        live = ((job.spec.share, job.submitter, used(job, now)) for job in self._jobs.values())
        faded = fade(1.0, now - self._past.at)
        ended = ((*of, amount * faded) for of, amount in self._past.sums.items())
        return sums((*live, *ended))


def _moves(place: Place | None) -> bool:
    """Return whether the job should be ticked already for its new place."""
    return place is not None and bool(place.ask or place.broken)
