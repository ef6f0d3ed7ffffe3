"""The cloud's interruptions of a READY node: preemption, maintenance, the loss of its hosts."""

from tpujob.domain.text import rfc3339
from tpujob.emulator.cloud import nodes
from tpujob.emulator.cloud.records import Disturb, Node, NodeChange, SwitchOn
from tpujob.emulator.cloud.states import NodeState
from tpujob.emulator.cloud.world import World

_UP = (NodeState.READY, NodeState.REPAIRING)


def preempt(world: World, node: Node, notice: float) -> None:
    """Give the hosts notice now; when the notice ends, remove the hosts and free their machines."""
    _check_interruptible(node, "preemption")
    node.preempted_at = world.clock() + notice
    world.record(f"{node.id} is being preempted: its hosts are gone in {notice:g} s")
    world.ask_hosts(Disturb(node.farm_name, "preempt", {"notice_s": notice}))
    world.after(notice, lambda: _end_notice(world, node))


def maintain(world: World, node: Node, window: float) -> None:
    """Announce maintenance through metadata servers and health for `window` seconds; the hosts keep running."""
    _check_interruptible(node, "maintenance")
    node.maintenance_until = world.clock() + window
    world.record(f"{node.id}: maintenance is announced for {window:g} s")
    world.ask_hosts(Disturb(node.farm_name, "maintain", {"window_s": window}))


def announce(world: World, node: Node, starts: float | None, window: float) -> None:
    """Announce maintenance from `starts` on, for `window` seconds, without carrying it out; None: cancel it."""
    _check_interruptible(node, "maintenance")
    node.upcoming = None if starts is None else (starts, starts + window)
    event = "no maintenance" if starts is None else "maintenance"
    delay = "" if starts is None else f", in {starts - world.clock():g} s"
    world.record(f"{node.id}: {event} is announced{delay}")
    shown = {} if node.upcoming is None else upcoming(*node.upcoming)
    world.ask_hosts(Disturb(node.farm_name, "announce", {"upcoming": shown}))


def upcoming(starts: float, ends: float) -> dict[str, str]:
    """Return the announcement, in the fields of a TPU VM's metadata server and of the API (v2alpha1)."""
    return {
        "window_start_time": rfc3339(starts),
        "window_end_time": rfc3339(ends),
        "latest_window_start_time": rfc3339(starts),
        "maintenance_status": "PENDING",
        "type": "SCHEDULED",
    }


def restart(world: World, node: Node, notice: float, window: float) -> None:
    """Announce maintenance that kills all processes. After `notice` seconds the node is REPAIRING for `window` seconds;
    then its hosts answer again, with their disks."""
    maintain(world, node, notice + window)
    world.record(f"{node.id}: its hosts go off in {notice:g} s, for {window:g} s")
    world.after(notice, lambda: repair(world, node, window))


def nodes_with_hosts(world: World) -> list[Node]:
    """Return the nodes whose hosts must exist now."""
    return [n for n in world.nodes.values() if n.state in _UP]


def hosts_lost(world: World, node: Node) -> None:
    """Handle hosts that disappeared without notice: the node is TERMINATED and must be deleted."""
    if node.state in _UP:
        world.record(f"{node.id}: its hosts are gone")
        _lose(world, node, NodeState.TERMINATED)


def hosts_back(world: World, node: Node) -> None:
    if node.state is NodeState.REPAIRING:
        world.move(node, NodeState.READY)
        node.maintenance_until = 0.0
        node.silent.clear()
        node.slowed.clear()
        world.record(f"{node.id}: ready again")


def _check_interruptible(node: Node, interruption: str) -> None:
    if node.state is not NodeState.READY or node.preempted_at is not None:
        raise nodes.wrong_state(interruption, node)


def take_away(world: World, node: Node) -> None:
    """Preempt a node at once, also one that is being created. A node that is lost or being deleted stays as it is."""
    if node.state in (*_UP, NodeState.CREATING):
        _lose(world, node, NodeState.PREEMPTED)


def _end_notice(world: World, node: Node) -> None:
    if node.state is NodeState.READY:
        _lose(world, node, NodeState.PREEMPTED)


def _lose(world: World, node: Node, state: NodeState) -> None:
    world.move(node, state)
    node.preempted_at = None
    world.stock.give_back(node)
    world.record(f"{node.id}: {state}")
    nodes.notify(node, NodeChange.LOST)
    world.room_changed()


def repair(world: World, node: Node, window: float) -> None:
    """Switch the hosts of a READY node off for `window` seconds. The node is REPAIRING until they answer again."""
    if node.state is not NodeState.READY or node.preempted_at is not None:
        return
    world.move(node, NodeState.REPAIRING)
    world.record(f"{node.id}: REPAIRING for {window:g} s")
    world.ask_hosts(Disturb(node.farm_name, "off", {"host": None}))
    world.after(window, lambda: switch_on(world, node))


def switch_on(world: World, node: Node) -> None:
    if node.state is NodeState.REPAIRING:
        world.ask_hosts(SwitchOn(node))
