"""One list of all slices: what it shows is what a look by name shows, and what it leaves out is not called absent. The
same of the emulated Cloud TPU and of the cloud in memory."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.contract.slices.tpu_slices import KEY, SLICE, ask, fail, look, wait_for
from tests.support.tpu_rig import PROJECT, ZONE, Cloud, node_name, result
from tests.support.waiting import LONG
from tests.support.world import Clock, Faults
from tests.support.world import Cloud as InMemory
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.domain.model import Slice
from tpujob.domain.observations import Present, SliceState
from tpujob.emulator import inject
from tpujob.ports import Slices, SliceSurvey

EAST = "us-east5-a"
THERE = replace(SLICE, name="tj-000008-1", zone=EAST, type="v5p-8", system_image="v2-alpha-tpuv5")


@dataclass
class Drill:
    """A cloud, and what can be done to its lists."""

    slices: Slices
    lose: Callable[[str], None]  #: lists do not reach a zone
    fail: Callable[[], None]  #: the next list fails
    pass_by: Callable[[], object]  #: time, until what was asked for is ready

    def asked(self, *slices: Slice) -> None:
        for slice_ in slices:
            self.slices.create(
                slice_, job_id=slice_.name.split("-")[1], public_key=KEY, timeout=LONG
            )
        for slice_ in slices:
            self.pass_by()
            wait_for(self.slices, SliceState.READY, slice_)

    def survey(self, *zones: str) -> SliceSurvey:
        return self.slices.survey(zones or (ZONE, EAST), timeout=LONG)


@pytest.fixture(params=["emulated", "in memory"])
def drill(request: pytest.FixtureRequest) -> Drill:
    if request.param == "in memory":
        clock, faults = Clock(), Faults()
        made = InMemory(clock, faults)
        return Drill(
            made, made.unlisted.add, lambda: faults.broken.add("list"), lambda: clock.sleep(10)
        )
    cloud: Cloud = request.getfixturevalue("cloud")

    def lose(zone: str) -> None:
        cloud.do(inject.unreachable, zone)

    slices: Slices = request.getfixturevalue("slices")
    return Drill(slices, lose, lambda: fail(cloud, "ListNodes", "UNAVAILABLE"), lambda: None)


def test_a_list_shows_what_looks_by_name_show(drill: Drill) -> None:
    drill.asked(SLICE, THERE)
    result = drill.survey()
    assert result.seen == {slice_.name: look(drill.slices, slice_) for slice_ in (SLICE, THERE)}
    assert (result.missed, result.calls) == ({}, 2)


def test_a_list_of_one_zone_shows_nothing_of_others(drill: Drill) -> None:
    drill.asked(SLICE, THERE)
    assert [*drill.survey(EAST).seen] == [THERE.name]
    assert drill.survey("us-east1-d") == SliceSurvey({}, {}, 2)


def test_a_zone_that_lists_do_not_reach_is_missed_and_shown_by_name(drill: Drill) -> None:
    drill.asked(SLICE, THERE)
    drill.lose(EAST)
    result = drill.survey()
    assert [*result.seen] == [SLICE.name]
    assert [*result.missed] == [EAST]
    assert isinstance(look(drill.slices, THERE), Present)


def test_a_list_that_fails_misses_every_zone(drill: Drill) -> None:
    drill.asked(SLICE)
    drill.fail()
    result = drill.survey()
    assert (result.seen, {*result.missed}) == ({}, {ZONE, EAST})


# What only the real service does -------------------------------------------------------------------------------------


def test_several_nodes_are_lost_with_one_of_them(cloud: Cloud, slices: CloudTpuSlices) -> None:
    wide = replace(SLICE, type="v4-8", tpu_slices=2)
    ask(slices, wide)
    wait_for(slices, SliceState.READY, wide)
    shown = slices.survey([ZONE], timeout=LONG).seen[wide.name]
    assert shown == look(slices, wide)
    result(cloud.client().delete_node(name=node_name(f"{wide.name}-1")))
    lost = slices.survey([ZONE], timeout=LONG).seen[wide.name]
    assert isinstance(lost, Present)
    assert lost.state.lost, "for who shows it: an end is decided on a look by name"


def test_slices_of_others_are_left_to_looks(cloud: Cloud, slices: CloudTpuSlices) -> None:
    theirs = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, owner="somebody-else")
    ask(theirs)
    ask(slices, replace(SLICE, name="tj-000007-2"))
    wait_for(theirs, SliceState.READY)
    wait_for(slices, SliceState.READY, replace(SLICE, name="tj-000007-2"))
    assert [*slices.survey([ZONE], timeout=LONG).seen] == ["tj-000007-2"]
    with cloud.world.lock:
        cloud.world.queued.clear()
    assert slices.survey([ZONE], timeout=LONG).seen == {}
    theirs.close()
