"""docs/prices.md: each sum of its ten examples is right by itself, and is what the estimator says."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from tpujob.domain.model import Grant
from tpujob.domain.money import Estimate, Use, estimate

PAGE = (Path(__file__).parents[3] / "docs" / "prices.md").read_text(encoding="utf-8")

D = Decimal
BIG = Use("v4-512", "us-central2-b", "on-demand", "us-central2", hours=D(1))
V5E = Use("v5e-8", "us-central1-a", "spot", "us-central1", hours=D(1))
#: what each example is of, and the lines that its sums stand for
EXAMPLES: list[tuple[Use, list[str]]] = [
    (Use("v4-8", "us-central2-b", "on-demand", "us-central2", hours=D(1)), ["v4-8"]),
    (Use("v4-16", "us-central2-b", "spot", "us-central2", hours=D(3)), ["v4-16"]),
    (Use("v6e-16", "europe-west4-a", "spot", "europe-west4", hours=D(24)), ["v6e-16"]),
    (Use("v5p-8", "us-east5-a", "on-demand", "us-east5", 2, hours=D(10)), ["2 x v5p-8"]),
    (
        Use("v4-64", "us-central2-b", "spot", "us-central2", hours=D(100),
            grants=(Grant("v4", "us-central2-b", "spot", 32),)),
        ["v4-64", "boot disks", "external addresses"],
    ),
    (BIG, ["external addresses"]),
    (BIG, ["reports of hosts", "logs of hosts"]),
    (replace(V5E, stored_gib=D(500), stored_days=D(30)), ["what stays in the bucket"]),
    (replace(V5E, objects_written=10**6, objects_read=90 * 10**6), ["program writes", "program reads"]),
    (
        Use("v6e-8", "europe-west4-a", "spot", "us-central1", hours=D(1), read_gib=D(1000),
            written_gib=D(100)),
        ["reads, us-central1 to europe-west4", "writes, europe-west4 to us-central1"],
    ),
]  # fmt: skip


def sums() -> list[list[str]]:
    """The sums of each example, in order."""
    parts = re.split(r"^### \d+\. ", PAGE, flags=re.M)[1:]
    return [re.findall(r"^    (\S.*=.*)$", part, re.M) for part in parts]


def by_hand(line: str) -> tuple[Decimal, Decimal]:
    """What the left side of a sum on the page comes to, and what stands to the right of it."""
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


def test_there_are_ten() -> None:
    assert len(sums()) == len(EXAMPLES) == 10


@pytest.mark.parametrize("number", range(10))
def test_an_example(number: int) -> None:
    use, names = EXAMPLES[number]
    found = estimate(use)
    lines = sums()[number]
    assert len(lines) == len(names)
    for line, what in zip(lines, names, strict=True):
        left, right = by_hand(line)
        assert round(left, 6) == right, f"the page is wrong by itself: {line}"
        assert listed(found, what) == right, line


def test_a_grant_makes_the_slice_of_the_fifth_free_and_nothing_else() -> None:
    use = EXAMPLES[4][0]
    slices, *others = estimate(use).lines
    assert (slices.pay_micros, slices.list_micros) == (0, 2_948_800_000)
    assert all(one.pay_micros == one.list_micros for one in others)
    less = replace(use, grants=(replace(use.grants[0], chips=31),))
    assert estimate(less).lines[0].pay_micros == 2_948_800_000
