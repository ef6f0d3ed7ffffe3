"""The row of a price, and the closed list of items that have prices. Other modules of this room have the tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from types import MappingProxyType
from typing import Literal

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.pricing import PRICINGS

Confidence = Literal["high", "medium", "low"]

GIB = 2**30
#: hours of a month on the price pages, by which Cloud Storage's GiB-hour becomes a GiB-month (documented)
HOURS_A_MONTH = 730


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a price, with the date when it was read."""

    name: str
    as_of: date
    confidence: Confidence = "high"


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an item at a place."""

    item: str  #: such as `tpu v5e` or `storage standard`: a key of `ITEMS`, or `tpu` and a SKU
    where: str  #: a region or another location, `FROM -> TO` for traffic; empty: everywhere
    #: for TPUs and addresses: a name in `PRICINGS`, or a commitment; else empty
    pricing: str
    usd: Decimal  #: dollars for `per` times `unit`
    unit: str  #: such as `chip-hour`
    source: Source
    per: int = 1
    quoted: str = ""  #: the seller's own price if it has another unit: `$12.88 for 8 cores an hour`
    note: str = ""
    own: bool = False  #: whether the row is from the user's file

    @property
    def key(self) -> tuple[str, str, str]:
        return self.item, self.where, self.pricing

    @property
    def name(self) -> str:
        """The name in messages: `tpu v5e, us-central1, spot`."""
        return ", ".join(word for word in self.key if word)

    @property
    def each(self) -> str:
        """The unit of `usd` in messages: `chip-hour`, `1,000 operations`."""
        return self.unit if self.per == 1 else f"{self.per:,} {self.unit}s"

    def record(self) -> dict[str, str | int | bool]:
        """Return the JSON form, `api.PriceView`."""
        return {
            "item": self.item,
            "where": self.where,
            "pricing": self.pricing,
            "usd": f"{self.usd.normalize():f}",
            "unit": self.unit,
            "per": self.per,
            "quoted": self.quoted,
            "source": self.source.name,
            "as_of": self.source.as_of.isoformat(),
            "confidence": self.source.confidence,
            "note": self.note,
            "own": self.own,
        }

    def of(self, amount: Decimal | int) -> Decimal:
        """Return the dollars of an amount of units, not rounded."""
        return self.usd * amount / self.per


def micros(usd: Decimal) -> int:
    """Return whole micro-dollars, rounded half up."""
    return int((usd * 1_000_000).to_integral_value(ROUND_HALF_UP))


# What can have a price -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Item:
    """The unit, the places and the terms of an item's prices."""

    unit: str
    per: int = 1
    where: Literal["", "location", "route"] = ""
    pricings: tuple[str, ...] = ("",)


ONE_YEAR, THREE_YEARS = "1-year commitment", "3-year commitment"
TPU = Item("chip-hour", where="location", pricings=(*PRICINGS, ONE_YEAR, THREE_YEARS))

#: all other items, by name
ITEMS: Mapping[str, Item] = MappingProxyType(
    {
        "storage standard": Item("GiB-month", where="location"),
        "operations class A": Item("operation", 1000),
        "operations class B": Item("operation", 1000),
        "traffic": Item("GiB", where="route"),
        "traffic to the internet": Item("GiB"),
        "external address": Item("hour", pricings=("on-demand", "spot")),
        "boot disk": Item("GiB-month"),
        "cloud run cpu": Item("vCPU-second"),
        "cloud run cpu, always on": Item("vCPU-second"),
        "cloud run memory": Item("GiB-second"),
        "cloud run memory, always on": Item("GiB-second"),
        "cloud run requests": Item("request", 1_000_000),
        "firestore reads": Item("document", 100_000, where="location"),
        "firestore writes": Item("document", 100_000, where="location"),
        "firestore deletes": Item("document", 100_000, where="location"),
        "scheduler": Item("job-month"),
    }
)


def sku_of(type: str) -> str:
    """Return the SKU of a type: its generation; for v2 and v3 with `device` (one host) or `pod`. Raise BadSpec."""
    accelerator = accelerators.find(type)
    if accelerator.generation not in ("v2", "v3"):
        return accelerator.generation
    return f"{accelerator.generation} {'device' if accelerator.hosts == 1 else 'pod'}"


def item(name: str) -> Item | None:
    """Return the item of that name; None: no such item has a price."""
    if not name.startswith("tpu "):
        return ITEMS.get(name)
    generation, _, kind = name.removeprefix("tpu ").partition(" ")
    kinds = ("device", "pod") if generation in ("v2", "v3") else ("",)
    return TPU if accelerators.generation(generation) and kind in kinds else None
