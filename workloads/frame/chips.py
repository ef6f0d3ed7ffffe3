"""The TPU generations as programs and the compile check know them: one row each. Peaks are those of Google's pages on
each generation, and the same as in `tpujob/domain/hardware/generations.py`."""

from __future__ import annotations

from dataclasses import dataclass

_2D = {
    1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16", 512: "16x32",
    1024: "32x32",
}  # fmt: skip
_3D = {
    4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8",
    1024: "8x8x16", 2048: "8x16x16",
}  # fmt: skip


def _sizes(*sizes: int) -> dict[int, str]:
    return {size: _2D[size] for size in sizes}


_LITE = _sizes(1, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Chip:
    """The properties of a TPU generation."""

    name: str  #: `v5e`; libtpu's name for it, too
    kinds: tuple[str, ...]  #: what JAX calls its devices
    devices: int  #: JAX devices on a chip: of v2 and v3 each core is one
    #: the number in a type counts TensorCores, two on a chip; else it counts chips
    counts_cores: bool
    sides: dict[int, str]  #: chips along each axis, by the number of chips in a slice
    hbm_gib: float  #: what the compiler allows a device, by its own message: less than there is
    tflops: float  #: 10^12 bf16 operations a second, without sparsity
    hbm: float  #: GB/s to and from the chip's memory
    link: float  #: GB/s of one link between chips, one way
    dcn: float  #: GB/s between slices, this chip's share of its host's; 0: unknown
    #: which part of the bf16 peak is reached by programs that people have worked on, counting the model's operations
    #: alone (MFU, arXiv:2204.02311, appendix B); None here and below: not published
    tuned: tuple[float, float] | None
    simple: float | None  #: by a plain port of a 7B model


#: MFU of large language models. v3: levanter; v4, v5e, v5p: MaxText's published runs; v6e: MaxText's model tiers.
#: All are converted to the count of `Workload.flops_per_row`, which has the causal half of the scores; only those of
#: v6e are published so. Levanter and MaxText's runs counted all scores: for a width of d and rows of s tokens they are
#: lowered by (1 + r/2) / (1 + r) with r = s / 6d, 5% to 2%. The simple ports counted no scores: they are raised by 4%
#: (7B, 2,048 tokens).
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v2", ("TPU v2",), 2, True, _sizes(4, 16, 64, 128, 256), 7.48, 45, 700, 62, 0, None, 0.28),
        Chip("v3", ("TPU v3",), 2, True, _sizes(4, 16, 32, 64, 128, 256, 512, 1024), 15.48, 123, 900, 100, 0,
             (0.40, 0.53), 0.21),
        Chip("v4", ("TPU v4",), 1, True, _3D, 30.75, 275, 1200, 45, 6.25, (0.49, 0.55), 0.17),
        Chip("v5e", ("TPU v5 lite", "TPU v5e"), 1, False, _LITE, 15.75, 197, 819, 50, 3.125, (0.49, 0.64), 0.22),
        Chip("v5p", ("TPU v5", "TPU v5p"), 1, True, _3D, 95.74, 459, 2765, 100, 6.25, (0.59, 0.67), None),
        Chip("v6e", ("TPU v6 lite", "TPU v6e"), 1, False, _LITE, 31.25, 918, 1638, 100, 6.25, (0.38, 0.50), 0.17),
    )
}  # fmt: skip
_DEVICES = {kind: chip.tflops / chip.devices for chip in CHIPS.values() for kind in chip.kinds}
#: The first name that is a part of the kind counts.
_GPUS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "L40": 181, "B200": 2250}


def peak(kind: str) -> float:
    """Return the bf16 operations a second of a device of that `device_kind`; 0: not known."""
    gpu = next((peak for name, peak in _GPUS.items() if name in kind), 0)
    return 1e12 * _DEVICES.get(kind, gpu)
