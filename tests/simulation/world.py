"""The cloud, its hosts and its buckets behind the real ports, and what befalls them by themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.flows.world import Bucket as PlainBucket
from tests.flows.world import Faults
from tests.simulation.effects import Effects
from tests.simulation.machines import Machine, Program
from tests.simulation.sim import Sim, Violation
from tpujob.domain import launch
from tpujob.domain.model import (
    Absent,
    Cause,
    HostPlan,
    Present,
    Slice,
    SliceSeen,
    SliceState,
    Unknown,
)
from tpujob.errors import NotFound, Refused, Transient
from tpujob.ports import Blob, Owned

if TYPE_CHECKING:
    from tests.simulation.monitor import Monitor

ZONES = ("us-central2-b", "us-east5-a")
SETUP = 20.0
HOUR = 3600.0


class Outage:
    """A service that is away for a while, now and then."""

    def __init__(self, sim: Sim, effects: Effects, fault: str, *, longest: float) -> None:
        self.sim, self.effects, self.fault, self.longest = sim, effects, fault, longest
        self.random = sim.random(fault)
        self.until = 0.0
        self._next()

    def _next(self) -> None:
        rate = self.effects.profile[self.fault] * 4
        pause = self.random.expovariate(rate / HOUR) if rate else math.inf
        if pause < 1e9:
            self.sim.after(pause, self._begin)

    def _begin(self) -> None:
        if not self.effects.calm:
            self.effects.counts.add(self.fault)
            self.until = self.sim.now + self.random.uniform(5, self.longest)
            self.sim.note(f"{self.fault} for {self.until - self.sim.now:.0f} s")
            self._next()

    def check(self, name: str) -> None:
        if self.sim.now < self.until:
            self.effects.counts.add(self.fault)
            raise Transient(f"{name}: 503 the service is unavailable")


class World:
    def __init__(self, sim: Sim, effects: Effects) -> None:
        self.sim, self.effects = sim, effects
        self.machines: dict[str, Machine] = {}
        self.past: list[Machine] = []
        self.saved: dict[str, float] = {}  #: job -> seconds of work committed
        self.work: dict[str, float] = {}
        self.monitor: Monitor
        self.fate = sim.random("fate")
        self.cloud_outage = Outage(sim, effects, "cloud_outage", longest=1500)
        self.slices, self.hosts = Cloud(self), Hosts(self)
        self.bucket = Bucket(self)

    def now(self) -> float:
        return self.sim.now

    def rate(self, fault: str) -> float:
        return 0.0 if self.effects.calm else self.effects.profile[fault]

    def hit(self, fault: str) -> bool:
        hit = self.fate.random() < self.rate(fault)
        if hit:
            self.effects.counts.add(fault)
        return hit

    # Fate ------------------------------------------------------------------------------------------------------------

    def fated(self, machine: Machine, fault: str, do: Callable[[Machine], None]) -> None:
        """It happens to this slice some time, at the fault's rate for each hour."""
        rate = self.rate(fault)
        pause = self.fate.expovariate(rate / HOUR) if rate else math.inf

        def happen() -> None:
            if machine.gone_at == math.inf and not self.effects.calm:
                self.effects.counts.add(fault)
                self.sim.note(f"{fault} {machine.name}")
                do(machine)

        if pause < 1e7:
            self.sim.after(pause, happen)

    def preempt(self, machine: Machine) -> None:
        now = self.now()
        if now < machine.ready_at or now >= machine.dead_at or now >= machine.fails_at:
            if now < machine.ready_at:
                machine.ready_at = machine.dead_at = math.inf
                machine.shown_at = now
            return
        silent = self.fate.random() < min(0.6, self.rate("preempt_silent"))
        machine.told_at = now
        machine.dead_at = now + (0.0 if silent else 30.0)
        machine.shown_at = math.inf if silent else machine.dead_at + self.fate.uniform(0, 120)
        for program in machine.running(now):
            program.died_at = machine.dead_at
            if not silent:
                program.told_at = now + self.fate.uniform(0, 1)
                saved_at = program.told_at + self.fate.uniform(0.5, 40)
                if program.running_at < saved_at < machine.dead_at:
                    self.end(program, saved_at, 75, "preempted")

    def repair(self, machine: Machine) -> None:
        if self.fate.random() < 0.5:
            machine.repair = (self.now(), self.now() + self.fate.uniform(10, 300))

    def human(self, machine: Machine) -> None:
        now = self.now()
        for program in machine.running(now):
            program.died_at = now
        if self.fate.random() < 0.5:
            machine.stopped_at = now
        else:
            machine.deleting_at = min(now, machine.deleting_at)
            machine.dead_at = min(now, machine.dead_at)
            self.sim.after(self.fate.uniform(5, 60), lambda: self.vanish(machine))

    def block(self, machine: Machine) -> None:
        """Reports stay away, for less than what counts as lost contact."""
        now = self.now()
        if not machine.blocked or now > machine.blocked[-1][1] + 60:
            machine.blocked.append((now, now + self.fate.uniform(20, 800)))
        self.fated(machine, "reports_blocked", self.block)

    def down(self, machine: Machine) -> None:
        host = self.fate.randrange(machine.hosts)
        machine.down[host] = self.now() + self.fate.uniform(5, 600)
        self.fated(machine, "ssh_down", self.down)

    def vanish(self, machine: Machine) -> None:
        if machine.gone_at == math.inf:
            now = self.now()
            machine.gone_at = now
            for program in machine.running(now):
                program.died_at = now
            self._save(machine)
            del self.machines[machine.name]
            self.past.append(machine)
            self.sim.note(f"{machine.name} is gone")

    def calm_down(self) -> None:
        """Faults end: what is broken for a while is whole again."""
        for machine in self.machines.values():
            machine.down.clear()
        self.cloud_outage.until = self.bucket.outage.until = 0.0

    # Programs --------------------------------------------------------------------------------------------------------

    def begin(self, machine: Machine, plan: HostPlan) -> None:
        now, job, attempt = self.now(), str(plan.document["job"]), int(plan.document["attempt"])
        resumed = self.saved.get(job, 0.0)
        setup = now + 2 + self.sim.random(f"{job}:{attempt}:fetch").uniform(0, 40)
        running = setup + self.sim.random(f"{job}:{attempt}:setup").uniform(0, 60)
        if job not in self.work:
            self.work[job] = self.sim.random(f"{job}:work").choice([300.0, 1800.0, 5000.0])
        left = max(1.0, self.work[job] - resumed)
        program = Program(
            job, attempt, plan.host, str(plan.document["workdir"]), now, setup, running,
            running + left, 0, resumed,
        )  # fmt: skip
        machine.programs[plan.host] = program
        self._crash(program, machine, left)
        self.monitor.started(machine, program)

    def _crash(self, program: Program, machine: Machine, left: float) -> None:
        fate = self.sim.random(f"{program.job}:{program.attempt}:crash")
        if fate.random() >= min(0.7, self.rate("crash")):
            return
        culprit, after = fate.randrange(machine.hosts), fate.uniform(0, min(left, 1800))
        code = fate.choice([1, 1, 70, -11, 78 if fate.random() < 0.2 else 1])
        hangs = fate.random() < 0.3
        if program.host == culprit:
            program.exit_at, program.exit_code = program.running_at + after, code
        elif hangs:
            program.exit_at = math.inf
        else:
            program.exit_at, program.exit_code = program.running_at + after + 5, 76

    def end(self, program: Program, at: float, code: int, why: str) -> None:
        if at < program.exit_at:
            program.exit_at, program.exit_code, program.stopped_by = at, code, why

    def _save(self, machine: Machine) -> None:
        """What was committed stays, whatever becomes of the host."""
        for program in machine.programs.values():
            if program.host == 0:
                done = program.done(self.now())
                kept = done if program.exit_code in (0, 75) else done // 60 * 60
                self.saved[program.job] = max(self.saved.get(program.job, 0.0), kept)

    def save(self, machine: Machine) -> None:
        self._save(machine)


class Cloud:
    """The Slices port."""

    def __init__(self, world: World) -> None:
        self.world, self.sim, self.effect = world, world.sim, world.effects

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        try:
            seen = self.effect(
                "look", slice.name, lambda: self._look(slice), timeout=timeout,
                before="look_unknown", after="look_unknown",
            )  # fmt: skip
        except Transient as error:
            seen = Unknown(str(error))
        self.world.monitor.looked(slice, seen)
        return seen

    def _look(self, slice: Slice) -> SliceSeen:
        self.world.cloud_outage.check("look")
        now, machine = self.sim.now, self.world.machines.get(slice.name)
        if machine is None or now < machine.listed_at:
            return Absent()
        if machine.absent[0] <= now < machine.absent[1]:
            return Absent()
        lags = machine.absent[1] + 300 <= now < machine.deleting_at
        if lags and self.effect.hits("look_absent"):
            machine.absent = (now, now + self.effect.random.uniform(1, 40))
            return Absent()
        state = machine.state(now)
        cause = Cause.STOCKOUT if state is SliceState.FAILED else None
        return Present(
            state,
            machine.endpoints() if state is SliceState.READY else (),
            "There is no more capacity in the zone" if cause else "",
            cause,
        )

    def create(self, slice: Slice, *, job_id: str, public_key: str, timeout: float) -> None:
        self.effect(
            "create", slice.name, lambda: self._create(slice, job_id), timeout=timeout,
            before="cloud_before", after="cloud_after",
        )  # fmt: skip

    def _create(self, slice: Slice, job_id: str) -> None:
        world, now, fate = self.world, self.sim.now, self.world.fate
        world.cloud_outage.check("create")
        world.monitor.creating(slice, job_id)
        if slice.name in world.machines:
            return
        for fault, cause in (("stockout", "STOCKOUT"), ("quota", "QUOTA")):
            if self.effect.hits(fault):
                self.sim.note(f"create {slice.name} -> {cause}")
                raise Refused(f"no {slice.type} in {slice.zone}", cause=cause)
        waits = now + (fate.uniform(60, 3600) if world.hit("waits") else 0.0)
        machine = Machine(
            slice.name, slice.zone, job_id, slice.k, 2, now,
            listed_at=now + (fate.uniform(1, 40) if world.hit("late_listing") else 0.0),
            waits_until=waits, ready_at=waits + fate.uniform(5, 240), idle_since=now,
        )  # fmt: skip
        machine.idle_since = machine.ready_at
        if world.hit("request_fails"):
            machine.fails_at, machine.ready_at = machine.ready_at, math.inf
        world.machines[slice.name] = machine
        self.sim.note(f"created {slice.name}")
        world.fated(machine, "preempt", world.preempt)
        world.fated(machine, "repair", world.repair)
        world.fated(machine, "human", world.human)
        world.fated(machine, "reports_blocked", world.block)
        world.fated(machine, "ssh_down", world.down)
        world.monitor.created(machine)

    def delete(self, slice: Slice, *, timeout: float) -> None:
        self.effect(
            "delete", slice.name, lambda: self._delete(slice), timeout=timeout,
            before="cloud_before", after="cloud_after",
        )  # fmt: skip

    def _delete(self, slice: Slice) -> None:
        world, now = self.world, self.sim.now
        world.cloud_outage.check("delete")
        world.monitor.deleting(slice)
        machine = world.machines.get(slice.name)
        if machine is None or now >= machine.deleting_at:
            return
        self.sim.note(f"deleting {slice.name}")
        if world.hit("delete_fails"):
            return  # accepted; the operation fails later, and the slice stays as it is
        machine.deleting_at = now
        for program in machine.running(now):
            world.end(program, now, -15, "deleted")
        stuck = world.hit("stuck_delete")
        pause = world.fate.uniform(600, 3000) if stuck else world.fate.uniform(3, 90)
        self.sim.after(pause, lambda: world.vanish(machine))

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        return self.effect(
            "list", ",".join(zones), lambda: self._list(zones), timeout=timeout,
            before="cloud_before", after="cloud_after",
        )  # fmt: skip

    def _list(self, zones: Sequence[str]) -> list[Owned]:
        self.world.cloud_outage.check("list")
        return [
            Owned(m.name, m.zone, m.job, m.created)
            for m in self.world.machines.values()
            if m.ours and m.zone in zones and self.sim.now >= m.listed_at
        ]


class Hosts:
    """The Hosts port: what the agent's `start` and `stop` do, over SSH."""

    def __init__(self, world: World) -> None:
        self.world, self.sim, self.effect = world, world.sim, world.effects

    def public_key(self, slice: Slice) -> str:
        return f"ssh-ed25519 KEY-{slice.name}"

    def forget(self, slice: Slice) -> None:
        self.sim.check_alive()

    def _reach(self, slice: Slice, host: int) -> Machine:
        machine = self.world.machines.get(slice.name)
        now = self.sim.now
        if machine is None or not machine.up(now) or machine.down.get(host, 0) > now:
            raise Transient(f"host {host}: no route to host")
        if machine.repair[0] <= now < machine.repair[1]:
            raise Transient(f"host {host}: connection refused")
        return machine

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        until = self.sim.now + timeout
        if [p.host for p in plans] != list(range(len(slice.endpoints))):
            text = f"started on hosts {[p.host for p in plans]} of {len(slice.endpoints)}"
            raise Violation("I3", slice.name, text)
        for step in (self._reach, None):
            for plan in plans:

                def do(plan: HostPlan = plan, probe: object = step) -> None:
                    machine = self._reach(slice, plan.host)
                    if not probe:
                        self._start(machine, plan)

                self.effect(
                    "probe" if step else "start", f"{slice.name}/{plan.host}", do,
                    timeout=max(0.001, until - self.sim.now) if timeout > 0 else timeout,
                    before="ssh_before", after="" if step else "ssh_after",
                )  # fmt: skip

    def _start(self, machine: Machine, plan: HostPlan) -> None:
        now, attempt = self.sim.now, int(plan.document["attempt"])
        old = machine.programs.get(plan.host)
        if old and old.attempt == attempt:
            return
        if old and old.attempt > attempt:
            raise Refused(f"attempt {attempt} is stale", cause="SETUP")
        self.world.save(machine)
        if old and old.alive(now):
            self.world.monitor.stopping(machine, old, f"replaced by attempt {attempt}")
            self.world.end(old, now, -9, "replaced")
        self.sim.note(f"started attempt {attempt} on {machine.name}/{plan.host}")
        self.world.begin(machine, plan)

    def stop(self, slice: Slice, *, grace: float, timeout: float) -> None:
        until = self.sim.now + timeout
        for host in range(len(slice.endpoints)):

            def do(host: int = host) -> None:
                machine = self._reach(slice, host)
                program = machine.programs.get(host)
                if program and program.alive(self.sim.now):
                    self.world.monitor.stopping(machine, program, "stopped")
                    self.sim.note(f"stopped {machine.name}/{host}")
                    self.world.end(program, self.sim.now, 75, "stopped")
                self.world.save(machine)

            self.effect(
                "stop", f"{slice.name}/{host}", do,
                timeout=max(0.001, until - self.sim.now) if timeout > 0 else timeout,
                before="ssh_before", after="ssh_after",
            )  # fmt: skip


class StorageClock:
    """The storage's own clock, far from everybody else's."""

    def __init__(self, sim: Sim) -> None:
        self.sim, self.offset = sim, sim.random("storage").uniform(-86400, 86400)

    @property
    def time(self) -> float:
        return self.sim.now + self.offset


class Bucket(PlainBucket):
    """The Blobs port; what agents write comes to light when somebody lists it."""

    def __init__(self, world: World) -> None:
        super().__init__(StorageClock(world.sim), Faults())  # type: ignore[arg-type]
        self.world, self.sim, self.effect = world, world.sim, world.effects
        self.outage = Outage(world.sim, world.effects, "blobs_outage", longest=700)

    def list(self, prefix: str, *, after: str = "", timeout: float) -> list[Blob]:
        def do() -> list[Blob]:
            self.outage.check("list objects")
            self._refresh(prefix)
            return super(Bucket, self).list(prefix, after=after, timeout=timeout)

        return self.effect("objects", prefix[-24:], do, timeout=timeout, before="blobs")

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        def do() -> bytes:
            self.outage.check("get object")
            if path not in self.objects:
                raise NotFound(path)
            return self.objects[path][0][start:end]

        return self.effect("get", path[-24:], do, timeout=timeout, before="blobs")

    def clock(self, *, timeout: float) -> float:
        self.sim.check_alive()
        return self._clock.time

    def delete(self, path: str, *, timeout: float) -> None:
        def do() -> None:
            self.outage.check("delete object")
            super(Bucket, self).delete(path, timeout=timeout)

        self.effect("wipe", path[-24:], do, timeout=timeout, before="blobs", after="blobs")

    def _refresh(self, prefix: str) -> None:
        now, job = self.sim.now, prefix.split("/jobs/")[1].split("/")[0]
        for machine in (*self.world.machines.values(), *self.world.past):
            if machine.job == job:
                for program in machine.programs.values():
                    self._write(machine, program, now)

    def _write(self, machine: Machine, program: Program, now: float) -> None:
        at = program.last_write(now, machine.blocked)
        path = launch.report_path(program.workdir, program.attempt, program.host)
        updated = (at or 0.0) + self._clock.time - now
        old = self.objects.get(path)
        if at is None or (old and abs(old[1].updated - updated) < 1e-6):
            return
        said = {"v": 1, "job": program.job, "attempt": program.attempt, "host": program.host}
        text = json.dumps(said | program.report(at))
        generation = old[1].generation + 1 if old else 1
        self.objects[path] = (b"", Blob(path, 0, generation, updated, {"report": text}))
