"""Price lists with their look-ups: the shipped list, which a user's own rows may replace in part. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from tpujob.domain.hardware import accelerators, service_prices, tpu_prices
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.price_rows import GIB, Price, sku_of
from tpujob.domain.hardware.pricing import find_pricing

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, eq=False)
class PriceList:
    """Prices by item, place and pricing."""

    by_key: Mapping[Key, Price]

    def __iter__(self) -> Iterator[Price]:
        return iter(self.by_key.values())

    def over(self, own: Iterable[Price]) -> PriceList:
        """Return the list with these rows added; they replace rows with the same key."""
        return PriceList(MappingProxyType({**self.by_key, **{row.key: row for row in own}}))

    def find(self, item: str, where: str = "", pricing: str = "") -> Price | None:
        """Return the price with exactly this key; None: unknown."""
        return self.by_key.get((item, where.lower(), pricing))

    # TPUs ------------------------------------------------------------------------------------------------------------

    def tpu(self, type: str, zone: str, pricing: str) -> Price | None:
        """Return the price of a chip-hour of the type in the zone; None: unknown. Without a row for it, it is
        the price of `Pricing.priced_as`. Raise BadSpec for an invalid type."""
        item, region = f"tpu {sku_of(type)}", region_of(zone)
        return self.find(item, region, pricing) or self.find(
            item, region, find_pricing(pricing).priced_as
        )

    def usd_per_hour(self, type: str, zone: str, pricing: str, slices: int = 1) -> float | None:
        """Return the dollars an hour of slices of the type; None: unknown price. Raise BadSpec for an invalid type."""
        price = self.tpu(type, zone, pricing)
        if price is None:
            return None
        return round(float(price.of(accelerators.find(type).chips * slices)), 6)

    # Storage and traffic ---------------------------------------------------------------------------------------------

    def storage(self, location: str) -> Price | None:
        """Return the price of a GiB-month of Standard storage in a region, a pair of regions or a continent."""
        return self.find("storage standard", location)

    @property
    def class_a(self) -> Price:
        return self.by_key["operations class A", "", ""]

    @property
    def class_b(self) -> Price:
        return self.by_key["operations class B", "", ""]

    def usd_of_operations(self, class_a: int, class_b: int) -> Decimal:
        """Return the dollars of operations on a bucket of one region, Standard storage."""
        return self.class_a.of(class_a) + self.class_b.of(class_b)

    def traffic(self, location: str, region: str) -> Price:
        """Return the price of a GiB from a bucket at `location` (a region, or a continent such as `us`) to the region.
        Free within a region. A route that is not listed has the price of a more general one."""
        origin, target = location.lower(), region.lower()
        if origin == target:
            return service_prices.FREE
        prices = (
            self.by_key.get(("traffic", route, ""))
            for route in service_prices.routes(origin, target)
        )
        return next(price for price in prices if price is not None)

    def usd_of_traffic(self, size: int, location: str, region: str) -> Decimal:
        """Return the dollars of `size` bytes from a bucket at `location` to the region."""
        return self.traffic(location, region).of(Decimal(size) / GIB)

    @property
    def to_internet(self) -> Price:
        return self.by_key["traffic to the internet", "", ""]


_ROWS = (*tpu_prices.rows(), *service_prices.rows())
#: the price list that tpujob ships
LIST = PriceList(MappingProxyType({row.key: row for row in _ROWS}))
