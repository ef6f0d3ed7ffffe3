"""The slices of the Cloud TPU API, and their names in libtpu.

libtpu also describes slices that do not exist, so types are looked up here first.
"""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tpujob.contract.chips import CHIPS, Chip
from workloads.errors import ConfigError

#: chips of the largest slice that can be checked
MOST_CHIPS = 2048


@dataclass(frozen=True)
class Target:
    """One slice, or several of the same type that run one program."""

    type: str  #: `v4-16`, `v5e-64`
    slices: int
    chip: Chip
    chips_per_slice: int

    @property
    def name(self) -> str:
        return self.type if self.slices == 1 else f"{self.slices}x{self.type}"

    @property
    def chips(self) -> int:
        """The chips of all slices."""
        return self.slices * self.chips_per_slice

    @property
    def devices(self) -> int:
        """The JAX devices of all slices."""
        return self.chips * self.chip.devices

    @cached_property
    def sides(self) -> tuple[int, ...]:
        """Chips along each axis of a slice."""
        return tuple(map(int, self.chip.topology(self.chips_per_slice).split("x")))

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Whether the ends of each axis are joined, as in slices of whole 4x4x4 blocks, and of 16 chips along an
        axis."""
        if len(self.sides) == 3:
            return (all(side % 4 == 0 for side in self.sides),) * 3
        return tuple(self.chip.name in ("v5e", "v6e") and side == 16 for side in self.sides)

    @property
    def topology(self) -> str:
        """libtpu's name for a slice."""
        return f"{self.chip.name}:{self.chip.topology(self.chips_per_slice)}"

    def options(self) -> dict[str, Any]:
        """Return the options that libtpu needs beside the name. By default libtpu describes a v4 slice as two devices a
        chip, joins no ends, and puts 4 chips on a host."""
        settings: dict[str, Any] = {}
        if self.chip.name == "v4":
            settings["chip_config_name"] = "megacore"
        if any(self.wraps):
            settings["wrap"] = [*self.wraps, False, False][:3]
        if self.chip.cores == 1 and self.chips_per_slice in (1, 8):
            settings["chips_per_host_bounds"] = [*self.sides, 1]
        if self.slices > 1:
            settings["num_slices"] = self.slices
        return settings


def targets(text: str) -> list[Target]:
    """Return the targets of a text such as `v4-128,v5e-64,2xv4-16`, without duplicates. Raises ConfigError."""
    names = dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ConfigError("--check needs a type of TPU slice, such as v4-16 or v4-128,v5e-64")
    return [target(name) for name in names]


def target(text: str) -> Target:
    """Return the target of that name; `v5litepod-64` is `v5e-64`. Raises ConfigError that names the nearest types."""
    match = re.fullmatch(r"(?:([1-9][0-9]{0,2})x)?([a-z0-9]+)-([1-9][0-9]{0,5})", text.lower())
    slices = int(match[1] or 1) if match else 1
    name = "v5e" if match and match[2] == "v5litepod" else match[2] if match else ""
    chip = CHIPS.get(name)
    chips = _chips(chip, int(match[3])) if match and chip else 0
    if chip is None or not chips:
        raise ConfigError(f"--check: {text[:40]}: no such type{_nearest(text)}")
    if slices > 1 and not chip.dcn_gbps:
        raise ConfigError(f"--check: {text}: several slices of {name} cannot run one program")
    assert match
    return Target(f"{name}-{match[3]}", slices, chip, chips)


def all_types() -> list[str]:
    """Return every type that can be checked."""
    return [
        f"{chip.name}-{chips * chip.cores}" for chip in CHIPS.values() for chips in slices_of(chip)
    ]


def devices_of(target: Target) -> list[Any]:
    """Return the described devices from libtpu. Raises RuntimeError if their number is wrong."""
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(
        platform="tpu", topology_name=target.topology, **target.options()
    )
    devices = list(topology.devices)
    if len(devices) != target.devices:
        raise RuntimeError(
            f"libtpu describes {target.name} as {len(devices)} devices instead of {target.devices}"
        )
    return devices


def slices_of(chip: Chip) -> list[int]:
    """Return the chips of every slice of the generation that can be checked: powers of two."""
    sizes = [number // chip.cores for number in chip.sizes]
    return [chips for chips in sizes if chips <= MOST_CHIPS and not chips & (chips - 1)]


def _chips(chip: Chip, number: int) -> int:
    """Return the number of chips of the type with this number; 0 if there is no such type."""
    chips, odd = divmod(number, chip.cores)
    return chips if not odd and chips in slices_of(chip) else 0


def _nearest(text: str) -> str:
    spelled = re.sub(r"^[0-9]+x", "", text.lower()).replace("v5litepod", "v5e")
    family = [name for name in all_types() if name.partition("-")[0] == spelled.partition("-")[0]]
    number = spelled.partition("-")[2]
    if family and number.isdigit() and int(number):
        family.sort(key=lambda name: abs(math.log(int(name.partition("-")[2]) / int(number))))
        return f"; nearest: {', '.join(family[:2])}"
    near = difflib.get_close_matches(spelled, all_types(), n=2)
    return f"; nearest: {', '.join(near or ['v4-8', 'v5e-16', 'v6e-16'])}"
