"""Advice for a step that does not fit: settings of the workload, and a larger slice."""

from __future__ import annotations

from typing import Any

from workloads.check.topologies import Target, slices_of, target
from workloads.frame.config import TrainConfig

#: Settings in place of those that do not fit, by field.
Change = dict[str, Any]


def changes(config: TrainConfig, on: Target) -> list[Change]:
    """Return changes of settings, those that cost no speed first. Each change contains the one before, as two may help
    together. If the last change does not help, none does."""
    candidates: list[Change] = []
    change: Change = {}
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
