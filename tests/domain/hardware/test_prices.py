"""Prices per hour against figures worked out by hand."""

from __future__ import annotations

import pytest

from tpujob.domain.hardware import accelerators, prices
from tpujob.domain.hardware.prices import usd_per_hour
from tpujob.errors import BadSpec


@pytest.mark.parametrize(
    ("type", "zone", "pricing", "usd"),
    [
        ("v4-8", "us-central2-b", "on-demand", 12.88),  # 4 chips of 3.22
        ("v4-16", "us-central2-b", "spot", 7.372),  # 8 chips of 0.9215
        ("v4-16", "us-central2-b", "reserved", 25.76),  # as on demand
        ("v2-8", "us-central1-b", "on-demand", 4.5),  # the single device ...
        ("v2-32", "us-central1-a", "on-demand", 24.0),  # ... and the pod have their own price
        ("v3-8", "us-east1-d", "spot", None),  # no spot price is published
        ("v3-32", "us-east1-d", "on-demand", None),  # nobody knows
        ("v5e-8", "us-central1-a", "spot", 1.95944),
        ("v5litepod-8", "us-central1-a", "spot", 1.95944),
        ("v5p-8", "us-east5-a", "on-demand", 16.8),
        ("v6e-1", "us-south1-ai1b", "spot", 1.35),
        ("v6e-1", "us-central2-b", "spot", None),
        ("v6e-1", "nowhere-1-a", "spot", None),
    ],
)
def test_price_per_hour(type: str, zone: str, pricing: prices.Pricing, usd: float | None) -> None:
    assert usd_per_hour(type, zone, pricing) == usd


def test_several_slices_cost_so_many_times_as_much() -> None:
    assert usd_per_hour("v4-16", "us-central2-b", "spot", 3) == pytest.approx(3 * 7.372)
    assert usd_per_hour("v6e-1", "nowhere-1-a", "spot", 3) is None


def test_spot_is_cheaper_wherever_both_are_known() -> None:
    for type in accelerators.ALL:
        for zone in accelerators.zones(type):
            spot, full = (usd_per_hour(type, zone, how) for how in ("spot", "on-demand"))
            assert spot is None or (full is not None and 0 < spot < full), (type, zone)


def test_a_type_that_does_not_exist_has_no_price() -> None:
    with pytest.raises(BadSpec, match="nearest"):
        usd_per_hour("v4-15", "us-central2-b", "spot")
