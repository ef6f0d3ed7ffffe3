"""Additions of a context to a job's file: its zones, its buckets, and the price of reading one from elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

from tpujob.domain.capacity.datasets import check_folders
from tpujob.domain.capacity.offers import offers
from tpujob.domain.capacity.site import EVERYWHERE, Site, check_location, home_region, settled
from tpujob.domain.hardware.prices import LIST
from tpujob.domain.spec.jobspec import JobSpec, parse
from tpujob.errors import BadSpec

ZONES = ("europe-west4-a", "us-central2-b", "us-east5-a", "europe-west4-b")
US, EU, EAST = "gs://us/ada", "gs://eu/ada", "gs://east/ada"
LAB = Site("lab", ZONES, {"us-central2": US, "europe-west4": EU, "us-east5": EAST}, False)


def job(**tpu: Any) -> JobSpec:
    return parse({"name": "a", "tpu": tpu, "run": {"command": "x"}})


def places(spec: JobSpec, site: Site = LAB) -> list[str]:
    return [offer.zone for offer in offers(settled(spec, site))]


def refusal(spec: JobSpec, site: Site = LAB) -> BadSpec:
    with pytest.raises(BadSpec) as error:
        settled(spec, site)
    return error.value


def test_zones_left_out_are_the_contexts_that_have_the_type_in_its_order() -> None:
    assert places(job(type="v5e-8")) == ["europe-west4-a", "europe-west4-b"]
    assert places(job(type="v4-8")) == ["us-central2-b"]
    turned = Site("lab", ZONES[::-1], LAB.buckets, False)
    assert places(job(type="v5e-8"), turned) == ["europe-west4-b", "europe-west4-a"]


def test_the_first_region_that_has_every_type_and_a_bucket_is_chosen() -> None:
    both = job(type=["v5p-8", "v6e-8"])
    assert places(both) == ["europe-west4-b", "europe-west4-a"]
    assert places(job(type=["v4-8", "v6e-8"])) == ["us-central2-b", "us-central2-b"]
    without = Site("lab", ZONES, {"us-east5": EAST}, False)
    assert places(job(type="v5e-8"), without) == ["us-east5-a"], "Europe has no bucket"


def test_named_zones_count_also_outside_of_the_context() -> None:
    west = Site("lab", ZONES, {"us-west4": "gs://west"}, False)
    assert places(job(type="v5e-8", zones="us-west4-a"), west) == ["us-west4-a"]


def test_the_stored_spec_says_its_zones_so_that_no_later_change_moves_a_job() -> None:
    assert settled(job(type="v4-8"), LAB).tpu.zones == ("us-central2-b",)
    assert settled(job(type="v4-8"), EVERYWHERE).tpu.zones == ()


def test_a_type_that_no_zone_of_the_context_has_is_refused_with_the_zones_that_do() -> None:
    error = refusal(job(type="v3-8"), Site("lab", ("us-central2-b",), LAB.buckets, False))
    assert "no zone of the context lab (us-central2-b) has v3-8" in error.message
    assert "v3-8 is offered in us-central1-" in error.message
    assert len(error.message) < 300
    assert "add such a zone" in error.hint


def test_types_that_no_region_has_together_are_refused() -> None:
    error = refusal(job(type=["v4-8", "v3-8"]))
    assert "no region of the context lab has all of v4-8, v3-8" in error.message


def test_a_zone_without_a_bucket_in_its_region_is_refused_with_the_price_of_the_traffic() -> None:
    only_us = Site("lab", ZONES, {"us-central2": US}, False)
    error = refusal(job(type="v5e-8"), only_us)
    assert "europe-west4-a is in europe-west4, where the context lab has no bucket" in error.message
    assert (
        f"{US} in us-central2, each GiB that is read there costs $0.05 ($51 per TiB)"
        in error.message
    )
    assert "tpujob bucket create --region europe-west4" in error.hint
    assert "--allow-cross-region" in error.hint
    allowed = job(type="v5e-8", cross_region=True)
    assert places(allowed, only_us) == ["europe-west4-a", "us-east5-a", "europe-west4-b"]
    assert home_region("europe-west4-a", only_us) == "us-central2"


def test_a_job_may_run_in_every_region_that_has_a_bucket() -> None:
    mixed: dict[str, Any] = {"type": "v5e-8", "zones": ["europe-west4-b", "us-east5-a"]}
    assert places(job(**mixed)) == ["europe-west4-b", "us-east5-a"]
    assert "us-east5-a is in us-east5, where the context lab has no bucket" in (
        refusal(job(**mixed), replace(LAB, buckets={"europe-west4": EU})).message
    )


def test_the_bucket_that_is_cheapest_to_read_is_used_from_elsewhere() -> None:
    two = Site("lab", ZONES, {"us-central2": US, "europe-west4": EU}, False)
    assert home_region("europe-west1-b", two) == "europe-west4"
    assert home_region("us-east1-d", two) == "us-central2"


def test_a_context_without_a_bucket_says_how_to_make_one() -> None:
    error = refusal(job(type="v4-8"), Site("lab", ZONES, {}, False))
    assert "the context lab has no bucket" in error.message
    assert error.hint == "tpujob bucket create --region us-central2"


ZONE = ["us-central2-b"]


def test_where_a_bucket_really_lies_counts() -> None:
    check_location(US, "us-central2", ["us-central2"], ZONE, LAB, allowed=False)
    check_location(US, "us", [], ZONE, LAB, allowed=True)
    with pytest.raises(
        BadSpec, match=r"gs://us/ada is in us, a multi-region, but us-central2-b"
    ) as error:
        check_location(US, "us", [], ZONE, LAB, allowed=False)
    assert "$0.02" in error.value.message, "a bucket of a continent is not free for its regions"


def test_a_pair_of_regions_is_local_to_these_two_alone() -> None:
    pair = ["us-central1", "us-east1"]
    check_location("gs://pair", "nam4", pair, ["us-central1-a", "us-east1-d"], LAB, allowed=False)
    with pytest.raises(BadSpec, match="is in nam4, but us-east5-a in us-east5") as error:
        check_location("gs://pair", "nam4", pair, ["us-east5-a"], LAB, allowed=False)
    assert "name zones of us-central1 or us-east1" in error.value.hint


@pytest.mark.parametrize(
    ("location", "region", "usd"),
    [
        ("us-central2", "us-central2", 0.0),
        ("US-CENTRAL2", "us-central2", 0.0),
        ("us-central2", "us-east5", 0.02),
        ("us", "us-east5", 0.02),
        ("nam4", "us-central1", 0.02),
        ("northamerica-northeast1", "us-east5", 0.02),
        ("europe-west4", "europe-west1", 0.02),
        ("eu", "europe-west4", 0.02),
        ("us-central1", "europe-west4", 0.05),
        ("europe-west4", "us-central1", 0.05),
        ("asia-east1", "asia-southeast1", 0.08),
        ("us-central1", "asia-east1", 0.08),
        ("southamerica-west1", "us-central1", 0.08),
        ("australia-southeast1", "us-central1", 0.15),
        ("me-west1", "us-central1", 0.08),
    ],
)
def test_the_price_of_traffic(location: str, region: str, usd: float) -> None:
    assert float(LIST.traffic(location, region).usd) == usd


def test_the_emulator_has_a_bucket_in_every_region_that_can_be_one() -> None:
    assert EVERYWHERE.bucket_in("mars-north1") == "gs://tpujob-mars-north1"
    assert EVERYWHERE.region_of_bucket("gs://tpujob-mars-north1") == "mars-north1"
    for other in ("gs://tpujob-", "gs://tpujob-x/../y", "gs://other", "mars-north1"):
        assert EVERYWHERE.region_of_bucket(other) is None
    site = replace(EVERYWHERE, made_on_demand=False)
    assert site.bucket_in("mars-north1") is None
    assert site.region_of_bucket("gs://tpujob-mars-north1") is None


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("gs://us/ada/u/ben-at-example.org/fineweb", True),
        ("gs://eu/ada/u/ben-at-example.org", True),
        ("gs://us/ada/u/ada-at-example.organ/fineweb", True),
        ("gs://us/another-backend/u/ben", True),
        ("gs://us/ada", True),
        ("gs://us/", True),
        ("gs://us/ada/u/ada-at-example.org/fineweb", False),
        ("gs://us/fineweb", False),
        ("gs://public/fineweb", False),
        ("./fineweb", False),
    ],
)
def test_folders_of_other_users_are_not_copied(source: str, refused: bool) -> None:
    spec = {"name": "a", "tpu": {"type": "v4-8"}, "run": {"command": "x"}}
    entries = parse(spec | {"data": [{"from": source, "to": "fineweb"}]}).data
    apart = replace(LAB, separate_accounts=True)
    if refused:
        with pytest.raises(BadSpec, match=r"has files of other users") as error:
            check_folders(entries, "u/ada-at-example.org", apart)
        assert "/ada/u/ada-at-example.org/" in (error.value.hint or "")
    else:
        check_folders(entries, "u/ada-at-example.org", apart)
    check_folders(entries, "u/ada-at-example.org", LAB)


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("https_proxy", {"env": {"https_proxy": "http://proxy:3128"}}),
        ("NO_PROXY", {"env": {"NO_PROXY": "googleapis.com"}}),
        ("ALL_PROXY", {"secrets": ["ALL_PROXY"]}),
    ],
)
def test_a_proxy_of_the_job_is_refused_where_the_emulators_own_leads_to_the_bucket(
    name: str, run: dict[str, Any]
) -> None:
    spec = parse({"name": "a", "tpu": {"type": "v4-8"}, "run": {"command": "x", **run}})
    assert name in refusal(spec, EVERYWHERE).message
    assert settled(spec, LAB).run == spec.run
