"""The TPU generations and every type string that the Cloud TPU API offers of them: facts and the rules that join them.

What a type costs is in `prices.py`; which one a job gets is in `domain/placement/offers.py`. Imports the
standard library and
`errors` only, as the emulator reads these tables too.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tpujob.errors import BadSpec

CHIPS_PER_HOST = 4  #: of every slice that spans more than one host


@dataclass(frozen=True, slots=True)
class Generation:
    """What is the same for all types of one generation."""

    name: str  #: `v5e`
    prefix: str  #: of its type strings: `v5litepod`
    api_enum: str  #: `AcceleratorConfig.Type` of the Cloud TPU API
    cores_per_chip: int
    suffix_counts_cores: bool  #: whether the N of `v4-N` counts cores; if not, chips
    devices_per_chip: int  #: as JAX sees them
    hbm_gib_per_chip: int
    peak_bf16_tflops_per_chip: float
    hbm_gbps_per_chip: int  #: GB/s
    runtime_version: str
    sizes: tuple[int, ...]  #: every N, ascending
    device_zones: tuple[str, ...]  #: for types of one host; the usual places first
    pod_zones: tuple[str, ...]  #: for types of several hosts
    multislice: bool = True  #: whether several of its slices can run one program


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One type string and what it stands for."""

    type: str  #: as the API spells it: `v4-16`, `v5litepod-8`
    generation: str  #: `v4`, `v5e`
    api_enum: str  #: `V4`, `V5LITE_POD`
    chips: int
    cores: int
    devices: int  #: as JAX sees them, in the whole slice
    hosts: int
    chips_per_host: int
    topology: str  #: chips along each axis: `2x2x2`
    hbm_gib_per_chip: int
    peak_bf16_tflops_per_chip: float
    hbm_gbps_per_chip: int  #: GB/s
    runtime_version: str  #: the default


# Sizes ---------------------------------------------------------------------------------------------------------------

_CUBE = 64  #: chips of a 4x4x4 block, the unit in which larger v4 and v5p slices are cut
_CHIPS_2D = (1, 4, 8, 16, 32, 64, 128, 256)


def _cubes_v5p() -> Iterator[int]:
    """A slice is at most 64 blocks long, so a larger prime number of blocks cannot be cut."""
    for cubes in range(1, 97):
        if cubes <= 64 or any(cubes % divisor == 0 for divisor in range(2, cubes)):
            yield cubes


_V4_SIZES = (8, 16, 32, 64, *range(128, 6144 + 1, 128))
_V5P_SIZES = (8, 16, 32, 64, *(cubes * _CUBE * 2 for cubes in _cubes_v5p()))

#: v4 slices above one block are a row of blocks, 4x4xN, except these.
_V4_FOLDED = {256: "4x8x8", 512: "8x8x8", 768: "8x8x12", 1024: "8x8x16", 2048: "8x16x16"}
_BELOW_A_CUBE = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4"}

# Zones: where the documentation offers the generation, then what the API lists beyond that. Listed is not available.
_V2_DEVICE = "us-central1-b us-central1-c us-central1-f europe-west4-a asia-east1-c"
_V2_POD = "us-central1-a europe-west4-a"
_V3_DEVICE = "us-central1-a us-central1-b us-central1-f europe-west4-a us-east1-d"
_V3_POD = "europe-west4-a us-east1-d"
_V4 = "us-central2-b"
_V5E = """
    us-central1-a us-south1-a us-south1-b us-west1-c us-west4-a us-west4-b europe-west4-b europe-west4-a
    us-east1-b us-east1-c us-east4-b us-east5-a us-east5-b us-east5-c
    europe-north1-a europe-north1-c europe-west1-b europe-west1-c europe-west3-c
    asia-east1-a asia-east1-b asia-east1-c asia-northeast1-b asia-southeast1-b
    northamerica-northeast1-b southamerica-west1-b southamerica-west1-c
"""
_V5P = """
    us-central1-a us-east5-a us-east5-b us-east5-c europe-west4-b us-east1-d
    us-south1-a us-south1-b us-south1-c europe-west1-b europe-west1-d
"""
_V6E = """
    us-central1-b us-central1-a us-central1-c us-east1-d us-east5-a us-east5-b us-east5-c
    us-south1-ai1b us-south1-a us-south1-c europe-west4-a us-east4-a us-west1-c us-central2-b
    asia-northeast1-b asia-south1-b asia-south1-c asia-southeast1-b asia-east1-c
    southamerica-west1-a southamerica-east1-c
"""


_BASE = "tpu-ubuntu2204-base"

_ROWS = (
    Generation(
        name="v2",
        prefix="v2",
        api_enum="V2",
        cores_per_chip=2,
        suffix_counts_cores=True,
        devices_per_chip=2,
        hbm_gib_per_chip=16,
        peak_bf16_tflops_per_chip=45,
        hbm_gbps_per_chip=700,
        runtime_version=_BASE,
        sizes=(8, 32, 128, 256, 512),
        device_zones=tuple(_V2_DEVICE.split()),
        pod_zones=tuple(_V2_POD.split()),
        multislice=False,
    ),
    Generation(
        name="v3",
        prefix="v3",
        api_enum="V3",
        cores_per_chip=2,
        suffix_counts_cores=True,
        devices_per_chip=2,
        hbm_gib_per_chip=32,
        peak_bf16_tflops_per_chip=123,
        hbm_gbps_per_chip=900,
        runtime_version=_BASE,
        sizes=(8, 32, 64, 128, 256, 512, 1024, 2048),
        device_zones=tuple(_V3_DEVICE.split()),
        pod_zones=tuple(_V3_POD.split()),
        multislice=False,
    ),
    Generation(
        name="v4",
        prefix="v4",
        api_enum="V4",
        cores_per_chip=2,
        suffix_counts_cores=True,
        devices_per_chip=1,
        hbm_gib_per_chip=32,
        peak_bf16_tflops_per_chip=275,
        hbm_gbps_per_chip=1200,
        runtime_version=_BASE,
        sizes=_V4_SIZES,
        device_zones=tuple(_V4.split()),
        pod_zones=tuple(_V4.split()),
    ),
    Generation(
        name="v5e",
        prefix="v5litepod",
        api_enum="V5LITE_POD",
        cores_per_chip=1,
        suffix_counts_cores=False,
        devices_per_chip=1,
        hbm_gib_per_chip=16,
        peak_bf16_tflops_per_chip=197,
        hbm_gbps_per_chip=819,
        runtime_version="v2-alpha-tpuv5-lite",
        sizes=_CHIPS_2D,
        device_zones=tuple(_V5E.split()),
        pod_zones=tuple(_V5E.split()),
    ),
    Generation(
        name="v5p",
        prefix="v5p",
        api_enum="V5P",
        cores_per_chip=2,
        suffix_counts_cores=True,
        devices_per_chip=1,
        hbm_gib_per_chip=95,
        peak_bf16_tflops_per_chip=459,
        hbm_gbps_per_chip=2765,
        runtime_version="v2-alpha-tpuv5",
        sizes=_V5P_SIZES,
        device_zones=tuple(_V5P.split()),
        pod_zones=tuple(_V5P.split()),
    ),
    Generation(
        name="v6e",
        prefix="v6e",
        api_enum="V6E",
        cores_per_chip=1,
        suffix_counts_cores=False,
        devices_per_chip=1,
        hbm_gib_per_chip=32,
        peak_bf16_tflops_per_chip=918,
        hbm_gbps_per_chip=1638,
        runtime_version="v2-alpha-tpuv6e",
        sizes=_CHIPS_2D,
        device_zones=tuple(_V6E.split()),
        pod_zones=tuple(_V6E.split()),
    ),
)

GENERATIONS: Mapping[str, Generation] = MappingProxyType({row.name: row for row in _ROWS})


# Rules ---------------------------------------------------------------------------------------------------------------


def _topology(generation: str, chips: int) -> str:
    if generation not in ("v4", "v5p"):
        return _square(chips)
    if chips < _CUBE:
        return _BELOW_A_CUBE[chips]
    if generation == "v4":
        return _V4_FOLDED.get(chips, f"4x4x{chips // 16}")
    return _compact(chips // _CUBE)


def _square(chips: int) -> str:
    """The rectangle nearest to a square."""
    short = max(side for side in range(1, math.isqrt(chips) + 1) if chips % side == 0)
    return f"{short}x{chips // short}"


def _compact(cubes: int) -> str:
    """The box of that many 4x4x4 blocks with the smallest surface."""
    boxes = [
        (a, b, cubes // a // b)
        for a in range(1, cubes + 1)
        if cubes % a == 0
        for b in range(a, cubes // a + 1)
        if cubes // a % b == 0 and cubes // a // b >= b
    ]
    best = min(boxes, key=lambda box: box[0] * box[1] + box[1] * box[2] + box[0] * box[2])
    return "x".join(str(4 * side) for side in best)


def _accelerator(generation: Generation, size: int) -> Accelerator:
    chips = size // generation.cores_per_chip if generation.suffix_counts_cores else size
    # One host carries up to 8 chips of v5e and v6e, whose smallest larger slice has 16.
    hosts = 1 if chips <= 8 and not generation.suffix_counts_cores else -(-chips // CHIPS_PER_HOST)
    return Accelerator(
        type=f"{generation.prefix}-{size}",
        generation=generation.name,
        api_enum=generation.api_enum,
        chips=chips,
        cores=chips * generation.cores_per_chip,
        devices=chips * generation.devices_per_chip,
        hosts=hosts,
        chips_per_host=chips // hosts,
        topology=_topology(generation.name, chips),
        hbm_gib_per_chip=generation.hbm_gib_per_chip,
        peak_bf16_tflops_per_chip=generation.peak_bf16_tflops_per_chip,
        hbm_gbps_per_chip=generation.hbm_gbps_per_chip,
        runtime_version=generation.runtime_version,
    )


#: Every type that the Cloud TPU API offers, by its API spelling; generations and sizes ascend.
ALL: Mapping[str, Accelerator] = MappingProxyType(
    {
        accelerator.type: accelerator
        for generation in GENERATIONS.values()
        for accelerator in (_accelerator(generation, size) for size in generation.sizes)
    }
)

# Looking up ----------------------------------------------------------------------------------------------------------

_TYPE = re.compile(r"([a-z0-9]{1,20})-([0-9]{1,6})")


def canonical(type: str) -> str:
    """The API's spelling of a type: `v5e-8` is `v5litepod-8`; anything else stays as it is."""
    return f"v5litepod-{type[4:]}" if type.startswith("v5e-") else type


def find(type: str) -> Accelerator:
    """The type of that name. Raises BadSpec, naming the nearest real ones, if there is none."""
    found = ALL.get(canonical(type))
    if found is None:
        raise BadSpec(_no_such_type(type))
    return found


def several(type: str, slices: int) -> str:
    """For people: the type, and how many of it where that is more than one."""
    return type if slices == 1 else f"{slices} x {type}"


def zones(generation_or_type: str) -> tuple[str, ...]:
    """Where the API lists a generation (`v5e`) or one type (`v2-32`), the usual places first. Raises BadSpec."""
    generation = GENERATIONS.get(generation_or_type)
    if generation is not None:
        return tuple(dict.fromkeys((*generation.device_zones, *generation.pod_zones)))
    accelerator = find(generation_or_type)
    generation = GENERATIONS[accelerator.generation]
    return generation.device_zones if accelerator.hosts == 1 else generation.pod_zones


@functools.cache
def all_zones() -> tuple[str, ...]:
    """Every zone that has TPUs of any type."""
    return tuple(dict.fromkeys(zone for name in GENERATIONS for zone in zones(name)))


def all_regions() -> tuple[str, ...]:
    """Every region that has TPUs of any type."""
    return tuple(dict.fromkeys(map(region_of, all_zones())))


def region_of(zone: str) -> str:
    """The region that a zone lies in: `us-central2` for `us-central2-b`."""
    return zone.rpartition("-")[0]


def _no_such_type(type: str) -> str:
    shown = type if _TYPE.fullmatch(type) else repr(type[:40])
    if re.match(r"(tpu-?)?v?(tpu)?7x?(-|$)", type.lower()):
        return (
            f"{shown}: TPU7x (Ironwood) is not offered by the Cloud TPU API; it needs Compute Engine "
            f"or Kubernetes Engine, which tpujob does not drive. The newest type here is v6e"
        )
    near = nearest(type)
    if near:
        return f"{shown}: no such type; nearest: {', '.join(near)}"
    examples = ", ".join(f"{g.prefix}-{g.sizes[-1]}" for g in GENERATIONS.values())
    return f"{shown}: no such type; there are types from each generation up to {examples}"


def nearest(type: str) -> tuple[str, ...]:
    """Up to two real types that `type` may have meant: the nearest sizes of the generation, or the nearest spelling."""
    spelled = canonical(type.strip().lower().removeprefix("tpu-"))
    if spelled in ALL:
        return (spelled,)
    match = _TYPE.fullmatch(spelled)
    if match is None or not (family := [a for a in ALL if a.startswith(f"{match[1]}-")]):
        from difflib import get_close_matches  # costs as much as the rest of this module

        return tuple(get_close_matches(spelled[:40], ALL, n=2))
    size = int(match[2])
    by_distance = sorted(family, key=lambda name: abs(int(name.rpartition("-")[2]) - size))
    return tuple(by_distance[:2])
