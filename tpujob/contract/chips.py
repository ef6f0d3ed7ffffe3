"""TPU chips and the slices that are made of them: one row of facts for each generation, for tpujob and for the bundled
programs. Peaks are those of Google's pages on each generation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

_CUBE = 64  #: chips of a 4x4x4 block, the unit in which larger v4 and v5p slices are cut


@dataclass(frozen=True)
class Chip:
    """The facts of a generation's chip, and of its slices."""

    name: str  #: `v5e`; libtpu's name for it, too
    kinds: tuple[str, ...]  #: what JAX calls its devices
    cores: int  #: the number in a type counts cores, which are chips where each has one
    devices: int  #: JAX devices: of v2 and v3 each core is one
    sizes: tuple[int, ...]  #: the number in each type, ascending
    #: chips along each axis, by the chips in a slice: `2x2x2`; empty: unknown
    topology: Callable[[int], str]
    hbm_gib: int
    usable_hbm_gib: float  #: what the compiler allows a device, by its own message
    tflops: float  #: peak: 10^12 bf16 operations a second, without sparsity
    hbm_gbps: int  #: GB/s to and from the chip's memory
    link_gbps: float  #: GB/s of one link between chips, one way
    dcn_gbps: float  #: GB/s between slices, the chip's share of its host's; 0: slices cannot run one program


# Shapes of slices ----------------------------------------------------------------------------------------------------


def _rectangle(chips: int) -> str:
    """Return the rectangle nearest to a square."""
    short = max(side for side in range(1, math.isqrt(chips) + 1) if chips % side == 0)
    return f"{short}x{chips // short}"


_BELOW_A_CUBE = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4"}
#: v4 slices larger than one block are a row of blocks, 4x4xN, except these
_FOLDED = {256: "4x8x8", 512: "8x8x8", 768: "8x8x12", 1024: "8x8x16", 2048: "8x16x16"}


def _row_of_cubes(chips: int) -> str:
    if chips % _CUBE:
        return _BELOW_A_CUBE.get(chips, "")
    return _FOLDED.get(chips, f"4x4x{chips // 16}")


def _compact_cubes(chips: int) -> str:
    """Return the box with the smallest surface that the 4x4x4 blocks make."""
    if chips % _CUBE:
        return _BELOW_A_CUBE.get(chips, "")
    cubes = chips // _CUBE
    boxes = [
        (a, b, cubes // a // b)
        for a in range(1, cubes + 1)
        if cubes % a == 0
        for b in range(a, cubes // a + 1)
        if cubes // a % b == 0 and cubes // a // b >= b
    ]
    best = min(boxes, key=lambda box: box[0] * box[1] + box[1] * box[2] + box[0] * box[2])
    return "x".join(str(4 * side) for side in best)


# The table -----------------------------------------------------------------------------------------------------------

_V4_SIZES = (8, 16, 32, 64, *range(128, 6144 + 1, 128))
#: A side has at most 64 blocks, so no larger prime number of blocks is possible.
_V5P_CUBES = (
    n for n in range(1, 97) if n <= 64 or any(n % divisor == 0 for divisor in range(2, n))
)
_V5P_SIZES = (8, 16, 32, 64, *(cubes * _CUBE * 2 for cubes in _V5P_CUBES))
_LITE_SIZES = (1, 4, 8, 16, 32, 64, 128, 256)

_ROWS = (
    Chip(
        "v2", ("TPU v2",), cores=2, devices=2, sizes=(8, 32, 128, 256, 512), topology=_rectangle,
        hbm_gib=16, usable_hbm_gib=7.48, tflops=45, hbm_gbps=700, link_gbps=62, dcn_gbps=0,
    ),
    Chip(
        "v3", ("TPU v3",), cores=2, devices=2, sizes=(8, 32, 64, 128, 256, 512, 1024, 2048), topology=_rectangle,
        hbm_gib=32, usable_hbm_gib=15.48, tflops=123, hbm_gbps=900, link_gbps=100, dcn_gbps=0,
    ),
    Chip(
        "v4", ("TPU v4",), cores=2, devices=1, sizes=_V4_SIZES, topology=_row_of_cubes,
        hbm_gib=32, usable_hbm_gib=30.75, tflops=275, hbm_gbps=1200, link_gbps=45, dcn_gbps=6.25,
    ),
    Chip(
        "v5e", ("TPU v5 lite", "TPU v5e"), cores=1, devices=1, sizes=_LITE_SIZES, topology=_rectangle,
        hbm_gib=16, usable_hbm_gib=15.75, tflops=197, hbm_gbps=819, link_gbps=50, dcn_gbps=3.125,
    ),
    Chip(
        "v5p", ("TPU v5", "TPU v5p"), cores=2, devices=1, sizes=_V5P_SIZES, topology=_compact_cubes,
        hbm_gib=95, usable_hbm_gib=95.74, tflops=459, hbm_gbps=2765, link_gbps=100, dcn_gbps=6.25,
    ),
    Chip(
        "v6e", ("TPU v6 lite", "TPU v6e"), cores=1, devices=1, sizes=_LITE_SIZES, topology=_rectangle,
        hbm_gib=32, usable_hbm_gib=31.25, tflops=918, hbm_gbps=1638, link_gbps=100, dcn_gbps=6.25,
    ),
)  # fmt: skip

CHIPS: Mapping[str, Chip] = MappingProxyType({row.name: row for row in _ROWS})
