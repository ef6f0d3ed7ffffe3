"""The collectives of a compiled program: kind, axes of the mesh, bytes on the wire."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.check.hlo import Executed, Instruction, Module
from workloads.check.meshes import slice_of

_KINDS = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
DCN = "dcn"  #: the axis of what is sent between slices


@dataclass(frozen=True)
class Collective:
    """One collective operation, all its executions in a step."""

    kind: str  #: `all-gather`; between slices `ALL_REDUCE` is `all-reduce` too
    axes: tuple[str, ...]  #: of the mesh, along which the members of a group differ
    times: int  #: executions
    wire_bytes: float  #: that one device sends, in all executions
    #: the directions along which one device can send to its group at once: for each physical axis that the group
    #: spans 1, or 2 if its ends are joined; 0 between slices
    links: int


def collectives(
    module: Module, mesh: Any, sides: Sequence[int], wraps: Sequence[bool]
) -> list[Collective]:
    """Return the collectives of a program for this mesh, whose slices have `sides` chips along the physical axes."""
    numbers = [slice_of(device) for device in mesh.devices.flat]
    slices = len(set(numbers))
    # groups name the devices of a slice by their place in it
    own = [place for place, number in enumerate(numbers) if number == numbers[0]]
    layout = _Layout(mesh, own, sides, wraps)
    started = _started(module)
    result: list[Collective] = []
    for executed in module.executed():
        instruction = executed.instruction
        kind = instruction.opcode.removesuffix("-start")
        if kind == "send" and "_xla_megascale_transfer_type" in instruction.attributes:
            result.append(_between_slices(executed, slices))
        elif kind in _KINDS and _counts(executed, started):
            if kind == "all-reduce" and _keeps_a_part(executed):
                kind = "reduce-scatter"
            group = _group(instruction, len(own))
            size = len(group)
            if size > 1:
                axes, links = layout.of(group)
                wire = _sent(kind, _bytes(executed), size) * executed.times
                result.append(Collective(kind, axes, executed.times, wire, links))
    return result


class _Layout:
    """The positions of a slice's devices, in the mesh and on the grid of chips."""

    def __init__(
        self, mesh: Any, own: Sequence[int], sides: Sequence[int], wraps: Sequence[bool]
    ) -> None:
        self._axes, self._shape, self._own = mesh.axis_names, mesh.devices.shape, own
        self._places = [tuple(mesh.devices.flat[place].coords) for place in own]
        self._sides, self._wraps = sides, wraps

    def of(self, group: Sequence[int]) -> tuple[tuple[str, ...], int]:
        """Return the axes of the mesh that a group spans, and the number of directions of its links."""
        places = np.asarray([self._own[member] for member in group])
        indices = np.stack(np.unravel_index(places, self._shape))
        varied = [len(set(row)) > 1 for row in indices.tolist()]
        axes = tuple(name for name, varies in zip(self._axes, varied, strict=True) if varies)
        links = 0
        for along, (side, wraps) in enumerate(zip(self._sides, self._wraps, strict=True)):
            reach = len({self._places[member][along] for member in group})
            if reach > 1:
                links += 2 if wraps and reach == side else 1
        return axes, max(links, 1)


def _started(module: Module) -> set[str]:
    """Return the channels of collectives that are spread over several fusions, marked by `AsyncCollectiveStart`. Each
    of these fusions repeats the collective in the text, though it is executed once."""
    return {
        instruction.attribute("channel_id")
        for computation in module.computations.values()
        if _is_start(computation.instructions.values())
        for instruction in computation.instructions.values()
        if instruction.opcode in _KINDS
    }


def _counts(executed: Executed, started: set[str]) -> bool:
    channel = executed.instruction.attribute("channel_id")
    if executed.scheduled or channel not in started:
        return True
    return _is_start(executed.computation.instructions.values())


def _is_start(instructions: Any) -> bool:
    return any("AsyncCollectiveStart" in instruction.attributes for instruction in instructions)


def _keeps_a_part(executed: Executed) -> bool:
    """Return whether an all-reduce is a reduce-scatter: its fusion takes a slice of the result."""
    inside = executed.computation.instructions.values()
    return not executed.scheduled and any(
        instruction.opcode == "dynamic-slice" for instruction in inside
    )


def _bytes(executed: Executed) -> int:
    """Return the bytes of a device's operands."""
    made = (executed.computation.instructions[name] for name in executed.instruction.operands)
    return sum(array.bytes for instruction in made for array in instruction.results)


def _sent(kind: str, size: float, members: int) -> float:
    """Return the bytes that one device of a group sends for operands of `size` bytes, by the best known algorithms."""
    others = members - 1
    if kind == "all-gather":
        return size * others
    if kind == "all-reduce":
        return 2 * size * others / members
    if kind in ("reduce-scatter", "all-to-all", "ragged-all-to-all"):
        return size * others / members
    return size


def _between_slices(executed: Executed, slices: int) -> Collective:
    text = executed.instruction.attributes
    match = re.search(r"_xla_megascale_transfer_type=\"?([A-Z_]+)", text)
    kind = match[1].lower().replace("_", "-") if match else "send"
    sent = _sent(kind, _bytes(executed), slices) * executed.times
    return Collective(kind, (DCN,), executed.times, sent, 0)


# Groups --------------------------------------------------------------------------------------------------------------


def _group(instruction: Instruction, devices: int) -> list[int]:
    """Return the members of the first group; all groups of a collective are alike."""
    pairs = instruction.attribute("source_target_pairs")
    if pairs:
        return _chain(pairs)
    text = instruction.attribute("replica_groups")
    if text.startswith("mesh"):
        return _of_mesh(instruction.attributes)
    if text.startswith("["):
        return _of_counted(instruction.attributes)
    first = re.search(r"\{([0-9, ]+)\}", text)
    return [int(word) for word in first[1].split(",")] if first else list(range(devices))


def _chain(pairs: str) -> list[int]:
    """Return the devices that can be reached from the first along `{{0,1},{1,2},...}`."""
    to = {int(a): int(b) for a, b in re.findall(r"\{?\{([0-9]+),([0-9]+)\}", pairs)}
    chain = [next(iter(to))]
    while chain[-1] in to and to[chain[-1]] not in chain:
        chain.append(to[chain[-1]])
    return chain


def _of_counted(attributes: str) -> list[int]:
    """`[4,16]<=[64]` or `[16,4]<=[4,16]T(1,0)`: rows of the numbers 0.. in that order."""
    match = re.search(r"replica_groups=\[([0-9,]+)\]<=\[([0-9,]+)\](?:T\(([0-9,]+)\))?", attributes)
    if match is None:
        raise ValueError(f"unknown groups: {attributes[:80]}")
    rows, sides, order = (_listed(part or "") for part in match.groups())
    numbers = np.arange(math.prod(sides)).reshape(sides)
    return numbers.transpose(order or None).reshape(rows)[0].tolist()


def _of_mesh(attributes: str) -> list[int]:
    """`mesh['a'=4,'b'=16] {'b'}`: the devices that differ in these axes alone; `'b':(2)4` is a part of an axis."""
    match = re.search(r"replica_groups=mesh\[([^\]]*)\]([^{]*)\{([^}]*)\}", attributes)
    if match is None:
        raise ValueError(f"unknown groups: {attributes[:80]}")
    sides = {name: int(size) for name, size in re.findall(r"'([^']+)'=([0-9]+)", match[1])}
    spread: dict[str, list[int]] = {name: [0] for name in sides}
    for name, before, size in re.findall(r"'([^']+)'(?::\(([0-9]+)\)([0-9]+))?", match[3]):
        inner = sides[name] // (int(before or 1) * int(size or sides[name]))
        steps = [i * inner for i in range(int(size or sides[name]))]
        spread[name] = [a + b for a in spread[name] for b in steps]
    numbers = np.arange(math.prod(sides.values())).reshape(tuple(sides.values()))
    listed = re.search(r"device_ids=\(([0-9, ]+)\)", match[2])
    order = _listed(listed[1]) if listed else None
    members = [int(numbers[index]) for index in itertools.product(*spread.values())]
    return [order[member] for member in members] if order else members


def _listed(text: str) -> list[int]:
    return [int(word) for word in text.replace(" ", "").split(",") if word]
