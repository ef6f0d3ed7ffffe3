"""One backend process: the real loop, reconciler and service."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.support.simulation.sim import Process, Sim, Task, Violation
from tests.support.simulation.world import ZONES, World
from tests.support.virtual_threads import Condition
from tests.support.world import Inline, Lender, SecretsInMemory
from tpujob.api import HostAccess
from tpujob.domain.capacity import deadline
from tpujob.domain.decide import planned_end
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.engine.loop import Loop
from tpujob.engine.notification_collector import NotificationSetup
from tpujob.engine.notifier import Sender
from tpujob.engine.orphans import Orphans, Swept
from tpujob.engine.reconciler import Reconciler
from tpujob.errors import TpujobError
from tpujob.lib.wall_time import WallTime
from tpujob.ports import Ports, Providers
from tpujob.service.admin import Admin
from tpujob.service.host_reach import HostReach
from tpujob.service.jobs import Jobs
from tpujob.service.members import Membership
from tpujob.service.notifications import Notifications
from tpujob.service.parts import Parts, ServiceSettings

if TYPE_CHECKING:
    from tests.support.simulation.monitor import Monitor
    from tests.support.simulation.play import Play
    from tests.support.simulation.store import SimStore

PATIENT = 180.0  #: seconds, at most, between two looks at a job that goes well


class SimClock:
    """The product's clock on a machine that was booted an hour before the process began."""

    def __init__(self, sim: Sim, process: Process) -> None:
        self.sim, self.process = sim, process
        self.begin()

    def begin(self) -> None:
        """Take the machine's clock as it is now for right."""
        self._wall_time = WallTime(self._wall, self.steady)

    def _wall(self) -> float:
        return self.sim.now + self.process.skew + self.process.wrong

    def now(self) -> float:
        return self._wall_time.now()

    def steady(self) -> float:
        return self.sim.now - self.process.began + 3600.0

    def sleep(self, seconds: float) -> None:
        self.sim.sleep(seconds)


class SimLock:
    """`threading.RLock` in virtual time: its holder may be paused, and other tasks wait for it then."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.holder: Task | None = None
        self.depth = 0

    def __enter__(self) -> None:
        while self.holder not in (None, self.sim.me):
            self.sim.sleep(0.05)
        self.holder = self.sim.me
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.holder = None


class SimPool:
    """`ThreadPoolExecutor` in virtual time."""

    def __init__(self, sim: Sim, process: Process) -> None:
        self.sim, self.process = sim, process

    def submit(self, call: Callable[..., object], *args: object) -> None:
        self.sim.spawn(lambda: call(*args), self.process)


class SimReconciler(Reconciler):
    """The real loop, which reports unexpected exceptions instead of logging them, and looks less often at jobs that go
    well: until such a job changes, a look shows nothing new."""

    world: World
    monitor: Monitor

    def tick(self, job_id: str) -> float | None:
        self.monitor.attended(job_id)
        try:
            wake_in = super().tick(job_id)
            return wake_in and self._patient(job_id, wake_in)
        except TpujobError:
            raise
        except Exception as error:
            raise Violation("X1", job_id, f"a tick raised {error!r}") from error

    def _patient(self, job_id: str, wake_in: float) -> float:
        changes_in = self.world.quiet_until(job_id) - self.world.sim.now
        job, now = self.store.peek(job_id), self.clock.now()
        with_budget = self.spending.budgets or job.spec.budget is not None
        for due in (planned_end.due_in(job, now), deadline.changes_in(job, now)):
            changes_in = changes_in if due is None else min(changes_in, due)
        if wake_in < 5 or changes_in < wake_in or with_budget:
            return wake_in
        patience = min(PATIENT, changes_in + wake_in * self.world.fate.random())
        # the looks that are left out would have worked
        self.live[job_id].read_at = self.clock.now() + patience
        return patience


class SimOrphans(Orphans):
    def sweep(self, *, dry_run: bool = False) -> Swept:
        try:
            return super().sweep(dry_run=dry_run)
        except TpujobError:
            raise
        except Exception as error:
            raise Violation("X1", "", f"a sweep raised {error!r}") from error


class NobodyWatches:
    """A follower of changes without open pages: it reads changes on request."""

    is_followed = False

    def __init__(self, store: SimStore) -> None:
        self._store = store

    def now(self) -> int:
        return self._store.newest()

    def since(self, after: int) -> list[str]:
        return self._store.changes(after)[1]

    def wait(self, job_id: str | None, after: int, timeout: float) -> int:
        return after

    def poke(self) -> None: ...


class Backend:
    """A backend process, alive from its creation until it is killed."""

    def __init__(self, play: Play, *, name: str, skew: float) -> None:
        sim, world, store = play.sim, play.world, play.store
        self.sim, self.process = sim, Process(name, skew, began=sim.now)
        self.clock = clock = SimClock(sim, self.process)
        ports = Ports(
            store,
            Providers({CLOUD_TPU: play.slices}),
            play.hosts,
            play.bucket,
            clock,
            play.copies,
            SecretsInMemory(),
            store.reputation,
        )
        self.reconciler = SimReconciler(
            ports, owner=name, report_every=60.0, queue=play.queue, budgets=play.budgets
        )
        # these read the store while they hold it
        self.reconciler.queue._lock = SimLock(sim)  # type: ignore[assignment]
        self.reconciler.spending._lock = SimLock(sim)  # type: ignore[assignment]
        self.reconciler.world, self.reconciler.monitor = world, world.monitor
        orphans = SimOrphans(store, ports.slices, play.hosts, clock, zones=lambda: ZONES)
        self.loop = loop = Loop(
            self.reconciler,
            store,
            clock,
            sweep=lambda: self.reconciler.tidy(orphans.sweep().live),
            wakeup=Condition(sim),  # type: ignore[arg-type]
            pool=SimPool(sim, self.process),  # type: ignore[arg-type]
        )
        setup, outbox = NotificationSetup(), store.real.outbox  # no channels: nothing is ever sent
        sender = Sender(outbox, setup, clock, owner=name, pool=Inline())
        notifications = Notifications(outbox, setup, sender, ports.secrets, clock)
        parts = Parts(
            self.reconciler,
            loop,
            HostReach(_no_access),
            ServiceSettings(),
            changes=NobodyWatches(store),
            admin=Admin(store, orphans, store.reputation, clock),
            members=Membership(store.real.members, store, ports.secrets),
            notifications=notifications,
            lender=Lender(),
        )
        self.api = Jobs(parts)
        sim.spawn(loop.run, self.process)

    def stir(self, job_id: str) -> None:
        """Plan a look at a changed job for the time of its next regular look."""
        if self.process.alive:
            within = self.sim.random(f"{job_id}:{self.sim.now}").uniform(0, 10)
            self.loop.hasten(job_id, self.clock.now() + within)


def _no_access(slice: object, host: int, key: str, holder: str) -> HostAccess:
    raise AssertionError("not reached over SSH here")
