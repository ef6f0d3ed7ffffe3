"""Which part of a chip's peak programs reach, as published, and the peaks by the names that JAX gives to devices."""

from __future__ import annotations

from typing import NamedTuple

from tpujob.contract.chips import CHIPS


class Mfu(NamedTuple):
    """The part of the bf16 peak that is reached, counting the model's operations alone (MFU, arXiv:2204.02311, appendix
    B). None: not published."""

    tuned: tuple[float, float] | None  #: by programs that people have worked on
    simple: float | None  #: by a plain port of a 7B model


#: MFU of large language models. v3: levanter; v4, v5e, v5p: MaxText's published runs; v6e: MaxText's model tiers.
#: All are converted to the count of `Workload.flops_per_row`, which has the causal half of the scores; only those of
#: v6e are published so. Levanter and MaxText's runs counted all scores: for a width of d and rows of s tokens they are
#: lowered by (1 + r/2) / (1 + r) with r = s / 6d, 5% to 2%. The simple ports are of Llama 2 7B with rows of 2,048
#: tokens, in tokens a second of a chip: 305, 608, 1,079, 1,021 and 3,627; rounded down, so that each is in its range.
PUBLISHED = {
    "v2": Mfu(None, 0.27),
    "v3": Mfu((0.40, 0.53), 0.20),
    "v4": Mfu((0.49, 0.55), 0.16),
    "v5e": Mfu((0.49, 0.64), 0.21),
    "v5p": Mfu((0.59, 0.67), None),
    "v6e": Mfu((0.38, 0.50), 0.16),
}
#: where no simple port is published: the least of the other generations
SIMPLEST = min(row.simple for row in PUBLISHED.values() if row.simple)
_DEVICES = {kind: chip.tflops / chip.devices for chip in CHIPS.values() for kind in chip.kinds}
#: The first name that is a part of the kind counts.
_GPUS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L40": 181, "B200": 2250}


def peak(kind: str) -> float:
    """Return the bf16 operations a second of a device of that `device_kind`; 0: not known."""
    gpu = next((peak for name, peak in _GPUS.items() if name in kind), 0)
    return 1e12 * _DEVICES.get(kind, gpu)
