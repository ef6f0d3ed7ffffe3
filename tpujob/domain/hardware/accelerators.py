"""Every type string that the Cloud TPU API is known to offer, where, and what a type of any other name must be.

The tables are not closed: Google opens zones and cuts new sizes at any time. A well-formed type or zone that they lack
is read by its name; whether it is offered is for the cloud to say. The generations are in `generations.py`, what a type
costs in `prices.py`; which one a job gets is in `domain/capacity/offers.py`. Imports the standard library and `errors`
only, as the emulator reads these tables too.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tpujob.domain.hardware.generations import CUBE, Generation
from tpujob.domain.hardware.generations import GENERATIONS as GENERATIONS
from tpujob.errors import BadSpec

CHIPS_PER_HOST = 4  #: of every slice that spans more than one host


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
    topology: str  #: chips along each axis: `2x2x2`; empty: not known
    #: of an unknown generation, 0 here and below
    hbm_gib_per_chip: int
    peak_bf16_tflops_per_chip: float
    hbm_gbps_per_chip: int  #: GB/s
    runtime_version: str  #: the default
    #: False: it is in no table, and its chips and hosts are what its name must mean
    known: bool = True


# Rules ---------------------------------------------------------------------------------------------------------------


#: v4 slices above one block are a row of blocks, 4x4xN, except these.
_V4_FOLDED = {256: "4x8x8", 512: "8x8x8", 768: "8x8x12", 1024: "8x8x16", 2048: "8x16x16"}
_BELOW_A_CUBE = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4"}


def _topology(generation: str, chips: int) -> str:
    if generation not in ("v4", "v5p"):
        return _square(chips)
    if chips < CUBE:
        return _BELOW_A_CUBE.get(chips, "")
    if chips % CUBE:
        return ""
    if generation == "v4":
        return _V4_FOLDED.get(chips, f"4x4x{chips // 16}")
    return _compact(chips // CUBE)


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


def _accelerator(generation: Generation, size: int, *, known: bool = True) -> Accelerator:
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
        topology=_topology(generation.name, chips) if generation.sizes else "",
        hbm_gib_per_chip=generation.hbm_gib_per_chip,
        peak_bf16_tflops_per_chip=generation.peak_bf16_tflops_per_chip,
        hbm_gbps_per_chip=generation.hbm_gbps_per_chip,
        runtime_version=generation.runtime_version,
        known=known,
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

#: what zones, regions and the names of generations look like
ZONE = r"[a-z]{2,20}-[a-z]{2,20}[0-9]{1,2}-[a-z][a-z0-9]{0,5}"
REGION = r"[a-z]{2,20}-[a-z]{2,20}[0-9]{1,2}"
GENERATION = r"v[0-9]{1,2}[a-z]{0,12}"

_TYPE = re.compile(r"([a-z0-9]{1,20})-([0-9]{1,6})")
#: Ironwood
_TPU7X = re.compile(r"(tpu-?)?v?(tpu)?7x?(-|$)")


def canonical(type: str) -> str:
    """The API's spelling of a type: `v5e-8` is `v5litepod-8`; anything else stays as it is."""
    return f"v5litepod-{type[4:]}" if type.startswith("v5e-") else type


def find(type: str) -> Accelerator:
    """Return the type of that name, also one that no table has. Raises BadSpec, with the nearest real ones, for an
    invalid type."""
    spelled = canonical(type)
    found = ALL.get(spelled) or _by_its_name(spelled)
    if found is None:
        raise BadSpec(_no_such_type(type))
    return found


@functools.lru_cache(maxsize=1024)
def _by_its_name(type: str) -> Accelerator | None:
    """Return a type that no table has, by the documented rule: the number counts cores up to v5p but for v5e, and chips
    of all others; more chips than one host has come in whole hosts. None: the name is invalid."""
    match = _TYPE.fullmatch(type)
    if match is None or _TPU7X.match(type):
        return None
    by_prefix = {row.prefix: row.name for row in GENERATIONS.values()}
    row, size = generation(by_prefix.get(match[1], match[1])), int(match[2])
    if row is None or match[2].startswith("0"):
        return None
    chips, odd = divmod(size, row.cores_per_chip) if row.suffix_counts_cores else (size, 0)
    one_host = () if row.suffix_counts_cores else (1, 2, 4, 8)
    if odd or (chips % CHIPS_PER_HOST and chips not in one_host):
        return None
    return _accelerator(row, size, known=False)


def generation(name: str) -> Generation | None:
    """The generation of that name, also one that no table has: its types count chips, as all newer ones do, and nothing
    else is known of it. Its default runtime is inferred (live: catalog) from v5p's and v6e's. None: it can
    be no generation."""
    if name in GENERATIONS:
        return GENERATIONS[name]
    prefixes = [row.prefix for row in GENERATIONS.values()]
    if name in prefixes or not re.fullmatch(GENERATION, name) or _TPU7X.match(name):
        return None
    return Generation(
        name, name, api_enum="", cores_per_chip=1, suffix_counts_cores=False, devices_per_chip=1,
        hbm_gib_per_chip=0, peak_bf16_tflops_per_chip=0, hbm_gbps_per_chip=0,
        runtime_version=f"v2-alpha-tpu{name}", sizes=(), device_zones=(), pod_zones=(), quota_name="",
    )  # fmt: skip


def in_table(type: str, zone: str) -> bool:
    """Whether the tables have that type in that zone."""
    return find(type).known and zone in zones(type)


def may_have(type: str, zone: str) -> bool:
    """Whether the zone offers the type, as far as is known: True also where the tables cannot tell, as they lack the
    zone or the generation. Raises BadSpec for what can be no type."""
    return (
        zone in zones(type) or zone not in all_zones() or find(type).generation not in GENERATIONS
    )


def doubts(types: Iterable[str], zones: Iterable[str]) -> list[str]:
    """A warning for each of these types and zones that no table has, with what it may have meant."""
    warnings = [
        f"tpujob does not know {type}{_meant(likely(type))}; its size is derived from its name"
        for type in types
        if not find(type).known
    ]
    return warnings + [
        f"tpujob does not know the zone {zone}{_meant(nearest_zone(zone))}"
        for zone in zones
        if zone not in all_zones()
    ]


def _meant(near: Iterable[str]) -> str:
    first = next(iter(near), "")
    return f" (did you mean {first}?)" if first else ""


def likely(type: str) -> tuple[str, ...]:
    """Return the real types that a well-formed name may have meant, as far as they are near enough."""
    if find(type).generation in GENERATIONS:
        return nearest(type)[:1]
    from difflib import get_close_matches

    names = (*ALL, *(name.replace("v5litepod", "v5e") for name in ALL if "v5litepod" in name))
    near = get_close_matches(type, names, n=3, cutoff=0.85)
    return tuple(near or get_close_matches(type, names, n=3, cutoff=0.75))


def nearest_zone(zone: str) -> tuple[str, ...]:
    """The known zone that it may have meant, if there is one."""
    from difflib import get_close_matches

    return tuple(get_close_matches(zone, all_zones(), n=1, cutoff=0.85))


def several(type: str, slices: int) -> str:
    """For people: the type, and how many of it where that is more than one."""
    return type if slices == 1 else f"{slices} x {type}"


def zones(generation_or_type: str) -> tuple[str, ...]:
    """Where the API lists a generation (`v5e`) or one type (`v2-32`), the usual places first; empty: no table has it.
    Raises BadSpec for what can be neither."""
    row = generation(generation_or_type)
    if row is not None:
        return tuple(dict.fromkeys((*row.device_zones, *row.pod_zones)))
    accelerator = find(generation_or_type)
    row = generation(accelerator.generation)
    assert row is not None, f"{accelerator.type} is of no generation"
    return row.device_zones if accelerator.hosts == 1 else row.pod_zones


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
    if _TPU7X.match(type.lower()):
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
