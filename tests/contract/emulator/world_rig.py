"""The model of the emulated cloud alone, with a clock turned by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.tpu_rig import NoFarm
from tests.support.waiting import T
from tpujob.emulator.cloud import interruptions, nodes, queue
from tpujob.emulator.cloud.records import BringUp, Effect, Latencies, NodeSpec, SwitchOn, TakeDown
from tpujob.emulator.control import Control
from tpujob.emulator.tpu.served_world import ServedWorld

ZONE = "us-central2-b"
SPEC = NodeSpec("v4-16", "tpu-ubuntu2204-base", "spot", {"tpujob-job": "000007"}, {}, True, b"")


class Model:
    """A world whose hosts answer at once."""

    def __init__(self, hosts: int = 64) -> None:
        self.now = 1000.0
        latencies = Latencies(accept=1, create=10, delete=5, suspend=2)
        self.world = ServedWorld(lambda: self.now, latencies, hosts_per_generation=hosts)
        self.control = Control(self.world)
        self.done: list[Effect] = []
        self.broken = False  #: hosts do not come up
        self._farm = NoFarm()

    @staticmethod
    def with_slice(hosts: int = 64) -> Model:
        """Return a world with the slice `q`, which is ready."""
        model = Model(hosts)
        model.ask("q")
        model.go(20)
        return model

    def do(self, action: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call it with the world."""
        with self.world.lock:
            return action(self.world, *arguments, **options)

    def ask(self, id: str) -> None:
        self.do(queue.create, "p", ZONE, id, [(id, SPEC)], api="v2")

    def delete(self, id: str, *, force: bool) -> None:
        """The queued resource."""
        name = f"projects/p/locations/{ZONE}/queuedResources/{id}"
        self.do(queue.delete, name, force=force, api="v2")

    def coming(self) -> BringUp:
        """The first slice whose hosts the farm is asked for, and which it has not brought up."""
        with self.world.lock:
            while not (effects := self.world.take_effects()):
                self.now = self.world.advance() or self.now
        assert isinstance(effects[0], BringUp)
        return effects[0]

    def go(self, seconds: float) -> None:
        """Let that much time pass, each thing in its turn."""
        end = self.now + seconds
        with self.world.lock:
            while True:
                due = self.world.advance()
                if self._answer():
                    continue
                if due is None or due > end:
                    break
                self.now = due
        self.now = end

    def _answer(self) -> bool:
        effects = self.world.take_effects()
        for effect in effects:
            self.done.append(effect)
            if isinstance(effect, BringUp) and self.broken:
                nodes.hosts_not_up(self.world, effect.node, "no room")
            elif isinstance(effect, BringUp):
                nodes.hosts_up(self.world, effect.node, self._farm.bring_up(effect.request))
            elif isinstance(effect, TakeDown):
                nodes.hosts_down(self.world, effect.node)
            elif isinstance(effect, SwitchOn):
                interruptions.hosts_back(self.world, effect.node)
        return bool(effects)

    def state(self, id: str) -> tuple[str, str]:
        """Return the states of the queued resource and of its node."""
        place = f"projects/p/locations/{ZONE}"
        request = self.world.queued.get(f"{place}/queuedResources/{id}")
        node = self.world.nodes.get(f"{place}/nodes/{id}")
        return (str(request.state) if request else "", str(node.state) if node else "")
