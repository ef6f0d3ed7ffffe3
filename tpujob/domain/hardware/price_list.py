"""A price list, and how a price is found in it: the shipped one, and the same with a user's own rows over it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from tpujob.domain.hardware import accelerators, service_prices, tpu_prices
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.price_rows import GIB, Price, Pricing, sku_of

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, eq=False)
class PriceList:
    """Prices by item, place and pricing."""

    by_key: Mapping[Key, Price]

    def __iter__(self) -> Iterator[Price]:
        return iter(self.by_key.values())

    def over(self, own: Iterable[Price]) -> PriceList:
        """The same with these rows in place of those for the same thing, or added."""
        return PriceList(MappingProxyType({**self.by_key, **{row.key: row for row in own}}))

    def find(self, item: str, where: str = "", pricing: str = "") -> Price | None:
        """Return the row for exactly that; None: no such price is known."""
        return self.by_key.get((item, where.lower(), pricing))

    # TPUs ------------------------------------------------------------------------------------------------------------

    def tpu(self, type: str, zone: str, pricing: Pricing) -> Price | None:
        """For a chip-hour of that type in that zone; None: not known. Reserved capacity is priced as on-demand, unless
        the user's file has a row for it: what a commitment saves is in its contract. Raises BadSpec for what can be no
        type."""
        item, region = f"tpu {sku_of(type)}", region_of(zone)
        found = self.find(item, region, pricing)
        return (
            self.find(item, region, "on-demand") if not found and pricing == "reserved" else found
        )

    def usd_per_hour(self, type: str, zone: str, pricing: Pricing, slices: int = 1) -> float | None:
        """What so many slices of that type cost per hour in that zone; None when no price is known. Raises BadSpec for
        what can be no type."""
        price = self.tpu(type, zone, pricing)
        if price is None:
            return None
        return round(float(price.of(accelerators.find(type).chips * slices)), 6)

    # Storage and traffic ---------------------------------------------------------------------------------------------

    def storage(self, location: str) -> Price | None:
        """For a GiB-month of Standard storage in a region, a pair of regions or a continent."""
        return self.find("storage standard", location)

    @property
    def class_a(self) -> Price:
        return self.by_key["operations class A", "", ""]

    @property
    def class_b(self) -> Price:
        return self.by_key["operations class B", "", ""]

    def usd_of_operations(self, class_a: int, class_b: int) -> Decimal:
        """Dollars for so many operations on a bucket of one region, Standard storage."""
        return self.class_a.of(class_a) + self.class_b.of(class_b)

    def traffic(self, location: str, region: str) -> Price:
        """For a GiB from a bucket at `location` (a region, or a continent such as `us`) to that region; free within
        one. Where no route is listed, what the list has for any other."""
        here, there = location.lower(), region.lower()
        if here == there:
            return service_prices.FREE
        known = (
            self.by_key.get(("traffic", way, "")) for way in service_prices.routes(here, there)
        )
        return next(price for price in known if price is not None)

    def usd_of_traffic(self, size: int, location: str, region: str) -> Decimal:
        """Dollars for so many bytes from a bucket at `location` to that region."""
        return self.traffic(location, region).of(Decimal(size) / GIB)

    @property
    def to_internet(self) -> Price:
        return self.by_key["traffic to the internet", "", ""]


_ROWS = (*tpu_prices.rows(), *service_prices.rows())
#: what tpujob ships
LIST = PriceList(MappingProxyType({row.key: row for row in _ROWS}))
