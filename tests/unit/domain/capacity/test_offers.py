"""Places where a job may run: the order of its options, the one region, and what does not go together."""

from typing import Any

import pytest

from tpujob.domain.capacity.offers import Offer, offers, unsure
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.spec.jobspec import JobSpec, parse
from tpujob.errors import BadSpec


def job(**tpu: Any) -> JobSpec:
    return parse({"name": "a", "tpu": tpu, "run": {"command": "x"}})


def places(spec: JobSpec, region: str | None = None) -> list[tuple[str, str]]:
    return [(offer.type, offer.zone) for offer in offers(spec, region=region)]


def refusal(spec: JobSpec, region: str | None = None) -> str:
    with pytest.raises(BadSpec) as error:
        offers(spec, region=region)
    return error.value.message


def test_one_type_in_one_zone_is_one_option_with_its_price_and_runtime() -> None:
    assert offers(job(type="v4-16")) == (
        Offer("v4-16", "us-central2-b", "spot", "cloud-tpu", "tpu-ubuntu2204-base", 7.372),
    )
    (two,) = offers(job(type="v4-16", slices=2))
    assert two.usd_per_hour == 2 * 7.372, "one option is all the slices that it takes"
    own = offers(job(type="v4-16", runtime_version="tpu-vm-v4-base", pricing="on-demand"))
    assert (own[0].system_image, own[0].usd_per_hour) == ("tpu-vm-v4-base", 25.76)


def test_types_come_before_zones() -> None:
    spec = job(type=["v5p-8", "v6e-8"], zones=["us-east5-b", "us-east5-a"])
    assert places(spec) == [
        ("v5p-8", "us-east5-b"),
        ("v5p-8", "us-east5-a"),
        ("v6e-8", "us-east5-b"),
        ("v6e-8", "us-east5-a"),
    ]


def test_a_zone_that_lacks_one_of_the_types_serves_the_others() -> None:
    spec = job(type=["v3-8", "v6e-8"], zones=["us-central1-f", "us-central1-b"])
    assert places(spec) == [
        ("v3-8", "us-central1-f"),
        ("v3-8", "us-central1-b"),
        ("v6e-8", "us-central1-b"),
    ]


def test_without_zones_it_is_the_first_region_that_has_every_type() -> None:
    assert places(job(type="v6e-8")) == [
        ("v6e-8", f"us-central1-{letter}") for letter in ("b", "a", "c")
    ]
    both = places(job(type=["v3-32", "v6e-8"]))
    assert {region_of(zone) for _, zone in both} == {"europe-west4"}


def test_without_zones_the_bucket_settles_the_region() -> None:
    assert places(job(type="v6e-8"), "us-east1") == [("v6e-8", "us-east1-d")]
    assert places(job(type="v6e-8"), "US-EAST1") == [("v6e-8", "us-east1-d")], "as buckets say it"
    message = refusal(job(type="v4-16"), "us-central1")
    assert "v4-16 are not offered in us-central1" in message
    assert "us-central2" in message
    assert "are not offered in US," in refusal(job(type="v4-16"), "US"), "US is no region"


def test_every_type_has_a_place_in_every_region_that_lists_it() -> None:
    for type in accelerators.ALL:
        spec = job(type=type)
        for region in {region_of(zone) for zone in accelerators.zones(type)}:
            assert all(region_of(offer.zone) == region for offer in offers(spec, region=region))


def test_a_zone_without_the_type_is_refused_naming_those_that_have_it() -> None:
    message = refusal(job(type="v4-16", zones=["us-central1-a"]))
    assert message == ("tpu.zones: us-central1-a has no v4-16. v4-16 is offered in us-central2-b")


def test_a_type_that_none_of_the_zones_has_is_refused() -> None:
    message = refusal(job(type=["v6e-8", "v4-8"], zones=["us-east1-d"]))
    assert "none of tpu.zones (us-east1-d) has v4-8. It is offered in us-central2-b" in message


def test_types_that_share_no_region_are_refused() -> None:
    message = refusal(job(type=["v3-32", "v4-8"]))
    assert "no region has all of v3-32, v4-8: v3-32 in europe-west4, us-east1; v4-8 in" in message


# What no table has ---------------------------------------------------------------------------------------------------


def test_an_unknown_zone_or_type_is_an_option_without_a_price() -> None:
    (new,) = offers(job(type="v9x-16", zones=["us-central2-x"]))
    assert new == Offer("v9x-16", "us-central2-x", "spot", "cloud-tpu", "v2-alpha-tpuv9x", None)
    assert places(job(type="v4-8", zones=["us-central2-b", "us-central2-x"])) == [
        ("v4-8", "us-central2-b"),
        ("v4-8", "us-central2-x"),
    ]
    (larger,) = offers(job(type="v6e-512", zones=["us-east5-a"]))
    assert larger.usd_per_hour == 512 * 1.215, "the price of a chip is known"


def test_a_type_that_no_zone_is_known_to_have_needs_one() -> None:
    message = refusal(job(type="v5litepo-8"))
    assert "no such type is known; nearest: v5litepod-8" in message


@pytest.mark.parametrize(
    ("tpu", "zones"),
    [
        ({"type": "v4-8", "zones": ["us-central2-b"]}, ()),
        ({"type": ["v5p-8", "v6e-8"], "zones": ["us-east5-a", "us-central2-b"]}, ()),
        ({"type": "v4-8", "zones": ["us-central2-b", "us-central2-x"]}, ("us-central2-x",)),
        ({"type": "v9x-16", "zones": ["us-central2-b"]}, ("us-central2-b",)),
        ({"type": "v6e-512", "zones": ["us-east5-a"]}, ("us-east5-a",)),
        ({"type": "v4-8", "zones": ["us-east5-a"]}, ("us-east5-a",)),
        ({"type": "v4-8"}, ()),
    ],
)
def test_only_unsure_zones_are_asked(tpu: dict[str, Any], zones: tuple[str, ...]) -> None:
    assert unsure(job(**tpu, cross_region=True)) == zones


def test_what_a_zone_lists_counts_more_than_the_tables() -> None:
    new = job(type="v4-8", zones=["us-east5-a"])
    assert "us-east5-a has no v4-8" in refusal(new)
    listed = {"us-east5-a": {"v4-8", "v6e-8"}}
    (option,) = offers(new, listed=listed)
    assert option.zone == "us-east5-a"
    assert offers(new, accepted=True) == (option,), "as the backend asks for it later"
    typo = job(type="v9x-16", zones=["us-east5-a"])
    with pytest.raises(BadSpec, match="us-east5-a has no v9x-16"):
        offers(typo, listed=listed)
