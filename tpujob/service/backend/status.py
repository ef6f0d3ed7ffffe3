"""The part of `api.JobsApi` that is about the backend itself."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpujob.api import CostRowView, HealthView, LoopView, StoreView
from tpujob.domain.model import Cause
from tpujob.domain.observations import Circuit
from tpujob.domain.text import rfc3339
from tpujob.engine import Counters, Loop
from tpujob.errors import TpujobError
from tpujob.ports import Clock, Store
from tpujob.service.backend import health
from tpujob.service.backend.health import Look, ProcessFacts
from tpujob.service.job_index import JobIndex
from tpujob.service.money.cost import Costs
from tpujob.service.notifications import Notifications
from tpujob.version import __version__


class BackendStatus:
    """Thread-safe; no tick waits for what is read here."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        index: JobIndex,
        loop: Loop,
        counters: Counters,
        notifications: Notifications,
        circuits: Callable[[], Mapping[str, Circuit]],
        costs: Costs,
        process: ProcessFacts,
    ) -> None:
        self.store, self.clock, self.index, self.loop = store, clock, index, loop
        self.counters, self.circuits, self.process = counters, circuits, process
        self.figures = Figures(costs, clock)
        self._notifications = notifications
        self.streams: Callable[[], int] = lambda: 0  #: open ones, where pages are live

    def health(self) -> HealthView:
        """As `JobsApi.health` says."""
        now, pulse = self.clock.now(), self.loop.pulse()
        read_s, revision, error = self.read()
        waiting, overdue = self.messages(health.OVERDUE)
        bad = [*health.troubles(self.process, Look(now, pulse, read_s, error, overdue))]
        ticks = self.counters.times("tick")
        done, failed = (sum(ticks[k,].counts) if (k,) in ticks else 0 for k in ("done", "failed"))
        passed = pulse.passed_at
        return HealthView(
            at=rfc3339(now),
            ok=not bad,
            troubles=bad,
            version=__version__,
            context=self.process.context,
            started_at=rfc3339(self.process.started_at),
            store=StoreView(
                kind=self.process.store,
                read_s=read_s,
                revision=revision,
                behind=max(0, revision - self.index.revision) if self.index.revision else 0,
            ),
            loop=LoopView(
                called=self.process.called,
                passed_at=None if passed is None else rfc3339(passed),
                age_s=None if passed is None else max(0.0, now - passed),
                late=health.is_late(self.process, pulse, now),
                pass_s=pulse.pass_s,
                due=pulse.due,
                ticking=pulse.ticking,
                longest_s=pulse.longest_s,
                ticks=done + failed,
                failed=failed,
            ),
            refused=sum(self.refused().values()),
            streams=self.streams(),
            waiting=waiting,
            schemas=dict(self.process.schemas),
        )

    def alive(self) -> bool:
        """Whether the process does what it runs for. Reads nothing. One that only works while it is called is alive
        when it answers."""
        late = health.is_late(self.process, self.loop.pulse(), self.clock.now())
        return self.process.called or not late

    # Seen ------------------------------------------------------------------------------------------------------------

    def read(self) -> tuple[float | None, int, str]:
        """The seconds that a cheap read of the store took, and its newest change; or why it failed."""
        began = time.monotonic()
        try:
            revision = self.store.newest()
        except TpujobError as error:
            return None, 0, error.message
        return time.monotonic() - began, revision, ""

    def messages(self, late: float) -> tuple[int, int]:
        """Those that wait, at most 1,000, and those of them that are older than that many seconds; none when the store
        cannot be read."""
        try:
            return self._notifications.waiting(late)
        except TpujobError:
            return 0, 0

    def refused(self) -> dict[str, int]:
        """Count the offers that are not asked for just now, by cause; none when the store cannot be read."""
        now = self.clock.now()
        found: dict[str, int] = {Cause.STOCKOUT: 0, Cause.QUOTA: 0}
        try:
            circuits = self.circuits()
        except TpujobError:
            return found
        for one in circuits.values():
            if one.until > now:
                found[one.cause] = found.get(one.cause, 0) + 1
        return found


# Money and goodput ---------------------------------------------------------------------------------------------------


#: seconds between two readings at least; and the part of the time that may go into them
EVERY, SHARE = 60.0, 0.02


@dataclass(frozen=True, slots=True)
class Money:
    at: float
    total: CostRowView


class Figures:
    """Thread-safe; one caller at a time reads."""

    def __init__(self, costs: Costs, clock: Clock) -> None:
        self._costs, self._clock = costs, clock
        self._lock = threading.Lock()
        self._money: Money | None = None
        self._again_at = 0.0

    def money(self) -> Money:
        """Of all jobs, as it was a minute ago at most, or a little longer where there are very many."""
        with self._lock:
            now = self._clock.now()
            if self._money is None or now >= self._again_at:
                began = time.monotonic()
                self._money = Money(now, self._costs.cost(by="type")["total"])
                self._again_at = now + max(EVERY, (time.monotonic() - began) / SHARE)
            return self._money
