"""Faults by command on the hosts of a slice and on physical hosts."""

from typing import Any, Literal

from tpujob.contract import faults
from tpujob.contract.faults import VARIABLE
from tpujob.emulator import inject
from tpujob.emulator.cloud.records import ApiError, Disturb, Node, invalid
from tpujob.emulator.cloud.states import NodeState
from tpujob.emulator.cloud.world import World

USUAL_HOST_FAULT = "nan:step=20,device=0"  #: the fault of a bad host by default
_SLOWEST = 1000  #: times slower: a pause of 50 s at a time


def slow(
    world: World, target: str = "", host: int = 0, factor: float = 10.0, for_s: float | None = None
) -> Node:
    """Give one host's processes 1/`factor` of their time, for `for_s` seconds or until a factor of 1 ends it."""
    node, host = _find_host(world, target, host)
    if not 1 <= factor <= _SLOWEST:
        raise invalid(f"the factor must be from 1 to {_SLOWEST}")
    node.slowed[host] = factor
    if factor == 1:
        del node.slowed[host]
    duration = f" for {for_s:g} s" if for_s is not None else ""
    speed = "as fast as before" if factor == 1 else f"{factor:g} times slower{duration}"
    world.record(f"{node.id}: host {host} is {speed}")
    if for_s is not None:
        world.after(for_s, lambda: _end_slow(world, node, host, factor))
    return _disturb(world, node, "slow", host=host, factor=factor)


def silence(world: World, target: str = "", host: int | None = None) -> Node:
    """Switch one host or all off without notice: no process, no SSH, no metadata server. The API still says READY."""
    node, host = _find_node(world, target, host)
    node.silent |= set(range(len(node.physical))) if host is None else {host}
    world.record(f"{node.id}: {_host_text(host)} has fallen silent; the API says READY")
    return _disturb(world, node, "off", host=host)


def hang(world: World, target: str = "", host: int | None = None, off: bool = False) -> Node:
    """Stop the processes of the running program, but not the agent; `off` lets them continue."""
    node, host = _find_node(world, target, host)
    world.record(f"{node.id}: the program of {_host_text(host)} {'continues' if off else 'hangs'}")
    if host is None:
        node.slowed.clear()
    else:
        node.slowed.pop(host, None)
    return _disturb(world, node, "hang", host=host, off=off)


def cut(world: World, target: str = "", host: int | None = None, off: bool = False) -> None:
    """Cut hosts off from each other, as a firewall does. Without a target, cut the hosts of every slice, now and later;
    else those of one slice, or one host. `off` ends it in the same way."""
    if target or host is not None:
        node, host = _find_node(world, target, host)
        chosen, where = [node], f"{node.id}: {_host_text(host)}"
    else:
        world.cut = not off
        chosen, where = [node for node in world.nodes.values() if node.addresses], "every host"
    world.record(f"{where} {'reaches the others again' if off else 'is cut off from the others'}")
    for node in chosen:
        _disturb(world, node, "cut", host=host, off=off)


def oom(world: World, target: str = "", host: int = 0) -> Node:
    """Kill the biggest process of the program on that host, and count it as the kernel does."""
    node, host = _find_host(world, target, host)
    world.record(f"{node.id}: host {host} is out of memory; its biggest process is killed")
    return _disturb(world, node, "oom", host=host)


def break_host(
    world: World, physical: str, fault: str = USUAL_HOST_FAULT, mend: bool = False
) -> None:
    """Set TPUJOB_FAULT for later programs of a host, also in existing slices. Raise ApiError for an unknown name."""
    host, fault = world.stock.find(physical), "" if mend else fault
    if host is None:
        raise ApiError("NOT_FOUND", f"there is no physical host {physical!r}")
    if fault:
        check_fault(fault)
    host.fault = fault
    world.record(f"{physical} is {f'bad: {fault}' if fault else 'good again'}")
    node = world.nodes.get(host.used_by)
    if node is not None and node.addresses:
        number = node.physical.index(physical)
        _disturb(world, node, "env", host=number, set={VARIABLE: fault})


def check_fault(fault: str) -> None:
    """Raise ApiError, with the reason, for a fault that programs reject. `tpujob/contract/` defines the syntax."""
    try:
        faults.parse(fault)
    except ValueError as error:
        usual = f"{USUAL_HOST_FAULT}, hang:step=20, oom:step=20, exit:step=20,code=1 or preflight:device=0"
        raise invalid(f"{error}; write it as {usual}") from error


def _end_slow(world: World, node: Node, host: int, factor: float) -> None:
    """End the slowness, unless another command has changed the host's speed since."""
    if node.slowed.get(host) == factor and node.state is NodeState.READY:
        del node.slowed[host]
        world.record(f"{node.id}: host {host} is as fast as before")
        _disturb(world, node, "slow", host=host, factor=1)


def _find_node(world: World, target: str, host: int | None) -> tuple[Node, int | None]:
    if host is None:
        return _find_ready(world, target), None
    return _find_host(world, target, host)


def _find_host(world: World, target: str, host: int) -> tuple[Node, int]:
    """Return the node of a host, and the host's number in the node. In a request for several nodes, `host` counts
    across all of them, as in their job, unless the target names a node."""
    node = _find_ready(world, target)
    whole = [n for n in world.nodes.values() if n.queued and n.queued == node.queued]
    nodes = [node] if node.id == target or not whole else whole
    place, number = divmod(host, len(node.physical))
    if not 0 <= place < len(nodes):
        last = len(nodes) * len(node.physical) - 1
        raise ApiError("NOT_FOUND", f"{target or node.id} has hosts 0 to {last}, not {host}")
    return nodes[place], number


def _find_ready(world: World, target: str) -> Node:
    node = inject.find(world, target)
    if node.state is not NodeState.READY:
        raise ApiError("FAILED_PRECONDITION", f"{node.id} is {node.state}, not READY")
    return node


def _disturb(
    world: World,
    node: Node,
    kind: Literal["slow", "off", "hang", "oom", "env", "cut"],
    **options: Any,
) -> Node:
    world.ask_hosts(Disturb(node.farm_name, kind, options))
    return node


def _host_text(host: int | None) -> str:
    return "every host" if host is None else f"host {host}"
