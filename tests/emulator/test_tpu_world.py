"""The model alone, with a clock turned by hand: what happens when, to the second."""

from __future__ import annotations

import pytest

from tpujob.emulator import drills, nodes, queue
from tpujob.emulator.farm_client import NoFarm
from tpujob.emulator.records import (
    ApiError,
    BringUp,
    Disturb,
    Effect,
    Latencies,
    NodeSpec,
    TakeDown,
)
from tpujob.emulator.world import World

ZONE = "us-central2-b"
SPEC = NodeSpec("v4-16", "tpu-ubuntu2204-base", "spot", {"tpujob-job": "000007"}, {}, True, b"")


class Model:
    """A world whose hosts answer at once."""

    def __init__(self, hosts: int = 64) -> None:
        self.now = 1000.0
        latencies = Latencies(accept=1, create=10, delete=5, suspend=2)
        self.world = World(lambda: self.now, latencies, hosts_per_generation=hosts)
        self.done: list[Effect] = []
        self.broken = False  #: hosts do not come up
        self._farm = NoFarm()

    def ask(self, id: str) -> None:
        with self.world.lock:
            queue.create(self.world, "p", ZONE, id, [(id, SPEC)], api="v2")

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
                nodes.hosts_not_up(self.world, effect.node, effect.number, "no room")
            elif isinstance(effect, BringUp):
                addresses = self._farm.bring_up(effect)
                nodes.hosts_up(self.world, effect.node, effect.number, addresses)
            elif isinstance(effect, TakeDown):
                nodes.hosts_down(self.world, effect.node, effect.number)
        return bool(effects)

    def state(self, id: str) -> tuple[str, str]:
        """Of the queued resource and of its node."""
        place = f"projects/p/locations/{ZONE}"
        asked = self.world.queued.get(f"{place}/queuedResources/{id}")
        node = self.world.nodes.get(f"{place}/nodes/{id}")
        return (str(asked.state) if asked else "", str(node.state) if node else "")


def test_a_slice_from_request_to_deletion() -> None:
    model = Model()
    model.ask("q")
    assert model.state("q") == ("CREATING", "")
    model.go(1)
    assert model.state("q") == ("ACCEPTED", "")
    model.go(1)
    assert model.state("q") == ("PROVISIONING", "CREATING")
    model.go(10)
    assert model.state("q") == ("ACTIVE", "READY")
    with model.world.lock:
        queue.delete(
            model.world, f"projects/p/locations/{ZONE}/queuedResources/q", force=True, api="v2"
        )
    model.go(4)
    assert model.state("q") == ("DELETING", "DELETING")
    model.go(1)
    assert model.state("q") == ("", "")


def test_preemption_gives_its_notice_and_frees_the_machines() -> None:
    model = Model(hosts=2)
    model.ask("q")
    model.go(20)
    model.ask("next")
    model.go(20)
    assert model.state("next") == ("WAITING_FOR_RESOURCES", "")
    with model.world.lock:
        assert drills.preempt(model.world, "7", notice=30).id == "q"
    model.go(29)
    assert model.state("q") == ("ACTIVE", "READY")
    assert Disturb("q", "preempt", {"notice_s": 30}) in model.done, "the hosts knew at once"
    model.go(1)
    assert model.state("q") == ("SUSPENDING", "PREEMPTED")
    assert model.state("next") == ("PROVISIONING", "CREATING"), "on the machines that are free now"
    model.go(2)
    assert model.state("q") == ("SUSPENDED", "PREEMPTED")


def test_a_slice_deleted_in_its_notice_is_not_preempted() -> None:
    model = Model()
    model.ask("q")
    model.go(20)
    with model.world.lock:
        drills.preempt(model.world, "q", notice=30)
        nodes.delete(model.world, f"projects/p/locations/{ZONE}/nodes/q", api="v2")
    model.go(60)
    assert model.state("q") == ("SUSPENDED", "")
    assert not any(h.used_by for h in model.world.stock.hosts[ZONE].values())


def test_a_stockout_ends_by_itself() -> None:
    model = Model()
    with model.world.lock:
        drills.stockout(model.world, ZONE, "v4-8", lasts=600, off=False, fail=False)
    model.ask("q")
    model.go(599)
    assert model.state("q") == ("WAITING_FOR_RESOURCES", "")
    model.go(1)
    assert model.state("q") == ("PROVISIONING", "CREATING")


def test_a_stockout_of_one_type_leaves_the_others() -> None:
    model = Model()
    with model.world.lock:
        drills.stockout(model.world, ZONE, "v6e", lasts=None, off=False, fail=False)
    model.ask("q")
    model.go(20)
    assert model.state("q") == ("ACTIVE", "READY")


def test_hosts_that_never_come_up_fail_the_request() -> None:
    model = Model()
    model.ask("q")
    model.broken = True
    model.go(60)
    assert model.state("q") == ("FAILED", "")


def test_a_node_deleted_while_its_hosts_come_up_takes_them_down() -> None:
    model = Model()
    model.ask("q")
    with model.world.lock:
        while not (effects := model.world.take_effects()):
            model.now = model.world.advance() or model.now
        coming = effects[0]
        assert isinstance(coming, BringUp)
        nodes.delete(model.world, coming.node, api="v2")
    model.go(60)
    assert model.state("q")[1] == "DELETING", "it waits for the hosts' answer"
    with model.world.lock:
        nodes.hosts_up(model.world, coming.node, coming.number, ("10.0.0.1", "10.0.0.2"))
    model.go(1)
    assert model.state("q")[1] == ""
    assert [type(effect) for effect in model.done] == [TakeDown]


def test_an_answer_for_an_earlier_node_of_the_name_is_ignored() -> None:
    model = Model()
    model.ask("q")
    with model.world.lock:
        while not (effects := model.world.take_effects()):
            model.now = model.world.advance() or model.now
        coming = effects[0]
        assert isinstance(coming, BringUp)
        nodes.hosts_up(model.world, coming.node, coming.number - 1, ("10.0.0.9",) * 2)
    assert model.state("q") == ("PROVISIONING", "CREATING")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("", "no slice is ready"), ("nobody", "no slice or job 'nobody'")],
)
def test_a_drill_needs_a_slice(wanted: str, said: str) -> None:
    model = Model()
    with model.world.lock, pytest.raises(ApiError, match=said):
        drills.preempt(model.world, wanted, notice=1)


def test_a_drill_without_a_name_needs_exactly_one() -> None:
    model = Model()
    model.ask("a")
    model.ask("b")
    model.go(20)
    with model.world.lock, pytest.raises(ApiError, match=r"several slices are ready \(a, b\)"):
        drills.preempt(model.world, "", notice=1)
    with model.world.lock:
        drills.preempt(model.world, "b", notice=1)
        with pytest.raises(ApiError, match="not supported"):
            drills.preempt(model.world, "b", notice=1)
