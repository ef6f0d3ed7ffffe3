"""One tick of one job: observe, decide, take the lease, commit, act.

Observing takes no lease. A lease is held only during a write or an action, so a backend that dies blocks at most one
job for at most one lease. `engine/loop.py` schedules the ticks.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tpujob.domain.actions import (
    Action,
    Copied,
    Decision,
    Denied,
    Done,
    HandOn,
    Made,
    MakeCopy,
    NotYet,
    Result,
    StopProgram,
)
from tpujob.domain.capacity import race
from tpujob.domain.capacity.settings import ANYTHING, QueueSettings
from tpujob.domain.decide import (
    can_request,
    decide,
    decide_beside,
    follow_up,
    handed_on,
    receive,
)
from tpujob.domain.events import Event, EventKind
from tpujob.domain.failures.accusations import accusations
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.host import keys
from tpujob.domain.lifecycle import apply
from tpujob.domain.model import Job, State
from tpujob.domain.money.shared import SharedBudget
from tpujob.domain.observations import Observation
from tpujob.engine.actor import WIPING, Actor
from tpujob.engine.counters import Counters, first_wait, recovered
from tpujob.engine.groups import Groups
from tpujob.engine.observer import Observer
from tpujob.engine.queue import Queue
from tpujob.engine.spending import CircuitBreaker, Spending
from tpujob.errors import Conflict, DamagedRecord, Fenced, NotFound
from tpujob.lib import log_context
from tpujob.lib.lru import LruDict
from tpujob.ports import Lease, Ports, Write

log = logging.getLogger(__name__)

#: seconds that a lease lasts, at least; no remote call made under it may outlive it
LEASE = 60.0
#: seconds for which an observation may be acted upon: observing takes some, a process that is held up takes more
MAX_OBSERVATION_AGE = 60.0
#: decisions in one tick; the next tick goes on from there
ROUNDS = 12
#: seconds between two ticks of a job whose data another job copies
COPIED = 15.0
#: accusations that are not stored again while their jobs go on; one more try costs a write that counts nothing
ACCUSED = 1000

#: how each is counted
_RESULTS = {Done: "done", Copied: "done", Made: "done", NotYet: "not_yet", Denied: "denied"}


class Reconciler:
    def __init__(
        self,
        ports: Ports,
        *,
        owner: str,
        report_every: float = 15.0,
        changed: Callable[[], None] = lambda: None,
        prices: PriceList = LIST,
        budgets: Sequence[SharedBudget] = (),
        queue: QueueSettings = ANYTHING,
        counters: Counters | None = None,
    ) -> None:
        self.ports, self.store, self.clock = ports, ports.store, ports.clock
        self.counters = counters or Counters()
        self.owner = owner  #: unique among all backends, ever
        self.changed = changed  #: called after every commit, so that followers look again
        self.breaker = CircuitBreaker(ports.store, ports.clock)
        self.spending = Spending(ports.store, ports.clock, budgets)
        self.groups = Groups(ports.store, ports.clock)
        self.queue = Queue(
            ports.store, ports.clock, self.breaker.circuits, self.groups, queue, prices
        )
        self.observer = Observer(
            ports,
            self.breaker.circuits,
            report_every,
            prices,
            self.spending.of,
            self.queue.of,
            self.queue.hand_over,
            self._gives_way_to,
            self.queue.race,
            self.queue.waits,
        )
        self.actor = Actor(
            ports,
            report_every=report_every,
            live=self.observer.live,
            groups=self.groups,
        )
        self.live, self.circuits = self.observer.live, self.breaker.circuits
        self._accused = LruDict[str, None](ACCUSED)  #: what this process has stored

    # One tick --------------------------------------------------------------------------------------------------------

    def tick(self, job_id: str) -> float | None:
        """Bring one job as far as it goes now. Returns the seconds until the next tick; None: the job is gone or
        finished. Raises StoreError and Transient of the store, and nothing for an error of a cloud or a host."""
        wake_in = 0.0
        for _ in range(ROUNDS):
            try:
                job = self.store.peek(job_id)
            except NotFound:
                self.live.pop(job_id, None)
                return None
            log_context.note(attempt=str(job.attempt.number) if job.attempt else "")
            decision, moved = self._step(job, decide)
            wake_in = decision.wake_in
            racing = job.state is State.PROVISIONING and race.size(job) > 1
            if moved is False and decision.action and (job.beside or racing):
                moved = self._step(job, decide_beside)[1]
            if moved is None:  # another backend holds the lease, or wrote first
                return 3.0
            if not moved:
                break
        return None if self._finished(job_id) else max(wake_in, 0.2)

    def _step(
        self, job: Job, decide: Callable[[Job, Observation, float], Decision]
    ) -> tuple[Decision, bool | None]:
        """Observe until nothing more is needed for the decision, and carry it out. The second value is that of
        `_carry_out`; False also when there is nothing to do."""
        if job.spec.is_group:
            self.queue.read()  # also elements that another backend has just made, or changed
        began = self.clock.steady()
        seen = self.groups.observe(job, self.observer.look(job))
        decision = decide(job, seen, seen.at)
        while decision.needs:
            seen = self.observer.extend(job, seen, decision.needs)
            decision = decide(job, seen, seen.at)
        action = self.actor.worth_doing(job, decision.action)
        if isinstance(decision.action, MakeCopy) and action is None:
            decision = replace(decision, wake_in=COPIED)
        if decision.event is None and action is None:
            return decision, False
        if decision.event and (to := decision.event.gives_way_to):
            return decision, self._give_way(job, to, seen, decision.event, action, began)
        return decision, self._carry_out(job, seen, decision.event, action, began)

    def tidy(self, live: Sequence[Job]) -> None:
        """Remove reports of attempts that are over; from time to time. `live`: the active jobs, which may be minutes
        old."""
        self.observer.report_cache.tidy(live, self._key_of)

    def _key_of(self, job_id: str, number: int) -> str | None:
        """Return the key with which the hosts of an attempt sign; None: no record has the attempt any more. Raises
        StoreError, Transient, Refused."""
        try:
            job = self.store.get(job_id)
        except NotFound:
            return None
        if not 0 < number <= len(job.attempts):
            return None
        return self.ports.hosts.key(keys.of_attempt(job, job.attempts[number - 1]))

    def _finished(self, job_id: str) -> bool:
        try:
            if not self.store.peek(job_id).state.final:
                return False
        except NotFound:
            self.changed()  # it was removed just now
        self.live.pop(job_id, None)
        return True

    def _carry_out(
        self,
        job: Job,
        seen: Observation,
        happened: Event | None,
        action: Action | None,
        began: float,
    ) -> bool | None:
        """Commit, then act, under one lease. True: an event was stored; False: none, or only that of a copy that goes
        on; None: another backend acts or wrote first, or the observation, which `began` by the steady clock, is too
        old."""
        extra = WIPING if isinstance(action, HandOn) else 0.0
        extra = job.spec.stop_grace if isinstance(action, StopProgram) else extra
        lease = self._lease(job.id, LEASE + extra)
        if lease is None:
            return None
        try:
            if self.clock.steady() - began > MAX_OBSERVATION_AGE:  # this process was held up
                return None
            if happened:
                self._accuse(apply(job, happened), seen)
            current = self._commit(job, happened, lease) if happened else self._unchanged(job)
            if isinstance(action, HandOn) and self._received(current, action)[1] is None:
                self.queue.pass_over(action.to, action.name)
                return False
            result = self.actor.act(current, action, lease) if action else Done()
            if isinstance(action, HandOn):
                return self._hand_on(current, action, result, lease)
            if action:
                self.counters.actions.labels(type(action).__name__, _RESULTS[type(result)]).inc()
            after = follow_up(current, action, result, self.clock.now()) if action else None
            # the obstacle, while an action is being retried or was refused without effect
            trouble = "" if after or not isinstance(result, NotYet | Denied) else result.error
            self.live[job.id].set_trouble(trouble, self.clock.now(), while_observing=False)
            if after:
                self._commit(current, after, lease)
            whole = isinstance(result, Copied) and result.progress.whole
            if isinstance(action, MakeCopy) and not whole:
                return False  # other jobs have their turn
            return happened is not None or after is not None
        except (Conflict, Fenced) as error:
            log.info("job %s: %s; reading it again", job.id, error)
            self.spending.withdraw(job.id)
            return None
        finally:
            self.store.release(lease)

    def _hand_on(self, job: Job, action: HandOn, result: Result, lease: Lease) -> bool:
        """Write into both records that the other job has the slice now, if its hosts are free and it can use it. Else
        another job gets it, or the slice is deleted, when it cannot be handed on soon."""
        self.counters.actions.labels("HandOn", _RESULTS[type(result)]).inc()
        live = self.live[job.id]
        if not isinstance(result, Done):
            log.info("job %s: its slice is not handed on: %s", job.id, result)
            live.can_hand_over = isinstance(result, NotYet)
            return False
        heirs = self._lease(action.to, LEASE)
        if heirs is None:
            return False
        try:
            heir, got = self._received(job, action)
            if got is None:  # it has changed meanwhile
                return False
            gave = handed_on(job, action.name, heir.id, got.at)
            receives = self._prepare(heir, got, heirs)  # first: it may be refused
            gives = self._prepare(job, gave, lease)
            began = time.monotonic()
            giver, receiver = self.store.commit_both(gives, receives)
        finally:
            self.store.release(heirs)
        self._written(job, giver, gave, began)
        self._written(heir, receiver, got, began)
        self.queue.news(heir.id)
        return True

    def _gives_way_to(self, job: Job) -> str:
        """Return the id of the job that needs the chips of this one, and that would request a slice at once if they
        were free; empty: there is none."""
        needed = self.queue.gives_way(job)
        if needed is None:
            return ""
        try:
            head = self.store.peek(needed.to)
        except (NotFound, DamagedRecord):
            return ""
        ready = can_request(head, needed.shape, self.observer.look(head), self.clock.now())
        return needed.to if ready else ""

    def _give_way(
        self,
        job: Job,
        to: str,
        seen: Observation,
        happened: Event,
        action: Action | None,
        began: float,
    ) -> bool | None:
        """Carry it out under the lease of the other job, too, if a plan of everything that is stored agrees: of several
        backends, one stops jobs for it at a time."""
        heads = self._lease(to, LEASE)
        if heads is None:
            return None
        try:
            needed = self.queue.gives_way(job, fresh=True)
            if needed is None or needed.to != to:
                return None
            return self._carry_out(job, seen, happened, action, began)
        finally:
            self.store.release(heads)

    def _received(self, giver: Job, action: HandOn) -> tuple[Job, Event | None]:
        """Return the job that is to get the giver's slice, and the event by which it does; None: it cannot use it
        now."""
        heir = self.store.get(action.to)
        seen, now = self.observer.look(heir), self.clock.now()
        return heir, receive(heir, giver, action.name, seen, now)

    def _lease(self, job_id: str, ttl: float) -> Lease | None:
        """Take a job's lease; None: another backend has it, or the job is gone. It counts from before the request: for
        others it lasts longer."""
        asked = self.clock.steady()
        lease = self.store.lease(job_id, self.owner, ttl=ttl)
        return lease and replace(lease, until=asked + ttl)

    def _unchanged(self, job: Job) -> Job:
        """Return the job, if it has not changed since it was observed. For actions without a commit, which would
        compare versions."""
        if self.store.get(job.id).version != job.version:
            raise Conflict(f"job {job.id} was changed since it was read")
        return job

    def _commit(self, job: Job, happened: Event, lease: Lease) -> Job:
        write = self._prepare(job, happened, lease)
        began = time.monotonic()
        stored = self.store.commit(
            write.job,
            happened,
            expected_version=write.expected_version,
            op_id=write.op_id,
            lease=lease,
        )
        self._written(job, stored, happened, began)
        return stored

    def _prepare(self, job: Job, happened: Event, lease: Lease) -> Write:
        """Return what is to be written. The queue, the budgets and the circuits count it before that, as a commit whose
        reply is lost may have been written. Raises Conflict when other jobs, or its group, do not allow it any more."""
        self.groups.check(job, happened)
        after = apply(job, happened)
        self.spending.note(job, after, happened)
        self.queue.note(job, after, happened)
        self.breaker.note(job, after, happened)
        op_id = f"{self.owner}:{lease.token}:{job.version + 1}"
        return Write(after, happened, job.version, op_id, lease)

    def _written(self, before: Job, after: Job, happened: Event, began: float) -> None:
        self.queue.learn(after)
        self._count(before, after, happened, time.monotonic() - began)
        log.info("job %s: %s, %s: %s", after.id, after.state, happened.kind, happened.text)
        self.changed()

    def _count(self, before: Job, after: Job, happened: Event, seconds: float) -> None:
        self.counters.commit.observe(seconds)
        self.counters.events.labels(happened.kind).inc()
        open_ones = {attempt.number for attempt in before.attempts if attempt.ended_at is None}
        for attempt in after.attempts:
            if attempt.number in open_ones and attempt.ended_at is not None:
                self.counters.ends.labels(attempt.outcome or "", attempt.cause or "").inc()
        if found := recovered(before, after):
            cause, waited = found
            self.counters.recovery.labels(cause).observe(waited)
        if happened.kind in (EventKind.SLICE_REQUESTED, EventKind.SLICE_RECEIVED):
            waited = first_wait(before, after)
            if waited is not None:
                self.counters.wait.labels(before.spec.priority).observe(waited)

    # Suspects --------------------------------------------------------------------------------------------------------

    def _accuse(self, job: Job, seen: Observation) -> None:
        """Store what the new record shows against machines, before the record is written: nothing is lost, and as each
        accusation has an operation id, nothing counts twice."""
        physical = [r.physical for r in seen.heard]
        for machines, accusation in accusations(job, physical, self.clock.now()):
            if accusation.op_id not in self._accused:
                self.ports.reputation.accuse(machines, accusation)
                self._accused[accusation.op_id] = None
