"""What TPU time costs: a dated price list per chip-hour. An estimate, never a bill.

A slice is billed from the moment it is ready until it is gone; the machine of a TPU VM costs nothing extra, and
waiting in the cloud's queue is free. Disks, addresses and storage are not counted here; of traffic, only what a GiB
costs is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from tpujob.domain.hardware import accelerators

Pricing = Literal["spot", "on-demand", "reserved"]

# The list was put together in 2026-09. Spot prices move by 10% and more within a quarter.
#: SKU, then region, then US dollars per chip-hour: (on demand, spot). v2 and v3 have one SKU for slices of a single
#: host and one for pods. None, or a missing row: not published, or only a guess is known.
_PRICES: Mapping[str, Mapping[str, tuple[float | None, float | None]]] = MappingProxyType(
    {
        "v2 device": {
            "asia-east1": (1.305, 0.3915),
            "europe-west4": (1.2375, 0.315563),
            "us-central1": (1.125, 0.3375),
        },
        "v2 pod": {"europe-west4": (1.5, 0.3825), "us-central1": (1.5, 0.3825)},
        "v3 device": {
            "europe-west4": (2.2, 0.561),
            "us-central1": (2.0, 0.51),
            "us-east1": (2.0, None),
        },
        "v3 pod": {"europe-west4": (2.0, 0.66)},
        "v4": {"us-central2": (3.22, 0.9215)},
        "v5e": {
            "asia-east1": (1.38948, 0.55579),
            "asia-northeast1": (1.54104, 0.4244),
            "asia-southeast1": (1.56, 0.78),
            "europe-north1": (1.32132, 0.66066),
            "europe-west1": (1.32132, 0.52853),
            "europe-west3": (1.416, 0.38997),
            "europe-west4": (1.56, 0.44498),
            "northamerica-northeast1": (1.32132, 0.36389),
            "southamerica-west1": (1.716, 0.47259),
            "us-central1": (1.2, 0.24493),
            "us-east1": (1.2, 0.24493),
            "us-east4": (1.2, 0.6),
            "us-east5": (1.2, 0.6),
            "us-south1": (1.416, 0.5664),
            "us-west1": (1.2, 0.24493),
            "us-west4": (1.2, 0.48),
        },
        "v5p": {
            "europe-west1": (4.459455, 1.783783),
            "europe-west4": (4.2525, 1.34849),
            "us-central1": (4.2, 0.8357),
            "us-east1": (4.2, 0.8357),
            "us-east5": (4.2, 1.68),
            "us-south1": (4.779, 1.316137),
        },
        "v6e": {
            "asia-northeast1": (3.24, 0.94352),
            "asia-south1": (3.24, None),  # the listed spot price is a commitment's
            "asia-southeast1": (2.97, 0.36292),
            "europe-west4": (2.97, 1.03748),
            "southamerica-west1": (2.7, None),
            "us-central1": (2.7, 0.54421),
            "us-east1": (2.7, 0.54421),
            "us-east4": (2.7, 0.57766),
            "us-east5": (2.7, 1.215),
            "us-south1": (2.7, 1.35),
            "us-west1": (2.7, 0.54421),
        },
    }
)


#: US dollars for a GiB that is read from a bucket in one part of the world in another one. A part is read off a
#: region's name. From the same region it is free; a bucket of a whole continent is billed as another region of it.
#: No current matrix of Google's is at hand, so these are the list prices as others quote them.
_WITHIN: Mapping[str, float] = MappingProxyType(
    {"North America": 0.02, "Europe": 0.02, "Asia": 0.08, "South America": 0.08, "Oceania": 0.15}
)
_BETWEEN: Mapping[frozenset[str], float] = MappingProxyType(
    {frozenset(("North America", "Europe")): 0.05}
)
_TO_OCEANIA = 0.15
_ELSEWHERE = 0.08
_PARTS: Mapping[str, str] = MappingProxyType(
    {
        "us": "North America",
        "northamerica": "North America",
        "nam": "North America",
        "europe": "Europe",
        "eu": "Europe",
        "eur": "Europe",
        "asia": "Asia",
        "southamerica": "South America",
        "australia": "Oceania",
    }
)


def usd_per_gib(location: str, region: str) -> float:
    """What it costs to read a GiB of a bucket at `location` (a region, or a continent such as `us`) in that region."""
    if location.lower() == region.lower():
        return 0.0
    here, there = (_part(name) for name in (location, region))
    if here == there:
        return _WITHIN.get(here, _ELSEWHERE)
    if "Oceania" in (here, there):
        return _TO_OCEANIA
    return _BETWEEN.get(frozenset((here, there)), _ELSEWHERE)


def _part(location: str) -> str:
    word = location.lower().partition("-")[0].rstrip("0123456789")
    return _PARTS.get(word, word)


def usd_per_hour(type: str, zone: str, pricing: Pricing, slices: int = 1) -> float | None:
    """What so many slices of that type cost per hour in that zone; None when no price is known. Raises BadSpec for
    what can be no type. Reserved capacity is priced as on-demand: what a commitment saves is in its contract."""
    accelerator = accelerators.find(type)
    sku = accelerator.generation
    if sku in ("v2", "v3"):
        sku += " device" if accelerator.hosts == 1 else " pod"
    on_demand, spot = _PRICES.get(sku, {}).get(accelerators.region_of(zone), (None, None))
    per_chip = spot if pricing == "spot" else on_demand
    return None if per_chip is None else round(per_chip * accelerator.chips * slices, 6)
