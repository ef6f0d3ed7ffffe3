"""Counts floating-point operations and memory traffic of a compiled program on one device, loops included.

Only the operations of matrix products and convolutions are counted: they are what the peak of a chip is about.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache

from workloads.check.hlo import Array, Computation, Executed, Instruction, Module

#: They move nothing by themselves. What asynchronous pairs move is counted where they start.
_FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "after-all",
    "partition-id", "replica-id", "iota", "async-start", "async-update", "async-done", "copy-done", "slice-done",
    "all-gather-done", "all-reduce-done", "collective-permute-done", "send", "send-done", "recv", "recv-done",
    "opt-barrier", "add-dependency", "domain",
}  # fmt: skip
_FREE_CALLS = ("ConcatBitcast", "AllocateBuffer", "AsyncCollective", "AssumeGatherIndicesInBound")
#: They read no more of their first operand than they return.
_READS_A_PART = ("dynamic-slice", "slice", "slice-start", "gather")


@dataclass
class Work:
    """The work of one device in one step."""

    flops: float = 0
    hbm_bytes: float = 0
    #: kernels that do not say what they cost: their operations are not in `flops`, and of memory only what is passed
    unknown_kernels: list[str] = field(default_factory=list[str])


def work(module: Module) -> Work:
    """Return the operations and the memory traffic of one device in one step."""
    total = Work()
    for executed in module.executed():
        instruction = executed.instruction
        if instruction.opcode in ("convolution", "dot"):
            total.flops += executed.times * _flops(instruction, executed.computation)
        elif instruction.attribute("custom_call_target") == '"tpu_custom_call"':
            _add_kernel(total, executed, module)
            continue
        if executed.scheduled:
            total.hbm_bytes += executed.times * _moved(instruction, executed.computation, module)
    return total


def _add_kernel(total: Work, executed: Executed, module: Module) -> None:
    instruction = executed.instruction
    estimate = dict(re.findall(r'"(flops|bytes_accessed)":"?([0-9]+)', instruction.attributes))
    total.flops += executed.times * int(estimate.get("flops", 0))
    if "flops" not in estimate:
        total.unknown_kernels.append(instruction.name)
    passed = _moved(instruction, executed.computation, module)
    total.hbm_bytes += executed.times * int(estimate.get("bytes_accessed", passed))


# Operations ----------------------------------------------------------------------------------------------------------


def _flops(of: Instruction, within: Computation) -> int:
    left, right = (within.instructions[name].results[0] for name in of.operands[:2])
    if of.opcode == "dot":
        contracted = [int(d) for d in re.findall("[0-9]+", of.attribute("lhs_contracting_dims"))]
        summed = math.prod(left.shape[d] for d in contracted)
        return 2 * math.prod(of.results[0].shape) * summed
    inputs, rest = of.attribute("dim_labels").split("_")
    kernel, outputs = rest.split("->")
    window = dict(word.split("=") for word in of.attribute("window").strip("{}").split())
    places = 1
    for d, size in enumerate(_numbers(window.get("size", ""))):
        low, _ = _pairs(window.get("pad", ""), d)
        places *= _valid_places(
            size=left.shape[inputs.index(str(d))],
            results=of.results[0].shape[outputs.index(str(d))],
            window=size,
            before=low,
            stride=_at(window.get("stride", ""), d),
            spread=_at(window.get("lhs_dilate", ""), d),
            window_spread=_at(window.get("rhs_dilate", ""), d),
        )
    features = left.shape[inputs.index("f")] // int(of.attribute("feature_group_count") or 1)
    batch = left.shape[inputs.index("b")] // int(of.attribute("batch_group_count") or 1)
    return 2 * batch * features * right.shape[kernel.index("o")] * places


@lru_cache(maxsize=4096)
def _valid_places(
    *,
    size: int,
    results: int,
    window: int,
    before: int,
    stride: int,
    spread: int,
    window_spread: int,
) -> int:
    """Return how many pairs of a result and a window place meet an input, not the padding around or between inputs: XLA
    writes matrix products as convolutions that are mostly padding."""
    extent = (size - 1) * spread + 1
    count = 0
    for place in range(window):
        shift = place * window_spread - before
        if spread == 1:
            first = max(0, -(shift // stride))
            last = min(results - 1, (extent - 1 - shift) // stride)
            count += max(0, last - first + 1)
        else:
            at = (result * stride + shift for result in range(results))
            count += sum(0 <= position < extent and position % spread == 0 for position in at)
    return count


def _numbers(text: str) -> list[int]:
    """`3x3` as numbers."""
    return [int(part) for part in text.split("x")] if text else []


def _at(text: str, d: int) -> int:
    return _numbers(text)[d] if text else 1


def _pairs(text: str, d: int) -> tuple[int, int]:
    """The padding before and behind of a dimension, from `1_1x0_0`."""
    if not text:
        return 0, 0
    low, high = text.split("x")[d].split("_")
    return int(low), int(high)


# Memory --------------------------------------------------------------------------------------------------------------


def _moved(of: Instruction, within: Computation, module: Module) -> int:
    """Return the bytes that an instruction reads from and writes to HBM."""
    if of.opcode in _FREE:
        return 0
    if of.opcode == "custom-call" and any(name in of.attributes for name in _FREE_CALLS):
        return 0
    operands = [within.instructions[name].results for name in of.operands]
    if of.opcode == "fusion":
        return _moved_by_fusion(of, operands, module.computations[of.called])
    if of.opcode == "dynamic-update-slice":
        return 2 * _in_hbm(operands[1])
    if of.opcode == "copy-start":
        return _in_hbm(of.results[:1]) + _in_hbm(operands[0])
    if of.opcode == "slice-start":
        return _part(operands[0], of.results[1:2]) + _in_hbm(of.results[1:2])
    if of.opcode in _READS_A_PART:
        rest = sum(_in_hbm(arrays) for arrays in operands[1:])
        return _part(operands[0], of.results) + _in_hbm(of.results) + rest
    results = of.results[1:2] if of.opcode.endswith("-start") else of.results
    return _in_hbm(results) + sum(_in_hbm(arrays) for arrays in operands)


def _moved_by_fusion(of: Instruction, operands: list[tuple[Array, ...]], inner: Computation) -> int:
    readers: dict[str, list[Instruction]] = {}
    for instruction in inner.instructions.values():
        for name in instruction.operands:
            readers.setdefault(name, []).append(instruction)
    read = 0
    for number, arrays in enumerate(operands):
        whole = _in_hbm(arrays)
        if whole and number in inner.parameters:
            whole = min(whole, _read(inner.parameters[number].name, readers, inner, whole))
        read += whole
    root = inner.instructions[inner.root]
    roots = [inner.instructions[o] for o in root.operands] if root.opcode == "tuple" else [root]
    if len(roots) != len(of.results):
        return read + _in_hbm(of.results)
    written = zip(of.results, (inner.behind(part.name) for part in roots), strict=True)
    return read + sum(0 if array.space else _written(array, by, inner) for array, by in written)


def _read(name: str, readers: dict[str, list[Instruction]], inner: Computation, whole: int) -> int:
    """Return the bytes of a fusion's parameter that are read: only parts, if no instruction reads all of it."""
    size = 0
    for reader in readers.get(name, ()):
        if reader.opcode == "bitcast":
            size += _read(reader.name, readers, inner, whole)
        elif reader.opcode in _READS_A_PART and reader.operands[0] == name:
            size += sum(array.bytes for array in reader.results)
        elif reader.opcode != "dynamic-update-slice" or reader.operands[0] != name:
            return whole
    return size


def _written(array: Array, by: Instruction, inner: Computation) -> int:
    """Return the bytes that are written for a result: an update in place writes only the update."""
    if by.opcode == "dynamic-update-slice":
        return sum(operand.bytes for operand in inner.instructions[by.operands[1]].results)
    return array.bytes


def _part(source: tuple[Array, ...], taken: tuple[Array, ...]) -> int:
    return sum(piece.bytes for piece in taken) if _in_hbm(source) else 0


def _in_hbm(arrays: tuple[Array, ...]) -> int:
    return sum(array.bytes for array in arrays if array.space == 0)
