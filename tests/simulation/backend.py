"""One backend process: the real loop, reconciler and service, over a store whose replies can be lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.sim import Process, Sim, Task, Violation
from tests.simulation.world import ZONES, Outage, World
from tpujob.domain.lifecycle import IllegalEvent
from tpujob.domain.model import Event, Job
from tpujob.errors import TpujobError
from tpujob.jobs import Jobs
from tpujob.loop import Loop
from tpujob.ports import HostAccess, Lease, Store
from tpujob.reconciler import Reconciler

if TYPE_CHECKING:
    from tests.simulation.monitor import Monitor

BRIEF = 30.0  #: seconds that a call to the store may take


class SimStore:
    """The Store port in front of the real adapter: each call may fail, its reply may be lost, its caller may die."""

    def __init__(self, real: Store, world: World, monitor: Monitor, outage: Outage) -> None:
        self.real, self.world, self.monitor, self.outage = real, world, monitor, outage

    def _effect(self, name: str, about: str, do: Callable[[], Any], *, writes: bool = True) -> Any:
        def guarded() -> Any:
            self.outage.check(name)
            return do()

        lost = {"before": "store_before", "after": "store_after"} if writes else {}
        return self.world.effects(name, about, guarded, timeout=BRIEF, store=True, **lost)

    def create(self, job: Job, event: Event, *, idempotency_key: str = "") -> Job:
        def do() -> Job:
            stored = self.real.create(job, event, idempotency_key=idempotency_key)
            self.monitor.submitted(stored, idempotency_key)
            return stored

        return self._effect("submit", idempotency_key, do)

    def get(self, job_id: str) -> Job:
        self.world.sim.check_alive()
        self.outage.check("get")
        return self.real.get(job_id)

    def list(self, *, user: str = "", name: str = "", live: bool | None = None) -> list[Job]:
        return self._effect(
            "jobs", "", lambda: self.real.list(user=user, name=name, live=live), writes=False
        )

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
            stored = self.real.commit(
                job, event, expected_version=expected_version, op_id=op_id, lease=lease
            )
            self.monitor.committed(stored, event, expected_version, lease)
            return stored

        return self._effect("commit", f"{job.id} {event.kind if event else ''}", do)

    def events(self, job_id: str, *, after: int = 0) -> list[Event]:
        return self.real.events(job_id, after=after)

    def remove(self, job_id: str, *, lease: Lease | None) -> None:
        def do() -> None:
            self.real.remove(job_id, lease=lease)
            self.monitor.removed(job_id)

        self._effect("remove", job_id, do)

    def lease(self, job_id: str, owner: str, *, ttl: float, now: float) -> Lease | None:
        def do() -> Lease | None:
            lease = self.real.lease(job_id, owner, ttl=ttl, now=now)
            self.monitor.leased(lease)
            return lease

        return self._effect("lease", job_id, do)

    def release(self, lease: Lease) -> None:
        self._effect("release", lease.job_id, lambda: self.real.release(lease))

    def due(self, now: float) -> list[str]:
        self.world.sim.check_alive()
        self.outage.check("due")
        return self.real.due(now)

    def next_wake(self) -> float | None:
        return self.real.next_wake()

    def changes(self, after: int) -> tuple[int, list[str]]:
        return self.real.changes(after)


class SimClock:
    def __init__(self, sim: Sim, process: Process) -> None:
        self.sim, self.process = sim, process

    def now(self) -> float:
        return self.sim.now + self.process.skew

    def sleep(self, seconds: float) -> None:
        self.sim.sleep(seconds)


class SimCondition:
    """`threading.Condition` in virtual time. One task runs at a time, so nothing needs locking."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.waiting: Task | None = None

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def wait(self, timeout: float) -> None:
        self.waiting = self.sim.me
        self.sim.sleep(timeout)
        self.waiting = None

    def notify_all(self) -> None:
        if self.waiting:
            task, self.waiting = self.waiting, None
            self.sim.wake(task)


class SimPool:
    """`ThreadPoolExecutor` in virtual time."""

    def __init__(self, sim: Sim, process: Process) -> None:
        self.sim, self.process = sim, process

    def submit(self, call: Callable[..., object], *given: object) -> None:
        self.sim.spawn(lambda: call(*given), self.process)


class SimReconciler(Reconciler):
    """Says which exceptions are no part of life: the loop would log them and go on."""

    def tick(self, job_id: str) -> float | None:
        try:
            return super().tick(job_id)
        except TpujobError:
            raise
        except (IllegalEvent, Exception) as error:
            raise Violation("X1", job_id, f"a tick raised {error!r}") from error

    def sweep(self, zones: Any) -> Any:
        try:
            return super().sweep(zones)
        except TpujobError:
            raise
        except Exception as error:
            raise Violation("X1", "", f"a sweep raised {error!r}") from error


class NobodyWatches:
    """No page is open."""

    def now(self) -> int:
        return 0

    def wait(self, job_id: str | None, after: int, timeout: float) -> int:
        return after

    def poke(self) -> None: ...


class Backend:
    """Alive from its creation until it is killed."""

    def __init__(
        self, sim: Sim, world: World, store: SimStore, *, name: str, skew: float, start: bool = True
    ) -> None:
        self.process = Process(name, skew)
        clock = SimClock(sim, self.process)
        self.reconciler = SimReconciler(
            store, world.slices, world.hosts, world.bucket, clock, owner=name
        )
        loop = Loop(self.reconciler, store, clock, zones=lambda: ZONES)
        loop._wakeup = SimCondition(sim)  # type: ignore[assignment]
        loop._pool = SimPool(sim, self.process)  # type: ignore[assignment]
        self.api = Jobs(
            store,
            world.bucket,
            clock,
            bucket=lambda region: f"gs://tpujob-{region}",
            access=_no_access,
            loop=loop,
            watch=NobodyWatches(),
            live=self.reconciler.live,
        )
        if start:
            sim.spawn(loop._run, self.process)


def _no_access(slice: object, host: int) -> HostAccess:
    raise AssertionError("not reached over SSH here")
