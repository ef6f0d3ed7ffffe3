"""The model of the cloud in virtual time, with hosts that take as long as their fate says."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from tests.support.model_slices import ModelSlices
from tests.support.simulation.machines import Machine
from tests.support.simulation.sim import Sim
from tpujob.adapters.cloud_tpu.request import slice_of
from tpujob.domain.model import Slice
from tpujob.emulator.cloud import interruptions, nodes, queue
from tpujob.emulator.cloud.errors import no_capacity
from tpujob.emulator.cloud.records import (
    ApiError,
    BringUp,
    Disturb,
    Effect,
    Latencies,
    Node,
    Queued,
    SwitchOn,
    TakeDown,
)
from tpujob.emulator.cloud.states import NodeState, QueuedState
from tpujob.emulator.cloud.stock import HostStock
from tpujob.emulator.cloud.world import World as Model
from tpujob.emulator.farm import HostUp
from tpujob.engine.slice_cache import LAG

#: what is not drawn takes no time
_AT_ONCE = Latencies(accept=0, create=0, delete=0, suspend=0, stop=0, list_lag=LAG)


class VirtualCloud(Model):
    def __init__(self, sim: Sim, stock: HostStock) -> None:
        super().__init__(lambda: sim.now, _AT_ONCE, stock=stock)
        self.sim = sim
        self.slices = ModelSlices(self)
        self.machines: dict[str, Machine] = {}  #: that exist, by name
        #: called with a slice that is gone, and with hosts that are taken down
        self.gone: Callable[[Machine], object] = lambda machine: None
        self.taken_down: Callable[[Machine, range], object] = lambda machine, hosts: None
        self._booked = math.inf

    def run(self) -> None:
        """Make the changes that are due, and book the next."""
        if self._booked <= self.sim.now:
            self._booked = math.inf
        due = self.advance()
        while effects := self.take_effects():
            for effect in effects:
                self._answer(effect)
            due = self.advance()
        if due is not None and due < self._booked:
            self._booked = due
            self.sim.at(due, self.run)

    @contextmanager
    def taking(self, **seconds: float) -> Generator[None]:
        """Let the changes that are begun in the block take so long; make those that are due."""
        self.latencies = replace(_AT_ONCE, **seconds)
        try:
            yield
        finally:
            self.latencies = _AT_ONCE
        self.run()

    # Requests, of tpujob and of others

    def request(self, machine: Machine, slice: Slice, *, owner: str = "") -> None:
        """Request a slice; `owner`: another than ours."""
        slices = ModelSlices(self, owner) if owner else self.slices
        machine.queued = queued = slices.request(slice, machine.job)
        queued.held_until = machine.waits_until
        self.machines[machine.name] = machine
        self.run()
        for record in (queued, *queue.nodes_of(self, queued)):
            record.created_at = machine.created

    def delete(self, machine: Machine, seconds: float) -> None:
        with self.taking(delete=seconds):
            queue.delete(self, machine.record.name, force=True, api="v2")

    def stop(self, machine: Machine, suspends: float) -> bool:
        """Delete its nodes as a person may do; return whether there are any."""
        existing = queue.nodes_of(self, machine.record)
        with self.taking(suspend=suspends):
            for node in existing:
                nodes.delete(self, node.name, api="v2")
        return bool(existing)

    # The cloud's own actions

    def take_away(self, machine: Machine, suspends: float, place: int | None = None) -> None:
        """Preempt all its nodes, or one; the cloud takes that long to suspend the slice."""
        if machine.gone_at == math.inf:
            lost = queue.nodes_of(self, machine.record)
            with self.taking(suspend=suspends):
                for node in lost:
                    if place in (None, slice_of(node.id)[1]):
                        interruptions.take_away(self, node)

    def repair(self, machine: Machine, seconds: float) -> bool:
        """Repair its hosts for that long; return whether they were up."""
        ready = machine.record.state is QueuedState.ACTIVE
        existing = queue.nodes_of(self, machine.record)
        if not ready or any(node.state is not NodeState.READY for node in existing):
            return False
        for node in existing:
            interruptions.repair(self, node, seconds)
        self.run()
        return True

    def make_room(self, machines: Sequence[Machine]) -> None:
        """Free the hosts of these slices."""
        for machine in machines:
            for node in queue.nodes_of(self, machine.record):
                self.stock.give_back(node)
        self.room_changed()
        self.run()

    def move_queued(self, queued: Queued, state: QueuedState) -> None:
        super().move_queued(queued, state)
        if state is QueuedState.SUSPENDING and queued.ends_at == self.sim.now:
            machine = self.machines[queued.id]
            machine.suspended_at = machine.shown_at = self.sim.now
            self.sim.note(f"{machine.name} has reached its planned end")

    def remove(self, record: Node | Queued) -> None:
        super().remove(record)
        if isinstance(record, Queued):
            self.gone(self.machines.pop(record.id))

    # The hosts

    def _answer(self, effect: Effect) -> None:
        match effect:
            case BringUp(node):
                machine = self.machines[slice_of(node.id)[0]]
                machine.physical += node.physical
                node.hosts_coming = False  # they can be taken down at any time
                self.sim.after(machine.creates_in, partial(self._created, machine, node))
            case TakeDown(node):
                self.taken_down(self.machines[slice_of(node.id)[0]], _hosts(node))
                nodes.hosts_down(self, node)
            case SwitchOn(node):
                interruptions.hosts_back(self, node)
            case Disturb():
                pass  # what happens on hosts is drawn

    def _created(self, machine: Machine, node: Node) -> None:
        if node.state is not NodeState.CREATING:
            return
        if machine.fails:
            machine.fails_at = min(machine.fails_at, self.sim.now)
            nodes.fail(self, node, ApiError("RESOURCE_EXHAUSTED", no_capacity(node.zone)))
        else:
            up = [HostUp(f"10.0.{machine.k}.{host}", {}) for host in _hosts(node)]
            nodes.hosts_up(self, node, up)
        if machine.record.state is QueuedState.ACTIVE:
            machine.ready_at, machine.ends_at = self.sim.now, machine.record.ends_at
        self.run()


def _hosts(node: Node) -> range:
    """Return the numbers of the node's hosts in its slice."""
    first = slice_of(node.id)[1] * len(node.physical)
    return range(first, first + len(node.physical))
