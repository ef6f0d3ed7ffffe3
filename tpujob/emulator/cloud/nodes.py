"""The life of a node: create, delete, stop, start, and the reports of its hosts."""

from collections.abc import Sequence

from tpujob.contract.faults import VARIABLE
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.emulator.cloud import rules
from tpujob.emulator.cloud.errors import no_capacity
from tpujob.emulator.cloud.records import (
    ApiError,
    BringUp,
    Node,
    NodeChange,
    NodeSpec,
    Operation,
    TakeDown,
)
from tpujob.emulator.cloud.states import NodeState
from tpujob.emulator.cloud.world import World
from tpujob.emulator.farm import HostSpec, HostUp, SliceRequest

_BRING_UP_TRIES = 20
RETRY_S = 1.0  #: seconds until a failed call to the host farm is repeated


def create(
    world: World,
    project: str,
    zone: str,
    id: str,
    spec: NodeSpec,
    *,
    api: str,
    request_id: str = "",
) -> Operation:
    """Create a node without a queued resource: it gets room at once, or the operation ends in a stockout."""
    if repeated := world.repeated(request_id):
        return repeated
    rules.check_zone(world, zone)
    rules.check_id(id)
    rules.check_spec(world, zone, spec)
    node = Node(project, zone, id, spec, world.clock(), world.number())
    if node.name in world.nodes:
        raise rules.already_exists(node.name)
    rules.check_quota(world, zone, [spec])
    operation = world.start_operation("create", node.name, api, request_id)
    node.operation = operation.name
    generation = accelerators.find(spec.type).generation
    if world.faults.stockout(zone, generation, world.clock()) is None:
        node.physical = world.stock.take(zone, spec.type, node.name)
    world.nodes[node.name] = node
    if node.physical:
        build(world, node)
    else:
        error = ApiError("RESOURCE_EXHAUSTED", no_capacity(zone))
        world.after(world.latencies.accept, lambda: fail(world, node, error))
    return operation


def build(world: World, node: Node) -> None:
    """Bring up the hosts of a node that has physical hosts."""
    world.record(f"{node.id}: {node.spec.type} in {node.zone} on {', '.join(node.physical)}")
    world.after(world.latencies.create, lambda: _bring_up(world, node))


def delete(world: World, name: str, *, api: str) -> Operation:
    """Delete a node. A second call returns the operation of the first."""
    node = world.get_node(name)
    if node.state is NodeState.DELETING and node.operation in world.operations:
        return world.operations[node.operation]
    operation = world.start_operation("delete", name, api)
    begin_delete(world, node)
    node.operation = operation.name
    return operation


def begin_delete(world: World, node: Node, takes_s: float | None = None) -> None:
    """Make a node DELETING, and remove it once its hosts are down. `takes_s`: None: the usual time."""
    if node.state is NodeState.DELETING:
        return
    if node.operation:
        text = f"The operation was cancelled: '{node.name}' is being deleted"
        world.finish(node.operation, error=ApiError("CANCELLED", text))
    world.move(node, NodeState.DELETING)
    node.preempted_at = None
    world.record(f"{node.id}: being deleted")
    notify(node, NodeChange.LEAVING)
    takes_s = world.latencies.delete if takes_s is None else takes_s
    world.after(takes_s, lambda: take_down(world, node))


def stop(world: World, name: str, *, api: str) -> Operation:
    node = world.get_node(name)
    if node.state is not NodeState.READY:
        raise wrong_state("stop", node)
    if len(node.physical) > 1 or node.queued or find_pricing(node.spec.pricing).preemptible:
        raise ApiError(
            "FAILED_PRECONDITION",
            "Cloud TPU received a bad request. stop is not supported for TPU pods, "
            "Spot VMs and nodes of queued resources",
        )
    operation = world.start_operation("stop", name, api)
    world.move(node, NodeState.STOPPING)
    node.operation = operation.name
    world.after(world.latencies.stop, lambda: take_down(world, node))
    return operation


def start(world: World, name: str, *, api: str) -> Operation:
    node = world.get_node(name)
    if node.state is not NodeState.STOPPED:
        raise wrong_state("start", node)
    operation = world.start_operation("start", name, api)
    world.move(node, NodeState.STARTING)
    node.operation = operation.name
    world.after(world.latencies.create, lambda: _bring_up(world, node))
    return operation


# Reports of the hosts ------------------------------------------------------------------------------------------------


def hosts_up(world: World, node: Node, hosts: Sequence[HostUp]) -> None:
    """Make a node READY whose hosts answer."""
    awaited = node.state in (NodeState.CREATING, NodeState.STARTING)
    if awaited:
        world.move(node, NodeState.READY)
    node.hosts_coming, node.attempts = False, 0
    node.addresses = tuple(host.address for host in hosts)
    node.guests = tuple(host.guests for host in hosts)
    if node.state is NodeState.DELETING:
        take_down(world, node)
    elif awaited:
        world.record(f"{node.id}: ready")
        notify(node, NodeChange.READY)
        world.finish(node.operation, response=node)


def hosts_not_up(world: World, node: Node, reason: str) -> None:
    """Try again, up to a limit: the farm may still be starting."""
    node.hosts_coming = False
    node.attempts += 1
    if node.state is NodeState.DELETING:
        take_down(world, node)
    elif node.attempts < _BRING_UP_TRIES:
        world.after(RETRY_S, lambda: _bring_up(world, node))
    else:
        fail(
            world,
            node,
            ApiError("INTERNAL", f"the hosts of '{node.name}' did not come up: {reason}"),
        )


def hosts_down(world: World, node: Node) -> None:
    if node.removed_at is not None:
        return
    node.hosts_exist = False
    if node.state is NodeState.STOPPING:
        world.move(node, NodeState.STOPPED)
        node.addresses = ()
        world.finish(node.operation, response=node)
    elif node.state is NodeState.DELETING:
        _remove(world, node)


def farm_name(world: World, node: Node) -> str:
    """Return the node's name in the farm: the id, unless another zone has a node of the same id."""
    twins = sum(other.id == node.id for other in world.nodes.values())
    return node.id if twins <= 1 else f"twin{node.number}-{node.id[:40]}".rstrip("-")


# Steps ---------------------------------------------------------------------------------------------------------------


def _bring_up(world: World, node: Node) -> None:
    if node.state not in (NodeState.CREATING, NodeState.STARTING) or node.hosts_coming:
        return
    chips = accelerators.find(node.spec.type).chips_per_host
    hosts = tuple(
        HostSpec(index, physical, chips, _env_of(world, physical))
        for index, physical in enumerate(node.physical)
    )
    node.farm_name = node.farm_name or farm_name(world, node)
    node.hosts_exist = node.hosts_coming = True
    request = SliceRequest(
        name=node.farm_name,
        zone=node.zone,
        type=node.spec.type,
        metadata=node.spec.metadata,
        hosts=hosts,
        group=node.queued,
        env=world.host_env,
        image=world.image,
        cut=world.cut,
    )
    world.ask_hosts(BringUp(node, request))


def _env_of(world: World, physical: str) -> dict[str, str]:
    host = world.stock.find(physical)
    return {VARIABLE: host.fault} if host and host.fault else {}


def take_down(world: World, node: Node) -> None:
    """Let the farm remove the hosts, unless they are removed or still coming up."""
    if node.removed_at is not None or node.hosts_coming:
        return
    if node.hosts_exist:
        world.ask_hosts(TakeDown(node))
    else:
        hosts_down(world, node)


def fail(world: World, node: Node, error: ApiError) -> None:
    """Delete a node that could not be created."""
    if node.state is not NodeState.CREATING:
        return
    world.record(f"{node.id}: failed, {error.message}")
    world.finish(node.operation, error=error)
    notify(node, NodeChange.FAILED, error)
    begin_delete(world, node)


def _remove(world: World, node: Node) -> None:
    world.stock.give_back(node)
    world.remove(node)
    world.record(f"{node.id}: gone")
    world.finish(node.operation)
    notify(node, NodeChange.GONE)
    world.room_changed()


def notify(node: Node, change: NodeChange, error: ApiError | None = None) -> None:
    """Notify the node's queued resource, if it has one."""
    if node.on_change is not None:
        node.on_change(change, error)


def wrong_state(verb: str, node: Node) -> ApiError:
    return ApiError(
        "FAILED_PRECONDITION",
        f"Cloud TPU received a bad request. {verb} is not supported while in state {node.state}",
    )
