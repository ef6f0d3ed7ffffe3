"""State that the jobs of one backend share in its memory: budgets and grants, and recent refusals of the cloud.

`domain/money/shared.py` has the sums. All records are read once, and later only those that changed. Without shared
budgets and grants none is read. `domain/capacity/circuits.py` has the rules of refusals; a new backend computes them
again from the records.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from tpujob.domain.capacity import circuits
from tpujob.domain.capacity.offers import Offer
from tpujob.domain.events import (
    AboutSlice,
    CandidateLost,
    CandidatePromoted,
    Event,
    EventKind,
)
from tpujob.domain.model import Job, Slice
from tpujob.domain.money import budget, shared
from tpujob.domain.money.ledger import Key, covered
from tpujob.domain.money.shared import SharedBudget, Sums
from tpujob.domain.observations import NO_FUNDS, Account, Circuit, Funds
from tpujob.errors import Conflict, DamagedRecord, NotFound, TpujobError
from tpujob.ports import Clock, Store

log = logging.getLogger(__name__)

_REQUESTS = frozenset({EventKind.SLICE_REQUESTED, EventKind.CANDIDATE_REQUESTED})

#: seconds for which the sums may be old, but for what this backend has written itself
REFRESH = 5.0
#: seconds that the store may take for a write; after them the record shows whether it was written
WRITING = 30.0


class Spending:
    def __init__(self, store: Store, clock: Clock, budgets: Sequence[SharedBudget]) -> None:
        self._store, self._clock, self.budgets = store, clock, tuple(budgets)
        self._sums: Sums | None = None  #: None: not yet read
        self._accounts: list[Account] = []
        self._covered: frozenset[Key] = frozenset()
        self._holders: dict[str, Job] = {}  #: jobs with grants, without what grants do not need
        self._change, self._read_at = 0, 0.0
        #: of jobs with a write that may be under way: the version before it, and when it was noted
        self._noted: dict[str, tuple[int, float]] = {}
        self._unreadable: set[str] = set()  #: jobs whose records cannot be read
        self._lock = threading.RLock()

    def of(self, job: Job) -> Funds:
        """Return what the job's budgets depend on beside its record. Raises an error of the store when nothing was read
        yet; later, sums that cannot be read again are used as they are."""
        if not self.budgets and (not job.grants or budget.limit(job) is None):
            return NO_FUNDS
        with self._lock:
            self._refresh()
            mine = [
                account
                for shared_budget, account in zip(self.budgets, self._accounts, strict=True)
                if shared_budget.user in ("", job.user)
            ]
            return Funds(self._granted(job), tuple(mine))

    def accounts(self) -> list[Account]:
        """Return the account of each shared budget."""
        if not self.budgets:
            return []
        with self._lock:
            self._refresh()
            return list(self._accounts)

    def note(self, before: Job, after: Job, happened: Event) -> None:
        """Count what is about to be written. Raises Conflict for a slice that the sums do not pay for any more: of
        several jobs that saw the same sums, the first ones get it."""
        if not self.budgets or self._sums is None or before.slices == after.slices:
            return
        with self._lock:
            if happened.kind in _REQUESTS:
                self._still_paid_for(after, after.slices[-1])
            self._noted[after.id] = before.version, self._clock.now()
            self._put(after)

    def withdraw(self, job_id: str) -> None:
        """Read a job again with the next refresh: what was noted of it was not written."""
        with self._lock:
            if job_id in self._noted:
                self._noted[job_id] = -1, -inf

    def _still_paid_for(self, job: Job, slice: Slice) -> None:
        assert self._sums is not None
        for shared_budget in self.budgets:
            if shared_budget.user not in ("", job.user):
                continue
            account = self._sums.account(shared_budget, self._clock.now())
            if not budget.pays_for(account, slice, job.spec.stop_grace):
                raise Conflict(f"other jobs have taken what was left of {budget.name(account)}")

    def _refresh(self) -> None:
        now = self._clock.now()
        if self._sums is None or not self._sums.month.start <= now < self._sums.month.end:
            self._read_all(now)
        elif now - self._read_at >= REFRESH or now < self._read_at:
            try:
                self._read_changed(now)
            except TpujobError as error:
                log.warning(
                    "the sums of the budgets are %.0f s old: %s", now - self._read_at, error
                )
                return
        else:
            return
        self._read_at = now
        assert self._sums is not None
        unclear = tuple(sorted(self._unreadable))
        self._accounts = [
            replace(self._sums.account(shared_budget, now), unreadable=unclear)
            for shared_budget in self.budgets
        ]

    def _read_all(self, now: float) -> None:
        # before the records: what changes meanwhile is read again
        self._change = self._store.newest()
        # a record that is repaired in between is in both
        self._unreadable = (
            {job_id for job_id, _ in self._store.damaged()} if self.budgets else set()
        )
        jobs = [*self._store.removed(), *self._store.list()]
        self._holders = {job.id: _bare(job) for job in jobs if job.grants}
        self._covered = covered(self._holders.values())
        self._sums = Sums(shared.month(now))
        for job in jobs:
            self._put(job)

    def _read_changed(self, now: float) -> None:
        change, moved = self._store.changes(self._change)
        overdue = {job_id for job_id, (_, at) in self._noted.items() if not 0 <= now - at < WRITING}
        changed: list[Job] = []
        assert self._sums is not None
        for job_id in {*moved, *overdue}:
            try:
                job = self._store.get(job_id)
            except NotFound:
                self._sums.put(job_id, None)
                self._unreadable.discard(job_id)
            except DamagedRecord as error:
                self._unreadable.add(job_id)
                log.warning("the sums of the budgets have job %s as it was: %s", job_id, error)
            else:
                self._unreadable.discard(job_id)
                before, _ = self._noted.get(job_id, (-1, 0.0))
                if job.version > before or job_id in overdue:
                    changed.append(job)
        self._change = change
        for job_id in {*overdue, *(job.id for job in changed)}:
            self._noted.pop(job_id, None)
        if any(self._moves_grants(job) for job in changed):
            self._holders |= {job.id: _bare(job) for job in changed if job.grants}
            was, self._covered = self._covered, covered(self._holders.values())
            moved_too = {job_id for job_id, _ in was ^ self._covered} - {job.id for job in changed}
            changed += [self._holders[job_id] for job_id in moved_too]
        for job in changed:
            self._put(job)

    def _moves_grants(self, job: Job) -> bool:
        """Return whether the change of this job may change which slices grants pay for."""
        held = self._holders.get(job.id)
        return bool(job.grants) and (held is None or held.slices != job.slices)

    def _put(self, job: Job) -> None:
        assert self._sums is not None
        self._sums.put(job.id, shared.share(job, self._sums.month, self._granted(job)))

    def _granted(self, job: Job) -> frozenset[str]:
        return frozenset(s.name for s in job.slices if (job.id, s.name) in self._covered)


def _bare(job: Job) -> Job:
    return replace(job, attempts=(), bundles=(), idle_periods=())


# Refusals ------------------------------------------------------------------------------------------------------------


#: the events that tell whether an offer can be had
_OFFERS = _REQUESTS | {
    EventKind.SLICE_READY,
    EventKind.RELEASE_STARTED,
    EventKind.CANDIDATE_LOST,
    EventKind.CANDIDATE_PROMOTED,
}


class CircuitBreaker:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._circuits: Mapping[str, Circuit] | None = None  #: None: not yet recalled
        self._lock = threading.Lock()

    def circuits(self) -> Mapping[str, Circuit]:
        """Return the offers that were refused lately, for all jobs; after its start a backend computes them from the
        records."""
        if self._circuits is None:
            recalled = circuits.recalled(self._store.list(live=True))
            with self._lock:
                self._circuits = recalled if self._circuits is None else self._circuits
        return circuits.corrected(self._circuits, self._clock.now())

    def note(self, before: Job, after: Job, happened: Event) -> None:
        """Include an event that is about to be written. Raises Conflict for a second request: of several jobs that saw
        a circuit half open, one sends a request, and the others wait for its result."""
        now, slice = happened.at, _concerned(before, after, happened)
        if happened.kind is EventKind.SLICE_GONE and isinstance(happened.payload, AboutSlice):
            self._freed(after, happened.payload.slice, now)
        if slice is None or happened.kind not in _OFFERS:
            return
        self.circuits()  # recalls them, outside of the lock
        with self._lock:
            known = circuits.corrected(self._circuits or {}, now)
            if happened.kind in _REQUESTS:
                if circuits.retry_at(slice, circuits.below_limits(known)) > now:
                    raise Conflict(
                        f"another job is requesting {slice.type} in {slice.zone} just now"
                    )
                self._circuits = circuits.asked(known, slice, now)
            elif happened.kind is EventKind.SLICE_READY:
                self._circuits = circuits.granted(known, slice)
            else:
                self._circuits = circuits.refused(known, slice, now)

    def raised(self, offer: Offer) -> None:
        """Forget the limits that the offer exceeds: the quota has been seen to be larger."""
        with self._lock:
            self._circuits = circuits.raised(self._circuits or {}, offer)

    def _freed(self, job: Job, name: str, now: float) -> None:
        slice = next((s for s in job.slices if s.name == name and s.ready_at is not None), None)
        with self._lock:
            if slice is not None and self._circuits:
                self._circuits = circuits.freed(self._circuits, slice, now)


def _concerned(before: Job, after: Job, happened: Event) -> Slice | None:
    """Return the slice that an event about an offer concerns."""
    if happened.kind in _REQUESTS:
        return after.slices[-1]
    match happened.payload:
        case CandidateLost(name) | CandidatePromoted(_, CandidateLost(name)):
            return next(slice for slice in after.slices if slice.name == name)
        case _:
            return after.slice or before.slice
