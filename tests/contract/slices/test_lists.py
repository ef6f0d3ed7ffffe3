"""Lists of many zones: by two calls where the API has that, complete or an error, and zone by zone where it has not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.contract.slices.tpu_slices import SLICE, ask, fail, look
from tests.support.tpu_rig import PROJECT, ZONE, Cloud, queued
from tpujob.adapters.cloud_tpu import CloudTpuSlices, Throttle, count_usage
from tpujob.domain.hardware import accelerators
from tpujob.domain.observations import Absent, Unknown
from tpujob.emulator import inject
from tpujob.errors import Transient

EAST = "us-east5-a"
EVERYWHERE = accelerators.all_zones()


class Counted(Throttle):
    """Counts the calls; `then` happens before one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self._counting = threading.Lock()
        self.then: dict[int, Callable[[], None]] = {}

    def take(self, at_most: float) -> None:
        with self._counting:
            self.calls += 1
            then = self.then.pop(self.calls, lambda: None)
        then()
        super().take(at_most)


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def two(cloud: Cloud, counted: Counted) -> Iterator[CloudTpuSlices]:
    """Slices in two zones; calls are counted from here on."""
    slices = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, throttle=counted)
    ask(slices)
    east = replace(SLICE, name="tj-000007-2", k=2, zone=EAST, type="v5p-8")
    ask(slices, replace(east, runtime_version="v2-alpha-tpuv5"))
    counted.calls = 0
    yield slices
    slices.close()


def names(slices: CloudTpuSlices, *zones: str) -> list[str]:
    return [one.name for one in slices.list_all(zones or EVERYWHERE, timeout=10)]


def unreachable(cloud: Cloud, *, off: bool = False) -> None:
    cloud.do(inject.unreachable, EAST, off)


def test_all_zones_take_two_calls(two: CloudTpuSlices, counted: Counted) -> None:
    assert len(EVERYWHERE) >= 30
    assert names(two) == [SLICE.name, "tj-000007-2"]
    assert counted.calls == 2
    assert names(two, ZONE, "us-east1-d") == [SLICE.name], "what is elsewhere was not asked for"


def test_a_zone_that_lists_cannot_reach_fails_the_list(cloud: Cloud, two: CloudTpuSlices) -> None:
    unreachable(cloud)
    with pytest.raises(Transient, match=f"listing {EAST}: the list is not complete"):
        names(two)
    assert names(two, ZONE, "us-east1-d") == [SLICE.name], "and no list without it"


def test_a_zone_that_the_list_of_all_could_not_reach_is_listed_by_itself(
    cloud: Cloud, two: CloudTpuSlices, counted: Counted
) -> None:
    unreachable(cloud)
    counted.then[3] = lambda: unreachable(cloud, off=True)
    assert names(two) == [SLICE.name, "tj-000007-2"]
    assert counted.calls == 4


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "UNIMPLEMENTED", "PERMISSION_DENIED"])
def test_where_the_list_of_all_zones_is_refused_each_is_listed(
    cloud: Cloud, two: CloudTpuSlices, counted: Counted, code: str
) -> None:
    fail(cloud, "ListQueuedResources", code)
    assert names(two, ZONE, EAST) == [SLICE.name, "tj-000007-2"]
    before = counted.calls
    assert before <= 2 + 2 * 2, "both lists of all, at most, and both of each zone"
    assert names(two, ZONE, EAST) == [SLICE.name, "tj-000007-2"]
    assert counted.calls - before == 2 * 2, "and it is not asked for again"


def test_an_error_of_the_list_of_all_zones_is_no_empty_list(
    cloud: Cloud, two: CloudTpuSlices, counted: Counted
) -> None:
    fail(cloud, "ListQueuedResources", "UNAVAILABLE")
    with pytest.raises(Transient):
        names(two)
    assert counted.calls <= 2, "nor are forty lists asked of an API that does not answer"
    assert names(two) == [SLICE.name, "tj-000007-2"]


def test_a_slice_is_not_absent_where_its_zone_cannot_be_reached(
    cloud: Cloud, two: CloudTpuSlices
) -> None:
    unreachable(cloud)
    missing = replace(SLICE, name="tj-000009-1", zone=EAST)
    assert look(two, missing) == Unknown(f"listing {EAST}: the list is not complete")
    unreachable(cloud, off=True)
    assert look(two, missing) == Absent()


def test_what_is_held_of_a_quota_is_counted_by_the_same_lists(
    cloud: Cloud, two: CloudTpuSlices
) -> None:
    used = count_usage(PROJECT, EVERYWHERE, timeout=10, endpoint=cloud.tpu.address)
    assert {(one.zone, one.chips) for one in used.held} == {(ZONE, 8), (EAST, 4)}
    assert not used.closed
    unreachable(cloud)
    used = count_usage(PROJECT, EVERYWHERE, timeout=10, endpoint=cloud.tpu.address)
    assert list(used.closed) == [EAST]


def test_what_is_held_is_counted_of_a_request_that_names_its_topology(cloud: Cloud) -> None:
    asked = queued("wide")
    spec = asked["queued_resource"]["tpu"]["node_spec"][0]["node"]
    del spec["accelerator_type"]
    spec["accelerator_config"] = {"type_": "V4", "topology": "2x2x2"}
    cloud.client().create_queued_resource(asked)
    used = count_usage(PROJECT, [ZONE], timeout=10, endpoint=cloud.tpu.address)
    assert [one.chips for one in used.held] == [8]
