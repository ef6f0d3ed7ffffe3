"""Estimates against sums by hand: parts add up, a grant covers whole slices, and nothing unknown is 0."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.records import job_in
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.model import Grant, Slice, State
from tpujob.domain.money.estimate import estimate, sums
from tpujob.domain.money.estimate_shapes import (
    CostKind,
    DataToCopy,
    Estimate,
    EstimateLine,
    Surroundings,
    Use,
)
from tpujob.domain.money.ledger import covered, in_use, usd

V4 = Use("v4-8", "us-central2-b", "on-demand", "us-central2", hours=Decimal(1))
SPOT = replace(V4, type="v4-16", pricing="spot", hours=Decimal(3))
GRANT = Grant("v4", "us-central2-b", "spot", 8)
CLOUD = Surroundings(cloud_run="always", firestore=True)


def line(cost: Estimate, text: str) -> EstimateLine:
    return next(entry for entry in cost.lines if text in entry.what)


def test_a_v4_8_costs_12_88_an_hour() -> None:
    cost = estimate(V4)
    assert line(cost, "v4-8").list_micros == 12_880_000
    assert line(cost, "boot disks").list_micros == 5_404  # 100 GiB x $0.0394524 / 730 h
    assert line(cost, "external addresses").list_micros == 5_000
    assert line(cost, "reports").list_micros == 300  # 60 x $0.005 / 1,000
    assert line(cost, "logs").list_micros == 60
    assert line(cost, "lists").list_micros == 4_500  # 900 x $0.005 / 1,000
    assert cost.list_micros == cost.pay_micros == 12_880_000 + 5_404 + 5_000 + 300 + 60 + 4_500
    assert (
        sums(cost)
        == "$12.88 slices + $0.01 machines + $0.0049 operations = $12.90, and unknown costs"
    )


def test_an_amount_that_is_not_stated_is_named_and_in_no_sum() -> None:
    cost = estimate(V4)
    assert [(entry.what, entry.note) for entry in cost.unknown] == [
        ("what stays in the bucket, us-central2", "not stated: --stored-gib and --stored-days"),
        ("objects that the program writes", "not stated: --objects-written"),
        ("objects that the program reads", "not stated: --objects-read"),
    ]
    stated = replace(
        V4, stored_gib=Decimal(0), stored_days=Decimal(0), objects_written=0, objects_read=0
    )
    assert estimate(stated).unknown == ()
    assert estimate(stated).list_micros == cost.list_micros


@pytest.mark.parametrize(
    ("stated", "text", "micros"),
    [
        # 500 GiB x 30 d x 24 h / 730 h x $0.020
        ({"stored_gib": Decimal(500), "stored_days": Decimal(30)}, "what stays", 9_863_014),
        ({"objects_written": 10**6}, "program writes", 5_000_000),  # x $0.005 / 1,000
        ({"objects_read": 90 * 10**6}, "program reads", 36_000_000),  # x $0.0004 / 1,000
        ({"type": "v4-512"}, "external addresses", 320_000),  # 64 hosts x $0.005
        ({"type": "v4-512"}, "reports of hosts", 19_200),  # 64 x 60 x $0.005 / 1,000
    ],
)
def test_a_line_is_an_amount_times_a_price(stated: dict[str, Any], text: str, micros: int) -> None:
    assert line(estimate(replace(V4, **stated)), text).list_micros == micros


def test_without_a_length_the_estimate_is_of_one_hour() -> None:
    cost = estimate(replace(V4, hours=None))
    assert cost.use.hours is None
    assert cost.lines == estimate(V4).lines


@pytest.mark.parametrize(
    ("grants", "pay"),
    [
        ((), 22_116_000),  # 8 chips x 3 h x $0.9215
        ((GRANT,), 0),
        ((replace(GRANT, chips=7),), 22_116_000),
        ((replace(GRANT, chips=4), replace(GRANT, chips=4)), 0),
        ((replace(GRANT, pricing="on-demand"),), 22_116_000),
        ((replace(GRANT, zone="us-central2-a"),), 22_116_000),
        ((replace(GRANT, generation="v5e"),), 22_116_000),
    ],
)
def test_a_grant_is_for_its_type_zone_and_pricing_only(grants: tuple[Grant, ...], pay: int) -> None:
    cost = estimate(replace(SPOT, grants=grants))
    slices = line(cost, "v4-16")
    assert (slices.list_micros, slices.pay_micros) == (22_116_000, pay)
    rest = cost.list_micros - 22_116_000
    assert cost.pay_micros == pay + rest, "disks, addresses and operations are always billed"
    assert rest > 0


def test_multislice_counts_every_slice_and_a_grant_covers_all_of_them_or_none() -> None:
    cost = estimate(replace(SPOT, slices=2, grants=(GRANT,)))
    assert line(cost, "2 x v4-16").pay_micros == 44_232_000
    assert "too few" in line(cost, "2 x v4-16").note
    assert line(cost, "external").list_micros == 4 * 3 * 2_500


def test_an_unknown_price_makes_the_sum_unknown() -> None:
    cost = estimate(replace(V4, type="v6e-8", grants=(replace(GRANT, generation="v6e"),)))
    slices = line(cost, "v6e-8")
    assert (slices.list_micros, slices.pay_micros, cost.priced) == (None, None, False)
    assert slices.note == "no price is known for on-demand v6e-8 in us-central2-b"
    assert "unknown costs" in sums(cost)


def test_removing_one_price_makes_its_lines_unknown_and_changes_no_other() -> None:
    use = replace(SPOT, around=CLOUD, stored_gib=Decimal(10), stored_days=Decimal(30))
    full = estimate(use)
    for gone in {entry.price.key for entry in full.lines if entry.price}:
        if "operations" in gone[0]:
            continue  # every list has those
        less = estimate(
            use, PriceList({key: row for key, row in LIST.by_key.items() if key != gone})
        )
        for before, after in zip(full.lines, less.lines, strict=True):
            lost = before.price is not None and before.price.key == gone
            assert after.known == (before.known and not lost) or after.price, before.what
            assert after.list_micros != 0 or before.list_micros == 0, "never 0 for want of a price"


def test_traffic_is_free_within_a_region_and_priced_both_ways_between_two() -> None:
    assert line(estimate(V4), "between bucket").list_micros == 0
    away = replace(V4, location="europe-west4", read_gib=Decimal(100), written_gib=Decimal(40))
    cost = estimate(away)
    assert line(cost, "reads, europe-west4 to us-central2").list_micros == 5_000_000
    assert line(cost, "writes, us-central2 to europe-west4").list_micros == 2_000_000
    assert [entry.note for entry in estimate(replace(away, read_gib=None)).unknown][
        -1
    ] == "not stated: --read-gib"
    assert line(estimate(replace(away, location="us")), "reads, us to").list_micros == 2_000_000


def test_a_deployed_backend_is_in_it() -> None:
    cost = estimate(replace(V4, hours=Decimal(730), around=CLOUD))
    assert cost.pay_of(CostKind.CONTROL) == sum(
        (
            47_304_000,  # 2,628,000 vCPU-s x $0.000018
            5_256_000,  # 2,628,000 GiB-s x $0.000002
            50_370,  # 167,900 reads x $0.03 / 100,000
            65_700,  # 73,000 writes x $0.09 / 100,000
            73,  # 730 deletes x $0.01 / 100,000
        )
    )
    called = estimate(replace(V4, hours=Decimal(730), around=Surroundings(cloud_run="called")))
    assert called.pay_of(CostKind.CONTROL) == 2_102_400 + 219_000 + 17_520 + 200_000
    assert estimate(V4).pay_of(CostKind.CONTROL) == 0


@given(
    type=st.sampled_from(sorted(accelerators.ALL)),
    pricing=st.sampled_from(["spot", "on-demand", "reserved"]),
    hours=st.decimals(0, 1000, places=4),
    slices=st.integers(1, 8),
    chips=st.integers(0, 512),
    data=st.data(),
)
def test_parts_add_up_and_the_payment_is_at_most_the_list_value(
    type: str, pricing: str, hours: Decimal, slices: int, chips: int, data: st.DataObject
) -> None:
    zone = data.draw(st.sampled_from(accelerators.zones(type)))
    grant = Grant(accelerators.find(type).generation, zone, pricing, chips)
    location = data.draw(st.sampled_from(["us-central2", "europe-west4", "us", "mars-north1"]))
    use = Use(type, zone, pricing, location, slices, hours, (grant,), around=CLOUD)
    cost = estimate(use)
    assert cost.list_micros == sum(entry.list_micros or 0 for entry in cost.lines)
    assert cost.pay_micros == sum(cost.pay_of(kind) for kind in CostKind)
    assert 0 <= cost.pay_micros <= cost.list_micros
    for entry in cost.lines:
        assert entry.known or entry.pay_micros in (None, 0), "0: a grant pays, whatever it costs"
        assert entry.known or entry.note
        if entry.price and entry.amount is not None and entry.list_micros is not None:
            exact = entry.price.usd * entry.amount / entry.price.per * 1_000_000
            assert abs(entry.list_micros - exact) <= Decimal("0.5")


# Estimate and ledger -------------------------------------------------------------------------------------------------


def test_what_a_grant_already_pays_for_is_not_free_again() -> None:
    held = Slice(
        "a", 1, "v4-16", "us-central2-b", "spot", CLOUD_TPU, "r", 7.372, 900.0, ready_at=1000.0
    )
    job = replace(job_in(State.SUCCEEDED), slices=(held,), grants=(GRANT,))
    taken = in_use([job])
    assert taken == {("v4", "us-central2-b", "spot"): 8}
    assert not in_use([replace(job, slices=(replace(held, gone_at=2000.0),))])
    use = replace(SPOT, type="v4-8", granted_in_use=taken)
    eight, twelve = (replace(use, grants=(replace(GRANT, chips=chips),)) for chips in (8, 12))
    assert line(estimate(eight), "v4-8").pay_micros == 11_058_000
    assert "of 8 granted chips, 8 pay for other slices now" in line(estimate(eight), "v4-8").note
    assert line(estimate(twelve), "v4-8").pay_micros == 0


def test_reserved_capacity_says_that_its_price_is_the_one_on_demand() -> None:
    note = line(estimate(replace(V4, pricing="reserved")), "v4-8").note
    assert note == "priced as on-demand: what a reservation costs is in its contract"


def test_data_that_is_copied_first_is_in_it_with_what_keeping_it_costs() -> None:
    data = DataToCopy("fineweb", "us-central1", "europe-west4", 1_000_000, 500 * 2**30)
    away = replace(V4, type="v6e-8", zone="europe-west4-a", location="europe-west4", copies=(data,))
    copied = line(estimate(away), "copy of fineweb, us-central1 to europe-west4")
    assert copied.list_micros == copied.pay_micros == 25_000_000  # 500 GiB x $0.05
    assert copied.note == "keeping it costs $10.00 a month"
    operations = [entry for entry in estimate(away).lines if entry.what == "copy of fineweb"]
    assert [entry.list_micros for entry in operations] == [5_000_000]


@pytest.mark.parametrize("chips", [0, 23, 24])
@pytest.mark.parametrize("pricing", ["spot", "on-demand", "reserved"])
def test_the_ledger_bills_what_was_estimated(pricing: str, chips: int) -> None:
    type, zone, seconds = "v4-16", "us-central2-b", 5000.5
    grants = (Grant("v4", zone, pricing, chips),)
    use = Use(type, zone, pricing, "us-central2", 3, Decimal(str(seconds)) / 3600, grants)
    held = Slice(
        "s", 1, type, zone, pricing, CLOUD_TPU, "r", LIST.usd_per_hour(type, zone, pricing, 3), 900.0,
        ready_at=1000.0, gone_at=1000.0 + seconds, tpu_slices=3,
    )  # fmt: skip
    job = replace(job_in(State.SUCCEEDED), slices=(held,), grants=grants)
    slices, billed = estimate(use).lines[0], usd(job.slices, 9000.0)
    assert slices.list_micros == pytest.approx((billed or 0) * 1e6, abs=1)
    assert (slices.pay_micros == 0) is bool(covered([job])) is (chips == 24), "both, or neither"
