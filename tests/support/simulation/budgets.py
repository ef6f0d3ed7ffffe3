"""I14: the amount billed stays within a budget, a job's own or one of all jobs, and no job is stopped before one of its
budgets is used up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.support.simulation.sim import Broken
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import Cause, Job, State

if TYPE_CHECKING:
    from tests.support.simulation.world import World

#: seconds for which the way out is kept paid for (`stop_grace` is the usual one), and those for which a new slice is
DELETION = 120
OUT, WORTH = 60 + 30 + DELETION, 300
#: seconds by which clocks differ, and until a slice that is ready was looked at
SLACK = 20.0
#: seconds after an outage of the cloud in which a backend may not have looked at every slice
UNSEEN = 300.0


class Budgets:
    def __init__(self, world: World, jobs: Mapping[str, Job], broken: Broken) -> None:
        self.world, self.jobs, self.broken = world, jobs, broken
        self.blind = 0.0  #: seconds in which no backend could act
        self.unread = Counter[str]()  #: seconds in which a job's record could not be read
        self.shared = 0.0  #: US dollars for all jobs; 0: no limit
        self._rates: dict[str, float] = {}  #: by slice, where a budget is shared
        self._excuses: dict[str, float] = {}  #: by job, also such as were removed since

    def committed(self, before: Job, job: Job, event: Event) -> None:
        limit = _limit(job)
        if self.shared:
            self._rates |= {s.name: s.usd_per_hour or 0.0 for s in job.slices}
            self._within_shared()
        if limit is None:
            return
        if event.kind in (EventKind.SLICE_REQUESTED, EventKind.CANDIDATE_REQUESTED):
            newest = job.slices[-1]
            needed = (newest.usd_per_hour or math.inf) * (OUT + WORTH) / 3600
            if self._spent(job) + needed > limit + self._excuse(job):
                text = f"asked for {newest.name} with ${limit - self._spent(job):.2f} left"
                self.broken("I14", job.id, text)
        short = job.next_state is State.FAILED and job.cause is Cause.BUDGET
        remaining = limit - self._spent(job) - _burn(before) * OUT / 3600
        timed = job.spec.max_time is not None  # it may have run for that long
        early = short and not timed and before.next_state is None and remaining > self._excuse(job)
        if early and not self._shared_is_used_up():
            text = f"stopped after ${self._spent(job):.2f} of ${limit:.2f}"
            self.broken("I14", job.id, text)
        if job.state.final:
            self.kept(job)

    def _within_shared(self) -> None:
        self._excuses |= {job.id: self._excuse(job) for job in self.jobs.values()}
        spent, allowed = self._spent_by_all(), self.shared + sum(self._excuses.values())
        if spent > allowed:
            text = f"all were billed for ${spent:.2f}, with a budget of ${self.shared:.2f}"
            self.broken("I14", "", text)

    def _spent_by_all(self) -> float:
        now, total = self.world.sim.now, 0.0
        for machine in (*self.world.machines.values(), *self.world.past):
            seconds = max(0.0, min(now, machine.gone_at) - machine.ready_at)
            total += self._rates.get(machine.name, 0.0) * seconds / 3600
        return total

    def _shared_is_used_up(self) -> bool:
        """Return whether the shared budget pays for little more than the way out of all slices, as far as a backend can
        know."""
        out = sum(self._rates.get(name, 0.0) for name in self.world.machines) * 2 * OUT / 3600
        spent = self._spent_by_all() + self._spent_unseen()
        return bool(self.shared) and self.shared - spent - out <= 0

    def _spent_unseen(self) -> float:
        """Return what slices seem to cost that have gone while the cloud answered nobody, or just before, and that no
        backend has seen gone since."""
        now, world = self.world.sim.now, self.world
        if now - max(world.cloud_outage.until, world.signed_out.until) > UNSEEN:
            return 0.0
        alive = {s.name for job in self.jobs.values() for s in job.slices if s.gone_at is None}
        gone = (machine for machine in world.past if machine.name in alive)
        return sum(self._rates.get(m.name, 0.0) * max(0.0, now - m.gone_at) / 3600 for m in gone)

    def pay_for_no_more(self) -> bool:
        """Return whether the shared budget has too little left for another slice, perhaps of two times the size."""
        slice_ = 2 * max(self._rates.values(), default=0.0) * (OUT + WORTH) / 3600
        return bool(self.shared) and self.shared - self._spent_by_all() < slice_

    def kept(self, job: Job) -> None:
        limit = _limit(job)
        if limit is None:
            return
        spent = self._spent(job)
        if spent > limit + self._excuse(job):
            self.broken("I14", job.id, f"billed for ${spent:.2f}, with a budget of ${limit:.2f}")

    def _excuse(self, job: Job) -> float:
        """Return the amount that may be billed before the backend can know."""
        dearest = max((slice_.usd_per_hour or 0.0 for slice_ in job.slices), default=0.0)
        return self._stuck(job) + dearest * (SLACK + self.blind + self.unread[job.id]) / 3600

    def _stuck(self, job: Job) -> float:
        """Return the cost of deletions that took longer than a budget reserves for one."""
        now, total = self.world.sim.now, 0.0
        for slice_ in job.slices:
            if slice_.delete_asked_at is not None:
                took = (slice_.gone_at or now) - slice_.delete_asked_at
                total += (slice_.usd_per_hour or 0.0) * max(0.0, took - DELETION) / 3600
        return total

    def _spent(self, job: Job) -> float:
        """Return the amount that the cloud billed: each slice from ready to gone, whether observed or not."""
        rates = {slice_.name: slice_.usd_per_hour or 0.0 for slice_ in job.slices}
        now, total = self.world.sim.now, 0.0
        for machine in self.world.of_job.get(job.id, ()):
            if machine.name in rates:
                total += rates[machine.name] * machine.billed(job.id, now) / 3600
        return total


def _limit(job: Job) -> float | None:
    if job.spend_limit is not None:
        return job.spend_limit / 1e6
    return job.spec.budget.usd if job.spec.budget else None


def _burn(job: Job) -> float:
    return sum(slice_.usd_per_hour or 0.0 for slice_ in job.slices if slice_.gone_at is None)
