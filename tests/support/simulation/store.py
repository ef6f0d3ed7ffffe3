"""The Store port in front of the real adapter: each call may fail, its reply may be lost, its caller may die."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tests.support.simulation.effects import Outage
from tests.support.simulation.world import World
from tpujob.adapters.sqlite import store
from tpujob.domain.events import Event
from tpujob.domain.model import Accusation, Job, Suspect
from tpujob.errors import DamagedRecord
from tpujob.ports import Lease, Write

if TYPE_CHECKING:
    from tests.support.simulation.monitor import Monitor

FOR_EVER = 1e18
BRIEF = 30.0  #: seconds that a call to the store may take


class SimStore:
    def __init__(
        self, real: store.SqliteStore, world: World, monitor: Monitor, outage: Outage
    ) -> None:
        self.real, self.world, self.monitor, self.outage = real, world, monitor, outage
        self.reputation = SimReputation(self)
        self._known: dict[str, Job] = {}  #: jobs that were read since their last write
        self.unreadable: dict[str, float] = {}  #: jobs whose records cannot be read, each until
        self._waking: list[str] | None = None  #: those that wake some time, the same

    def __getattr__(self, name: str) -> Any:
        """Return calls that cost nothing and cannot fail: histories, and the number of the newest change."""
        return getattr(self.real, name)

    def _effect(self, name: str, about: str, do: Callable[[], Any], *, writes: bool = True) -> Any:
        def guarded() -> Any:
            self.outage.check(name)
            return do()

        lost = {"before": "store_before", "after": "store_after"} if writes else {}
        return self.world.effects(name, about, guarded, timeout=BRIEF, store=True, **lost)

    def identity(self) -> str:
        self.world.sim.check_alive()
        self.outage.check("identity")
        return self.real.identity()

    def create(self, job: Job, event: Event, *, idempotency_key: str = "") -> Job:
        def do() -> Job:
            stored = self.real.create(job, event, idempotency_key=idempotency_key)
            self._forget(stored.id)
            self.monitor.submitted(stored, idempotency_key)
            return stored

        return self._effect("submit", idempotency_key, do)

    def find_created(self, key: str) -> Job | None:
        self.world.sim.check_alive()
        self.outage.check("find_created")
        found = self.real.find_created(key)
        self._check(*[found.id] if found else ())
        return found

    def create_many(self, jobs: Sequence[tuple[Job, Event]], *, key: str) -> builtins.list[Job]:
        def do() -> builtins.list[Job]:
            stored = self.real.create_many(jobs, key=key)
            for job in stored:
                self._forget(job.id)
                self.monitor.submitted(job, f"{key}/{job.index}")
            return stored

        return self._effect("submit", key, do)

    def get(self, job_id: str) -> Job:
        self.world.sim.check_alive()
        self.outage.check("get")
        return self._read(job_id)

    def peek(self, job_id: str) -> Job:
        return self.get(job_id)

    def damage(self, job_id: str, seconds: float) -> None:
        """Let every read of the record fail for that long; it comes back as it was."""
        self.unreadable[job_id] = self.world.sim.now + seconds
        self.world.sim.note(f"the record of {job_id} cannot be read for {seconds:.0f} s")

    def is_damaged(self, job_id: str, ago: float = 0.0) -> bool:
        """Return whether the record cannot be read, or could not until so many seconds ago."""
        return self.unreadable.get(job_id, 0.0) > self.world.sim.now - ago

    def _readable(self, jobs: builtins.list[Job]) -> builtins.list[Job]:
        return [job for job in jobs if not self.is_damaged(job.id)] if self.unreadable else jobs

    def _check(self, *jobs: str) -> None:
        for job_id in jobs:
            if self.is_damaged(job_id):
                raise DamagedRecord(f"the record of job {job_id} cannot be read")

    def _read(self, job_id: str) -> Job:
        self._check(job_id)
        job = self._known.get(job_id)
        if job is None:
            job = self._known[job_id] = self.real.get(job_id)
        return job

    def _forget(self, job_id: str) -> None:
        self._known.pop(job_id, None)
        self._waking = None

    def list(self, *, name: str = "", live: bool | None = None) -> list[Job]:
        def do() -> builtins.list[Job]:
            return self._readable(self.real.list(name=name, live=live))

        return self._effect("jobs", "", do, writes=False)

    def walk(self) -> Iterator[Job]:
        return iter(self._readable([*self.real.walk()]))

    def damaged(self) -> list[tuple[str, str]]:
        def do() -> builtins.list[tuple[str, str]]:
            mine = [(job_id, "unreadable") for job_id in self.unreadable if self.is_damaged(job_id)]
            return [*self.real.damaged(), *mine]

        return self._effect("damaged", "", do, writes=False)

    def commit(
        self,
        job: Job,
        event: Event | None,
        *,
        expected_version: int,
        op_id: str,
        lease: Lease | None,
    ) -> Job:
        def do() -> Job:
            self._check(job.id)
            self._forget(job.id)
            stored = self.real.commit(
                job, event, expected_version=expected_version, op_id=op_id, lease=lease
            )
            self.monitor.committed(stored, event, expected_version, lease)
            return stored

        self._trying(job.id)
        return self._effect("commit", f"{job.id} {event.kind if event else ''}", do)

    def _trying(self, job_id: str) -> None:
        """Note that the backend may believe from now on that its change of that job was made."""
        process = self.world.sim.me.process
        self.monitor.queue.tried[process.name if process else "", job_id] = self.world.sim.now

    def commit_both(self, first: Write, second: Write) -> tuple[Job, Job]:
        def do() -> tuple[Job, Job]:
            self._check(first.job.id, second.job.id)
            for write in (first, second):
                self._forget(write.job.id)
            stored = self.real.commit_both(first, second)
            self.world.hand_on(second.job.slices[-1].name, second.job.id)
            for job, write in zip(stored, (first, second), strict=True):
                self.monitor.committed(job, write.event, write.expected_version, write.lease)
            self.monitor.handed_on(*stored)
            return stored

        self._trying(first.job.id)
        self._trying(second.job.id)
        return self._effect("commit", f"{first.job.id} {second.job.id} {second.event.kind}", do)

    def remove(self, job_id: str, *, lease: Lease | None, keep: Job | None = None) -> None:
        def do() -> None:
            self._check(job_id)
            self._forget(job_id)
            self.real.remove(job_id, lease=lease, keep=keep)
            self.monitor.removed(job_id)

        self._effect("remove", job_id, do)

    def lease(self, job_id: str, owner: str, *, ttl: float) -> Lease | None:
        def do() -> Lease | None:
            lease = self.real.lease(job_id, owner, ttl=ttl)
            self.monitor.leased(lease)
            return lease

        self._trying(job_id)
        return self._effect("lease", job_id, do)

    def release(self, lease: Lease) -> None:
        def do() -> None:
            self.real.release(lease)
            self.monitor.released(lease)

        self._effect("release", lease.job_id, do)

    def due(self, now: float) -> list[str]:
        self.world.sim.check_alive()
        self.outage.check("due")
        if self._waking is None:
            self._waking = self.real.due(FOR_EVER)
        readable = [job_id for job_id in self._waking if not self.is_damaged(job_id)]
        return [job_id for job_id in readable if self._read(job_id).wake <= now]

    def changes(self, after: int) -> tuple[int, list[str]]:
        return self.real.changes(after)

    def zones(self) -> list[str]:
        return self._effect("zones", "", self.real.zones, writes=False)


class SimReputation:
    def __init__(self, store: SimStore) -> None:
        self._store, self._real = store, store.real.reputation

    def accuse(self, physicals: Sequence[str], accusation: Accusation) -> None:
        def do() -> None:
            self._real.accuse(physicals, accusation)
            self._store.monitor.accused(tuple(physicals), accusation)

        self._store._effect("accuse", accusation.op_id, do)

    def suspects(self) -> list[Suspect]:
        return self._store._effect("suspects", "", self._real.suspects, writes=False)

    def put(self, suspect: Suspect) -> None:
        self._store._effect("put_suspect", suspect.physical, lambda: self._real.put(suspect))

    def remove(self, physical: str) -> None:
        self._store._effect("remove_suspect", physical, lambda: self._real.remove(physical))
