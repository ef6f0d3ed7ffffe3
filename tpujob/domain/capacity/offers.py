"""Offers of a job: every (pricing, type, zone, provider) that its spec allows, in the order of preference.

Pure. All zones of a job are in the region of its bucket, so that every attempt finds its checkpoints nearby, unless the
spec allows traffic between regions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.generations import CLOUD_TPU, Generation
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.errors import BadSpec

if TYPE_CHECKING:
    from tpujob.domain.spec import JobSpec  # pydantic: only for who reads job files


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to get a slice for a job."""

    type: str
    zone: str
    pricing: str
    provider: str  #: the API that it is requested from
    #: what its hosts boot, as the provider names it: at Cloud TPU a runtime version
    system_image: str
    usd_per_hour: float | None  #: of all slices that are asked for; None: no price is known
    tpu_slices: int = 1

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Type, zone, pricing and provider: the answer to a request for one says nothing of another."""
        return self.type, self.zone, self.pricing, self.provider


#: types by zone, as the zones themselves list them
Listed = Mapping[str, Collection[str]]


def unsure(spec: JobSpec) -> tuple[str, ...]:
    """Return the zones of this spec whose own list must be read before the spec is accepted: the tables lack the zone
    or a type, or do not have them together."""
    types, zones = spec.tpu.types, spec.tpu.zones
    homeless = any(not any(accelerators.in_table(t, z) for z in zones) for t in types)
    return tuple(
        z for z in zones if homeless or not any(accelerators.in_table(t, z) for t in types)
    )


def offers(
    spec: JobSpec,
    *,
    region: str | None = None,
    listed: Listed | None = None,
    accepted: bool = False,
    prices: PriceList = LIST,
) -> tuple[Offer, ...]:
    """Return every way to get a slice for this job, the preferred first: by pricing, type, zone, then provider; never
    empty. A runtime version that the spec names is one of Cloud TPU, and is requested from that alone.

    `region` is the bucket's, where that is settled already. A spec without zones gets those of the bucket's region,
    else of the first region that has every type. `listed` counts more than the tables. `accepted`: that was checked
    when the job was made, by a list that may have known more. Raises BadSpec when types, zones and region do not go
    together."""
    types, zones = spec.tpu.types, spec.tpu.zones
    if zones and not accepted:
        _check_given(types, zones, listed or {})
    if not zones:
        region = _pick_region(types, region)
    return tuple(
        Offer(
            type=type,
            zone=zone,
            pricing=pricing,
            provider=row.provider,
            system_image=spec.tpu.runtime_version or row.system_image,
            usd_per_hour=prices.usd_per_hour(type, zone, pricing, spec.tpu.slices),
            tpu_slices=spec.tpu.slices,
        )
        for pricing in spec.tpu.pricings
        for type in types
        for zone in zones or accelerators.zones(type)
        if zones or region_of(zone) == region
        if _go_together(type, zone, types, zones)
        for row in _rows(type, zone)
        if row.provider == CLOUD_TPU or not spec.tpu.runtime_version
    )


def _rows(type: str, zone: str) -> list[Generation]:
    """Return the type's row of each provider that lists it in the zone; of each that has it, where none does: the
    cloud's own list has accepted the zone."""
    offered = accelerators.offered_by_each(type)
    here = [facts for facts in offered if zone in facts.zones]
    return [facts.row for facts in here or offered]


def _go_together(type: str, zone: str, types: Sequence[str], zones: Sequence[str]) -> bool:
    """Return whether to request that type in that zone. The cloud's own list has accepted a zone with none of the job's
    types in our tables, and a type with none of its zones in them."""
    return (
        accelerators.may_have(type, zone)
        or not any(accelerators.may_have(other, zone) for other in types)
        or not any(accelerators.may_have(type, other) for other in zones)
    )


def _check_given(types: Sequence[str], zones: Sequence[str], listed: Listed) -> None:
    def has(zone: str, type: str) -> bool:
        return type in listed[zone] if zone in listed else accelerators.may_have(type, zone)

    for zone in zones:
        if not any(has(zone, type) for type in types):
            offers = "; ".join(f"{type} is offered in {zones_of(type)}" for type in types)
            raise BadSpec(f"tpu.zones: {zone} has no {' or '.join(types)}. {offers}")
    for type in types:
        if not any(has(zone, type) for zone in zones):
            raise BadSpec(
                f"tpu.type: none of tpu.zones ({', '.join(zones)}) has {type}. "
                f"It is offered in {zones_of(type)}"
            )


def _pick_region(types: Sequence[str], region: str | None) -> str:
    for type in types:
        if not accelerators.zones(type):
            near = ", ".join(accelerators.likely(type))
            meant = f"; nearest: {near}" if near else ""
            raise BadSpec(
                f"tpu.type: {type}: no such type is known{meant}. If Google Cloud offers it, name its zone in tpu.zones"
            )
    common = [
        candidate
        for candidate in _regions(types[0])
        if all(candidate in _regions(type) for type in types)
    ]
    if not common:
        offers = "; ".join(f"{type} in {', '.join(_regions(type))}" for type in types)
        raise BadSpec(f"tpu.type: no region has all of {', '.join(types)}: {offers}")
    if region is None:
        return common[0]
    if region.lower() not in common:
        raise BadSpec(
            f"tpu.type: {' and '.join(types)} are not offered in {region}, where the job's bucket is, "
            f"but in {', '.join(common)}. Use a bucket there"
        )
    return region.lower()


def _regions(type: str) -> list[str]:
    return list(dict.fromkeys(region_of(zone) for zone in accelerators.zones(type)))


def zones_of(type: str) -> str:
    """Return the usual zones of a type, as text for people."""
    zones, near = accelerators.zones(type), accelerators.likely(type)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    more = f" and {len(zones) - 6} more" if len(zones) > 6 else ""
    return f"{', '.join(zones[:6])}{more}" if zones else f"no zone that tpujob knows{meant}"
