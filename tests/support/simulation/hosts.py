"""The Hosts port: the agent's `start` and `stop` over SSH."""

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial

from tests.support.simulation.machines import Machine
from tests.support.simulation.programs import Program, key_for
from tests.support.simulation.sim import Violation
from tests.support.simulation.world import World
from tpujob.domain.actions import HostPlan
from tpujob.domain.model import Slice
from tpujob.errors import Refused, Transient
from tpujob.ports import Listening


class Hosts:
    def __init__(self, world: World) -> None:
        self.world, self.sim, self.effect = world, world.sim, world.effects

    def public_key(self, slice: Slice) -> str:
        return f"ssh-ed25519 KEY-{slice.name}"

    def key(self, purpose: Sequence[str]) -> str:
        self.sim.check_alive()
        return key_for(*purpose)

    def listen(
        self, slice: Slice, host: int, *, job: str, attempt: int, timeout: float
    ) -> Listening:
        raise Transient("these programs have no agent to follow")

    def forget(self, slice: Slice) -> None:
        self.sim.check_alive()

    def kept(self) -> list[str]:
        self.sim.check_alive()
        return []

    def _left(self, until: float, timeout: float) -> float:
        if timeout > 0 and until <= self.sim.now:
            raise Transient("deadline exceeded")
        return min(timeout, until - self.sim.now)

    def _reach(self, slice: Slice, host: int) -> Machine:
        machine = self.world.machines.get(slice.name)
        now = self.sim.now
        if machine is None or not machine.reachable(host, now):
            raise Transient(f"host {host}: no route to host")
        return machine

    def alive(self, slice: Slice, *, timeout: float) -> frozenset[int]:
        def do() -> frozenset[int]:
            machine = self.world.machines.get(slice.name)
            hosts = range(machine.hosts if machine else 0)
            return frozenset(h for h in hosts if machine and machine.reachable(h, self.sim.now))

        return self.effect("alive", slice.name, do, timeout=timeout)

    def without_agent(
        self, slice: Slice, hosts: Collection[int], *, job: str, attempt: int, timeout: float
    ) -> frozenset[int]:
        def do() -> frozenset[int]:
            machine = self.world.machines.get(slice.name)
            run = machine.run_of(job, attempt) if machine else None
            programs = run.programs if run else {}
            return frozenset(h for h in hosts if h in programs and self._is_killed(programs[h]))

        return self.effect("without_agent", slice.name, do, timeout=timeout)

    def _is_killed(self, program: Program) -> bool:
        """Return whether its agent was killed; one whose reports others have overwritten lives."""
        return program.silent_at <= self.sim.now and not program.hidden

    def _call(
        self,
        name: str,
        slice: Slice,
        host: int,
        do: Callable[[Machine], None],
        *,
        until: float,
        timeout: float,
        after: str = "ssh_after",
    ) -> None:
        """Make one call to one host over SSH."""
        self.effect(
            name,
            f"{slice.name}/{host}",
            lambda: do(self._reach(slice, host)),
            timeout=self._left(until, timeout),
            before="ssh_before",
            after=after,
        )

    def start(self, slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        until = self.sim.now + timeout
        if [p.host for p in plans] != list(range(len(slice.endpoints))):
            text = f"started on hosts {[p.host for p in plans]} of {len(slice.endpoints)}"
            raise Violation("I3", slice.name, text)
        how = {"until": until, "timeout": timeout}
        for plan in plans:
            self._call("probe", slice, plan.host, lambda machine: None, after="", **how)
        for plan in plans:
            self._call("start", slice, plan.host, partial(self._start, plan=plan), **how)

    def _start(self, machine: Machine, plan: HostPlan) -> None:
        now, attempt, host = self.sim.now, int(plan.document["attempt"]), plan.host
        job, epoch = str(plan.document["job"]), plan.document["epoch"]
        programs = [r.programs[host] for r in machine.runs if host in r.programs]
        of_job = [p for p in programs if p.run.job == job]
        if epoch < machine.epochs.get(host, 0):
            raise Refused(f"job {job} does not have this slice any more", cause="SETUP")
        if own := [p for p in of_job if p.run.attempt == attempt]:
            for program in own:
                if self._is_killed(program):
                    program.run.advance(now)
                    program.silent_at = math.inf
                    self.sim.note(f"took over attempt {attempt} on {machine.name}/{host}")
            return
        if any(p.run.attempt > attempt for p in of_job):
            raise Refused(f"attempt {attempt} is stale", cause="SETUP")
        machine.epochs[host] = epoch
        machine.wiped.pop(host, None)
        machine.left.setdefault(host, set()).add(job)
        self.world.monitor.used(machine, host)
        for old in (p for p in programs if p.alive(now)):
            self.world.monitor.stopping(machine, old, f"replaced by attempt {attempt}")
            self.world.stop(old)
        self.sim.note(f"started attempt {attempt} on {machine.name}/{host}")
        self.world.begin(machine, plan)
        self.world.stirred(machine.job)

    def stop(self, slice: Slice, *, grace: float, discard: bool = False, timeout: float) -> None:
        until = self.sim.now + timeout
        self.world.monitor.queue.stops.add(slice.name)
        for host in range(len(slice.endpoints)):
            do = partial(self._stop, host=host, note="stopped")
            self._call("stop", slice, host, do, until=until, timeout=timeout)

    def _stop(self, machine: Machine, host: int, note: str) -> None:
        for program in [p for p in machine.running(self.sim.now) if p.host == host]:
            self.world.monitor.stopping(machine, program, note)
            if note == "stopped":
                self.sim.note(f"stopped {machine.name}/{host}")
            self.world.stop(program)

    def wipe(self, slice: Slice, *, others: bool, timeout: float) -> None:
        until = self.sim.now + timeout
        self.world.monitor.queue.stops.add(slice.name)
        for host in range(len(slice.endpoints)):
            do = partial(self._wipe, host=host, epoch=slice.epoch, others=others)
            self._call("wipe", slice, host, do, until=until, timeout=timeout)

    def _wipe(self, machine: Machine, host: int, epoch: int, others: bool) -> None:
        newest, wiped = machine.epochs.get(host, 0), machine.wiped.get(host)
        if newest > epoch and (newest > epoch + 1 or wiped is None):
            raise Refused("another job has this slice by now", cause="SETUP")
        machine.epochs[host] = epoch + 1
        machine.wiped[host] = others or bool(wiped)
        if others:
            self._stop(machine, host, "wiped")
            machine.left.pop(host, None)
        self.sim.note(f"wiped {machine.name}/{host}")
