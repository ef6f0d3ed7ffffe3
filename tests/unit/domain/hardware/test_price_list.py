"""Storage, traffic and the control plane against the price pages' own figures; and what every row must have."""

from datetime import date
from decimal import Decimal

import pytest

from tpujob.domain.hardware.price_rows import ITEMS, item
from tpujob.domain.hardware.prices import GIB, HOURS_A_MONTH, LIST, Price, Source, flaws, micros
from tpujob.domain.hardware.service_prices import FREE

D = Decimal


@pytest.mark.parametrize("location", ["us-central1", "US-CENTRAL1"])
def test_storage_costs_what_the_page_quotes_by_the_hour(location: str) -> None:
    price = LIST.storage(location)
    assert abs(price.of(1) / HOURS_A_MONTH - D("0.000027397")) < D("0.000000001")


def test_storage_of_other_places() -> None:
    standard = {p.where: p.usd for p in LIST if p.item == "storage standard"}
    assert len(standard) == 38
    assert (standard["us-west4"], standard["southamerica-east1"]) == (D("0.023"), D("0.035"))
    assert (standard["eu"], standard["nam4"]) == (D("0.026"), 2 * D("0.022"))
    assert LIST.storage("mars-north1") is None, "unknown, not free"


def test_a_month_of_storage_and_its_operations() -> None:
    place = LIST.storage("us-central1")
    assert place.of(1024) == D("20.48")
    assert LIST.usd_of_operations(1_000_000, 1_000_000) == D("5.4")
    assert LIST.usd_of_operations(10_000_000, 10_000_000) == 50 + 4
    assert LIST.to_internet.of(100) == 12
    assert LIST.usd_of_traffic(50 * GIB, "us-central1", "europe-west4") == D("2.5")
    assert LIST.usd_of_traffic(50 * GIB, "us-central1", "us-central1") == 0


def test_a_route_of_its_own_counts_before_the_parts_of_the_world() -> None:
    own = Price("traffic", "us-central1 -> europe-west4", "", D("0.03"), "GiB", mine())
    assert LIST.over([own]).traffic("us-central1", "europe-west4").usd == D("0.03")
    assert LIST.over([own]).traffic("europe-west4", "us-central1").usd == D("0.05")


def test_a_route_from_a_part_of_the_world_to_anywhere_counts_either_way() -> None:
    own = Price("traffic", "Asia -> anywhere", "", D("0.01"), "GiB", mine())
    prices = LIST.over([own])
    assert prices.traffic("asia-east1", "us-central1").usd == D("0.01")
    assert prices.traffic("us-central1", "asia-east1").usd == D("0.01")
    assert prices.traffic("asia-east1", "asia-south1").usd == D("0.08"), "the pair is more exact"
    assert prices.traffic("us-central1", "us-east1").usd == D("0.02")
    mixed = Price("traffic", "us-central1 -> Europe", "", D("0.03"), "GiB", mine())
    assert LIST.over([mixed]).traffic("us-central1", "europe-west4").usd == D("0.03")


@pytest.mark.parametrize(
    ("name", "where", "pricing", "amount", "usd"),
    [
        ("external address", "", "on-demand", 64, "0.32"),  # a slice of 64 machines, an hour
        ("external address", "", "spot", 64, "0.16"),
        ("boot disk", "", "", 100, "3.94524"),  # of one machine, a month
        ("cloud run cpu, always on", "", "", 730 * 3600, "47.304"),
        ("cloud run memory, always on", "", "", 365 * 3600, "2.628"),  # half a GiB
        ("cloud run requests", "", "", 3_000_000, "1.2"),
        ("firestore reads", "us-central1", "", 17_280_000, "5.184"),  # 1,000 jobs every 5 s, a day
        ("firestore writes", "us-central1", "", 100_000, "0.09"),
        ("scheduler", "", "", 1, "0.1"),
    ],
)
def test_the_control_plane(name: str, where: str, pricing: str, amount: int, usd: str) -> None:
    price = LIST.find(name, where, pricing)
    assert price.of(amount) == D(usd)


def test_every_row_has_a_price_a_unit_and_a_dated_source() -> None:
    for row in LIST:
        kind = item(row.item)
        assert kind is not None, row
        assert row.usd > 0, f"{row.name}: no row is better than a price of 0"
        assert (row.unit, row.per, row.pricing in kind.pricings) == (kind.unit, kind.per, True), row
        assert bool(row.where) == bool(kind.where), row
        assert row.source.name, row
        assert date(2024, 1, 1) < row.source.as_of < date(2026, 11, 22), row
    assert {row.item for row in LIST} >= set(ITEMS), "nothing is named that has no price anywhere"
    assert FREE.usd == 0


def test_the_shipped_list_passes_its_own_lint() -> None:
    assert flaws(tuple(LIST), date(2026, 10, 16)) == []


def test_amounts_are_rounded_to_whole_micro_dollars_once() -> None:
    assert micros(D("0.0000005")) == 1
    assert micros(D("12.88")) == 12_880_000


def mine() -> Source:
    return Source("a contract", date(2026, 11, 20))
