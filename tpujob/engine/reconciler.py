"""One tick of one job: observe, decide, take the lease, commit, act.

Observing takes no lease; a lease is held only while something is written or done, so a backend that dies blocks at
most one job for at most one lease. When ticks happen is in `engine/loop.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tpujob import logged
from tpujob.domain.actions import (
    Action,
    Copied,
    CreateSlice,
    Decision,
    DeleteSlice,
    Denied,
    Done,
    MakeCopy,
    NotYet,
    Result,
    StartProgram,
    StopProgram,
)
from tpujob.domain.decide import decide, follow_up
from tpujob.domain.events import Event, EventKind
from tpujob.domain.failures import host_reputation, nonfinite
from tpujob.domain.failures.retry import POLICIES
from tpujob.domain.host import keys, plan
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Cause, Job, Slice
from tpujob.domain.money.shared import SharedBudget
from tpujob.domain.observations import Present, Seen
from tpujob.domain.placement import datasets
from tpujob.domain.prices import LIST, PriceList
from tpujob.engine.bundles import Bundles
from tpujob.engine.circuits import CircuitBreaker
from tpujob.engine.counters import RECOVERY, Counters, recovered
from tpujob.engine.observer import LOOK, Observer
from tpujob.engine.slice_listing import NAMED
from tpujob.engine.spending import Spending
from tpujob.errors import (
    Conflict,
    Fenced,
    HostKeyChanged,
    NotFound,
    Refused,
    StoreError,
    Transient,
)
from tpujob.ports import Blobs, Clock, Copies, Hosts, Lease, Reputation, Secrets, Slices, Store
from tpujob.protocol import paths

log = logging.getLogger(__name__)

#: seconds that a lease lasts, at least; no remote call made under it may outlive it
LEASE = 60.0
#: seconds kept free at the end of a lease for the commit
MARGIN = 5.0
#: seconds for which an observation may be acted upon: observing takes some, a process that is held up takes more
FRESH = 60.0
#: decisions in one tick; the next tick goes on from there
ROUNDS = 12
#: seconds for one round of a copy; a call that it began may take as long again
COPYING = 20.0
#: seconds that a started program gets to report before it is started again, which is safe but not free
PATIENCE = 10.0

#: the events that give an attempt its cause
_ENDS = frozenset({EventKind.ATTEMPT_ENDED, EventKind.ATTEMPT_RETRIED, EventKind.ATTEMPT_CONDEMNED})
#: what comes often, and neither ends, deletes nor asks for anything
_OFTEN = frozenset({EventKind.PROGRESSED, EventKind.WATCHED, EventKind.COPY_ADVANCED})
#: how each is counted
_RESULTS = {Done: "done", Copied: "done", NotYet: "not_yet", Denied: "denied"}
_PREFLIGHTS = POLICIES[Cause.PREFLIGHT].budget


class Reconciler:
    def __init__(
        self,
        store: Store,
        slices: Slices,
        hosts: Hosts,
        blobs: Blobs,
        clock: Clock,
        *,
        copies: Copies,
        secrets: Secrets,
        owner: str,
        reputation: Reputation,
        report_every: float = 15.0,
        changed: Callable[[], None] = lambda: None,
        prices: PriceList = LIST,
        budgets: Sequence[SharedBudget] = (),
        counters: Counters | None = None,
    ) -> None:
        self.store, self.slices, self.hosts, self.blobs = store, slices, hosts, blobs
        self.clock, self.reputation, self.copies = clock, reputation, copies
        self.secrets, self.bundles = secrets, Bundles(store, blobs)
        self.counters = counters or Counters()
        self.owner = owner  #: unique among all backends, ever
        self.report_every = report_every
        self.changed = changed  #: called after every commit, so that whoever follows looks again
        self.breaker, self.spending = CircuitBreaker(store), Spending(store, clock, budgets)
        self.observer = Observer(
            slices,
            hosts,
            blobs,
            clock,
            self.breaker.circuits,
            report_every,
            prices,
            self.spending.of,
        )
        self.live, self.circuits = self.observer.live, self.breaker.circuits
        self._started: dict[str, tuple[int, float]] = {}
        self._accused: set[str] = set()  #: what this process has stored already

    # One tick --------------------------------------------------------------------------------------------------------

    def tick(self, job_id: str) -> float | None:
        """Bring one job as far as it goes now. Returns the seconds until the next tick; None: the job is gone or
        finished. Never raises for an error of a cloud or a host. Conflict: another backend was first; tick again."""
        wake_in = 0.0
        for _ in range(ROUNDS):
            try:
                job = self.store.peek(job_id)
            except NotFound:
                self._forget(job_id)
                return None
            logged.note(attempt=str(job.attempt.number) if job.attempt else "")
            looked = self.clock.now()
            seen = self.observer.look(job)
            decision = decide(job, seen, looked)
            if seen.listed and not _light(decision):
                looked = self.clock.now()
                seen = self.observer.look(job, by_name=True)
                decision = decide(job, seen, looked)
            if decision.event and decision.event.kind in _ENDS:
                seen = self.observer.with_evidence(job, seen)
                decision = decide(job, seen, looked)
            wake_in = decision.wake_in
            action = self._worth_doing(job, decision.action)
            if decision.event is None and action is None:
                break
            moved = self._carry_out(job, seen, looked, decision.event, action)
            if moved is None:  # another backend holds the lease, or wrote first
                return 3.0
            if not moved:
                break
        return None if self._finished(job_id) else max(wake_in, 0.2)

    def tidy(self) -> None:
        """Remove reports of attempts that are over; from time to time. Raises StoreError."""
        self.observer.listing.tidy(self.store.list(live=True))

    def _finished(self, job_id: str) -> bool:
        try:
            job = self.store.peek(job_id)
        except NotFound:
            return True
        if not job.state.final:
            return False
        self._forget(job_id)
        return True

    def _forget(self, job_id: str) -> None:
        self.live.pop(job_id, None)
        self._started.pop(job_id, None)

    def _carry_out(
        self, job: Job, seen: Seen, looked: float, happened: Event | None, action: Action | None
    ) -> bool | None:
        """Commit, then act, under one lease. True: an event was stored; False: none; None: another backend acts, or the
        observation is too old."""
        lease = self.store.lease(job.id, self.owner, ttl=_ttl(job, action), now=self.clock.now())
        if lease is None:
            return None
        try:
            if self.clock.now() - looked > FRESH:  # this process was held up
                return None
            if happened:
                self._accuse(apply(job, happened), seen)
            current = self._commit(job, happened, lease) if happened else self._unchanged(job)
            young = seen if not seen.listed and self.clock.now() - looked < NAMED else None
            result = self._act(current, action, lease, young) if action else Done()
            if action:
                self.counters.count("actions", type(action).__name__, _RESULTS[type(result)])
            after = follow_up(current, action, result, self.clock.now()) if action else None
            self._note(job.id, Done() if after else result)
            if after:
                self._commit(current, after, lease)
            if isinstance(action, MakeCopy) and not _whole(result):
                return False  # other jobs have their turn
            return happened is not None or after is not None
        except (Conflict, Fenced) as error:
            log.info("job %s: %s; looking again", job.id, error)
            return None
        finally:
            self.store.release(lease)

    def _unchanged(self, job: Job) -> Job:
        """The job, if it has not changed since it was observed. For actions without a commit, which would compare."""
        if self.store.get(job.id).version != job.version:
            raise Conflict(f"job {job.id} was changed since it was looked at")
        return job

    def _commit(self, job: Job, happened: Event, lease: Lease) -> Job:
        after = apply(job, happened)
        # first: a commit whose reply is lost may have been written
        self.spending.note(job, after, happened)
        self.breaker.note(job, after, happened)
        began = time.monotonic()
        stored = self.store.commit(
            after,
            happened,
            expected_version=job.version,
            op_id=f"{self.owner}:{lease.token}:{job.version + 1}",
            lease=lease,
        )
        self._count(job, stored, happened, time.monotonic() - began)
        log.info("job %s: %s, %s: %s", job.id, stored.state, happened.kind, happened.text)
        self.changed()
        return stored

    def _count(self, before: Job, after: Job, happened: Event, seconds: float) -> None:
        self.counters.time("commit", seconds)
        self.counters.count("events", happened.kind)
        open_ones = {one.number for one in before.attempts if one.ended_at is None}
        for one in after.attempts:
            if one.number in open_ones and one.ended_at is not None:
                self.counters.count("ends", one.outcome or "", one.cause or "")
        if found := recovered(before, after):
            cause, waited = found
            self.counters.time("recovery", waited, cause, bounds=RECOVERY)

    # Suspects --------------------------------------------------------------------------------------------------------

    def _accuse(self, job: Job, seen: Seen) -> None:
        """Store what the new record shows against machines, before the record is written: nothing is lost, and as each
        accusation has an operation id, nothing counts twice."""
        physical = [r.physical for r in seen.heard]
        for found in nonfinite.accusations(job, physical):
            if found.op_id not in self._accused:
                self.reputation.accuse(
                    found.physicals,
                    zone=found.zone,
                    weight=found.weight,
                    reason=found.reason,
                    op_id=found.op_id,
                    at=self.clock.now(),
                    owner=job.owner,
                )
                self._accused.add(found.op_id)

    def _avoided(self, job: Job) -> list[str]:
        """The machines that the program is kept off; none for a job that was refused too many of them."""
        if job.spent.get(_PREFLIGHTS, 0) >= host_reputation.REFUSALS:
            return []
        return host_reputation.avoided(self.reputation.suspects(), self.clock.now(), job.owner)

    def _note(self, job_id: str, result: Result) -> None:
        """Remember what is in the way: the error of an action that is tried again, or was refused without effect."""
        live = self.observer.live_of(job_id)
        trouble = result.error if isinstance(result, NotYet | Denied) else ""
        live.meet(trouble, self.clock.now(), looking=False)

    # Act -------------------------------------------------------------------------------------------------------------

    def _worth_doing(self, job: Job, action: Action | None) -> Action | None:
        """None for a start that was accepted a moment ago and is about to report."""
        if isinstance(action, StartProgram) and job.attempt:
            attempt, at = self._started.get(job.id, (0, 0.0))
            if attempt == job.attempt.number and self.clock.now() - at < PATIENCE:
                return None
        return action

    def _act(self, job: Job, action: Action, lease: Lease, seen: Seen | None) -> Result:
        """`seen`: what looks by name have just shown; None: there were none."""
        try:
            if isinstance(action, MakeCopy):
                return self._copy(job, action, lease)
            self._do(job, action, lease, seen)
        except Refused as error:
            return Denied(Cause(error.cause), str(error), error.scope)
        except HostKeyChanged as error:
            return Denied(Cause.BAD_HOST, str(error))
        except (Transient, NotFound) as error:
            log.info("job %s: %s: %s; trying again", job.id, type(action).__name__, error)
            return NotYet(str(error))
        return Done()

    def _left(self, lease: Lease) -> float:
        """Seconds for a call under this lease. Raises Transient when none are left: this process was held up, and
        another one may lead by now."""
        left = lease.until - self.clock.now() - MARGIN
        if left <= 0:
            raise Transient("the lease ran out before anything was done")
        return left

    def _do(self, job: Job, action: Action, lease: Lease, seen: Seen | None) -> None:
        match action:
            case CreateSlice():
                slice = _serving(job)
                key = self.hosts.public_key(slice)
                left = self._left(lease)
                self.slices.create(
                    slice, job_id=job.id, public_key=key, timeout=left, folder=job.folder
                )
            case DeleteSlice(name, even_suspending):
                slice = next(s for s in job.slices if s.name == name)
                left, look = self._left(lease), seen.slices.get(name) if seen else None
                there = look if isinstance(look, Present) else None
                self.slices.delete(slice, timeout=left, even_suspending=even_suspending, seen=there)
                self.hosts.forget(slice)
            case StartProgram():
                avoid = self._avoided(job)
                plans = plan.plans(job, report_every=self.report_every, avoid=avoid)
                told = {
                    "secrets": self._secrets(job),
                    "key": self.hosts.key(keys.of_attempt(job)),
                    "cache_key": self.hosts.key(keys.of_caches(job)),
                }
                plans = [replace(one, **told) for one in plans]
                self.hosts.start(_serving(job), plans, timeout=self._left(lease))
                if job.attempt:
                    self._started[job.id] = (job.attempt.number, self.clock.now())
                    live = self.observer.live_of(job.id)
                    live.launched = live.launched or self.clock.now()
            case StopProgram(name):
                slice = next(s for s in job.slices if s.name == name) if name else _serving(job)
                grace = job.spec.stop_grace
                self.hosts.stop(slice, grace=grace, timeout=self._left(lease))
            case _:
                self._wipe(job, lease)

    def _secrets(self, job: Job) -> dict[str, str]:
        """The values that the program is told. Raises Refused for one that is not set any more, or cannot be read."""
        found: dict[str, str] = {}
        for name in job.spec.run.secrets:
            try:
                found[name] = self.secrets.get(job.owner, name)
            except (NotFound, StoreError) as error:
                text = f"{error.message} any more" if isinstance(error, NotFound) else error.message
                cure = f"`tpujob secret set {name}`, then `tpujob resume {job.id}`"
                raise Refused(f"{text}: {cure}", cause=Cause.BAD_SPEC) from None
        return found

    def _copy(self, job: Job, action: MakeCopy, lease: Lease) -> Result:
        copy = datasets.found(job, action.id)
        assert copy is not None, f"job {job.id} makes no copy {action.id}"
        timeout = min(COPYING, self._left(lease))
        return Copied(self.copies.advance(copy, timeout=timeout))

    def _wipe(self, job: Job, lease: Lease) -> None:
        """Remove the job's objects and what only it has shipped, then its record. A time-out leaves the record, so that
        the next tick goes on. Data sets stay: other jobs read them, too."""
        until = self.clock.now() + self._left(lease)
        for workdir in job.workdirs:
            said = f"{paths.reports_root(workdir)}{job.id}/"
            for blob in (
                *self.blobs.list(said, timeout=LOOK),
                *self.blobs.list(workdir + "/", timeout=LOOK),
            ):
                kept = blob.path.removeprefix(workdir + "/").startswith(paths.KEPT)
                if job.wipe_checkpoints or not kept:
                    if self.clock.now() > until:
                        raise Transient("cleaning takes long; going on in a moment")
                    self.blobs.delete(blob.path, timeout=LOOK)
        self.bundles.remove(job)
        self.store.remove(job.id, lease=lease)
        self._forget(job.id)
        self.changed()


def _ttl(job: Job, action: Action | None) -> float:
    """Long enough for the action: a program that is stopped gets the grace that its spec promises."""
    return LEASE + job.spec.stop_grace if isinstance(action, StopProgram) else LEASE


def _light(decision: Decision) -> bool:
    """Whether it may rest on what a list showed some seconds ago."""
    event, action = decision.event, decision.action
    return (event is None or event.kind in _OFTEN) and isinstance(
        action, None | StartProgram | MakeCopy
    )


def _whole(result: Result) -> bool:
    return isinstance(result, Copied) and result.progress.whole


def _serving(job: Job) -> Slice:
    assert job.slice is not None, f"job {job.id} has no slice in state {job.state}"
    return job.slice
