"""The most that a device computes: bf16 operations a second without sparsity, from the makers' data sheets. What a
program reaches of it is its model FLOP/s utilization (MFU, arXiv:2204.02311, appendix B)."""

from __future__ import annotations

#: 10^12 a second, of a chip
TPU_CHIPS = {"v2": 45, "v3": 123, "v4": 275, "v5e": 197, "v5p": 459, "v6e": 918}
#: by what JAX calls a device; of v2 and v3 a device is one of the two cores of a chip
_DEVICES = {
    "TPU v2": TPU_CHIPS["v2"] / 2,
    "TPU v3": TPU_CHIPS["v3"] / 2,
    "TPU v4": TPU_CHIPS["v4"],
    "TPU v5 lite": TPU_CHIPS["v5e"],
    "TPU v5e": TPU_CHIPS["v5e"],
    "TPU v5": TPU_CHIPS["v5p"],
    "TPU v5p": TPU_CHIPS["v5p"],
    "TPU v6 lite": TPU_CHIPS["v6e"],
    "TPU v6e": TPU_CHIPS["v6e"],
}
_GPUS = {"H200": 989, "H100": 989, "A100": 312, "L40": 181, "B200": 2250}


def peak(kind: str) -> float:
    """Operations a second of a device of that `device_kind`; 0: not known."""
    gpu = next((peak for name, peak in _GPUS.items() if name in kind), 0)
    return 1e12 * _DEVICES.get(kind, gpu)
