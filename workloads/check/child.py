"""Compiles one training step for one described slice and writes a finding: `python -m workloads.check.child
ORDER FINDING PARENT CPU_TIMEOUT`: two files of JSON, the pid of the waiting process, and a limit of CPU seconds.

A separate process, because the compiler may die, ends the process on an unknown flag, and locks the whole machine.
`children.py` sets up the environment.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import math
import os
import resource
import signal
import sys
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from workloads.check import hlo, jaxpr
from workloads.check.collectives import Collective, collectives
from workloads.check.errors import first_line, out_of_memory
from workloads.check.finding import GIB, Exchange, Finding, Order
from workloads.check.finding import Program as Found
from workloads.check.roofline import step as time_of
from workloads.check.roofline import wire_seconds
from workloads.check.topologies import Target, devices_of, target
from workloads.check.walk import work
from workloads.frame.config import ConfigError
from workloads.frame.mesh import ROWS, mesh_of
from workloads.frame.program import Program
from workloads.frame.workload import Workload

_PR_SET_PDEATHSIG = 1  #: of linux/prctl.h
#: part by which the compiled program may differ from the count of its jaxpr
_TOLERANCE = 0.02
SHORT = "such a short step is ruled by what is not counted here: its dispatch, and about 1 us for each hop of a message"


def examine(order: Order) -> Finding:
    """Compile the step and return the finding. Raises unexpected errors of the compiler."""
    on = target(order.target)
    config = _named(order.record).model_validate(order.config)
    facts: dict[str, Any] = {
        "target": on.name,
        "limit_bytes": int(on.chip.usable_hbm_gib * GIB),
        "batch": config.batch,
        "versions": {n: importlib.metadata.version(n) for n in ("jax", "jaxlib", "libtpu")},
    }
    try:
        workload = _named(order.workload)(config)
        mesh = mesh_of(config, devices_of(on), on.slices)
        program = Program(workload, mesh)
        rows = {
            name: jax.ShapeDtypeStruct((config.batch, *row.shape), row.dtype)
            for name, row in workload.row_layout().items()
        }
    except ConfigError as error:
        return Finding(fit="refused", reason=str(error), **facts)
    facts["tokens_per_row"] = workload.tokens_per_row
    with nnx.use_eager_sharding(False):
        shapes = nnx.eval_shape(lambda: workload.model(nnx.Rngs(0)))
    facts["parameters"] = _parameters(shapes)
    with jax.set_mesh(mesh):
        started = time.monotonic()
        traced = program.trace(rows)
        requested = jaxpr.count(traced.jaxpr).times(1 / on.devices)
        model = (
            workload.flops_per_row * config.batch
            or 3 * jaxpr.count(_forward(shapes, workload, rows)).flops
        ) / on.devices
        lowered = traced.lower()
        trace_seconds = time.monotonic() - started
        started = time.monotonic()
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            memory = out_of_memory(str(error))
            if memory is None:
                raise
            return Finding(fit="no", reason=memory.text, needed_bytes=memory.needed, **facts)
    compile_seconds = time.monotonic() - started
    _assert_for_tpu(compiled, program, rows, on)
    made, warnings = _analysed(compiled, on, mesh, requested)
    limit = facts["limit_bytes"]
    if made["peak_bytes"] > 0.95 * limit:
        warnings.append(
            "less than 5% of the memory is left for prefetched batches, tests and restored checkpoints"
        )
    step = Found(
        asked_flops=requested.flops,
        model_flops=model,
        trace_seconds=trace_seconds,
        compile_seconds=compile_seconds,
        **made,
    )
    if made.get("analysed", True) and time_of(step, on).bound < 1e-3:
        warnings.append(SHORT)
    return Finding(fit="yes", program=step, warnings=tuple(warnings), **facts)


def _analysed(
    compiled: Any, on: Target, mesh: Any, requested: jaxpr.Asked
) -> tuple[dict[str, Any], list[str]]:
    """Return the figures of the compiled program, and warnings about them."""
    memory = compiled.memory_analysis()
    counted = compiled.cost_analysis()
    made: dict[str, Any] = {
        "xla_flops": counted.get("flops", 0.0),
        "xla_bytes": counted.get("bytes accessed", 0.0),
        "peak_bytes": memory.peak_memory_in_bytes,
        "argument_bytes": memory.argument_size_in_bytes,
    }
    warnings: list[str] = []
    if memory.alias_size_in_bytes == 0:
        warnings.append("the new state does not take the place of the old one: both are in memory")
    try:
        module = hlo.parse(compiled.as_text())
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        warnings.append(f"only the memory is known: {first_line(str(error))}")
        nothing = {"flops": requested.flops, "hbm_bytes": 0.0, "exchanges": (), "analysed": False}
        return {**made, **nothing}, warnings
    done = work(module)
    sent = collectives(module, mesh, on.sides, on.wraps)
    flops = done.flops + (requested.kernel_flops if done.unknown_kernels else 0)
    if abs(flops - requested.flops) > _TOLERANCE * requested.flops:
        difference = f"{abs(flops / requested.flops - 1):.0%} {'more' if flops > requested.flops else 'less'}"
        warnings.append(
            f"a device executes {difference} operations than its share: something is computed on several, "
            "or was taken out"
        )
    if module.unresolved:
        warnings.append(f"loops whose length is not known count once: {set(module.unresolved)}")
    exchanges = _summed(sent, on)
    warnings += _doubtful(exchanges)
    return {**made, "flops": flops, "hbm_bytes": done.hbm_bytes, "exchanges": exchanges}, warnings


def _summed(sent: list[Collective], on: Target) -> tuple[Exchange, ...]:
    """Return the sums of collectives by kind and axes, the largest first."""
    groups: dict[tuple[str, tuple[str, ...]], list[Collective]] = defaultdict(list)
    for collective in sent:
        groups[collective.kind, collective.axes].append(collective)
    summed = [
        Exchange(
            kind=kind,
            axes=axes,
            times=sum(collective.times for collective in group),
            wire_bytes=sum(collective.wire_bytes for collective in group),
            seconds=sum(
                wire_seconds(collective.wire_bytes, collective.links, on) for collective in group
            ),
        )
        for (kind, axes), group in groups.items()
    ]
    return tuple(sorted(summed, key=lambda exchange: -exchange.wire_bytes))


def _doubtful(exchanges: tuple[Exchange, ...]) -> list[str]:
    whole = sum(e.wire_bytes for e in exchanges)
    reduced = sum(e.wire_bytes for e in exchanges if e.kind == "all-reduce" and "fsdp" in e.axes)
    if whole < 1e8 or reduced < 0.2 * whole:
        return []
    return [
        f"{reduced / 1e9:.1f} of {whole / 1e9:.1f} GB are all-reduces along fsdp; a reduce-scatter sends half"
    ]


def _assert_for_tpu(compiled: Any, program: Program, rows: Any, on: Target) -> None:
    """Raise RuntimeError unless the step was compiled for the described devices, with a split state. JAX silently
    compiles for this machine if no argument is on those devices, and copies a state without shardings to each
    device."""
    shardings = jax.tree.leaves(compiled.input_shardings[0])
    for sharding in shardings:
        devices = sharding.device_set
        if len(devices) != on.devices or {d.platform for d in devices} != {"tpu"}:
            raise RuntimeError(f"an argument of the step is not on {on.name}: {sharding}")
    by_row = NamedSharding(program.mesh, PartitionSpec(ROWS))
    batch = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=by_row) for x in rows.values()]
    bounds = [_held(leaf) for leaf in (*jax.tree.leaves(program.layout), *batch)]
    held = compiled.memory_analysis().argument_size_in_bytes
    least, greatest = sum(low for low, _ in bounds), sum(high for _, high in bounds)
    if not least <= held <= greatest + 4096:  # one more: whether the step before was good
        raise RuntimeError(
            f"the step takes {held} bytes; its state and batch have {least} to {greatest}"
        )


def _held(leaf: Any) -> tuple[int, int]:
    """Return the bytes of one device's part of an array, without and with the most padding: memory is laid out in tiles
    of up to 1,024 numbers of a single dimension, and of 128 of each of the last two."""
    shape = leaf.sharding.shard_shape(leaf.shape)
    tile = 1024 if len(shape) < 2 else 128
    padded = [*shape[:-2], *(math.ceil(size / tile) * tile for size in shape[-2:])]
    size = leaf.dtype.itemsize
    return math.prod(shape) * size, max(math.prod(padded), 1024) * size


def _forward(model: Any, workload: Workload[Any], rows: Any) -> Any:
    """Return the jaxpr of the loss without its gradients."""
    graph, state = nnx.split(model)

    def loss(state: Any, batch: Any) -> Any:
        return workload.loss(nnx.merge(graph, state, copy=True), batch, lambda x: x).values.sum()

    return jax.make_jaxpr(loss)(state, rows)


def _parameters(model: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def main(order: Path, finding: Path) -> None:
    """Write a finding, also for an error."""
    request = Order.model_validate_json(order.read_text(encoding="utf-8"))
    try:
        result = examine(request)
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {first_line(str(error))}"
        limit = int(target(request.target).chip.usable_hbm_gib * GIB)
        result = Finding(target=request.target, fit="unknown", reason=reason, limit_bytes=limit)
    finding.write_text(result.model_dump_json(), encoding="utf-8")


def _end_with_parent(parent: int) -> None:
    """Let the kernel kill this process with its parent: a compilation takes minutes. Linux only, as libtpu is."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("whoever started this has gone")


def _limit_cpu_seconds(limit: int) -> None:
    """Let the kernel end this process by SIGXCPU after `limit` CPU seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


if __name__ == "__main__":
    _end_with_parent(int(sys.argv[3]))
    _limit_cpu_seconds(int(sys.argv[4]))
    main(Path(sys.argv[1]), Path(sys.argv[2]))
