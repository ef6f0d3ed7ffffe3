"""Ten estimates by hand: each sum is right by itself, and is what the estimator says."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest

from tpujob.domain.model import Grant
from tpujob.domain.money.estimate import estimate
from tpujob.domain.money.estimate_shapes import Estimate, Use

D = Decimal
BIG = Use("v4-512", "us-central2-b", "on-demand", "us-central2", hours=D(1))
V5E = Use("v5e-8", "us-central1-a", "spot", "us-central1", hours=D(1))
GRANTED = Use(
    "v4-64", "us-central2-b", "spot", "us-central2", hours=D(100),
    grants=(Grant("v4", "us-central2-b", "spot", 32),),
)  # fmt: skip
#: what each example is of, and for lines of its estimate the sum by hand
EXAMPLES: list[tuple[Use, dict[str, str]]] = [
    (
        Use("v4-8", "us-central2-b", "on-demand", "us-central2", hours=D(1)),
        {"v4-8": "4 chips x 1 h x $3.22 = $12.88"},
    ),
    (
        Use("v4-16", "us-central2-b", "spot", "us-central2", hours=D(3)),
        {"v4-16": "8 chips x 3 h x $0.9215 = $22.116"},
    ),
    (
        Use("v6e-16", "europe-west4-a", "spot", "europe-west4", hours=D(24)),
        {"v6e-16": "16 chips x 24 h x $1.03748 = $398.39232"},
    ),
    (
        Use("v5p-8", "us-east5-a", "on-demand", "us-east5", 2, hours=D(10)),
        {"2 x v5p-8": "2 slices x 4 chips x 10 h x $4.20 = $336.00"},
    ),
    (
        GRANTED,
        {
            "v4-64": "32 chips x 100 h x $0.9215 = $2,948.80",
            "boot disks": "8 hosts x 100 GiB x 100 h / 730 h x $0.0394524 = $4.323551",
            "external addresses": "8 hosts x 100 h x $0.0025 = $2.00",
        },
    ),
    (BIG, {"external addresses": "64 hosts x 1 h x $0.005 = $0.32"}),
    (
        BIG,
        {
            "reports of hosts": "64 hosts x 60 reports x 1 h x $0.005 / 1000 = $0.0192",
            "logs of hosts": "64 hosts x 12 pieces of log x 1 h x $0.005 / 1000 = $0.00384",
        },
    ),
    (
        replace(V5E, stored_gib=D(500), stored_days=D(30)),
        {"what stays in the bucket": "500 GiB x 30 days x 24 h / 730 h x $0.020 = $9.863014"},
    ),
    (
        replace(V5E, objects_written=10**6, objects_read=90 * 10**6),
        {
            "program writes": "1,000,000 objects x $0.005 / 1000 = $5.00",
            "program reads": "90,000,000 objects x $0.0004 / 1000 = $36.00",
        },
    ),
    (
        Use("v6e-8", "europe-west4-a", "spot", "us-central1", hours=D(1), read_gib=D(1000),
            written_gib=D(100)),
        {
            "reads, us-central1 to europe-west4": "1,000 GiB x $0.05 = $50.00",
            "writes, europe-west4 to us-central1": "100 GiB x $0.05 = $5.00",
        },
    ),
]  # fmt: skip


def by_hand(line: str) -> tuple[Decimal, Decimal]:
    """Return what the left side of a sum comes to, and its right side."""
    left, right = line.replace(",", "").split(" = ")
    result, divides = Decimal(1), False
    for word in re.findall(r"\$?([\d.]+)|(/)", left):
        if word[1]:
            divides = True
            continue
        result = result / Decimal(word[0]) if divides else result * Decimal(word[0])
        divides = False
    return result, Decimal(right.removeprefix("$"))


def listed(found: Estimate, what: str) -> Decimal:
    [line] = [one for one in found.lines if what in one.what]
    assert line.list_micros is not None
    return Decimal(line.list_micros) / 10**6


@pytest.mark.parametrize(("use", "sums"), EXAMPLES)
def test_an_example(use: Use, sums: dict[str, str]) -> None:
    found = estimate(use)
    for what, line in sums.items():
        left, right = by_hand(line)
        assert round(left, 6) == right, f"the sum is wrong by itself: {line}"
        assert listed(found, what) == right, line


def test_a_grant_makes_the_slice_free_and_nothing_else() -> None:
    slices, *others = estimate(GRANTED).lines
    assert (slices.pay_micros, slices.list_micros) == (0, 2_948_800_000)
    assert all(one.pay_micros == one.list_micros for one in others)
    less = replace(GRANTED, grants=(replace(GRANTED.grants[0], chips=31),))
    assert estimate(less).lines[0].pay_micros == 2_948_800_000
