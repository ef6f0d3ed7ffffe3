"""The life of a queued resource: create, grant, delete, reset, and its reactions to changes of its nodes."""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.domain.hardware import accelerators
from tpujob.emulator.cloud import nodes, rules
from tpujob.emulator.cloud.errors import no_capacity
from tpujob.emulator.cloud.records import (
    ApiError,
    NewerFields,
    Node,
    NodeChange,
    NodeSpec,
    Operation,
    Queued,
    invalid,
)
from tpujob.emulator.cloud.states import NodeState, QueuedState
from tpujob.emulator.cloud.world import World

_Q = QueuedState
#: states that can be deleted without force, with or without nodes (documented: queuedResources.delete)
_DELETABLE = (_Q.ACCEPTED, _Q.FAILED, _Q.SUSPENDED)


def create(
    world: World,
    project: str,
    zone: str,
    id: str,
    specs: Sequence[tuple[str, NodeSpec]],
    *,
    api: str,
    body: bytes = b"",
    request_id: str = "",
    valid_for: float | None = None,
    newer: NewerFields | None = None,
) -> Operation:
    """Create a queued resource. The operation is done when the request is in the queue, long before there is a slice.
    `valid_for`: how many seconds the request may wait for a slice."""
    if repeated := world.repeated(request_id):
        return repeated
    rules.check_zone(world, zone)
    rules.check_id(id)
    if not specs:
        raise invalid("A queued resource must have at least one node spec.")
    newer = newer or NewerFields()
    specs = [(node, replace(spec, pricing=newer.pricing or spec.pricing)) for node, spec in specs]
    queued = Queued(project, zone, id, tuple(specs), specs[0][1].pricing, world.clock(), body)
    queued.newer = newer
    if queued.name in world.queued:
        raise rules.already_exists(queued.name)
    for node_id, spec in specs:
        rules.check_id(node_id)
        rules.check_spec(world, zone, spec)
        if (name := _node_name(queued, node_id)) in world.nodes:
            raise rules.already_exists(name)
    rules.check_quota(world, zone, [spec for _, spec in specs])
    operation = world.start_operation("create", queued.name, api, request_id)
    if unsupported := rules.unsupported_model(queued):
        # seen: the call is accepted, its operation fails, and no queued resource exists
        world.after(world.latencies.accept, lambda: world.finish(operation.name, error=unsupported))
        return operation
    world.queued[queued.name] = queued
    queued.operation = operation.name
    world.after(world.latencies.accept, lambda: _accept(world, queued))
    if valid_for is not None:
        world.after(valid_for, lambda: _expire(world, queued))
    return operation


def delete(world: World, name: str, *, force: bool, api: str) -> Operation:
    """Delete a queued resource; `force` deletes its nodes, too. A second call returns the operation of the first."""
    queued = world.get_queued(name)
    wedges = "wedge" in world.faults.api_bugs
    if queued.state is _Q.DELETING and queued.operation in world.operations:
        queued.wedged = queued.wedged and wedges
        _remove_if_empty(world, queued)
        return world.operations[queued.operation]
    held = nodes_of(world, queued)
    if held and not force and queued.state not in _DELETABLE:
        raise ApiError(
            "FAILED_PRECONDITION",
            f"Queued resource '{name}' is in state {queued.state} and still has nodes "
            f"({', '.join(node.id for node in held)}); delete them first, or use force",
        )
    queued.wedged = wedges and force and queued.state is _Q.SUSPENDING
    world.finish(queued.operation, error=ApiError("CANCELLED", "The operation was cancelled."))
    operation = world.start_operation("delete", name, api)
    world.move_queued(queued, _Q.DELETING)
    queued.operation, queued.initiator = operation.name, "USER"
    for node in held:
        nodes.begin_delete(world, node)
    world.after(world.latencies.delete, lambda: _remove_if_empty(world, queued))
    return operation


def reset(world: World, name: str, *, api: str) -> Operation:
    """Put a suspended or failed queued resource back into the queue."""
    queued = world.get_queued(name)
    if queued.state not in (_Q.SUSPENDED, _Q.FAILED):
        raise ApiError(
            "FAILED_PRECONDITION",
            f"Queued resource '{name}' cannot be reset in state {queued.state}",
        )
    operation = world.start_operation("reset", name, api)
    world.move_queued(queued, _Q.ACCEPTED)
    queued.operation, queued.initiator, queued.error = operation.name, "", None
    for node in nodes_of(world, queued):
        nodes.begin_delete(world, node)
    world.finish(operation.name, response=queued)
    _grant(world, queued)
    return operation


# Steps ---------------------------------------------------------------------------------------------------------------


def _accept(world: World, queued: Queued) -> None:
    if queued.state is not _Q.CREATING:
        return
    world.move_queued(queued, _Q.ACCEPTED)
    world.finish(queued.operation, response=queued)
    world.after(world.latencies.accept, lambda: _grant(world, queued))


def _grant(world: World, queued: Queued) -> None:
    """Make the nodes if there is room for all of them; else let the request wait in the queue."""
    if queued.state not in (_Q.ACCEPTED, _Q.WAITING_FOR_RESOURCES):
        return
    types = [spec.type for _, spec in queued.specs]
    generation = accelerators.find(types[0]).generation
    stockout = world.faults.stockout(queued.zone, generation, world.clock())
    if stockout and stockout.fail:
        _fail(world, queued, ApiError("RESOURCE_EXHAUSTED", no_capacity(queued.zone)))
        return
    held = queued.held_until - world.clock()
    if held > 0:
        world.after(held, lambda: _grant(world, queued))
    names = [_node_name(queued, node_id) for node_id, _ in queued.specs]
    taken = any(name in world.nodes for name in names)  # by nodes from before a reset
    if stockout or taken or held > 0 or not world.stock.room_for(queued.zone, types):
        if queued.state is not _Q.WAITING_FOR_RESOURCES:
            world.move_queued(queued, _Q.WAITING_FOR_RESOURCES)
            world.record(f"{queued.id}: waiting for {', '.join(types)} in {queued.zone}")
        world.when_room(lambda: _grant(world, queued))
        return
    world.move_queued(queued, _Q.PROVISIONING)
    for node_id, spec in queued.specs:
        _add_node(world, queued, node_id, spec)


def _add_node(world: World, queued: Queued, node_id: str, spec: NodeSpec) -> None:
    node = Node(queued.project, queued.zone, node_id, spec, world.clock(), world.number())
    node.queued = queued.name
    node.on_change = lambda change, error: _node_changed(world, queued, change, error)
    node.physical = world.stock.take(queued.zone, spec.type, node.name)
    world.nodes[node.name] = node
    nodes.build(world, node)


def _node_changed(world: World, queued: Queued, change: NodeChange, error: ApiError | None) -> None:
    match change:
        case NodeChange.READY:
            ready = all(node.state is NodeState.READY for node in nodes_of(world, queued))
            if queued.state is _Q.PROVISIONING and ready:
                world.move_queued(queued, _Q.ACTIVE)
                queued.ends_at = _planned_end(world, queued)
                if queued.ends_at is not None:
                    world.after(queued.ends_at - world.clock(), lambda: _end_run(world, queued))
        case NodeChange.FAILED:
            if queued.state is _Q.PROVISIONING and error is not None:
                _fail(world, queued, error)
        case NodeChange.LOST:
            _suspend(world, queued, "SERVICE")
        case NodeChange.LEAVING:
            _suspend(world, queued, "USER")
        case NodeChange.GONE:
            _remove_if_empty(world, queued)


def _suspend(world: World, queued: Queued, initiator: str) -> None:
    if queued.state not in (_Q.ACTIVE, _Q.PROVISIONING):
        return
    world.move_queued(queued, _Q.SUSPENDING)
    queued.initiator = "USER" if initiator == "USER" else "SERVICE"
    # Documented: suspending deletes the nodes. Inferred (live: lost-node): one lost node suspends
    # a request for several.
    for node in nodes_of(world, queued):
        if node.state not in (NodeState.PREEMPTED, NodeState.TERMINATED):
            nodes.begin_delete(world, node)
    world.after(world.latencies.suspend, lambda: _finish_suspend(world, queued))


def _planned_end(world: World, queued: Queued) -> float | None:
    """Return when the run of a queued resource ends that is ready now; None: at no time that is planned."""
    limits = [limit for limit in (queued.newer.max_run_s, world.faults.max_run_s) if limit]
    ends = [world.clock() + min(limits)] if limits else []
    bound_until = world.reservation_ends.get(queued.newer.reservation)
    return min([*ends, *([] if bound_until is None else [bound_until])], default=None)


def _end_run(world: World, queued: Queued) -> None:
    """End a run at its planned end. Documented: the service suspends the request after the maximum run duration of
    flex-start, and deletes what consumes a calendar reservation at its end; that it suspends this too is inferred."""
    if queued.state is _Q.ACTIVE:
        world.record(f"{queued.id}: its maximum run duration is over")
        _suspend(world, queued, "SERVICE")


def _finish_suspend(world: World, queued: Queued) -> None:
    """Finish a suspension. Documented: the nodes have been deleted by then, also lost nodes."""
    if queued.state is _Q.SUSPENDING:
        world.move_queued(queued, _Q.SUSPENDED)
        for node in nodes_of(world, queued):
            nodes.begin_delete(world, node, takes_s=0)


def _expire(world: World, queued: Queued) -> None:
    if queued.state in (_Q.CREATING, _Q.ACCEPTED, _Q.WAITING_FOR_RESOURCES):
        text = f"The queued resource '{queued.name}' was not granted before its valid-until time"
        _fail(world, queued, ApiError("DEADLINE_EXCEEDED", text))


def _fail(world: World, queued: Queued, error: ApiError) -> None:
    world.move_queued(queued, _Q.FAILED)
    queued.error, queued.initiator = error, "SERVICE"
    world.finish(queued.operation, error=error)
    world.record(f"{queued.id}: FAILED, {error.message}")


def _remove_if_empty(world: World, queued: Queued) -> None:
    must_wait = queued.wedged or queued.state is not _Q.DELETING
    if queued.removed_at is None and not must_wait and not nodes_of(world, queued):
        world.remove(queued)
        world.finish(queued.operation)


def nodes_of(world: World, queued: Queued) -> list[Node]:
    """Return the nodes of a queued resource that exist."""
    named = (world.nodes.get(_node_name(queued, node_id)) for node_id, _ in queued.specs)
    return [node for node in named if node is not None and node.queued == queued.name]


def _node_name(queued: Queued, node_id: str) -> str:
    return f"projects/{queued.project}/locations/{queued.zone}/nodes/{node_id}"
