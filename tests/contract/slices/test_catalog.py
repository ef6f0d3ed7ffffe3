"""The types that zones offer: the emulated API's lists, kept for a while."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.contract.slices.tpu_slices import SLICE, ask, fail, wait_for
from tests.support.tpu_rig import PROJECT, ZONE, Cloud
from tpujob.adapters.cloud_tpu import Api, CloudTpuCatalog, CloudTpuSlices
from tpujob.adapters.cloud_tpu.catalog import LIST_TTL
from tpujob.domain.hardware import accelerators
from tpujob.domain.observations import SliceState
from tpujob.emulator import inject
from tpujob.errors import Refused


class Rig:
    def __init__(self) -> None:
        self.time = 1000.0
        self.cloud = Cloud(page_size=7)
        self.api = Api(PROJECT, endpoint=self.cloud.tpu.address)
        self.catalog = CloudTpuCatalog(self.api, now=lambda: self.time)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.api.close()
    made.cloud.stop()


def test_a_zone_has_what_the_api_lists_on_all_pages(rig: Rig) -> None:
    types = rig.catalog.types(ZONE)
    assert types == {t for t in accelerators.ALL if ZONE in accelerators.zones(t)}
    assert {"v4-8", "v4-4096", "v6e-8"} <= types
    assert "v2-8" not in types


def test_a_list_is_kept_for_an_hour_and_the_old_one_when_the_cloud_is_away(rig: Rig) -> None:
    first = rig.catalog.types(ZONE)
    fail(rig.cloud, "ListAcceleratorTypes", "UNAVAILABLE")
    rig.time += LIST_TTL - 1
    assert rig.catalog.types(ZONE) is first
    assert rig.cloud.world.call_faults.pending, "no request was sent"
    rig.time += 2
    assert rig.catalog.types(ZONE) is first
    assert not rig.cloud.world.call_faults.pending
    again = rig.catalog.types(ZONE)
    assert again is not first
    assert again == first


def test_a_zone_that_is_closed_to_the_project_is_refused(rig: Rig) -> None:
    with pytest.raises(Refused, match=r"mars-1-a is not found .*name others in tpu\.zones"):
        rig.catalog.types("mars-1-a")


# What no table has ---------------------------------------------------------------------------------------------------


def test_a_new_zone_and_type_need_no_release(rig: Rig) -> None:
    """From the list to a slice that is ready, with the hosts that the cloud gave it."""
    rig.cloud.do(inject.offer, "mars-north1-a", "v9x-16")
    assert rig.catalog.types("mars-north1-a") == {"v9x-16"}
    slices = CloudTpuSlices(PROJECT, endpoint=rig.cloud.tpu.address)
    new = replace(SLICE, type="v9x-16", zone="mars-north1-a", system_image="v2-alpha-tpuv9x")
    ask(slices, new)
    seen = wait_for(slices, SliceState.READY, new)
    assert len(seen.endpoints) == 4
    slices.close()


def test_a_zone_that_cannot_be_asked_is_unknown_until_it_can(rig: Rig) -> None:
    fail(rig.cloud, "ListAcceleratorTypes", "UNAVAILABLE")
    assert rig.catalog.types(ZONE) is None
    assert "v4-8" in (rig.catalog.types(ZONE) or ()), "the cloud is asked again"
