"""Faults by command on the hosts of a slice and on physical hosts."""

from typing import Any, Literal

from tpujob.emulator import inject
from tpujob.emulator.tpu.records import ApiError, Disturb, Node, NodeState, invalid
from tpujob.emulator.tpu.world import World
from workloads.contract import faults
from workloads.contract.faults import VARIABLE

USUAL_HOST_FAULT = "nan:step=20,device=0"  #: of a bad host without a named fault


def slow(
    world: World, target: str = "", host: int = 0, factor: float = 10.0, for_s: float | None = None
) -> Node:
    """Give one host's processes 1/factor of their time, for `for_s` seconds or until a factor of 1 ends it."""
    node, host = _host_of(world, target, host)
    if factor < 1:
        raise invalid("the factor must be 1 or more")
    node.slowed[host] = factor
    if factor == 1:
        del node.slowed[host]
    for_ = f" for {for_s:g} s" if for_s is not None else ""
    how = "as fast as before" if factor == 1 else f"{factor:g} times slower{for_}"
    world.record(f"{node.id}: host {host} is {how}")
    if for_s is not None:
        world.after(for_s, lambda: _end_slow(world, node, host, factor))
    return _disturb(world, node, "slow", host=host, factor=factor)


def silence(world: World, target: str = "", host: int | None = None) -> Node:
    """One host or all die without notice: no process, no SSH, no metadata server; the API still says READY."""
    node, host = _with_host(world, target, host)
    node.silent |= set(range(len(node.physical))) if host is None else {host}
    world.record(f"{node.id}: {_which(host)} has fallen silent; the API says READY")
    return _disturb(world, node, "off", host=host)


def hang(world: World, target: str = "", host: int | None = None, off: bool = False) -> Node:
    """Stop the processes of the running program, not its agent; `off` lets them continue."""
    node, host = _with_host(world, target, host)
    world.record(f"{node.id}: the program of {_which(host)} {'continues' if off else 'hangs'}")
    if host is None:
        node.slowed.clear()
    else:
        node.slowed.pop(host, None)
    return _disturb(world, node, "hang", host=host, off=off)


def cut(world: World, target: str = "", host: int | None = None, off: bool = False) -> None:
    """Cut hosts off from each other, as without a rule of the firewall between them: those of every slice, now and
    later; or of one slice, or one host of it. `off` ends it in the same way."""
    if target or host is not None:
        node, host = _with_host(world, target, host)
        chosen, where = [node], f"{node.id}: {_which(host)}"
    else:
        world.cut = not off
        chosen, where = [node for node in world.nodes.values() if node.addresses], "every host"
    world.record(f"{where} {'reaches the others again' if off else 'is cut off from the others'}")
    for node in chosen:
        _disturb(world, node, "cut", host=host, off=off)


def oom(world: World, target: str = "", host: int = 0) -> Node:
    """Kill the biggest process of the program there, and count it as the kernel does."""
    node, host = _host_of(world, target, host)
    world.record(f"{node.id}: host {host} is out of memory; its biggest process is killed")
    return _disturb(world, node, "oom", host=host)


def break_host(
    world: World, physical: str, fault: str = USUAL_HOST_FAULT, mend: bool = False
) -> None:
    """Programs that start there from now on get the fault as TPUJOB_FAULT, also on an existing slice. Raises ApiError
    for an unknown host or fault."""
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
    """Raises ApiError with the reason if programs would not understand it. `workloads/contract/` defines the syntax."""
    try:
        faults.parse(fault)
    except ValueError as error:
        usual = f"{USUAL_HOST_FAULT}, hang:step=20, oom:step=20, exit:step=20,code=1 or preflight:device=0"
        raise invalid(f"{error}; write it as {usual}") from error


def _end_slow(world: World, node: Node, host: int, factor: float) -> None:
    """Unless its speed has been changed since."""
    if node.slowed.get(host) == factor and node.state is NodeState.READY:
        del node.slowed[host]
        world.record(f"{node.id}: host {host} is as fast as before")
        _disturb(world, node, "slow", host=host, factor=1)


def _with_host(world: World, wanted: str, host: int | None) -> tuple[Node, int | None]:
    return _host_of(world, wanted, host) if host is not None else (_ready(world, wanted), None)


def _host_of(world: World, wanted: str, host: int) -> tuple[Node, int]:
    """The node of a host, and the host's number in it. In a request for several nodes, hosts are numbered across all of
    them, as their job numbers them, unless one node is named."""
    node = _ready(world, wanted)
    whole = [n for n in world.nodes.values() if n.queued and n.queued == node.queued]
    nodes = [node] if node.id == wanted or not whole else whole
    place, there = divmod(host, len(node.physical))
    if not 0 <= place < len(nodes):
        last = len(nodes) * len(node.physical) - 1
        raise ApiError("NOT_FOUND", f"{wanted or node.id} has hosts 0 to {last}, not {host}")
    return nodes[place], there


def _ready(world: World, wanted: str) -> Node:
    node = inject.find(world, wanted)
    if node.state is not NodeState.READY:
        raise ApiError("FAILED_PRECONDITION", f"{node.id} is {node.state}, not READY")
    return node


def _disturb(
    world: World, node: Node, what: Literal["slow", "off", "hang", "oom", "env", "cut"], **how: Any
) -> Node:
    world.ask_hosts(Disturb(node.farm_name, what, how))
    return node


def _which(host: int | None) -> str:
    return "every host" if host is None else f"host {host}"
