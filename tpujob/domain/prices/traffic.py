"""What a GiB costs that leaves a bucket's region. One matrix for copies and for reads from afar.

No current matrix of Google's is at hand: these are list prices as others quote them, by parts of the world. A part is
read off a location's name. A bucket of a whole continent is billed as another region of it (since 2022-10, seen on
public bills).
"""

from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Final

from tpujob.domain.prices.rows import Price, Source

_PAGE = Source("cloud.google.com/storage/pricing", date(2026, 9, 20))
_OTHERS = Source(
    "tables of MongoDB, skyplane and infracost, set side by side", date(2026, 9, 20), "medium"
)
_ONE = Source("one table of MongoDB's", date(2026, 9, 20), "low")

#: Whatever goes from one of these to the other, either way; an empty name is any part without a row of its own.
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


def rows() -> Iterator[Price]:
    """The matrix, each pair once, and the way to the internet."""
    for here, there, usd, source, note in _MATRIX:
        yield Price("traffic", route(here, there), "", Decimal(usd), "GiB", source, note=note)
    note = "the first 10 TiB of a month"
    yield Price("traffic to the internet", "", "", Decimal("0.12"), "GiB", _PAGE, note=note)


def route(here: str, there: str) -> str:
    return f"{here or 'anywhere'} -> {there or 'anywhere'}"


def routes(location: str, region: str) -> tuple[str, ...]:
    """The rows that may price traffic from a location to a region, the most exact first. Those of parts of the world
    hold either way."""
    here, there = _part(location), _part(region)
    return (
        route(location, region),
        route(location, there),
        route(here, region),
        *(route(*pair) for pair in ((here, there), (there, here))),
        *(route(location, ""), route("", region)),
        *(route(part, "") for part in (here, there)),
        *(route("", part) for part in (here, there)),
        route("", ""),
    )


def _part(location: str) -> str:
    word = location.lower().partition("-")[0].rstrip("0123456789")
    return PARTS.get(word, word)
