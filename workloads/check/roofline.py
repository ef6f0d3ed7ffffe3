"""The shortest possible and the likely time of a step.

The bound is what the peaks of the chip allow. Programs come nowhere near it on all counts at once, so what others
have published for the generation is set against it.
"""

from __future__ import annotations

from typing import NamedTuple

from workloads.check.finding import Program
from workloads.check.topologies import Target
from workloads.frame.chips import PUBLISHED, SIMPLEST


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


#: The least and the greatest part of the peak that programs reach.
Reached = tuple[float, float]


def published(generation: str) -> Reached:
    """Return what is published of a generation: from a simple port to tuned programs; 1, the bound itself, where no
    tuned program is."""
    tuned, simple = PUBLISHED[generation]
    return simple or SIMPLEST, tuned[1] if tuned else 1.0


def narrowed(own: Reached | None, generation: str) -> Reached:
    """Return what is published, narrowed to what a lab's own jobs reached; what they reached where the two do not
    meet."""
    least, most = published(generation)
    if own is None:
        return least, most
    low, high = max(own[0], least), min(own[1], most)
    return (low, high) if low < high else own


def likely(step: Step, reached: Reached) -> tuple[float, float]:
    """Return the shortest and the longest time of a step of programs that reach so much."""
    least, most = reached
    return step.at(most), step.at(least)


def wire_seconds(wire_bytes: float, links: int, target: Target) -> float:
    """Return the seconds to send bytes along that many links of a device; 0 links: between slices."""
    chip = target.chip
    speed = chip.link_gbps * links if links else chip.dcn_gbps
    return wire_bytes / (speed * 1e9 / chip.devices)
