"""Faults by command on slices, zones and APIs, such as `tpujob emulator preempt`. `inject_hosts.py`: single hosts."""

import re

import grpc

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.pricing import PRICINGS
from tpujob.domain.text import many
from tpujob.emulator.cloud import interruptions, nodes, queue, rules
from tpujob.emulator.cloud.errors import API_BUGS, Quota, Stockout, generation_of
from tpujob.emulator.cloud.records import (
    ApiError,
    Node,
    NodeSpec,
    Queued,
    check_known,
    id_of,
    invalid,
)
from tpujob.emulator.cloud.states import NodeState
from tpujob.emulator.cloud.world import World
from tpujob.emulator.storage import METHODS, STATUSES, StorageFault
from tpujob.emulator.tpu import server
from tpujob.emulator.tpu.served_world import CallFault, ServedWorld
from tpujob.protocol import JOB_LABEL

#: The gRPC statuses that a fault can inject.
CODES = tuple(code.name for code in grpc.StatusCode)


def find(world: World, target: str) -> Node:
    """Return the slice with that name, or of the job with that id; for an empty target, the only ready slice. For a
    request with several nodes, return any of them unless the target names a node. Raise ApiError."""
    ready = [node for node in world.nodes.values() if node.state is NodeState.READY]
    if not target:
        if len({node.queued or node.name for node in ready}) == 1:
            return ready[0]
        which = ", ".join(node.id for node in ready)
        message = f"several slices are ready ({which}): name one" if ready else "no slice is ready"
        raise ApiError("NOT_FOUND", message)
    matches = [
        n
        for n in world.nodes.values()
        if _matches_target(n.id, n.spec, target) or id_of(n.queued) == target
    ]
    if not matches:
        raise ApiError("NOT_FOUND", f"there is no slice or job {target!r} in the emulator")
    return max(matches, key=lambda node: (node.state is NodeState.READY, node.number))


def preempt(world: World, target: str = "", notice_s: float = 30.0) -> Node:
    """Send SIGTERM and set the metadata flag now; remove the hosts after the notice."""
    node = find(world, target)
    interruptions.preempt(world, node, notice_s)
    return node


def maintain(
    world: World,
    target: str = "",
    window_s: float = 60.0,
    notice_s: float = 0.0,
    restart: bool = False,
) -> Node:
    """Announce maintenance on the hosts' metadata servers. With `restart`, the hosts are off for the window, which
    begins after the notice, and the node is REPAIRING."""
    node = find(world, target)
    if restart:
        interruptions.restart(world, node, notice_s, window_s)
    else:
        interruptions.maintain(world, node, window_s)
    return node


def announce(
    world: World,
    target: str = "",
    in_s: float = 86400.0,
    window_s: float = 3600.0,
    off: bool = False,
) -> Node:
    """Announce maintenance that begins in `in_s` seconds, and do nothing then; `off` cancels it."""
    node = find(world, target)
    starts = None if off else world.clock() + in_s
    interruptions.announce(world, node, starts, window_s)
    return node


def delete(world: World, target: str = "") -> Node | Queued:
    """Delete the node and its queued resource, as a person in the console does."""
    try:
        record = find(world, target)
    except ApiError:
        named = (q for q in world.queued.values() if _matches_target(q.id, q.specs[0][1], target))
        record = next(named, None) if target else None
        if record is None:
            raise
    queued = record.name if isinstance(record, Queued) else record.queued
    if queued in world.queued:
        queue.delete(world, queued, force=True, api="v2")
    else:
        nodes.delete(world, record.name, api="v2")
    world.record(f"{record.id} is being deleted by command")
    return record


def suspend(world: World, target: str = "") -> Node:
    """Delete the node only: its queued resource becomes SUSPENDED, initiated by the user."""
    node = find(world, target)
    if node.queued not in world.queued:
        raise ApiError("FAILED_PRECONDITION", f"{node.id} belongs to no queued resource")
    nodes.delete(world, node.name, api="v2")
    world.record(f"{node.id} is being suspended by the user")
    return node


def stockout(
    world: World,
    zone: str,
    type: str = "",
    for_s: float | None = None,
    off: bool = False,
    fail: bool = False,
) -> None:
    """Take away a zone's capacity for new slices (`type`: of one generation); `off` ends it. Requests wait; with `fail`
    they fail at once."""
    rules.check_zone(world, zone)
    generation = generation_of(type) if type else ""
    faults = world.faults
    faults.stockouts = [
        s for s in faults.stockouts if s.zone != zone or (type and s.generation != generation)
    ]
    types = generation or "all types"
    if off:
        world.record(f"{zone}: capacity for {types} again")
        world.room_changed()
        return
    until = None if for_s is None else world.clock() + for_s
    faults.stockouts.append(Stockout(zone, generation, until, fail))
    world.record(f"{zone}: no more capacity for {types}")
    if for_s is not None:
        world.after(for_s, world.room_changed)


def quota(world: World, zone: str, type: str, limit: int | None, pricing: str = "") -> None:
    """Limit a project's slices of a generation in a zone; None removes the limit. Empty `pricing`: a limit for each."""
    kinds = tuple(dict.fromkeys(row.quota for row in PRICINGS.values()))
    check_known(pricing or kinds[0], kinds)
    pricings = [kind for kind in kinds if pricing in ("", kind)]
    rules.check_zone(world, zone)
    generation = generation_of(type)
    if zone not in accelerators.zones(generation) and zone not in world.stock.opened:
        raise ApiError("NOT_FOUND", f"there is no {generation} in {zone}")
    for kind in pricings:
        key = (zone, generation, kind)
        if limit is None:
            world.faults.quotas.pop(key, None)
        else:
            world.faults.quotas[key] = Quota(zone, generation, kind, limit)
    shown = "no limit" if limit is None else str(limit)
    world.record(f"{zone}: quota of {generation} is {shown} ({', '.join(pricings)})")


def offer(world: World, zone: str, type: str) -> None:
    """Let the zone, which may be a new one, offer that type from now on. Raise BadSpec."""
    if not re.fullmatch(accelerators.ZONE, zone):
        raise invalid(f"{zone[:80]!r} cannot be a zone")
    world.stock.open(zone, type)
    world.record(f"{zone} offers {type}")
    world.room_changed()


def add(world: World, kind: str, name: str, off: bool = False, for_s: float | None = None) -> None:
    """Add a network, subnetwork, service account, reservation or disk of that name to each project; `off` removes it.
    Slices that use it stay. `for_s`: of a calendar reservation, until its end, when slices that are bound to it are
    suspended."""
    check_known(kind, rules.COLLECTIONS)
    if not name:
        raise invalid(f"the {kind} has no name")
    if for_s is not None and kind != "reservation":
        raise invalid("only a reservation has an end")
    id = id_of(name)
    resource = f"{rules.COLLECTIONS[kind]}/{id}"
    _switch(world.named, resource, off=off)
    world.reservation_ends.pop(id, None)
    if for_s is not None:
        ends_at = world.reservation_ends[id] = world.clock() + for_s
        world.after(for_s, lambda: _end_reservation(world, id, ends_at))
    world.record(f"{resource} {'is gone' if off else 'exists'}")


def _end_reservation(world: World, id: str, ends_at: float) -> None:
    if world.reservation_ends.get(id) == ends_at:
        del world.reservation_ends[id]
        world.named.discard(f"reservations/{id}")
        world.record(f"reservations/{id} has ended")


def api_bug(world: World, name: str, off: bool = False) -> None:
    """Switch on a misbehaviour that is reported of the service (`errors.API_BUGS`); `off` ends it."""
    check_known(name, API_BUGS)
    _switch(world.faults.api_bugs, name, off=off)
    world.record(f"{name} is {'off' if off else f'on: {API_BUGS[name]}'}")


def max_run(world: World, for_s: float) -> None:
    """Let the service suspend queued resources that become ACTIVE from now on, `for_s` seconds later; 0: never."""
    world.faults.max_run_s = for_s
    world.record(f"maximum run duration: {f'{for_s:g} s' if for_s else 'none'}")


def unreachable(world: World, zone: str, off: bool = False) -> None:
    """Leave a zone out of lists, which report that they could not reach it; `off` ends it."""
    rules.check_zone(world, zone)
    _switch(world.faults.unreachable, zone, off=off)
    world.record(f"{zone}: lists {'reach it again' if off else 'do not reach it'}")


def api_error(
    world: ServedWorld,
    method: str,
    code: str,
    count: int = 1,
    after: bool = False,
    hang_s: float = 0.0,
    message: str = "",
) -> None:
    """Let the next `count` calls hang for `hang_s` and answer `code`, either before or `after` they take effect. `OK`
    only hangs. A count of 0 removes the method's faults."""
    name, code = server.method_name(world, method), code.upper()
    check_known(code, CODES)
    calls, when = world.call_faults, "post" if after else "pre"
    if not count:
        calls.pending = [c for c in calls.pending if c.method != name and name != "*"]
        world.record(f"{name}: no call is set to fail")
    else:
        calls.pending.append(CallFault(name, code, count, when, hang_s, message))
        world.record(f"{name}: {many(count, 'call')} will answer {code} ({when})")


def storage_error(
    world: ServedWorld,
    status: int = 503,
    method: str = "*",
    count: int = 1,
    after: bool = False,
    hang_s: float = 0.0,
    path: str = "",
    off: bool = False,
) -> None:
    """Let the next `count` requests of Cloud Storage hang for `hang_s` and answer `status`, either before or `after`
    they take effect. `method` is GET, LIST, POST, PUT, PATCH, DELETE or `*`; `path` selects requests whose bucket and
    name contain it. A status of 200 only hangs. `off`, or a count of 0, removes all of these faults."""
    method, when = method.upper(), "post" if after else "pre"
    if off or not count:
        world.storage_faults.clear()
        world.record("Cloud Storage: no more faults")
        return
    check_known(method, (*METHODS, "*"))
    check_known(status, STATUSES)
    world.storage_faults.add(StorageFault(status, count, method, when, hang_s, path))
    requests = many(count, "request" if method == "*" else f"{method} request")
    where = f" for {path}" if path else ""
    world.record(f"Cloud Storage: {requests}{where} will answer {status} ({when})")


def _switch(names: set[str], name: str, *, off: bool) -> None:
    if off:
        names.discard(name)
    else:
        names.add(name)


def _matches_target(id: str, spec: NodeSpec, target: str) -> bool:
    """Return whether `target` is the slice's name or the id of its job."""
    job = target.zfill(6) if target.isdigit() else target
    return id == target or spec.labels.get(JOB_LABEL) == job
