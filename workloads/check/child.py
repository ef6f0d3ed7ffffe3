"""Compiles one training step for one described slice and writes a finding: `start.py ORDER FINDING PARENT CPU_TIMEOUT`:
two files of JSON, the pid of the waiting process, and a limit of CPU seconds.

A separate process, because the compiler may die, ends the process on an unknown flag, and locks the whole machine; and
because the step is that of a program which may have a Python of its own. So this and what it imports needs JAX, numpy
and the standard library alone. `children.py` sets up the environment.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from workloads.check import hlo, jaxpr
from workloads.check.collectives import Collective, collectives
from workloads.check.errors import first_line, out_of_memory
from workloads.check.finding import GIB, Exchange, Finding, Order, Program
from workloads.check.finding import memory as size
from workloads.check.function import Step, named, step_of, told
from workloads.check.meshes import mesh_of
from workloads.check.roofline import step as time_of
from workloads.check.roofline import wire_seconds
from workloads.check.topologies import Target, devices_of, target
from workloads.check.walk import work
from workloads.errors import ConfigError

_PR_SET_PDEATHSIG = 1  #: of linux/prctl.h
#: part by which the compiled program may differ from the count of its jaxpr
_TOLERANCE = 0.02
SHORT = "such a short step is ruled by what is not counted here: its dispatch, and about 1 us for each hop of a message"


def examine(order: Order) -> Finding:
    """Compile the step and return the finding. Raises unexpected errors of the compiler."""
    on = target(order.target)
    finding = Finding(
        target=on.name,
        fit="unknown",
        limit_bytes=int(on.chip.usable_hbm_gib * GIB),
        versions={n: importlib.metadata.version(n) for n in ("jax", "jaxlib", "libtpu")},
    )
    devices = devices_of(on)
    try:
        mesh = mesh_of(order.mesh, devices, on.slices)
        function = named(order.function, order.folder)
        step = step_of(function, mesh, order.arguments, order.function)
    except ConfigError as error:
        return replace(finding, fit="refused", reason=str(error))
    finding = replace(finding, rows=step.rows, tokens=step.tokens, parameters=step.parameters)
    with jax.set_mesh(step.mesh):
        return _compiled(step, on, finding)


def _compiled(step: Step, on: Target, finding: Finding) -> Finding:
    started = time.monotonic()
    try:
        traced = step.function.trace(*step.arguments)
    except Exception as error:
        traceback.print_exc()
        return replace(finding, fit="refused", reason=f"its step cannot be traced: {told(error)}")
    requested = jaxpr.count(traced.jaxpr).times(1 / on.devices)
    lowered = traced.lower()
    trace_seconds = time.monotonic() - started
    started = time.monotonic()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        memory = out_of_memory(str(error))
        if memory is None:
            raise
        over = memory.needed - finding.limit_bytes
        reason = memory.text + (f", {size(over)} too much" if over > 0 else "")
        return replace(finding, fit="no", reason=reason, needed_bytes=memory.needed)
    compile_seconds = time.monotonic() - started
    _assert_for_tpu(compiled, on)
    made, warnings = _analysed(compiled, on, step.mesh, requested)
    if made["peak_bytes"] > 0.95 * finding.limit_bytes:
        warnings.append(
            "less than 5% of the memory is left for prefetched batches, tests and restored checkpoints"
        )
    program = Program(
        asked_flops=requested.flops,
        model_flops=step.model_flops / on.devices or requested.model_flops,
        trace_seconds=trace_seconds,
        compile_seconds=compile_seconds,
        **made,
    )
    if program.analysed and time_of(program, on).bound < 1e-3:
        warnings.append(SHORT)
    return replace(finding, fit="yes", program=program, warnings=tuple(warnings))


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


def _assert_for_tpu(compiled: Any, on: Target) -> None:
    """Raise RuntimeError unless the step was compiled for the described devices. JAX silently compiles for this machine
    if no argument is on those devices."""
    for sharding in jax.tree.leaves(compiled.input_shardings):
        devices = sharding.device_set
        if len(devices) != on.devices or {d.platform for d in devices} != {"tpu"}:
            raise RuntimeError(f"an argument of the step is not on {on.name}: {sharding}")


def main(order: Path, finding: Path) -> None:
    """Write a finding, also for an error."""
    request = Order(**json.loads(order.read_text(encoding="utf-8")))
    try:
        result = examine(request)
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {first_line(str(error))}"
        limit = int(target(request.target).chip.usable_hbm_gib * GIB)
        result = Finding(target=request.target, fit="unknown", reason=reason, limit_bytes=limit)
    finding.write_text(result.to_json(), encoding="utf-8")


def _end_with_parent(parent: int) -> None:
    """Let the kernel kill this process with its parent: a compilation takes minutes. Linux only, as libtpu is."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("whoever started this has gone")


def _limit_cpu_seconds(limit: int) -> None:
    """Let the kernel end this process by SIGXCPU after `limit` CPU seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def run(order: str, finding: str, parent: str, cpu_seconds: str) -> None:
    """Do the work of the process, with its arguments."""
    _end_with_parent(int(parent))
    _limit_cpu_seconds(int(cpu_seconds))
    main(Path(order), Path(finding))
