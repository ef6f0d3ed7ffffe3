"""Lists of many zones: by two calls where the API has that, complete or an error, and zone by zone where it has not."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.contract.slices.tpu_slices import SLICE, ask, fail, gone, look, wait_for
from tests.support.tpu_rig import PROJECT, QUICK, ZONE, Cloud, queued
from tests.support.waiting import LONG
from tpujob.adapters.cloud_tpu import CloudTpuSlices, count_usage
from tpujob.domain.hardware import accelerators
from tpujob.domain.observations import Absent, SliceState, Unknown
from tpujob.emulator import inject
from tpujob.errors import Transient

EAST = "us-east5-a"
EVERYWHERE = accelerators.all_zones()


class Calls(Counter[str]):
    """The calls that were made, by method; `after` happens when so many were made."""

    after: dict[int, Callable[[], None]]

    def note(self, method: str, _outcome: str) -> None:
        self[method] += 1
        self.after.pop(self.total(), lambda: None)()


@pytest.fixture
def calls() -> Calls:
    made = Calls()
    made.after = {}
    return made


@pytest.fixture
def counted(cloud: Cloud, calls: Calls) -> Iterator[CloudTpuSlices]:
    slices = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, count=calls.note)
    yield slices
    slices.close()


@pytest.fixture
def two(counted: CloudTpuSlices, calls: Calls) -> CloudTpuSlices:
    """Slices in two zones; calls are counted from here on."""
    ask(counted)
    east = replace(SLICE, name="tj-000007-2", k=2, zone=EAST, type="v5p-8")
    ask(counted, replace(east, system_image="v2-alpha-tpuv5"))
    calls.clear()
    return counted


def names(slices: CloudTpuSlices, *zones: str) -> list[str]:
    return [owned.name for owned in slices.list_all(zones or EVERYWHERE, timeout=LONG)]


def unreachable(cloud: Cloud, *, off: bool = False) -> None:
    cloud.do(inject.unreachable, EAST, off)


def test_all_zones_take_two_calls(two: CloudTpuSlices, calls: Calls) -> None:
    assert len(EVERYWHERE) >= 30
    assert names(two) == [SLICE.name, "tj-000007-2"]
    assert calls.total() == 2
    assert names(two, ZONE, "us-east1-d") == [SLICE.name], "what is elsewhere was not asked for"


def test_a_zone_that_lists_cannot_reach_fails_the_list(cloud: Cloud, two: CloudTpuSlices) -> None:
    unreachable(cloud)
    with pytest.raises(Transient, match=f"listing {EAST}: the list is not complete"):
        names(two)
    assert names(two, ZONE, "us-east1-d") == [SLICE.name], "and no list without it"


def test_an_unreached_zone_is_listed_alone(cloud: Cloud, two: CloudTpuSlices, calls: Calls) -> None:
    unreachable(cloud)
    calls.after[2] = lambda: unreachable(cloud, off=True)
    assert names(two) == [SLICE.name, "tj-000007-2"]
    assert calls.total() == 4


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "UNIMPLEMENTED", "PERMISSION_DENIED"])
def test_where_the_list_of_all_zones_is_refused_each_is_listed(
    cloud: Cloud, two: CloudTpuSlices, calls: Calls, code: str
) -> None:
    fail(cloud, "ListQueuedResources", code)
    assert names(two, ZONE, EAST) == [SLICE.name, "tj-000007-2"]
    before = calls.total()
    assert before <= 2 + 2 * 2, "both lists of all, at most, and both of each zone"
    assert names(two, ZONE, EAST) == [SLICE.name, "tj-000007-2"]
    assert calls.total() - before == 2 * 2, "and it is not asked for again"


def test_a_failed_list_is_no_empty_list(cloud: Cloud, two: CloudTpuSlices, calls: Calls) -> None:
    fail(cloud, "ListQueuedResources", "UNAVAILABLE")
    with pytest.raises(Transient):
        names(two)
    assert calls.total() <= 2, "nor are forty lists asked of an API that does not answer"
    assert names(two) == [SLICE.name, "tj-000007-2"]


def test_a_slice_is_not_absent_in_an_unreachable_zone(cloud: Cloud, two: CloudTpuSlices) -> None:
    unreachable(cloud)
    missing = replace(SLICE, name="tj-000009-1", zone=EAST)
    assert look(two, missing) == Unknown(f"listing {EAST}: the list is not complete")
    unreachable(cloud, off=True)
    assert look(two, missing) == Absent()


def test_what_is_held_is_counted_of_a_request_that_names_its_topology(cloud: Cloud) -> None:
    request = queued("wide")
    spec = request["queued_resource"]["tpu"]["node_spec"][0]["node"]
    del spec["accelerator_type"]
    spec["accelerator_config"] = {"type_": "V4", "topology": "2x2x2"}
    cloud.client().create_queued_resource(request)
    used = count_usage(PROJECT, [ZONE], timeout=LONG, endpoint=cloud.tpu.address)
    assert [use.chips for use in used.held] == [8]


# The end of a slice: many may be lost at once ------------------------------------------------------------------------


def test_a_lost_slice_takes_two_calls(cloud: Cloud, counted: CloudTpuSlices, calls: Calls) -> None:
    ask(counted)
    wait_for(counted, SliceState.READY)
    cloud.do(inject.preempt, SLICE.name, notice_s=0)
    while wait_for(counted, SliceState.PREEMPTED).suspending:
        pass
    calls.clear()
    look(counted)
    assert calls == {"get_queued_resource": 1}, "its node has nothing to add"
    counted.delete(SLICE, timeout=LONG)
    assert calls == {"get_queued_resource": 2, "delete_queued_resource": 1}
    gone(counted)


def test_many_that_are_gone_at_once_share_the_lists_that_agree(
    cloud: Cloud, counted: CloudTpuSlices, calls: Calls
) -> None:
    counted._lists.shared_for = 60.0  # pyright: ignore[reportPrivateUsage]
    with cloud.world.lock:
        cloud.world.latencies = QUICK
    names = [replace(SLICE, name=f"tj-{n:06}-1") for n in range(20)]
    assert {look(counted, gone) for gone in names} == {Absent()}
    assert calls["list_queued_resources"] == calls["list_nodes"] == 1
    ask(counted)
    look(counted, names[0])
    assert calls["list_nodes"] == 2, "nothing that was listed before a request is believed"
