"""The queue of waiting jobs, in the memory of one backend. `domain/capacity/` has the rules.

Live jobs are read once, and later only those that changed. The plan is made again when a job changed, or when time
alone may have changed it. Every backend makes its own plan from the same records. Only order and limits depend on it,
which two backends may exceed for a moment by simultaneous requests.
"""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import inf
from operator import attrgetter

from tpujob.domain.capacity import circuits, deadline, race
from tpujob.domain.capacity.dependencies import JobEnd, facts_of
from tpujob.domain.capacity.entries import QueueEntry, Wanted, entry, wanted
from tpujob.domain.capacity.giving_way import gives_way_at
from tpujob.domain.capacity.planning import QueuePlan, plan
from tpujob.domain.capacity.run_lengths import RunLengths
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.capacity.usage import RecentUsage, fade, sums, used
from tpujob.domain.capacity.waits import PastWaits, PlaceKey, place_of
from tpujob.domain.decide.provisioning import QUEUE_PATIENCE_LEAST
from tpujob.domain.events import Event, EventKind
from tpujob.domain.hardware.prices import PriceList
from tpujob.domain.model import Job, State
from tpujob.domain.observations import (
    OWN,
    Circuit,
    GiveWay,
    HandOver,
    Place,
    ReasonKind,
    UsualWait,
)
from tpujob.domain.spec.elements import at_once
from tpujob.engine.groups import GETS, STOPPED, Groups
from tpujob.errors import Conflict, DamagedRecord, NotFound, TpujobError, Transient
from tpujob.ports import Clock, Store

log = logging.getLogger(__name__)

#: seconds between two reads of what other backends changed, and after which time alone makes a new plan
REFRESH = 5.0
#: fields that hold, release and move change
_STEERED = attrgetter("held_by", "rank", "queued_at")
#: a job that may request nothing yet
WAITS = Place(0)


@dataclass(slots=True)
class _PastUsage:
    """The use of ended jobs: micro-dollars, decayed to `at`."""

    at: float
    jobs: dict[str, tuple[tuple[str, str], float]] = field(
        default_factory=dict[str, tuple[tuple[str, str], float]]
    )
    #: the same, by share and owner
    sums: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    runs: RunLengths = field(default_factory=RunLengths)
    waits: PastWaits = field(default_factory=PastWaits)

    def count(self, job: Job, now: float) -> None:
        """Count a job that has ended, and no longer count one that was resumed. Its owner may have changed."""
        of = job.spec.share, job.submitter
        self.runs.count(job)
        self.waits.count(job)
        amount = used(job, now, {}) / fade(1.0, now - self.at) if job.state.final else 0.0
        before, counted = self.jobs.pop(job.id, (of, 0.0))
        if before != of:
            self.sums[before] -= counted
            counted = 0.0
        if amount:
            self.jobs[job.id] = of, amount
        if amount != counted:
            self.sums[of] += amount - counted


class Queue:
    """Thread-safe."""

    #: jobs that are planned a second, at most: a new plan waits until so much time has passed since the last one
    planned = 5000.0

    def __init__(
        self,
        store: Store,
        clock: Clock,
        circuits: Callable[[], Mapping[str, Circuit]],
        groups: Groups,
        settings: QueueSettings,
        prices: PriceList,
    ) -> None:
        self._store, self._clock, self._circuits = store, clock, circuits
        self._groups = groups
        self.settings, self._prices = settings, prices
        self.news: Callable[[str], None] = lambda _: None  #: a job may start now, or never
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] | None = None  #: active jobs; None: not read yet
        self._entries: dict[str, QueueEntry] = {}
        self._unread = set[str]()  #: jobs whose records could not be read
        self._noted: dict[str, float] = {}  #: when: about to be written, and perhaps it was not
        self._ended = set[str]()  #: jobs whose slices may be handed on, and that no plan knows yet
        self.overtaken = Counter[str]()  #: jobs that wait, by how often they were passed
        self._ends: dict[str, JobEnd | None] = {}  #: of every job that was read, or asked for
        self._limits: dict[str, tuple[str, int] | None] = {}  #: as `group` returns them
        self._past: _PastUsage | None = None  #: None: usage was not needed yet
        self._plan = QueuePlan({}, (), inf)
        self._planned_at, self._read_at, self._change = -inf, -inf, 0
        self._terms_until = inf  #: when the deadline of a job that waits allows it something else
        self._dirty = True

    # What others ask --------------------------------------------------------------------------------------------------

    def of(self, job: Job) -> Place:
        """Return the place of a job that waits, by the newest plan that is possible. Raises an error of the store when
        neither the other jobs nor this one were read yet."""
        with self._lock:
            self._read()
            self._learn_again(job)
            news = self._replan()
            place = self._plan.places.get(job.id, WAITS)
        self._announce(news, but=job.id)
        return place

    def hand_over(self, job: Job) -> HandOver:
        """Return what the slice of `job` may be used for, by a plan that includes the end of its program."""
        with self._lock:
            self._read()
            self._learn_again(job)
            news = self._replan(now_for=job.id)
            keep = 0.0 if job.id in self._plan.freed else self.settings.keep
            heirs = self._plan.heirs
            losers = {slice.name: heirs[slice.name] for slice in job.losers if slice.name in heirs}
            alternatives = HandOver(
                heirs.get(job.slice.name, "") if job.slice else "", keep, losers
            )
        self._announce(news, but=job.id)
        return alternatives

    def gives_way(self, job: Job, *, fresh: bool = False) -> GiveWay | None:
        """Return the request for which the job is to give up its slice; None: it keeps the slice. `fresh`: by a plan of
        everything that is stored now."""
        if not self.settings.give_way or gives_way_at(job) == inf:
            return None
        with self._lock:
            if fresh:
                self.read()
            self._read()
            self._learn_again(job)
            news = self._replan(fresh=fresh)
            found = self._plan.gives_way.get(job.id)
        self._announce(news, but=job.id)
        return found

    def race(self, job: Job) -> frozenset[str]:
        """Return what a job may request beside its slice, by `circuits.key` of a stockout."""
        if race.size(job) <= 1:
            return frozenset()
        with self._lock:
            self._read()
            self._learn_again(job)
            news = self._replan()
            shapes = self._plan.races.get(job.id, frozenset[str]())
        self._announce(news, but=job.id)
        return shapes

    def waits(self, job: Job) -> Mapping[PlaceKey, UsualWait]:
        """Return what is known of the waits at the places of a job that waits for one of several. All records are read
        once for that, when some request has waited for minutes."""
        now = self._clock.now()
        waited = job.slice is not None and now - job.slice.requested_at >= QUEUE_PATIENCE_LEAST
        known = waited or (job.slice is None and self._past is not None)
        offers = circuits.allowed(job, self._prices) if known else ()
        if len(offers) < 2:
            return {}
        try:
            with self._lock:
                self._read()
                usual = self._read_past(now).waits.usual
                waits = {place: usual(place) for place in map(place_of, offers)}
        except TpujobError as error:
            log.warning("earlier waits for slices cannot be read: %s", error)
            return {}
        return {place: wait for place, wait in waits.items() if wait is not None}

    def pass_over(self, job_id: str, slice: str) -> None:
        """Plan that slice for other jobs than this one, which could not use it, until its record changes."""
        with self._lock:
            if entry := self._entries.get(job_id):
                self._entries[job_id] = replace(entry, had={*entry.had, slice})
                self._dirty = True

    def plan(self) -> QueuePlan:
        """Return the newest plan; jobs that may start now are woken. Raises an error of the store when nothing was read
        yet."""
        with self._lock:
            self._read()
            news = self._replan()
            current = self._plan
        self._announce(news)
        return current

    def read(self) -> None:
        """Read what has changed up to now. Raises an error of the store."""
        with self._lock:
            if not self._read(at_once=True):
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
        """Return the present use of owners and shares. The first call reads every record."""
        with self._lock:
            self._read()
            return self._usage(self._clock.now())

    def note(self, before: Job, after: Job, happened: Event) -> None:
        """Include an event that is about to give a job a slice; other events count once they are written. Raises
        Conflict for a record that was changed, and for a request that the plan does not allow any more."""
        beside = happened.kind is EventKind.CANDIDATE_REQUESTED
        if before.state is after.state and before.slice == after.slice and not beside:
            return
        news: list[str] = []
        with self._lock:
            if self._jobs is None:
                return
            stored = self._jobs.get(after.id)
            if stored and stored.version > before.version:
                raise Conflict(f"job {after.id} was changed since it was read")
            self._noted[after.id] = self._clock.now()
            if beside:
                if circuits.names(after.slices[-1])[0] not in self._plan.races.get(after.id, ()):
                    raise Conflict(f"job {after.id} may not request that slice any more")
                self._put(after)
                return
            if happened.kind not in GETS or not after.slice:
                return
            shape, ask = circuits.names(after.slice)[0], self._plan.places.get(after.id, WAITS).ask
            if happened.kind is EventKind.SLICE_REQUESTED and shape not in ask:
                raise Conflict(f"job {after.id} is not next in the queue any more")
            own = self._entries.get(after.id)
            ways = own.wanted if own else ()
            counted = next((way.shape for way in ways if way.shape in ask), shape)
            self._count_overtaken(after.id, wanted(after.slice))
            self._put(after)
            if shape != counted:  # its budget pays for another choice than the plan has counted
                self._planned_at = -inf
                news = self._replan()
        self._announce(news, but=after.id)

    def _count_overtaken(self, job_id: str, got: Wanted) -> None:
        """Count for the first job in order that could have had the slice, or that waits for its chips, that it was
        passed, if another job gets it."""
        for other in takewhile(job_id.__ne__, self._plan.order):
            entry, reasons = self._entries.get(other), self._plan.places[other].reasons
            if entry is None:
                continue
            lacks_chips = any(r.kind is ReasonKind.QUOTA and r.what == got.pool for r in reasons)
            if not lacks_chips and not any(way.shape == got.shape for way in entry.wanted):
                continue
            if reasons[0].kind not in OWN if reasons else entry.refusals:
                self.overtaken[other] += 1
                break
        self.overtaken.pop(job_id, None)

    # What is known of all jobs ----------------------------------------------------------------------------------------

    def end(self, job_id: str) -> JobEnd | None:
        """Return the end of another job (`capacity.Others`)."""
        if job_id not in self._ends:
            try:
                self._ends[job_id] = facts_of(self._store.peek(job_id))
            except NotFound:
                self._ends[job_id] = None
            except DamagedRecord:  # perhaps until it is repaired
                return JobEnd(State.QUEUED)
        stored = self._ends[job_id]
        if stored and stored.is_group:
            return replace(stored, started=self._groups.begun(job_id))
        if stored and stored.state in STOPPED and self._groups.resumes(job_id, self._jobs or {}):
            return replace(stored, state=State.QUEUED, finished_at=None)
        return stored

    def element(self, group: str, index: int) -> str | None:
        """Return the element of a group (`capacity.Others`)."""
        return self._groups.element(group, index)

    def group(self, group: str) -> tuple[str, int] | None:
        """Return name and limit of a group (`capacity.Others`)."""
        if group not in self._limits:
            try:
                record = self._store.peek(group)
            except (NotFound, DamagedRecord):
                return None
            limit = at_once(record.spec)
            self._limits[group] = None if limit is None else (record.name, limit)
        return self._limits[group]

    def _read(self, *, at_once: bool = False) -> bool:
        """Read what has changed, after some seconds or `at_once`. Returns False for a read that failed."""
        if self._jobs is None:
            began = self._clock.now()
            # before the list: what changes meanwhile is read again
            self._change = self._store.newest()
            # a record that is repaired in between is in both
            self._unread = {job_id for job_id, _ in self._store.damaged()}
            jobs = self._store.list(live=True)
            self._jobs, self._read_at = {}, began
            for job in jobs:
                self._put(job)
                self._groups.note(job)
            at_once = False  # the list is new, unless it took long
        now = self._clock.now()
        if not at_once and 0 <= now - self._read_at < REFRESH:
            return True
        try:
            newest, moved = self._store.changes(self._change)
            unsure = [job for job, at in self._noted.items() if not 0 <= now - at < REFRESH]
            self._read_again(dict.fromkeys((*moved, *unsure, *self._unread)))
        except TpujobError as error:
            log.warning("the queue is %.0f s old: %s", now - self._read_at, error)
            return False
        self._change, self._read_at = newest, now  # after the reads: one that fails is made again
        for job_id in unsure:
            del self._noted[job_id]
        return True

    def _read_again(self, moved: Iterable[str]) -> None:
        assert self._jobs is not None
        for job_id in moved:
            try:
                job = self._store.peek(job_id)  # another error leaves it unread
            except NotFound:
                self._unread.discard(job_id)
                self._drop(job_id)
                self._groups.forget(job_id)
                self._ends[job_id] = None
                self._dirty = True
            except DamagedRecord:
                self._drop(job_id)
                self._unread.add(job_id)  # it may be repaired, and nothing says when
                self._dirty = True
            else:
                self._unread.discard(job_id)
                self._learn(job)

    def _learn_again(self, job: Job) -> None:
        """Learn a record that was read some time ago."""
        is_known = job.state.final or job.id in (self._jobs or {})
        self._learn(job if is_known else self._store.peek(job.id))  # it may have ended since

    def _learn(self, job: Job) -> None:
        """Replace an older record of the job, or one that was about to be written and was not."""
        stored = (self._jobs or {}).get(job.id)
        if stored and stored.version >= job.version:
            unsure = stored.state != job.state or job.id in self._noted
            if stored.version > job.version or not unsure:
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
            previous, self._jobs[job.id] = self._jobs.get(job.id), job
            if not job.spec.is_group:  # which gets no slice itself
                own = self._entries[job.id] = self._entry(job, self._jobs.get(job.group))
                if any(giver.gives_until for giver in (own, *own.beside)):
                    self._ended.add(job.id)
            elif previous is None or _STEERED(previous) != _STEERED(job):
                for element in self._jobs.values():
                    if element.group == job.id:
                        self._entries[element.id] = self._entry(element, job)
            return
        self._drop(job.id)

    def _entry(self, job: Job, group: Job | None) -> QueueEntry:
        return entry(job, self._prices, group, now=self._clock.now())

    def _renew_entries(self, now: float) -> None:
        """Let the jobs that wait or race want what their deadlines allow now."""
        assert self._jobs is not None
        self._terms_until = inf
        for job in self._jobs.values():
            asks = job.state is State.QUEUED or race.size(job) > 1
            dated = job.expected is not None and not job.spec.is_group
            if asks and dated and (changes_in := deadline.changes_in(job, now)) is not None:
                known = self._entries[job.id].had  # with slices that it was passed over for
                fresh = entry(job, self._prices, self._jobs.get(job.group), now=now)
                self._entries[job.id] = replace(fresh, had=known)
                self._terms_until = min(self._terms_until, now + changes_in)

    def _drop(self, job_id: str) -> None:
        assert self._jobs is not None
        self._jobs.pop(job_id, None)
        self._entries.pop(job_id, None)
        self.overtaken.pop(job_id, None)

    # The plan ---------------------------------------------------------------------------------------------------------

    def _replan(self, *, now_for: str = "", fresh: bool = False) -> list[str]:
        """Make a new plan if it is time, or at once for a job whose program has ended since the last one; `fresh`: at
        once for any change. Returns the jobs that may start now, or never, and might not before, and those whose slices
        are wanted now."""
        now = self._clock.now()
        age = now - self._planned_at
        next_at = min(self._plan.next_at, self._terms_until)
        due = self._dirty or now >= next_at or age >= REFRESH or age < 0
        waits = 0 <= age < len(self._entries) / self.planned and now_for not in self._ended
        if not due or (waits and not fresh):
            return []
        self._renew_entries(now)
        waiting = {(entry.share, entry.owner) for entry in self._entries.values() if entry.waits}
        # of the jobs of one owner, only a quota asks how long they take
        refused = self._circuits()
        limited = self.settings.quota or any(c.limit is not None for c in refused.values())
        usage = self._usage(now) if len(waiting) > 1 or limited else RecentUsage()
        old, leaving = self._plan.places, self._plan.freed | self._plan.gives_way.keys()
        self._plan = plan(self._entries.values(), self.settings, refused, usage, now, self)
        self._planned_at, self._dirty = now, False
        self._ended.clear()
        return [
            job_id
            for job_id, place in self._plan.places.items()
            if (place.ask or place.broken) and not _moves(old.get(job_id))
        ] + [*((self._plan.freed | self._plan.gives_way.keys()) - leaving)]

    def _announce(self, news: Iterable[str], but: str = "") -> None:
        for job_id in news:
            if job_id != but:
                self.news(job_id)

    # Usage ------------------------------------------------------------------------------------------------------------

    def _read_past(self, now: float) -> _PastUsage:
        """Return what ended jobs have used, for which all records are read once."""
        assert self._jobs is not None
        if self._past is None:
            past = _PastUsage(now)
            for job in (*self._store.removed(), *self._store.walk()):
                if job.id not in self._jobs:
                    past.count(job, now)
            for job in self._jobs.values():
                past.waits.count(job)
            self._past = past
        return self._past

    def _usage(self, now: float) -> RecentUsage:
        assert self._jobs is not None
        past = self._read_past(now)
        lengths = past.runs.lengths()
        live = (
            (job.spec.share, job.submitter, used(job, now, lengths)) for job in self._jobs.values()
        )
        faded = fade(1.0, now - past.at)
        ended = ((*of, amount * faded) for of, amount in past.sums.items())
        return sums((*live, *ended), lengths)


def _moves(place: Place | None) -> bool:
    """Return whether the job should be ticked already for its new place."""
    return place is not None and bool(place.ask or place.broken)
