"""The shortest possible and the likely time of a step.

The bound is what the peaks of the chip allow. Programs come nowhere near it on all counts at once, so what others
have published for the generation is set against it.
"""

from __future__ import annotations

from typing import NamedTuple

from workloads.check.finding import Program
from workloads.check.topologies import Target
from workloads.frame.chips import PUBLISHED


class Step(NamedTuple):
    """Seconds of one step."""

    mxu: float  #: the operations that are executed, at the peak
    hbm: float
    ici: float  #: all collectives within a slice, one after another, each at the full speed of its links
    dcn: float
    model: float  #: the model's operations alone, at the peak

    @property
    def bound(self) -> float:
        """The shortest possible time: everything overlaps with the slowest part."""
        return max(self.mxu, self.hbm, self.ici, self.dcn)

    @property
    def apart(self) -> float:
        """The time if nothing overlaps."""
        return self.mxu + self.hbm + self.ici + self.dcn

    @property
    def limited_by(self) -> str:
        parts = {"MXU": self.mxu, "HBM": self.hbm, "ICI": self.ici, "DCN": self.dcn}
        return max(parts, key=lambda name: parts[name])

    def at(self, utilisation: float) -> float:
        """If that part of the peak is reached. Utilisation is published of operations; it is applied to whatever
        limits this program, as nothing is published of the rest."""
        return max(self.bound, max(self.model, self.hbm, self.ici, self.dcn) / utilisation)


def step(of: Program, target: Target) -> Step:
    """Return the seconds of a compiled step on the target's devices."""
    chip = target.chip
    peak = chip.tflops * 1e12 / chip.devices
    between = [e for e in of.exchanges if "dcn" in e.axes]
    return Step(
        mxu=of.flops / peak,
        hbm=of.hbm_bytes / (chip.hbm_gbps * 1e9 / chip.devices),
        ici=sum(e.seconds for e in of.exchanges) - sum(e.seconds for e in between),
        dcn=sum(e.seconds for e in between),
        model=of.model_flops / peak,
    )


def likely(step: Step, generation: str) -> tuple[float, float]:
    """The shortest and the longest time that a step probably takes, by what tuned programs reach on the generation;
    of a generation of which nothing is published but a simple one, from the bound to that."""
    tuned, simple = PUBLISHED[generation]
    if tuned is not None:
        return step.at(tuned[1]), step.at(tuned[0])
    return step.bound, step.at(simple or 1)


def wire_seconds(wire_bytes: float, links: int, target: Target) -> float:
    """Return the seconds to send bytes along that many links of a device; 0 links: between slices."""
    chip = target.chip
    speed = chip.link_gbps * links if links else chip.dcn_gbps
    return wire_bytes / (speed * 1e9 / chip.devices)
