"""What could make a step fit that does not: settings that this workload has, and a larger slice."""

from __future__ import annotations

from typing import Any

from workloads.check.topologies import Target, target
from workloads.frame.config import TrainConfig

#: Settings in place of those that do not fit, by field.
Change = dict[str, Any]


def changes(config: TrainConfig, on: Target) -> list[Change]:
    """Those that cost no speed first. Each contains the one before it, as what does not help alone may help with
    another; if the last one does not help, none does."""
    found: list[Change] = []
    so_far: Change = {}
    tensor = config.tensor or 1
    if config.fsdp not in (0, on.devices // on.slices // tensor):
        so_far = {**so_far, "fsdp": 0}
        found.append(so_far)
    levels = ("none", "dots", "full")
    now = getattr(config, "remat", "full")
    for level in levels[levels.index(now) + 1 :] if now in levels else ():
        so_far = {**so_far, "remat": level}
        found.append(so_far)
    units = on.devices // tensor
    rows = config.batch // units
    while rows > 1:
        rows //= 2
        so_far = {**so_far, "batch": rows * units}
        found.append(so_far)
    return found


def larger(on: Target, needed: float) -> Target | None:
    """The smallest slice of the generation over which so many bytes of each device can be spread; None: there is no
    such slice."""
    least = on.chips_per_slice * needed / (on.chip.hbm_gib * 2**30)
    sizes = [size for size in on.chip.sides if size > least]
    if not sizes or not needed:
        return None
    number = min(sizes) * (2 if on.chip.counts_cores else 1)
    return target(f"{on.slices}x{on.chip.name}-{number}")


def flags(change: Change) -> str:
    """As they are written on the command line."""
    return " ".join(f"--{name.replace('_', '-')}={value}" for name, value in change.items())
