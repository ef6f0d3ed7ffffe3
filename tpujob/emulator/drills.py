"""Faults by command: what `tpujob emulator preempt`, `stockout` and the others do to the world."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from tpujob.domain import accelerators
from tpujob.emulator import nodes, rules
from tpujob.emulator.faults import CallFault, Quota, Stockout, generation_of
from tpujob.emulator.records import (
    ApiError,
    MaintainHosts,
    Node,
    NodeState,
    Pricing,
    SlowHost,
)
from tpujob.emulator.world import World

JOB_LABEL = "tpujob-job"

#: The gRPC statuses that a call can be made to fail with.
CODES = tuple(code.name for code in grpc.StatusCode)


def target(world: World, wanted: str) -> Node:
    """The slice of that name, or of the job with that id; with no name the only ready one. Raises ApiError."""
    ready = [node for node in world.nodes.values() if node.state is NodeState.READY]
    if not wanted:
        if len(ready) == 1:
            return ready[0]
        which = ", ".join(node.id for node in ready)
        said = f"several slices are ready ({which}): name one" if ready else "no slice is ready"
        raise ApiError("NOT_FOUND", said)
    job = wanted.zfill(6) if wanted.isdigit() else wanted
    found = [
        n for n in world.nodes.values() if n.id == wanted or n.spec.labels.get(JOB_LABEL) == job
    ]
    if not found:
        raise ApiError("NOT_FOUND", f"there is no slice or job {wanted!r} in the emulator")
    return max(found, key=lambda node: (node.state is NodeState.READY, node.number))


def preempt(world: World, wanted: str, notice: float) -> Node:
    node = target(world, wanted)
    nodes.preempt(world, node, notice)
    return node


def maintain(world: World, wanted: str, window: float) -> Node:
    """Announce maintenance on every host, for that long."""
    node = _ready(target(world, wanted))
    node.maintenance_until = world.clock() + window
    world.tell(f"{node.id}: maintenance for {window:g} s")
    world.ask_hosts(MaintainHosts(node.farm_name, window))
    return node


def slow(world: World, wanted: str, host: int, factor: float) -> Node:
    """Give one host's processes 1/factor of their time; 1 ends it."""
    node = _ready(target(world, wanted))
    if not 0 <= host < len(node.physical):
        raise ApiError(
            "NOT_FOUND", f"{node.id} has hosts 0 to {len(node.physical) - 1}, not {host}"
        )
    if factor < 1:
        raise ApiError("INVALID_ARGUMENT", "the factor must be 1 or more")
    node.slowed[host] = factor
    if factor == 1:
        del node.slowed[host]
    world.tell(f"{node.id}: host {host} is {factor:g} times slower")
    world.ask_hosts(SlowHost(node.farm_name, host, factor))
    return node


def stockout(
    world: World, zone: str, type: str, *, lasts: float | None, off: bool, fail: bool
) -> None:
    """No more capacity in a zone, for one generation or all; with `off` there is again."""
    rules.check_zone(world, zone)
    generation = generation_of(type) if type else ""
    faults = world.faults
    faults.stockouts = [
        s for s in faults.stockouts if s.zone != zone or (type and s.generation != generation)
    ]
    what = generation or "all types"
    if off:
        world.tell(f"{zone}: capacity for {what} again")
        world.room_changed()
        return
    until = None if lasts is None else world.clock() + lasts
    faults.stockouts.append(Stockout(zone, generation, until, fail))
    world.tell(f"{zone}: stockout of {what}")
    if lasts is not None:
        world.after(lasts, world.room_changed)


def quota(
    world: World, zone: str, type: str, limit: int | None, pricings: Sequence[Pricing]
) -> None:
    """Limit what a project may hold of a generation in a zone; None takes the limit away."""
    rules.check_zone(world, zone)
    generation = generation_of(type)
    if zone not in accelerators.zones(generation):
        raise ApiError("NOT_FOUND", f"there is no {generation} in {zone}")
    for pricing in pricings:
        key = (zone, generation, pricing)
        if limit is None:
            world.faults.quotas.pop(key, None)
        else:
            world.faults.quotas[key] = Quota(zone, generation, pricing, limit)
    shown = "no limit" if limit is None else str(limit)
    world.tell(f"{zone}: quota of {generation} is {shown} ({', '.join(pricings)})")


def fail_calls(world: World, fault: CallFault) -> None:
    """The next calls of one method fail; a count of 0 takes its faults back."""
    if fault.code not in CODES:
        raise ApiError("INVALID_ARGUMENT", f"{fault.code!r} is none of {', '.join(CODES)}")
    calls = world.faults.calls
    if fault.count <= 0:
        world.faults.calls = [c for c in calls if c.method != fault.method and fault.method != "*"]
    else:
        calls.append(fault)
    world.tell(f"{fault.method}: the next {fault.count} calls answer {fault.code} ({fault.when})")


def break_host(world: World, physical: str, fault: str) -> None:
    """Programs that land there from now on get the fault; an empty one mends the host."""
    host = world.stock.find(physical)
    if host is None:
        raise ApiError("NOT_FOUND", f"there is no physical host {physical!r}")
    host.fault = fault
    world.tell(f"{physical}: {fault or 'mended'}")


def _ready(node: Node) -> Node:
    if node.state is not NodeState.READY:
        raise ApiError("FAILED_PRECONDITION", f"{node.id} is {node.state}, not READY")
    return node
