"""Advice for a step that does not fit: settings of the workload, and a larger slice; and what a change would give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from workloads.check.finding import Finding, Order, memory
from workloads.check.roofline import step
from workloads.check.topologies import Target, slices_of, target
from workloads.frame.config import TrainConfig

#: Settings of a bundled program, or arguments of a function and its `mesh`, in place of those of an order.
Change = Mapping[str, Any]


def changes(config: TrainConfig, on: Target) -> list[Change]:
    """Return changes of settings, those that cost no speed first. Each change contains the one before, as two may help
    together. If the last change does not help, none does."""
    candidates: list[Change] = []
    change: dict[str, Any] = {}
    tensor = config.tensor or 1
    if config.fsdp not in (0, on.devices // on.slices // tensor):
        change = {**change, "fsdp": 0}
        candidates.append(change)
    levels = ("none", "dots", "full")
    now = getattr(config, "remat", "full")
    for level in levels[levels.index(now) + 1 :] if now in levels else ():
        change = {**change, "remat": level}
        candidates.append(change)
    units = on.devices // tensor
    rows = config.batch // units
    while rows > 1:
        rows //= 2
        change = {**change, "batch": rows * units}
        candidates.append(change)
    return candidates


def larger(on: Target, needed: float) -> Target | None:
    """Return the smallest slice of the generation with room for `needed` bytes of each device of `on`; None if there is
    none."""
    least = on.chips_per_slice * needed / (on.chip.usable_hbm_gib * 2**30)
    sizes = [chips for chips in slices_of(on.chip) if chips > least]
    if not sizes or not needed:
        return None
    return target(f"{on.slices}x{on.chip.name}-{min(sizes) * on.chip.cores}")


def flags(change: Change) -> str:
    """Return the change as command-line flags."""
    return " ".join(f"--{name.replace('_', '-')}={value}" for name, value in change.items())


def words(change: Change) -> str:
    """Return the change as it is written for a function."""
    return " ".join(f"{name}={value}" for name, value in change.items())


def changed(order: Order, change: Change) -> Order:
    """Return the order with the change: of the settings of a bundled program, else of the arguments and the mesh."""
    if "config" in order.arguments:
        config = {**order.arguments["config"], **change}
        return replace(order, arguments={**order.arguments, "config": config})
    rest = {name: value for name, value in change.items() if name != "mesh"}
    mesh = change.get("mesh", order.mesh)
    return replace(order, mesh=mesh, arguments={**order.arguments, **rest})


def gain(before: Finding, after: Finding) -> str:
    """Return what a change makes of a finding: memory and the bound, in words."""
    if after.program is None:
        return {"no": "it does not fit", "refused": "refused"}.get(
            after.fit, after.fit
        ) + f": {after.reason}"
    peak = after.program.peak_bytes
    if before.program is None:
        return f"it fits: {memory(peak)}"
    less = before.program.peak_bytes - peak
    changes = f"{memory(abs(less))} {'less' if less >= 0 else 'more'} memory"
    if not (before.program.analysed and after.program.analysed):
        return changes
    old, new = (step(f.program, target(f.target)) for f in (before, after) if f.program)
    flops = after.program.flops / before.program.flops - 1
    operations = (
        f", {abs(flops):.0%} {'more' if flops > 0 else 'fewer'} operations"
        if abs(flops) >= 0.005
        else ""
    )
    return f"{changes}{operations}; bound {new.bound / old.bound:.2f} times as long, by {new.limited_by}"
