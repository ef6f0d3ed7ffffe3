"""Where a job may run, best first: every (type, zone) that its spec allows, in the order in which they are tried.

Pure. All zones of a job lie in one region, the one of its bucket, so that every attempt finds its checkpoints nearby,
unless its spec allows traffic between regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tpujob.domain.hardware import accelerators, prices
from tpujob.domain.hardware.accelerators import region_of as region_of
from tpujob.errors import BadSpec

if TYPE_CHECKING:
    from tpujob.domain.spec import JobSpec  # pydantic: only for who reads job files


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to get a slice for a job."""

    type: str
    zone: str
    pricing: Literal["spot", "on-demand", "reserved"]
    runtime_version: str
    usd_per_hour: float | None  #: of all slices that are asked for; None: no price is known


def offers(spec: JobSpec, *, region: str | None = None) -> tuple[Offer, ...]:
    """Every way to get a slice for this job, the preferred first: by type, then by zone; never empty.

    `region` is the bucket's, where that is settled already. A spec without zones gets those of the bucket's region,
    else of the first region that has every type. Raises BadSpec when types, zones and region do not go together."""
    types, zones = spec.tpu.types, spec.tpu.zones
    if zones:
        _check_given(types, zones, region, mixed=spec.tpu.cross_region)
    else:
        region = _pick_region(types, region)
    return tuple(
        Offer(
            type=type,
            zone=zone,
            pricing=spec.tpu.pricing,
            runtime_version=spec.tpu.runtime_version or accelerators.find(type).runtime_version,
            usd_per_hour=prices.usd_per_hour(type, zone, spec.tpu.pricing, spec.tpu.slices),
        )
        for type in types
        for zone in zones or _zones_in(type, region)
        if zone in accelerators.zones(type)
    )


def _check_given(
    types: Sequence[str], zones: Sequence[str], region: str | None, *, mixed: bool
) -> None:
    for zone in zones:
        if not any(zone in accelerators.zones(type) for type in types):
            offers = "; ".join(f"{type} is offered in {_listed(type)}" for type in types)
            raise BadSpec(f"tpu.zones: {zone} has no {' or '.join(types)}. {offers}")
    for type in types:
        if not any(zone in accelerators.zones(type) for zone in zones):
            raise BadSpec(
                f"tpu.type: none of tpu.zones ({', '.join(zones)}) has {type}. "
                f"It is offered in {_listed(type)}"
            )
    if mixed:
        return
    for zone in zones:
        if region is not None and region_of(zone) != region.lower():
            raise BadSpec(
                f"tpu.zones: {zone} lies in {region_of(zone)}, but the job's bucket in {region}. "
                f"Name zones of {region}, or a bucket in {region_of(zone)}"
            )
        if region_of(zone) != region_of(zones[0]):
            raise BadSpec(
                f"tpu.zones: {zones[0]} lies in {region_of(zones[0])}, but {zone} in {region_of(zone)}. "
                "All zones of a job must lie in one region, where its checkpoints are"
            )


def _pick_region(types: Sequence[str], region: str | None) -> str:
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
            f"tpu.type: {' and '.join(types)} cannot be had in {region}, where the job's bucket lies, "
            f"but in {', '.join(common)}. Use a bucket there"
        )
    return region.lower()


def _regions(type: str) -> list[str]:
    return list(dict.fromkeys(region_of(zone) for zone in accelerators.zones(type)))


def _zones_in(type: str, region: str | None) -> list[str]:
    return [zone for zone in accelerators.zones(type) if region_of(zone) == region]


def _listed(type: str) -> str:
    return ", ".join(accelerators.zones(type))
