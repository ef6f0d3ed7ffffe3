"""The bounds of durations: seen and acted upon (L2), taken over (L3), put off (L4), billed for nothing (I2, I9).

Ages count only while the code could act: every service answers, and a backend lives. The code need not act upon facts
that it cannot see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.support.records import WITH_SLICE
from tests.support.simulation.budgets import Budgets
from tests.support.simulation.effects import HOUR
from tests.support.simulation.machines import Machine
from tests.support.simulation.profile import Profile
from tests.support.simulation.programs import Run
from tests.support.simulation.queue_checks import QueueChecks
from tests.support.simulation.sim import Broken
from tpujob.domain import invariants
from tpujob.domain.failures.retry import MAX_DELAY
from tpujob.domain.model import DesiredState, Job, State

if TYPE_CHECKING:
    from tests.support.simulation.play import Play

LOOK = 20.0  #: seconds between looks at the ledger
UNREAD = 300.0  #: seconds until a job is looked at whose record can be read again
SETTLED = 60.0  #: seconds after an outage or a restart
#: a slice that is ready and runs nothing: the longest wait for a launch, and what ends it, with faults all along
IDLE = 3 * HOUR
#: an orphan: the grace, a sweep, and failing deletes
ORPHAN, ORPHAN_CALM = 2 * HOUR, 0.5 * HOUR
#: a condemned slice until its delete is accepted: while another is waited for, and failing calls
CONDEMNED = 30 * 60.0
#: a slice that lost a race and is ready, until its delete is accepted
LOST = 120.0
#: from the moment at which it can be seen to the decision: the API says it is preempted or stopped; a program ended
NOTICED, ENDED = 300.0, 240.0
#: hosts or agents that say nothing more: silence by two signals, or a launch that never ends
SILENT, AGENT_GONE, NEVER_BEGUN = 25 * 60.0, 40 * 60.0, 45 * 60.0
#: the planned end of a slice until its program is told, which is less than the time that is left for that
TOLD = 40.0
#: a hang: beside its own limit
HANG = 300.0
#: a backend looks at a job with a slice within a lease, a resync and a patient look
UNATTENDED = 420.0


class Bounds:
    queue: QueueChecks

    def __init__(
        self, play: Play, jobs: Mapping[str, Job], broken: Broken, budgets: Budgets
    ) -> None:
        self.play, self.sim, self.world = play, play.sim, play.world
        self.jobs, self.broken, self.budgets = jobs, broken, budgets
        self.calm_since: float | None = None
        self.detected: dict[str, list[float]] = {}  #: kind -> seconds until the decision
        self._clear_since = self.sim.now
        self._patience = _patience(play.profile)
        self._ages: dict[tuple[str, str], float] = {}  #: (what, which) -> seconds that count
        self._named: dict[str, str] = {}  #: job -> trouble of its newest attempt
        self.sim.after(LOOK, self._look)

    def attended(self, job_id: str) -> None:
        self._ages.pop(("L3", job_id), None)

    def ended(self, job_id: str) -> None:
        """Note that the attempt's end is decided."""
        kind = self._named.pop(job_id, "")
        age = self._ages.pop(("L2", job_id), None)
        if kind and age is not None:
            self.detected.setdefault(kind, []).append(age)

    def _look(self) -> None:
        self.sim.after(LOOK, self._look)
        now = self.sim.now
        processes = [backend.process for backend in self.play.backends]
        lives = any(p.alive and p.paused_until <= now for p in processes)
        if not lives or any(o.until > now for o in self.play.outages):
            self._clear_since = now
        if now - self._clear_since < SETTLED:
            self.budgets.blind += LOOK
            return
        ours = {m.name: m for m in self.world.machines.values() if m.ours}
        self._orphans(ours, now)
        unread = {job for job in self.jobs if self.play.store.is_damaged(job, UNREAD)}
        for machine in ours.values():
            if machine.job not in unread:
                self._idle(machine, now)
        for job in list(self.jobs.values()):
            if job.id in unread:
                self.budgets.unread[job.id] += LOOK
                for what in ("L2", "L3"):
                    self._ages.pop((what, job.id), None)
            elif not job.state.final:
                self._job(job, now)
        for rule, job_id, holds, text in self.queue.overdue():
            if self._age(rule, job_id, holds, NOTICED * self._patience):
                self.broken(rule, job_id, text)

    def _age(self, rule: str, which: str, holds: bool, limit: float) -> bool:
        """Return whether the state has lasted longer than the limit."""
        if not holds:
            self._ages.pop((rule, which), None)
            return False
        age = self._ages[rule, which] = self._ages.get((rule, which), -LOOK) + LOOK
        return age > limit

    def _orphans(self, ours: Mapping[str, Machine], now: float) -> None:
        lost = set(invariants.unclaimed(ours, self.jobs.values()))
        calm = self.calm_since is not None and now - self.calm_since > ORPHAN_CALM
        for name, machine in ours.items():
            stays = name in lost and now < machine.deleting_at
            if self._age("I2", name, stays, ORPHAN_CALM if calm else ORPHAN):
                self.broken("I2", machine.job, f"{name} is billed and has no owner")

    def _idle(self, machine: Machine, now: float) -> None:
        idles = not machine.running(now) and machine.ready_at <= now < machine.deleting_at
        if self._age("I9", machine.name, idles, IDLE):
            text = f"{machine.name} is billed and has run nothing for {IDLE / HOUR:.0f} h"
            self.broken("I9", machine.job, text)

    def _job(self, job: Job, now: float) -> None:
        for slice_ in job.slices:
            machine = self.world.machines.get(slice_.name)
            lost = machine is not None and slice_.lost_at is not None and slice_.gone_at is None
            billed = lost and machine is not None and machine.ready_at <= now < machine.deleting_at
            if self._age("Q11", slice_.name, billed, LOST * self._patience):
                self.broken("Q11", job.id, f"{slice_.name} lost a race, and is billed on")
        for slice_ in job.condemned:
            machine = self.world.machines.get(slice_.name)
            stays = machine is not None and now < machine.deleting_at
            if self._age("condemned", slice_.name, stays, CONDEMNED):
                text = f"{slice_.name} is condemned, and billed for {CONDEMNED / 60:.0f} min"
                self.broken("I9", job.id, text)
        with_slice = job.state in WITH_SLICE or bool(job.condemned)
        if self._age("L3", job.id, with_slice, UNATTENDED):
            self.broken("L3", job.id, f"no backend looked at it for {UNATTENDED:.0f} s")
        right = [b.process.name for b in self.play.backends if abs(b.process.skew) < SETTLED]
        until = max((self.queue.retried_at(name, job.id) for name in right), default=0.0)
        if self._age("L4", job.id, until > now + MAX_DELAY, UNATTENDED):
            self.broken("L4", job.id, f"its next request is put off by {until - now:.0f} s")
        if self._age("P1", job.id, self.play.monitor.planned.is_due(job), TOLD * self._patience):
            self.broken("P1", job.id, "its slice ends, and its program was not told")
        kind, limit = self._trouble(job, now)
        if kind != self._named.get(job.id):
            self._ages.pop(("L2", job.id), None)
        self._named[job.id] = kind
        if self._age("L2", job.id, bool(kind), limit * self._patience):
            age = self._ages["L2", job.id]
            self.broken("L2", job.id, f"{kind}, and nothing came of it for {age:.0f} s")

    def _trouble(self, job: Job, now: float) -> tuple[str, float]:
        """Return a visible trouble of the newest attempt, and the seconds that it may last; empty: no trouble."""
        attempt = job.attempt
        runs = job.state in (State.PREPARING, State.RUNNING) and job.desired is DesiredState.RUN
        if attempt is None or not runs or now < job.wake + 60:
            return "", 0.0
        machine = self.world.machines.get(attempt.slice)
        if machine is None:
            return "gone", NOTICED + 120
        if min(machine.shown_at, machine.stopped_at, machine.deleting_at) <= now:
            return "preempted", NOTICED
        run = machine.run_of(job.id, attempt.number)
        whole = run is not None and len(run.programs) == run.hosts
        heard = whole and all(p.wrote >= 0 for p in run.programs.values())
        if machine.dead_at <= now or machine.lost:
            return "dead", SILENT if heard else NEVER_BEGUN
        if run is None or not whole or (machine.blocked and machine.blocked[-1][1] > now - 60):
            return "", 0.0
        return self._of_run(job, run, now)

    def _of_run(self, job: Job, run: Run, now: float) -> tuple[str, float]:
        programs = list(run.programs.values())
        if any(p.silent_at <= now for p in programs):
            # a backend without their reports counts from its own start, and again after a pause
            unheard = any(p.hidden for p in programs)
            return "silent", 2 * AGENT_GONE if unheard else AGENT_GONE
        over = [p for p in programs if p.exit_at <= now]
        if len(over) == len(programs) or any(p.exit_code for p in over):
            return "ended", ENDED
        if over and now >= max(run.hangs, max(p.exit_at for p in over)):
            return "left_behind", ENDED
        if run.hangs <= now:
            stall = float(job.spec.recovery.stall)
            first = run.work.contract and not run.stepped(now)
            return "hang", (max(2 * stall, 1800.0) if first else stall) + HANG
        return "", 0.0


def _patience(profile: Profile) -> float:
    """Return the factor of all bounds where many looks fail: some facts need a minute of looks without a gap."""
    slow = 0.9 * profile["slow"]
    look = (1 - profile["blobs"]) * (1 - slow) * (1 - profile["look_unknown"]) * (1 - slow)
    write = (1 - profile["store_before"] - profile["store_after"]) ** 2
    return min(30.0, 1 / (look**7 * write))
