"""Several backends on one store, for an hour of virtual work: programs make progress, slices are preempted, all ends.

Backends tick at the same time, in threads of their own; then the clock is turned. A ledger that they cannot see
remembers who held which lease, and what the cloud and the hosts did.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tests.support.world import (
    Bucket,
    Clock,
    Cloud,
    CopiesOfBucket,
    Faults,
    HostsOfCloud,
    SecretsInMemory,
    orphans,
    service,
)
from tpujob.domain import invariants
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Job, Outcome, State
from tpujob.domain.observations import SliceState
from tpujob.engine.loop import RESYNC, SWEEP_EVERY
from tpujob.engine.reconciler import Reconciler
from tpujob.ports import Lease, Ports, Providers, Store

SPEC = {"tpu": {"type": "v4-16", "zones": ["us-central2-b"]}, "run": {"command": "python train.py"}}
REPORTED_EVERY = 15.0  #: seconds of the clock
STEP = 5.0  #: seconds of the clock between two rounds
OUTAGE = 240.0  #: seconds; what a preempted slice waits for its end, and then some


@dataclass
class Ledger:
    """All leases in the order of their tokens."""

    leases: dict[str, list[Lease]] = field(default_factory=dict[str, list[Lease]])
    began: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    ended: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])

    def check(self) -> None:
        for job_id, leases in self.leases.items():
            ordered = sorted(leases, key=lambda lease: lease.token)
            tokens = [lease.token for lease in ordered]
            assert len(set(tokens)) == len(tokens), f"two owners of job {job_id} have one token"
            for old, new in pairwise(ordered):
                if old.owner == new.owner:
                    continue
                until = min(old.until, self.ended.get((job_id, old.token), old.until))
                began = self.began[job_id, new.token]
                assert began >= until, f"job {job_id}: {new.owner} began while {old.owner} led"


class Witnessed:
    """A store whose leases are entered into the ledger."""

    def __init__(self, store: Store, ledger: Ledger, clock: Clock) -> None:
        self._store, self._ledger, self._clock = store, ledger, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def lease(self, job_id: str, owner: str, *, ttl: float) -> Lease | None:
        now = self._clock.now()
        lease = self._store.lease(job_id, owner, ttl=ttl)
        if lease:
            held = replace(lease, until=now + ttl)
            self._ledger.leases.setdefault(job_id, []).append(held)
            self._ledger.began[job_id, lease.token] = now
        return lease

    def release(self, lease: Lease) -> None:
        self._ledger.ended[lease.job_id, lease.token] = self._clock.now()
        self._store.release(lease)


class Backend:
    """A stand-in for `loop.Loop` with the clock of the hour."""

    def __init__(self, reconciler: Reconciler, store: Store) -> None:
        self.reconciler, self.store = reconciler, store
        self._when: dict[str, float] = {}
        self._next_resync = self._next_sweep = 0.0
        self._change = store.newest()

    def round(self, now: float) -> None:
        if now >= self._next_resync:
            for job_id in self.store.due(now):
                self._when.setdefault(job_id, now)
            self._change, moved = self.store.changes(self._change)
            for job_id in moved:
                if self._when.get(job_id, 0.0) > now + RESYNC:
                    self._when[job_id] = now
            self._next_resync = now + RESYNC
        if now >= self._next_sweep:
            orphans(self.reconciler, store=self.store).sweep()
            self._next_sweep = now + SWEEP_EVERY
        for job_id in [job_id for job_id, when in self._when.items() if when <= now]:
            wake_in = self.reconciler.tick(job_id)
            if wake_in is None:
                del self._when[job_id]
            else:
                self._when[job_id] = now + wake_in


class Hour:
    def __init__(self, stores: Sequence[Store], jobs: int) -> None:
        """Make one backend for each store; the stores open the same place."""
        self.clock, faults = Clock(), Faults()
        self.cloud = Cloud(self.clock, faults)
        self.bucket = Bucket(self.clock, faults)
        self.hosts = HostsOfCloud(self.cloud, self.bucket, faults)
        self.ledger, self.store = Ledger(), stores[0]
        self.backends = [self._backend(f"backend-{n}", s) for n, s in enumerate(stores)]
        api = service(self.backends[0].reconciler, self.store)
        self.ids = [api.create({**SPEC, "name": f"job-{n}"})["id"] for n in range(jobs)]
        self._steps = dict.fromkeys(self.ids, 0)

    def _backend(self, owner: str, store: Store) -> Backend:
        seen: Any = Witnessed(store, self.ledger, self.clock)
        ports = Ports(
            seen,
            Providers({CLOUD_TPU: self.cloud}),
            self.hosts,
            self.bucket,
            self.clock,
            CopiesOfBucket(self.bucket, Faults()),
            SecretsInMemory(),
            store.reputation,
        )
        return Backend(Reconciler(ports, owner=owner), store)

    def run(self, preempted: Sequence[float]) -> None:
        """Run until all programs have succeeded, and every job is released. `preempted`: seconds from the start at
        which every job's slice is taken away."""
        start, remaining = self.clock.now(), sorted(preempted)
        end = start + 3600
        reported = start
        with ThreadPoolExecutor(len(self.backends)) as pool:
            while self.clock.now() < end or any(not j.state.final for j in self.store.list()):
                now = self.clock.now()
                assert now < end + OUTAGE, [j.message for j in self.store.list(live=True)]
                if remaining and now - start >= remaining[0]:
                    remaining.pop(0)
                    self._preempt()
                if now - reported >= REPORTED_EVERY:
                    reported = now
                    self._report(done=now >= end)
                for done in [pool.submit(backend.round, now) for backend in self.backends]:
                    done.result()
                self.clock.sleep(STEP)

    def _preempt(self) -> None:
        self.cloud.preempt()

    def _report(self, *, done: bool) -> None:
        """Write the reports of the agents whose programs run."""
        for machine in list(self.cloud.machines.values()):
            if machine.state is not SliceState.READY:
                continue
            self._steps[machine.job_id] += 1
            step = self._steps[machine.job_id]
            fields: dict[str, Any] = {"phase": "exited", "exit_code": 0} if done else {}
            for host, attempt in machine.programs.items():
                workdir = f"gs://tpujob-us-central2/u/ada/jobs/{machine.job_id}"
                self.bucket.report(workdir, attempt, host, step=step, **fields)

    # What must be true -----------------------------------------------------------------------------------------------

    def check(self, *, attempts: int) -> None:
        """Assert that no job was lost, no two backends led one job, no program ran twice, and no slice is left."""
        self.ledger.check()
        for job_id in self.ids:
            job = self.store.get(job_id)
            assert (job.state, job.outcome) == (State.SUCCEEDED, Outcome.SUCCEEDED), job.message
            assert len(job.attempts) == attempts
            self._history(job)
        slices = len(self.ids) * attempts
        assert len(self.cloud.created) == len(set(self.cloud.created)) == slices
        assert len(self.hosts.starts) == slices * 2, "a program was started twice"
        assert self.cloud.machines == {}

    def _history(self, job: Job) -> None:
        events = self.store.events(job.id)
        assert [e.seq for e in events] == list(range(1, job.version + 1))
        assert invariants.of_job(job) == []
        assert invariants.of_history(invariants.first_record(job), events, job) == [], (
            "the events, applied one after the other, make another record: an update was lost"
        )
