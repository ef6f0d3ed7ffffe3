"""The true state: slices, the machines below them, programs and their checkpoints; and the faults that befall them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from tests.support.simulation import plans
from tests.support.simulation.effects import Effects, Outage
from tests.support.simulation.machines import Machine
from tests.support.simulation.programs import Checkpoint, Program, Run
from tests.support.simulation.reporters import Reporters
from tests.support.simulation.sim import Sim
from tests.support.simulation.virtual_cloud import VirtualCloud
from tpujob.domain.actions import HostPlan
from tpujob.domain.hardware.accelerators import find, region_of
from tpujob.domain.model import Attempt, Slice
from tpujob.emulator.cloud.stock import HostStock

if TYPE_CHECKING:
    from tests.support.simulation.bucket import Bucket
    from tests.support.simulation.monitor import Monitor

#: v4-16 is offered in the first only; v5p-16 in the others, which lie in one region
ZONES = ("us-central2-b", "us-east5-a", "us-east5-b")
STOCK = 40  #: physical machines in each zone


class World:
    def __init__(self, sim: Sim, effects: Effects) -> None:
        self.sim, self.effects = sim, effects
        self.machines: dict[str, Machine] = {}
        self.past: list[Machine] = []
        self.of_job: dict[str, list[Machine]] = {}  #: all slices so far
        self.saved: dict[str, list[Checkpoint]] = {}  #: job -> its committed checkpoints
        self.work: dict[str, plans.Work] = {}
        self.monitor: Monitor
        self.bucket: Bucket
        self.stirred: Callable[[str], None] = lambda job: None  #: called with each job that changes
        #: seconds of work that a job may have
        self.lengths_of: Callable[[str], tuple[int, ...]] = lambda job: effects.profile.lengths
        self.fate, self.refusals = sim.random("fate"), sim.random("refusals")
        self.cloud_outage = Outage(sim, effects, "cloud_outage", longest=1500)
        self.signed_out = Outage(
            sim, effects, "unauthenticated", longest=5400, error="401 the credentials have expired"
        )
        #: zone, zone and pricing, or region for a quota -> until
        self.scarce: dict[str, float] = {}
        stock = sim.random("stock")
        # the worst choice of an allocator: the machine that was freed last comes first
        hosts = HostStock(STOCK, only=ZONES, reuse=True)
        everything = [host for zone in ZONES for host in hosts.hosts[zone].values()]
        bad = effects.profile["bad_machine"]
        self.bad = {host.name for host in everything if stock.random() < bad}
        for zone in ZONES:
            ranks = [*range(len(hosts.hosts[zone]))]
            stock.shuffle(ranks)
            for host, rank in zip(hosts.hosts[zone].values(), ranks, strict=True):
                host.rank = rank
        self.cloud = VirtualCloud(sim, hosts)
        self.cloud.gone, self.cloud.taken_down = self._gone, self._taken_down
        for place in (*ZONES, *(f"quota {region_of(z)}" for z in ZONES[:2])):
            self._scarcity(place, sim.random(f"scarce {place}"))

    def rate(self, fault: str) -> float:
        return 0.0 if self.effects.calm else self.effects.profile[fault]

    def hit(self, fault: str) -> bool:
        return self.drawn(self.fate, fault, count=True)

    def drawn(self, random: Random, fault: str, *, count: bool = False) -> bool:
        hit = random.random() < self.rate(fault)
        if hit and count:
            self.effects.counts.faults += 1
        return hit

    # Hardware --------------------------------------------------------------------------------------------------------

    def _scarcity(self, place: str, random: Random) -> None:
        """Start, at random times, stockouts of a zone or refusals of quota in a region."""

        def begin() -> None:
            self.scarce[place] = self.sim.now + random.uniform(60, 5400)
            self.sim.note(f"no more of {place} for {random.random():.2f}")
            self._scarcity(place, random)

        rate = self.effects.profile["quota" if place.startswith("quota") else "stockout"]
        self.effects.some_time(random, rate, begin)

    def refusal(self, slice: Slice) -> str:
        """Return STOCKOUT or QUOTA while one of them is in force; else an empty text."""
        now = self.sim.now
        places = (slice.zone, f"{slice.zone} {slice.pricing}")
        if any(self.scarce.get(place, 0.0) > now for place in places):
            return "STOCKOUT"
        return "QUOTA" if self.scarce.get(f"quota {region_of(slice.zone)}", 0.0) > now else ""

    def free(self, zone: str, type: str) -> list[str]:
        """Return the physical machines that slices of that type get next, in this order."""
        return [host.name for host in self.cloud.stock.free(zone, find(type).generation)]

    def add(self, machine: Machine, slice: Slice, *, owner: str = "") -> None:
        """Request a slice from the cloud; `owner`: another than ours."""
        self.machines[machine.name] = machine
        self.cloud.request(machine, slice, owner=owner)
        self.of_job.setdefault(machine.job, []).append(machine)

    def hand_on(self, name: str, job: str) -> None:
        """Give the slice to another job."""
        machine = self.machines.get(name)
        if machine is not None and machine.job != job:
            machine.served.append((machine.job, self.sim.now))
            machine.job = job
            self.of_job.setdefault(job, []).append(machine)
            self.sim.note(f"{name} serves {job}")

    def holder(self, name: str) -> str:
        """Return the job that has, or last had, that slice."""
        past = (m for m in reversed(self.past) if m.name == name)
        machines = [self.machines.get(name), *past]
        return next((m.job for m in machines if m), name.split("-")[1])

    def run_of(self, job: str, attempt: Attempt) -> Run | None:
        """Return the run that took place. None: no host was started."""
        for machine in self.of_job.get(job, ()):
            run = machine.run_of(job, attempt.number)
            if run is not None and machine.name == attempt.slice:  # it may have been made twice
                return run
        return None

    def _gone(self, machine: Machine) -> None:
        machine.gone_at = now = self.sim.now
        for program in machine.running(now):
            program.died_at = now
        self.settle(machine)
        del self.machines[machine.name]
        self.past.append(machine)
        self.sim.note(f"{machine.name} is gone")

    def _taken_down(self, machine: Machine, hosts: range) -> None:
        """Let hosts die whose node the cloud deletes."""
        machine.lost |= {host: self.sim.now for host in hosts if host not in machine.lost}
        for program in machine.running(self.sim.now):
            if program.host in hosts:
                program.died_at = self.sim.now

    def calm_down(self) -> None:
        """End the faults: temporary damage is repaired, and slices of others make room."""
        for machine in self.machines.values():
            machine.down.clear()
        self.cloud.make_room([machine for machine in self.machines.values() if not machine.ours])
        self.scarce.clear()
        self.cloud_outage.until = 0.0

    def check_cloud(self, call: str) -> None:
        self.cloud_outage.check(call)
        self.signed_out.check(call)

    # Programs --------------------------------------------------------------------------------------------------------

    def begin(self, machine: Machine, host_plan: HostPlan) -> None:
        """Begin a run as an agent does with a plan."""
        document, now, host = host_plan.document, self.sim.now, host_plan.host
        job, attempt = str(document["job"]), int(document["attempt"])
        run = machine.run_of(job, attempt) or self._run(machine, job, attempt, document["context"])
        run.workdir, run.key = str(document["workdir"]), host_plan.key
        run.stall, run.every = document["stall"], float(document["report_every"])
        fate = self.sim.random(f"{job}:{attempt}:{host}")
        setup = now + 2 + fate.uniform(0, 40)
        physical = machine.physical[host] if machine.physical and not machine.nameless else ""
        program = Program(run, host, physical, now, setup, setup + fate.uniform(0, 60))
        program.died_at = machine.dead_at
        run.programs[host] = program
        self.monitor.started(machine, program)
        if len(run.programs) == run.hosts:
            plans.plan(self, run)
            self._refuse(run, document["avoid"])

    def _run(self, machine: Machine, job: str, attempt: int, context: dict[str, Any]) -> Run:
        for other in self.of_job[job]:
            self.settle(other)
        work = self.work.setdefault(job, self._work(job))
        before = int(context["resume_before"])
        if before and work.listens:  # and saves those steps again
            older = [c for c in self.saved.get(job, []) if c.step < before]
            self.monitor.rolled_back(job, before, self.saved.get(job, []))
            self.saved[job] = older
        workdir = str(context["workdir"])
        reachable = [c for c in self.saved.get(job, []) if self.at_hand(workdir, c.step)]
        newest = max(reachable, key=lambda c: c.step, default=Checkpoint(0, 0, good=True))
        run = Run(
            job, attempt, machine.name, machine.hosts, work, newest.step,
            work.steps, tainted=not newest.good, kept=newest.step,
        )  # fmt: skip
        machine.runs.append(run)
        reporters = Reporters(
            run, machine, self.sim.random(f"{job}:{attempt}:clocks"), self.monitor.broken
        )
        run.advance = lambda now: reporters.advance(now, partial(self.bucket.reported, run))
        self.monitor.resumed(run, newest, self.saved.get(job, []))
        return run

    def _work(self, job: str) -> plans.Work:
        random = self.sim.random(f"{job}:work")
        work = plans.draw(random, self.lengths_of(job), self.effects.profile["maths"])
        return replace(work, lists=random.random() < self.effects.profile["lists_checkpoints"])

    def _refuse(self, run: Run, avoid: Mapping[str, str]) -> None:
        """Check machines before the program: a host refuses a suspected machine, and the others wait."""
        refused = [p for p in run.programs.values() if p.physical in avoid]
        if not refused:
            return
        run.begins, run.spoils, run.hangs = math.inf, math.inf, math.inf
        for program in run.programs.values():
            at = program.running_at + (0.0 if program in refused else 60.0)
            program.exit_at, program.exit_code, program.cause = at, 1, "PREFLIGHT"
            error = f"kept off {program.physical}: {avoid.get(program.physical)}"
            program.error = error if program in refused else f"host {refused[0].host} did not come"
            program.verdict, program.lines = None, ()

    def keep(self, run: Run, step: int, good: bool) -> None:
        """Commit a checkpoint."""
        self.saved.setdefault(run.job, []).append(Checkpoint(step, run.attempt, good))
        self.bucket.put(f"{run.workdir}/checkpoints/{step}/w", b"saved", timeout=1)

    def at_hand(self, workdir: str, step: int) -> bool:
        """Return whether that checkpoint is in the workdir, perhaps of another region than its own."""
        return f"{workdir}/checkpoints/{step}/w" in self.bucket.objects

    def settle(self, machine: Machine) -> None:
        for run in machine.runs:
            plans.settle(self, run, self.sim.now)

    def stop(self, program: Program) -> None:
        """Send SIGTERM, and SIGKILL to programs that hang."""
        now, run = self.sim.now, program.run
        hung = now >= min(run.hangs, run.spoils) or now < run.begins
        program.end(now, -9 if hung else 75, "stopped")

    def quiet_until(self, job: str) -> float:
        """Return until when no look at the job can show something new; 0: it does not run well."""
        now = self.sim.now
        mine = [m for m in self.machines.values() if m.job == job]
        if len(mine) != 1 or mine[0].run is None or mine[0].absent[1] > now:
            return 0.0
        (machine,), run = mine, mine[0].run
        if max(machine.left_out[1], machine.torn[1]) > now:
            return 0.0
        whole = machine.healthy(now, run.job, run.attempt) and machine.repair[1] <= now
        calm = whole and not (machine.blocked and machine.blocked[-1][1] > now - 60)
        return run.next_change(now) if calm and run.stepped(now) else 0.0
