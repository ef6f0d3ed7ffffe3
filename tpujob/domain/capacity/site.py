"""Settings of a context for the places of jobs and their files, applied to a job's own file.

Pure. The site decides the zones of a job that names none, its bucket, and the price of reading that bucket from
elsewhere. `offers.py` has the order of a job's offers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tpujob.domain.capacity.offers import zones_of
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.errors import BadSpec

if TYPE_CHECKING:
    from tpujob.domain.model import Grant
    from tpujob.domain.spec import JobSpec


#: start of the name of a bucket that is made on demand; its region follows
_MADE = "gs://tpujob-"


@dataclass(frozen=True, slots=True)
class Site:
    """One context's zones and buckets."""

    name: str
    zones: tuple[str, ...]  #: in order of preference; empty: every zone that has the type
    #: where jobs keep their files, by region: `gs://bucket` or a folder in one
    buckets: Mapping[str, str]
    made_on_demand: bool  #: a missing bucket is made at its first use
    grants: tuple[Grant, ...] = ()  #: chips that programmes pay for
    prices: PriceList = LIST  #: with the context's own prices
    #: whether programs of some users have an account that reaches only their own folder
    separate_accounts: bool = False
    proxied: bool = False  #: programs reach the buckets through the emulator's proxy

    def region_of_bucket(self, bucket: str) -> str | None:
        """Return the region of a bucket of this site; None: it is not a bucket of this site."""
        named = next((region for region, name in self.buckets.items() if name == bucket), None)
        region = bucket.removeprefix(_MADE)
        made = (
            self.made_on_demand and bucket != region and re.fullmatch(accelerators.REGION, region)
        )
        return named or (region if made else None)

    def bucket_in(self, region: str) -> str | None:
        """Return the bucket in that region, also one that is not made yet; None: there is none."""
        made = f"{_MADE}{region}" if self.made_on_demand else None
        return self.buckets.get(region, made)


#: the emulator's site: every zone, and buckets that are made on demand
EVERYWHERE = Site(
    name="local",
    zones=(),
    buckets=MappingProxyType({region: f"{_MADE}{region}" for region in accelerators.all_regions()}),
    made_on_demand=True,
    proxied=True,
)
#: variables, also in small letters, that lead a program's connections to other proxies, or past all of them
_PROXIES = frozenset({"HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})


def settled(spec: JobSpec, site: Site) -> JobSpec:
    """The spec with zones of this site where it names none. Raises BadSpec when the site has none for it, when there
    is no bucket in their region and traffic between regions is not allowed, with its price, and for variables that
    lead programs past the emulator's proxy."""
    if site.proxied:
        _check_proxies(spec)
    if spec.tpu.zones:
        zones = spec.tpu.zones
    elif site.zones:
        zones = _zones_of(spec, site)
    else:
        return spec
    _check_bucket(zones, spec.tpu.allow_cross_region, site)
    tpu = spec.tpu.model_copy(update={"zones": tuple(zones)})
    return spec.model_copy(update={"tpu": tpu})


def _check_proxies(spec: JobSpec) -> None:
    for key, names in (("env", spec.run.env), ("secrets", spec.run.secrets)):
        for name in names:
            if name.upper() in _PROXIES:
                raise BadSpec(
                    f"run.{key}: {name} would lead TensorFlow past the emulator, to Google's bucket of the same name",
                    hint="Leave it out on the local stack: programs there use the HTTPS_PROXY of `tpujob up`.",
                )


def home_region(zone: str, site: Site) -> str:
    """The region whose bucket is used from this zone: its own, else the one from where reading costs least.
    Raises BadSpec when the site has no bucket at all."""
    region = region_of(zone)
    if site.bucket_in(region):
        return region
    if not site.buckets:
        raise BadSpec(
            f"the context {site.name} has no bucket, and a job keeps its checkpoints in one",
            hint=f"tpujob bucket create --region {region}",
        )
    return min(site.buckets, key=lambda other: site.prices.traffic(other, region).usd)


def check_location(
    bucket: str,
    location: str,
    local: Collection[str],
    zones: Sequence[str],
    site: Site,
    *,
    allowed: bool,
) -> None:
    """Raises BadSpec when the bucket is really not local to one of the zones, unless that is allowed. `local`: the
    regions in which it is read without charge; none for a bucket of a whole continent."""
    where = location if local else f"{location}, a multi-region"
    for zone in zones:
        if region_of(zone) not in local and not allowed:
            raise BadSpec(
                f"the bucket {bucket} is in {where}, but {zone} in {region_of(zone)}: "
                f"{_price(location, zone, site.prices)}",
                hint=f"name zones of {' or '.join(sorted(local)) or 'another region'}, or a bucket in "
                f"{region_of(zone)} in the context; to pay for the traffic: allow_cross_region",
            )


def traffic(zones: Sequence[str], site: Site) -> list[str]:
    """Return a line about the traffic of each zone in whose region the site has no bucket."""
    notes: list[str] = []
    for zone in zones:
        home = home_region(zone, site)
        if home != region_of(zone):
            price = _price(home, zone, site.prices)
            notes.append(f"the bucket is in {home}; from {zone}, {price}")
    return notes


def _zones_of(spec: JobSpec, site: Site) -> list[str]:
    """The zones of the site that have one of the types: all of them if regions may be mixed, else those of the first
    region that has every type and a bucket; without a bucket anywhere, of the first that has every type."""
    types = spec.tpu.types
    having = [z for z in site.zones if any(accelerators.may_have(t, z) for t in types)]
    if not having:
        offers = "; ".join(f"{t} is offered in {zones_of(t)}" for t in types)
        raise BadSpec(
            f"tpu.type: no zone of the context {site.name} ({', '.join(site.zones)}) has "
            f"{' or '.join(types)}. {offers}",
            hint="add such a zone to the context, or name it in tpu.zones",
        )
    if spec.tpu.allow_cross_region:
        return having
    regions = dict.fromkeys(region_of(zone) for zone in having)
    whole = [
        region
        for region in regions
        if all(
            any(accelerators.may_have(t, z) for z in having if region_of(z) == region)
            for t in types
        )
    ]
    if not whole:
        raise BadSpec(
            f"tpu.type: no region of the context {site.name} has all of {', '.join(types)} in its zones "
            f"({', '.join(site.zones)})",
            hint="make a job of each type, or pay for traffic between regions: --allow-cross-region",
        )
    chosen = next((region for region in whole if region in site.buckets), whole[0])
    return [zone for zone in having if region_of(zone) == chosen]


def _check_bucket(zones: Sequence[str], allowed: bool, site: Site) -> None:
    for zone in zones:
        home = home_region(zone, site)
        if home != region_of(zone) and not allowed:
            raise BadSpec(
                f"tpu.zones: {zone} is in {region_of(zone)}, where the context {site.name} has no bucket. "
                f"From the nearest one, {site.buckets[home]} in {home}, {_price(home, zone, site.prices)}",
                hint=f"tpujob bucket create --region {region_of(zone)}; "
                "or pay for the traffic: tpujob create --allow-cross-region",
            )


def _price(location: str, zone: str, prices: PriceList) -> str:
    usd = prices.traffic(location, region_of(zone)).usd
    return f"each GiB that is read there costs ${usd:.2f} (${usd * 1024:,.0f} per TiB)"
