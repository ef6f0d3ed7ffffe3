"""Which slice the probes get, and what it may cost."""

from __future__ import annotations

import pytest

from tpujob.doctor.probe.spend import LEFT_OVER, LONGEST, SHORTEST, Choice, budget, choose
from tpujob.errors import BadRequest

OFFERED = {
    "us-west4-a": ["v5litepod-1", "v5litepod-4", "v5litepod-16"],
    "us-central1-a": ["v2-8", "v5litepod-1", "v2-32"],
    "us-central2-b": ["v4-8", "v6e-1"],
}


@pytest.mark.parametrize(
    ("type", "zone", "found"),
    [
        ("", "", ("v5litepod-1", "us-central1-a")),
        ("v5e-1", "us-west4-a", ("v5litepod-1", "us-west4-a")),
        ("", "us-central2-b", ("v4-8", "us-central2-b")),  # no price of v6e is known there
        ("v2-8", "", ("v2-8", "us-central1-a")),
    ],
)
def test_the_cheapest_of_one_host(type: str, zone: str, found: tuple[str, str]) -> None:
    choice = choose(OFFERED, type, zone)
    assert (choice.type, choice.zone) == found


@pytest.mark.parametrize(
    ("type", "zone", "said"),
    [
        ("v5litepod-16", "", "has several hosts"),
        ("v6e-1", "", "price of v6e-1 in us-central2-b is not known"),
        ("v3-8", "", "v3-8 is not offered in"),
        ("", "europe-west9-a", "not among the zones that can be probed"),
    ],
)
def test_what_is_not_there(type: str, zone: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said) as error:
        choose(OFFERED, type, zone)
    assert error.value.hint


def test_nothing_at_all() -> None:
    with pytest.raises(BadRequest, match="no slice of one host with a known spot price"):
        choose({"us-central2-b": ["v4-16"]})


def test_the_cap_bounds_the_time_and_the_time_is_bounded_anyway() -> None:
    cheap, dear = Choice("a", "z", 0.24, "r"), Choice("a", "z", 3.6, "r")
    assert budget(cheap, 1.0).seconds == LONGEST
    assert budget(dear, 1.0).seconds == pytest.approx(1000.0)
    assert budget(dear, 1.0).by_cap
    assert budget(dear, 1.0).usd(1000.0) == pytest.approx(1.0)
    assert budget(dear, 2.0, slices=2).seconds == pytest.approx(1000.0)
    with pytest.raises(BadRequest, match=r"\$1\.20, over the cap of \$1\.00"):
        budget(dear, 1.0, slices=2)


def test_the_sweep_leaves_a_slice_alone_for_longer_than_it_can_be_in_use() -> None:
    assert SHORTEST < LONGEST
    assert LEFT_OVER >= 2 * LONGEST
