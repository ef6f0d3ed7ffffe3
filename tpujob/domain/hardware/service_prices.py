"""Prices beside TPU time: storage, traffic, disks, addresses, and the services of a deployed backend.

Deletions are free (documented). Free monthly amounts are not subtracted. Google publishes no current matrix of traffic:
these are list prices that others quote, by parts of the world, which follow from a location's name. A bucket of a
continent is billed as another region of the continent (since 2022-10, seen on public bills).
"""

from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from tpujob.domain.hardware.price_rows import ITEMS, Price, Source

_PAGE = Source("cloud.google.com/storage/pricing", date(2026, 9, 20))
_LIST = Source("Cyclenerd's table of the Cloud Billing SKUs at 0166a59", date(2026, 9, 20))
_ASSUMED = Source("no list has this region: assumed as us-central1", date(2026, 9, 20), "low")

#: dollars for a GiB-month of Standard storage; the first is the page's $0.000027397 for a GiB-hour
_STANDARD: Final = {
    "0.020": "us-central1 us-east1 us-east5 us-south1 us-west1 europe-north1 europe-west1 europe-west4 "
    "asia-east1 asia-southeast1",
    "0.021": "me-west1",
    "0.023": "us-east4 us-west2 us-west3 us-west4 northamerica-northeast1 europe-central2 europe-southwest1 "
    "europe-west2 europe-west3 asia-east2 asia-northeast1 asia-northeast2 asia-northeast3 asia-south1 asia-south2 "
    "asia-southeast2 australia-southeast1",
    "0.025": "africa-south1 europe-west6",
    "0.026": "us eu asia",
    "0.030": "southamerica-west1",
    "0.035": "southamerica-east1",
    "0.044": "nam4 eur4",
}
_DUAL = "0.022 in each of two regions"
_OPERATIONS = {"A": "0.0050", "B": "0.0004"}


def _storage_rows() -> Iterator[Price]:
    for usd, places in _STANDARD.items():
        for place in places.split():
            source = _PAGE if place == "us-central1" else _LIST
            note = _DUAL if place in ("nam4", "eur4") else ""
            yield _row("storage standard", usd, source, where=place, note=note)
    yield _row("storage standard", "0.020", _ASSUMED, where="us-central2")
    for letter, usd in _OPERATIONS.items():
        note = "Standard storage in one region"
        yield _row(f"operations class {letter}", usd, _PAGE, note=note)


_OTHERS = Source(
    "tables of MongoDB, skyplane and infracost, set side by side", date(2026, 9, 20), "medium"
)
_ONE = Source("one table of MongoDB's", date(2026, 9, 20), "low")

#: traffic between two parts of the world, in either direction; an empty name is any part without another row
_MATRIX: Final[tuple[tuple[str, str, str, Source, str], ...]] = (
    ("North America", "North America", "0.02", _OTHERS, "lists from before 2022-10 say 0.01"),
    ("Europe", "Europe", "0.02", _OTHERS, ""),
    ("Asia", "Asia", "0.08", _ONE, "older lists say 0.05"),
    ("South America", "South America", "0.08", _OTHERS, ""),
    ("North America", "Europe", "0.05", _OTHERS, "older lists say 0.08"),
    ("Oceania", "", "0.15", _OTHERS, ""),
    ("", "", "0.08", _OTHERS, ""),
)
PARTS: Mapping[str, str] = MappingProxyType(
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
FREE = Price("traffic", "within a region", "", Decimal(0), "GiB", _PAGE)


def route(origin: str, target: str) -> str:
    return f"{origin or 'anywhere'} -> {target or 'anywhere'}"


def routes(location: str, region: str) -> tuple[str, ...]:
    """Return the routes that may price traffic from a location to a region, the most exact first."""
    words = (name.lower().partition("-")[0].rstrip("0123456789") for name in (location, region))
    origin, target = (PARTS.get(word, word) for word in words)
    pairs = (
        (location, region), (location, target), (origin, region), (origin, target), (target, origin),
        (location, ""), ("", region), (origin, ""), (target, ""), ("", origin), ("", target), ("", ""),
    )  # fmt: skip
    return tuple(route(*pair) for pair in pairs)


_READ = date(2026, 9, 20)
_RUN = Source("cloud.google.com/run/pricing, tier 1", _READ)
_RUN_QUOTED = Source("cloud.google.com/run/pricing, as quoted", _READ, "medium")
_REGIONAL = Source("a guide of Airbyte's", _READ, "medium")
_HALF = Source("half of the price in several regions", _READ, "low")
_ADDRESSES = Source("a wiki that cites Google's page of 2026-10-16", date(2026, 10, 16), "medium")
_DISKS = Source("a manual for users of TPUs", _READ, "medium")
_SCHEDULER = Source("cloud.google.com/scheduler/pricing", _READ)


def _service_rows() -> Iterator[Price]:
    yield _row("external address", "0.005", _ADDRESSES, pricing="on-demand")
    yield _row("external address", "0.0025", _ADDRESSES, pricing="spot")
    yield _row("boot disk", "0.0394524", _DISKS, note="pd-standard; a TPU VM has 100 GiB")
    yield _row("cloud run cpu", "0.000024", _RUN)
    yield _row("cloud run cpu, always on", "0.000018", _RUN)
    yield _row("cloud run memory", "0.0000025", _RUN)
    yield _row("cloud run memory, always on", "0.000002", _RUN_QUOTED)
    yield _row("cloud run requests", "0.40", _RUN)
    for kind, usd, source in (
        ("reads", "0.03", _REGIONAL),
        ("writes", "0.09", _REGIONAL),
        ("deletes", "0.01", _HALF),
    ):
        note = "taken for every single region"
        yield _row(f"firestore {kind}", usd, source, where="us-central1", note=note)
    yield _row("scheduler", "0.10", _SCHEDULER, note="three for each billing account are free")


def _row(
    name: str, usd: str, source: Source, *, where: str = "", pricing: str = "", note: str = ""
) -> Price:
    kind = ITEMS[name]
    return Price(name, where, pricing, Decimal(usd), kind.unit, source, kind.per, note=note)


def rows() -> Iterator[Price]:
    """Yield every known price of the tables."""
    yield from _storage_rows()
    for origin, target, usd, source, note in _MATRIX:
        yield _row("traffic", usd, source, where=route(origin, target), note=note)
    yield _row("traffic to the internet", "0.12", _PAGE, note="the first 10 TiB of a month")
    yield from _service_rows()
