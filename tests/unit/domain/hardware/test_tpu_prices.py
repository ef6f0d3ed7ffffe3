"""Prices per hour against a second, written-out table of whole slices, and against figures worked out by hand."""

import csv
from pathlib import Path

import pytest

from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.prices import LIST, sku_of

#: one type of every SKU and region, and what such a slice costs an hour; empty: nobody knows, or only a guess is known
TABLE = Path(__file__).with_name("slices_per_hour.csv")


#: keys of the price list that are of no TPU
OF_ADDRESSES = {("external address", "", pricing) for pricing in ("on-demand", "spot")}


def rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['type']}-{row['zone']}")
def test_a_row_of_the_table(row: dict[str, str]) -> None:
    assert accelerators.find(row["type"]).chips == int(row["chips"])
    for pricing, figure in (("on-demand", row["on_demand"]), ("spot", row["spot"])):
        usd = LIST.usd_per_hour(row["type"], row["zone"], pricing)
        assert usd == (float(figure) if figure else None), f"{pricing}: None is unknown, not free"


def test_the_second_table_has_every_price_of_the_list() -> None:
    priced = {
        (f"tpu {sku_of(row['type'])}", region_of(row["zone"]), pricing)
        for row in rows()
        for pricing in ("on-demand", "spot")
        if row[pricing.replace("-", "_")]
    }
    assert len(rows()) == 47
    assert priced == {p.key for p in LIST if p.pricing in ("on-demand", "spot")} - OF_ADDRESSES


@pytest.mark.parametrize(
    ("type", "zone", "pricing", "usd"),
    [
        ("v4-16", "us-central2-b", "reserved", 25.76),  # as on demand
        ("v5litepod-8", "us-central1-a", "spot", 1.95944),
        ("v6e-1", "us-south1-ai1b", "spot", 1.35),
        ("v6e-1", "us-central2-b", "spot", None),
        ("v6e-1", "nowhere-1-a", "spot", None),
        ("v5litepod-8", "us-west4-a", "flex-start", 4.8),
        ("v6e-16", "us-east5-b", "flex-start", 21.6),
        ("v6e-16", "us-central1-b", "flex-start", None),
        ("v5p-16", "us-east5-a", "flex-start", None),
        ("v6e-8", "us-east5-a", "calendar", 15.12),
        ("v6e-8", "europe-west4-a", "calendar", None),
    ],
)
def test_price_per_hour(type: str, zone: str, pricing: str, usd: float | None) -> None:
    assert LIST.usd_per_hour(type, zone, pricing) == usd


def test_the_unit_in_which_a_price_is_sold_is_kept() -> None:
    v4, v5e = (LIST.tpu(type, zone, "on-demand") for type, zone in
               (("v4-8", "us-central2-b"), ("v5e-8", "us-central1-a")))  # fmt: skip
    assert v4.quoted == "$12.88 for 8 cores an hour"
    assert v5e.quoted == "", "as it is listed"
