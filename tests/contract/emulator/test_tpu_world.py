"""The model alone, with a clock turned by hand: what happens when, to the second."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.contract.emulator.world_rig import SPEC, ZONE, Model
from tpujob.emulator import inject, inject_hosts
from tpujob.emulator.cloud import interruptions, nodes, queue
from tpujob.emulator.cloud.records import ApiError, BringUp, Disturb, TakeDown
from tpujob.emulator.cloud.states import NodeState
from tpujob.emulator.cloud.world import World
from tpujob.emulator.control import status
from tpujob.emulator.farm import HostUp


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
    model.delete("q", force=True)
    model.go(4)
    assert model.state("q") == ("DELETING", "DELETING")
    model.go(1)
    assert model.state("q") == ("", "")


def test_a_host_is_slow_for_a_while() -> None:
    model = Model.with_slice()
    with model.world.lock:
        inject_hosts.slow(model.world, "q", 1, factor=10, for_s=60)
        inject_hosts.slow(model.world, "q", 0, factor=5, for_s=60)
        inject_hosts.slow(model.world, "q", 0, factor=20)
    (node,) = model.world.nodes.values()
    model.go(59)
    assert node.slowed == {0: 20, 1: 10}
    model.go(2)
    assert node.slowed == {0: 20}, "what was set later stays"
    assert model.done[-1] == Disturb("q", "slow", {"host": 1, "factor": 1})


def test_preemption_gives_its_notice_and_frees_the_machines() -> None:
    model = Model.with_slice(hosts=2)
    model.ask("next")
    model.go(20)
    assert model.state("next") == ("WAITING_FOR_RESOURCES", "")
    assert model.do(inject.preempt, "7", notice_s=30).id == "q"
    model.go(29)
    assert model.state("q") == ("ACTIVE", "READY")
    assert Disturb("q", "preempt", {"notice_s": 30}) in model.done, "the hosts knew at once"
    model.go(1)
    assert model.state("q") == ("SUSPENDING", "PREEMPTED")
    assert model.state("next") == ("PROVISIONING", "CREATING"), "on the machines that are free now"
    model.go(2)
    assert model.state("q") == ("SUSPENDED", ""), "its nodes have been deleted"
    model.delete("q", force=False)
    model.go(5)
    assert model.state("q") == ("", "")


def test_a_request_that_is_being_suspended_is_deleted_only_by_force() -> None:
    model = Model.with_slice()
    model.do(inject.suspend, "q")
    model.go(1)
    assert model.state("q") == ("SUSPENDING", "DELETING")
    with pytest.raises(ApiError, match="still has nodes"):
        model.delete("q", force=False)
    model.go(5)
    assert model.state("q") == ("SUSPENDED", "")


def test_a_slice_deleted_in_its_notice_is_not_preempted() -> None:
    model = Model.with_slice()
    with model.world.lock:
        inject.preempt(model.world, "q", notice_s=30)
        nodes.delete(model.world, f"projects/p/locations/{ZONE}/nodes/q", api="v2")
    model.go(60)
    assert model.state("q") == ("SUSPENDED", "")
    assert not any(h.used_by for h in model.world.stock.hosts[ZONE].values())


def test_a_stockout_ends_by_itself_and_one_of_another_type_does_not_matter() -> None:
    model = Model()
    model.do(inject.stockout, ZONE, "v6e")
    model.do(inject.stockout, ZONE, "v4-8", for_s=600)
    model.ask("q")
    model.go(599)
    assert model.state("q") == ("WAITING_FOR_RESOURCES", "")
    model.go(1)
    assert model.state("q") == ("PROVISIONING", "CREATING")


def test_a_request_that_expires_before_it_is_accepted_ends_its_operation() -> None:
    model = Model()
    operation = model.do(queue.create, "p", ZONE, "q", [("q", SPEC)], api="v2", valid_for=0.5)
    model.go(60)
    assert model.state("q") == ("FAILED", "")
    assert operation.error is not None
    assert operation.error.code == "DEADLINE_EXCEEDED"


def test_hosts_that_never_come_up_fail_the_request() -> None:
    model = Model()
    model.ask("q")
    model.broken = True
    model.go(60)
    assert model.state("q") == ("FAILED", "")


def test_a_node_deleted_while_its_hosts_come_up_takes_them_down() -> None:
    model = Model()
    model.ask("q")
    coming = model.coming()
    model.do(nodes.delete, coming.node.name, api="v2")
    model.go(60)
    assert model.state("q")[1] == "DELETING", "it waits for the hosts' answer"
    model.do(nodes.hosts_up, coming.node, [HostUp("10.0.0.1", {}), HostUp("10.0.0.2", {})])
    model.go(1)
    assert model.state("q")[1] == ""
    assert [type(effect) for effect in model.done] == [TakeDown]


def test_an_injected_fault_without_a_target_needs_exactly_one_slice() -> None:
    model = Model()
    with pytest.raises(ApiError, match="no slice is ready"):
        model.do(inject.preempt, "", notice_s=1)
    model.ask("a")
    model.ask("b")
    model.go(20)
    with pytest.raises(ApiError, match=r"several slices are ready \(a, b\)"):
        model.do(inject.preempt, "", notice_s=1)
    model.do(inject.preempt, "b", notice_s=1)
    with pytest.raises(ApiError, match="not supported"):
        model.do(inject.preempt, "b", notice_s=1)


# Multislice ----------------------------------------------------------------------------------------------------------


def several(model: Model, count: int = 3) -> Callable[[], tuple[str, list[str]]]:
    """Ask for `count` nodes in one request; what can be looked at afterwards: its state, and those of its nodes."""
    names = [f"many-{k}" for k in range(count)]
    model.do(queue.create, "p", ZONE, "many", [(n, SPEC) for n in names], api="v2")

    return lambda: (model.state("many")[0], [model.state(n)[1] for n in names])


def test_several_slices_come_all_or_not_at_all() -> None:
    model = Model(hosts=6)  # room for three slices of two hosts
    model.ask("other")
    model.go(20)
    look = several(model)
    model.go(60)
    assert look() == ("WAITING_FOR_RESOURCES", ["", "", ""]), "two would fit"
    model.do(inject.delete, "other")
    model.go(60)
    assert look() == ("ACTIVE", ["READY"] * 3)


def test_one_preempted_slice_takes_the_others_with_it() -> None:
    model = Model()
    look = several(model)
    model.go(20)
    assert model.do(inject.preempt, "many-1", notice_s=0).id == "many-1"
    model.go(1)
    assert look() == ("SUSPENDING", ["DELETING", "PREEMPTED", "DELETING"])
    model.go(20)
    assert look() == ("SUSPENDED", ["", "", ""])
    model.delete("many", force=True)
    model.go(20)
    assert look() == ("", ["", "", ""])


def test_a_node_that_is_being_created_may_be_preempted() -> None:
    model = Model(hosts=2)
    model.ask("q")
    model.go(5)
    assert model.state("q") == ("PROVISIONING", "CREATING")
    (node,) = model.world.nodes.values()
    model.do(interruptions.take_away, node)
    assert model.state("q") == ("SUSPENDING", "PREEMPTED")
    model.do(interruptions.take_away, node)  # nothing is left to take
    model.go(20)
    assert model.state("q") == ("SUSPENDED", "")
    model.ask("next")
    model.go(20)
    assert model.state("next") == ("ACTIVE", "READY"), "on the same hosts"


def test_a_state_that_cannot_follow_is_an_error() -> None:
    model = Model.with_slice()
    (node,) = model.world.nodes.values()
    with pytest.raises(RuntimeError, match="nodes/q is READY, which does not become STARTING"):
        model.do(World.move, node, NodeState.STARTING)
    assert node.state is NodeState.READY


def test_a_list_that_lags_shows_what_was_and_a_get_what_is() -> None:
    model = Model()
    model.world.latencies = replace(model.world.latencies, list_lag=60)

    def listed() -> list[tuple[str, int]]:
        with model.world.lock:
            requests = model.world.list_queued("p", ZONE)
            nodes = model.world.list_nodes("p", ZONE)
        return [(r.state, 0) for r in requests] + [(n.state, len(n.addresses)) for n in nodes]

    model.ask("q")
    model.go(59)
    assert (model.state("q"), listed()) == (("ACTIVE", "READY"), [])
    model.go(2)
    assert listed() == [("ACCEPTED", 0)]
    model.go(5)
    assert listed() == [("PROVISIONING", 0), ("CREATING", 0)]
    model.go(10)
    assert listed() == [("ACTIVE", 0), ("READY", 2)]
    model.delete("q", force=True)
    model.go(59)
    assert (model.state("q"), listed()) == (("", ""), [("ACTIVE", 0), ("READY", 2)])
    model.go(2)
    assert listed() == [("DELETING", 0), ("DELETING", 2)]
    model.go(10)
    assert listed() == []


@pytest.mark.parametrize("target", ["", "many", "7"])
def test_an_injected_fault_may_hit_several_slices_as_one(target: str) -> None:
    model = Model()
    look = several(model)
    model.go(20)
    model.do(inject.preempt, target, notice_s=0)
    model.go(1)
    assert look()[0] == "SUSPENDING"


def test_hosts_of_several_slices_are_numbered_through() -> None:
    """A job's hosts are numbered through its slices; those of a named slice from 0."""
    model = Model()
    several(model)
    model.go(20)
    with model.world.lock:
        assert inject_hosts.silence(model.world, "7", 3).id == "many-1"
        assert inject_hosts.silence(model.world, "many-2", 1).id == "many-2"
        silent = {n.id: n.silent for n in model.world.nodes.values()}
        with pytest.raises(ApiError, match="has hosts 0 to 5, not 6"):
            inject_hosts.silence(model.world, "many", 6)
        with pytest.raises(ApiError, match="many-2 has hosts 0 to 1, not 2"):
            inject_hosts.silence(model.world, "many-2", 2)
    assert silent == {"many-0": set(), "many-1": {1}, "many-2": {1}}


def test_a_cut_and_a_profile_hold_for_slices_that_come_later_too() -> None:
    model = Model()

    def coming(id: str) -> tuple[str, bool]:
        model.ask(id)
        model.go(60)
        last = [effect for effect in model.done if isinstance(effect, BringUp)][-1]
        return last.request.image, last.request.cut

    def tell(command: str, **values: object) -> int:
        return model.control.perform("POST", command, dict(values))[0]

    assert coming("q1") == ("default", False)
    assert tell("/cut") == tell("/profile", name="bare") == 200
    model.go(1)
    effects = [effect for effect in model.done if isinstance(effect, Disturb)]
    assert [(done.what, done.how) for done in effects] == [("cut", {"host": None, "off": False})]
    assert coming("q2") == ("bare", True)
    shown = status(model.world, None)
    assert (shown["profile"], shown["cut"]) == ("bare", True)
    assert tell("/cut", off=True) == tell("/profile", name="default") == 200
    assert coming("q3") == ("default", False)
    assert tell("/cut", target="q3", host=1) == 200
    assert not model.world.cut, "that slice alone"
    assert tell("/profile", name="odd") == 400
