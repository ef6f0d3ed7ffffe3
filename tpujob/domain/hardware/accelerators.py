"""Accelerator types: every type string that the Cloud TPU API is known to offer, with its size and its zones.

The tables are open: Google adds zones and sizes at any time. A well-formed type that they lack is derived from its
name; the cloud decides whether the type is offered. `generations.py` has the generations, `prices.py` the prices.
`domain/capacity/offers.py` chooses the type of a job. Imports the standard library, `errors` and the contract only, as
the emulator reads these tables, too.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from tpujob.contract.chips import Chip
from tpujob.domain.hardware.generations import CLOUD_TPU, ROWS, Generation
from tpujob.domain.hardware.generations import GENERATIONS as GENERATIONS
from tpujob.errors import BadSpec

CHIPS_PER_HOST = 4  #: chips per host of every slice with more than one host


@dataclass(frozen=True, slots=True)
class Accelerator:
    """The facts of one accelerator type."""

    row: Generation  #: as one provider offers it
    type: str  #: as the API spells it: `v4-16`, `v5litepod-8`
    generation: str  #: `v4`, `v5e`
    chips: int
    cores: int
    devices: int  #: JAX devices of the whole slice
    hosts: int
    chips_per_host: int
    topology: str  #: chips along each axis: `2x2x2`; empty: unknown
    chip: Chip  #: without figures for an unknown generation
    known: bool = True  #: False: in no table; chips and hosts are derived from the name

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones in which its provider lists it, the usual ones first."""
        return self.row.device_zones if self.hosts == 1 else self.row.pod_zones


def _accelerator(generation: Generation, size: int, *, known: bool = True) -> Accelerator:
    chip = generation.chip
    chips = size // chip.cores
    # a host has up to 8 chips of v5e and v6e; their next larger slice has 16 chips
    hosts = 1 if chips <= 8 and chip.cores == 1 else -(-chips // CHIPS_PER_HOST)
    return Accelerator(
        row=generation,
        type=f"{generation.prefix}-{size}",
        generation=chip.name,
        chips=chips,
        cores=chips * chip.cores,
        devices=chips * chip.devices,
        hosts=hosts,
        chips_per_host=chips // hosts,
        topology=chip.topology(chips),
        chip=chip,
        known=known,
    )


def _by_type(rows: Iterable[Generation]) -> dict[str, tuple[Accelerator, ...]]:
    every: dict[str, tuple[Accelerator, ...]] = {}
    for row in rows:
        for facts in (_accelerator(row, size) for size in row.chip.sizes):
            every[facts.type] = (*every.get(facts.type, ()), facts)
    return every


#: every type, by its API spelling, as each provider offers it, the first provider first; generations and sizes ascend
OFFERED: Mapping[str, tuple[Accelerator, ...]] = _by_type(ROWS)

#: every type, by its API spelling, as its first provider offers it; generations and sizes ascend
ALL: Mapping[str, Accelerator] = MappingProxyType(
    {type: offered[0] for type, offered in OFFERED.items()}
)

#: every spelling of a known type: those of the API, and `v5e-8` beside `v5litepod-8`
SPELLINGS = (*ALL, *(name.replace("v5litepod-", "v5e-") for name in ALL if "v5litepod" in name))

# Looking up ----------------------------------------------------------------------------------------------------------

#: patterns of the names of zones, regions and generations
ZONE = r"[a-z]{2,20}-[a-z]{2,20}[0-9]{1,2}-[a-z][a-z0-9]{0,5}"
REGION = r"[a-z]{2,20}-[a-z]{2,20}[0-9]{1,2}"
GENERATION = r"v[0-9]{1,2}[a-z]{0,12}"

_TYPE = re.compile(r"([a-z0-9]{1,20})-([0-9]{1,6})")
#: TPU7x (Ironwood), TPU 8t, TPU 8i and what comes after them
_TPU7X_OR_LATER = re.compile(
    r"((tpu-?)?v?(tpu)?(7x?|8[it])|tpu-?([789]|[1-9][0-9])[a-z]{0,2})(-|$)"
)


def canonical(type: str) -> str:
    """Return the API's spelling of a type: `v5litepod-8` for `v5e-8`; other types do not change."""
    return f"v5litepod-{type[4:]}" if type.startswith("v5e-") else type


def find(type: str, provider: str = "") -> Accelerator:
    """Return the facts of a well-formed type, in a table or not, as the provider offers it; as the first one does that
    offers it, where no provider is named or the tables lack it. Raise BadSpec with similar types for another type."""
    offered = offered_by_each(type)
    return next((facts for facts in offered if facts.row.provider == provider), offered[0])


def offered_by_each(type: str) -> tuple[Accelerator, ...]:
    """Return the facts of a well-formed type as each provider offers it, the first provider first; of a type in no
    table, as the first provider would. Raise BadSpec with similar types for another type."""
    name = canonical(type)
    if offered := OFFERED.get(name):
        return offered
    if derived := _derive_from_name(name):
        return (derived,)
    raise BadSpec(_no_such_type(type))


@functools.lru_cache(maxsize=1024)
def _derive_from_name(type: str) -> Accelerator | None:
    """Return a type that no table has, by the documented rules; None: the name is invalid. The number counts cores of
    v2, v3, v4 and v5p, and chips of all others. Slices of several hosts have whole hosts."""
    match = _TYPE.fullmatch(type)
    if match is None:
        return None
    by_prefix = {row.prefix: row.name for row in GENERATIONS.values()}
    row, size = generation(by_prefix.get(match[1], match[1])), int(match[2])
    if row is None or match[2].startswith("0"):
        return None
    chips, odd = divmod(size, row.chip.cores)
    one_host = (1, 2, 4, 8) if row.chip.cores == 1 else ()
    if odd or (chips % CHIPS_PER_HOST and chips not in one_host):
        return None
    return _accelerator(row, size, known=False)


def generation(name: str) -> Generation | None:
    """Return the generation of that name; None: the name is invalid. A well-formed name in no table is a generation
    whose types count chips, as all newer ones do. Its default runtime is inferred (live: catalog) from v5p and v6e."""
    if name in GENERATIONS:
        return GENERATIONS[name]
    prefixes = [row.prefix for row in GENERATIONS.values()]
    if name in prefixes or not re.fullmatch(GENERATION, name) or _TPU7X_OR_LATER.match(name):
        return None
    chip = Chip(
        name, (), cores=1, devices=1, sizes=(), topology=lambda _: "",
        hbm_gib=0, usable_hbm_gib=0, tflops=0, hbm_gbps=0, link_gbps=0, dcn_gbps=0,
    )  # fmt: skip
    return Generation(
        CLOUD_TPU, chip, name, api_enum="", system_image=f"v2-alpha-tpu{name}",
        device_zones=(), pod_zones=(), quota_name="",
    )  # fmt: skip


class Requested(Protocol):
    """What a slice and a request for one have alike."""

    @property
    def type(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def tpu_slices(self) -> int: ...


def chips_of(target: Requested) -> int:
    """Return the chips of all its slices."""
    return find(target.type, target.provider).chips * target.tpu_slices


def has_one_host_quota(type: str, provider: str = "") -> bool:
    """Return whether a slice of the type counts against the quota that its generation has for slices of one host. That
    v5e slices of one host count as serving is inferred (live: usage-held)."""
    facts = find(type, provider)
    return bool(facts.row.one_host_quota) and facts.hosts == 1


def chips_of_quota(type: str, amount: int) -> int:
    """Return the chips that an amount of quota of the type's generation allows. Where the unit is unknown (v4, v5p),
    the amount is taken as cores, which allow fewer chips."""
    return amount // find(type).chip.cores


def in_table(type: str, zone: str) -> bool:
    """Return whether the tables have the type in the zone."""
    return find(type).known and zone in zones(type)


def may_have(type: str, zone: str) -> bool:
    """Return whether the zone may offer the type; True if no table knows the zone or the generation. Raise BadSpec for
    an invalid type."""
    return (
        zone in zones(type) or zone not in all_zones() or find(type).generation not in GENERATIONS
    )


def doubts(types: Iterable[str], zones: Iterable[str]) -> list[str]:
    """Return a warning for each of these types and zones that no table has, with the likely intended name."""
    warnings = [
        f"tpujob does not know {type}{_suggestion(likely(type))}; its size is derived from its name"
        for type in types
        if not find(type).known
    ]
    return warnings + [
        f"tpujob does not know the zone {zone}{_suggestion(nearest_zone(zone))}"
        for zone in zones
        if zone not in all_zones()
    ]


def _suggestion(names: Iterable[str]) -> str:
    first = next(iter(names), "")
    return f" (did you mean {first}?)" if first else ""


def likely(type: str) -> tuple[str, ...]:
    """Return the known types that are similar to a well-formed name. Raise BadSpec for another name."""
    if find(type).generation in GENERATIONS:
        return nearest(type)[:1]
    from difflib import get_close_matches

    matches = get_close_matches(type, SPELLINGS, n=3, cutoff=0.85)
    return tuple(matches or get_close_matches(type, SPELLINGS, n=3, cutoff=0.75))


def nearest_zone(zone: str) -> tuple[str, ...]:
    """Return the known zone that is most similar to the name, if any is similar."""
    from difflib import get_close_matches

    return tuple(get_close_matches(zone, all_zones(), n=1, cutoff=0.85))


def several(type: str, slices: int) -> str:
    """Return the text of a number of slices of a type: `v4-16`, `2 x v4-16`."""
    return type if slices == 1 else f"{slices} x {type}"


def zones(generation_or_type: str) -> tuple[str, ...]:
    """Return the zones in which a provider lists a generation (`v5e`) or a type (`v2-32`), the usual ones first; empty:
    no table has the name. Raise BadSpec for an invalid name."""
    if generation(generation_or_type) is not None:
        rows = (row for row in ROWS if row.name == generation_or_type)
        return tuple(dict.fromkeys(z for row in rows for z in (*row.device_zones, *row.pod_zones)))
    offered = offered_by_each(generation_or_type)
    return tuple(dict.fromkeys(zone for facts in offered for zone in facts.zones))


@functools.cache
def all_zones() -> tuple[str, ...]:
    """Return every zone that has TPUs of any type."""
    return tuple(dict.fromkeys(zone for name in GENERATIONS for zone in zones(name)))


def all_regions() -> tuple[str, ...]:
    """Return every region that has TPUs of any type."""
    return tuple(dict.fromkeys(map(region_of, all_zones())))


def region_of(zone: str) -> str:
    """Return the region of a zone: `us-central2` for `us-central2-b`."""
    return zone.rpartition("-")[0]


def _no_such_type(type: str) -> str:
    shown = type if _TYPE.fullmatch(type) else repr(type[:40])
    if _TPU7X_OR_LATER.match(type.lower()):
        return (
            f"{shown}: TPU7x and later are offered by Compute Engine and Kubernetes Engine alone, which tpujob "
            f"does not drive yet; the newest type here is v6e"
        )
    near = nearest(type)
    if near:
        return f"{shown}: no such type; nearest: {', '.join(near)}"
    examples = ", ".join(f"{g.prefix}-{g.chip.sizes[-1]}" for g in GENERATIONS.values())
    return f"{shown}: no such type; there are types from each generation up to {examples}"


def nearest(type: str) -> tuple[str, ...]:
    """Return up to two known types: the nearest sizes of the same generation, or the nearest spelling."""
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
