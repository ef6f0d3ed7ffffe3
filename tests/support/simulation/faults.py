"""Faults of slices: preemption, repair, people who delete things, broken networks, dying hosts and agents."""

import math
from collections.abc import Callable
from random import Random

from tests.support.simulation.machines import Machine
from tests.support.simulation.world import World

#: how programs end whose peer is gone: exit code and last lines
PEER_LOST: tuple[tuple[int, tuple[str, ...]], ...] = (
    (76, ()),
    (1, ()),
    (1, ("RuntimeError: [gloo] Connection closed by peer [10.0.1.0]:48211",)),
    (1, ("E0000 grpc: Socket closed grpc_status:14",)),
    (-6, ("PollForError: UNAVAILABLE: task 0 heartbeat timeout",)),
)


class SliceFaults:
    def __init__(self, world: World) -> None:
        self.world, self.sim = world, world.sim
        self.fate = world.sim.random("mishaps")
        self.suspends = world.sim.random("suspends")
        self.agents, self.nodes = world.sim.random("agents"), world.sim.random("nodes")

    def begin(self, machine: Machine) -> None:
        """Start the faults of a slice, each at its rate per hour."""
        for fault, do in (
            ("preempt", self.preempt),
            ("repair", self.repair),
            ("human", self.human),
            ("reports_blocked", self.block),
            ("ssh_down", self.down),
            ("host_dies", self.kill_host),
            ("agent_dies", self.kill_agent),
        ):
            if machine.preemptible or fault != "preempt":
                self._fated(machine, fault, do)
        if machine.tpu_slices > 1:
            self._fated(machine, "node_lost", self.lose_node, random=self.nodes)

    def _fated(
        self,
        machine: Machine,
        fault: str,
        do: Callable[[Machine], None],
        *,
        random: Random | None = None,
    ) -> None:
        def happen() -> None:
            if machine.gone_at == math.inf:
                self.world.effects.counts.faults += 1
                self.sim.note(f"{fault} {machine.name}")
                do(machine)
                self.world.stirred(machine.job)

        self.world.effects.some_time(random or self.fate, self.world.rate(fault), happen)

    def preempt(
        self, machine: Machine, *, shown_at: float | None = None, suspends: float | None = None
    ) -> None:
        """Preempt a slice. `shown_at`: when the API shows it; `suspends`: how long the cloud takes to suspend it; both
        are drawn if None. One that waits in the cloud's queue has nothing that could be taken away."""
        now = self.sim.now
        if now < machine.ready_at or now >= machine.dead_at or now >= machine.fails_at:
            if machine.physical and now < min(machine.ready_at, machine.shown_at, machine.fails_at):
                machine.shown_at = now
                self.world.cloud.take_away(machine, 0.0)
            return
        if self.world.effects.profile["lab"] and self.fate.random() < 0.5:  # for want of capacity
            until = now + self.fate.uniform(60, 7200)
            self.world.scarce[machine.zone] = max(until, self.world.scarce.get(machine.zone, 0.0))
        silent = self.fate.random() < min(0.6, self.world.rate("preempt_silent"))
        machine.noticed_at = now
        machine.dead_at = now + (0.0 if silent else 30.0)
        shows = math.inf if silent else machine.dead_at + self.fate.uniform(0, 120)
        shows = shows if shown_at is None else shown_at
        drawn = self._suspends()
        self._show(machine, shows, drawn if suspends is None else suspends)
        saved_at = now + 1 + self.fate.uniform(0.5, 40)
        for program in machine.running(now):
            program.died_at = machine.dead_at
            run = program.run
            if silent:
                continue
            program.noticed_at = now + self.fate.uniform(0, 1)
            if run.begins < saved_at < min(machine.dead_at, run.hangs, run.spoils):
                program.end(saved_at, 75, "preempted")
                program.saved_in = saved_at - program.noticed_at

    def _show(self, machine: Machine, at: float, suspends: float, place: int | None = None) -> None:
        """Let the API show the loss of a slice, or of one of its TPU slices, from that time on."""
        machine.shown_at = min(machine.shown_at, at)
        if at < math.inf:
            self.sim.at(at, lambda: self._lost(machine, suspends, place))

    def _lost(self, machine: Machine, suspends: float, place: int | None) -> None:
        self.world.cloud.take_away(machine, suspends, place)
        self.world.stirred(machine.job)

    def _suspends(self) -> float:
        """Return how long the cloud suspends a slice: mostly a while, at times longer than any backend waits."""
        if not self.world.drawn(self.suspends, "suspending", count=True):
            return 0.0
        longest = 3000.0 if self.suspends.random() < 0.1 else 400.0
        return self.suspends.uniform(20, longest)

    def repair(self, machine: Machine) -> None:
        if self.fate.random() < 0.5:
            seconds = self.fate.uniform(10, 300)
            if self.world.cloud.repair(machine, seconds):
                machine.repair = (self.sim.now, self.sim.now + seconds)

    def human(self, machine: Machine) -> None:
        """Let a person delete the slice, or only its nodes, which suspends its request."""
        now = self.sim.now
        for program in machine.running(now):
            program.died_at = now
        if self.fate.random() < 0.5 and self.world.cloud.stop(machine, self._suspends()):
            machine.stopped_at = now
        else:
            machine.deleting_at = min(now, machine.deleting_at)
            machine.dead_at = min(now, machine.dead_at)
            self.world.cloud.delete(machine, self.fate.uniform(5, 60))

    def block(self, machine: Machine) -> None:
        """Block reports for a time too short to count as a loss, even if the hosts freeze afterwards."""
        now = self.sim.now
        if not machine.blocked or now > machine.blocked[-1][1] + 60:
            machine.blocked.append((now, now + self.fate.uniform(20, 1250)))
        self._fated(machine, "reports_blocked", self.block)

    def down(self, machine: Machine) -> None:
        host = self.fate.randrange(machine.hosts)
        machine.down[host] = self.sim.now + self.fate.uniform(5, 600)
        self._fated(machine, "ssh_down", self.down)

    def kill_host(self, machine: Machine) -> None:
        """Kill one of several hosts, while the cloud still calls the slice ready. The others wait for it, or fail."""
        now, host = self.sim.now, self.fate.randrange(machine.hosts)
        machine.lost[host] = now
        waits = self.fate.random() < 0.5
        framework = self.sim.random(f"{machine.name}:peers")
        for program in machine.running(now):
            if program.host == host:
                program.died_at = now
            elif not waits:
                code, lines = framework.choice(PEER_LOST)
                program.end(now + self.fate.uniform(5, 120), code)
                program.lines = lines
            else:
                program.exit_at = math.inf

    def lose_node(self, machine: Machine) -> None:
        """Preempt one TPU slice of several. The hosts of the others wait for it until the cloud shows the loss."""
        now = self.sim.now
        if now < machine.ready_at or now >= min(machine.dead_at, machine.fails_at):
            return
        each = machine.hosts // machine.tpu_slices
        first = each * self.nodes.randrange(machine.tpu_slices)
        machine.lost |= dict.fromkeys(range(first, first + each), now)
        self._show(machine, now + self.nodes.uniform(0, 120), 0.0, first // each)
        for program in machine.running(now):
            if program.host in machine.lost:
                program.died_at = now
            else:
                program.exit_at = math.inf

    def kill_agent(self, machine: Machine) -> None:
        """Kill the agent of a host, mostly the first; the host and its program live on."""
        elsewhere = self.world.drawn(self.agents, "agent_elsewhere")
        host = self.agents.randrange(machine.hosts) if elsewhere else 0
        for program in machine.running(self.sim.now):
            if program.host == host:
                program.silent_at = min(program.silent_at, self.sim.now)
