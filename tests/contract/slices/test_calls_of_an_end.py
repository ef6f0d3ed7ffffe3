"""How many calls a lost slice takes until the next one is asked for: many may be lost at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.contract.slices.tpu_slices import SLICE, ask, gone, look, wait_for
from tests.support.tpu_rig import PROJECT, QUICK, Cloud
from tpujob.adapters.cloud_tpu import CloudTpuSlices, lists
from tpujob.domain.observations import Absent, Present, SliceState
from tpujob.emulator.faults import inject
from tpujob.errors import Refused, Transient


@pytest.fixture
def made() -> Counter[str]:
    """The calls, by method."""
    return Counter()


@pytest.fixture
def counted(cloud: Cloud, made: Counter[str]) -> Iterator[CloudTpuSlices]:
    address = cloud.tpu.address
    slices = CloudTpuSlices(PROJECT, endpoint=address, count=lambda name, _: made.update([name]))
    yield slices
    slices.close()


@pytest.fixture
def lost(cloud: Cloud, counted: CloudTpuSlices, made: Counter[str]) -> Present:
    """A look by name at a slice that was preempted, and is suspended by now."""
    ask(counted)
    wait_for(counted, SliceState.READY)
    with cloud.world.lock:
        inject.preempt(cloud.world, SLICE.name, notice_s=0)
    while wait_for(counted, SliceState.PREEMPTED).suspending:
        pass
    made.clear()
    seen = look(counted)
    assert isinstance(seen, Present)
    assert made == {"get_queued_resource": 1}, "its node has nothing to add"
    made.clear()
    return seen


def test_the_deletion_of_what_a_look_has_just_shown_is_one_call(
    counted: CloudTpuSlices, made: Counter[str], lost: Present
) -> None:
    counted.delete(SLICE, timeout=10, seen=lost)
    assert made == {"delete_queued_resource": 1}
    gone(counted)


def test_what_others_have_seen_is_looked_at_before_it_is_deleted(
    cloud: Cloud, counted: CloudTpuSlices, made: Counter[str], lost: Present
) -> None:
    stranger = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, owner="somebody-else")
    with pytest.raises(Refused, match="someone else uses the name"):
        stranger.delete(SLICE, timeout=10, seen=lost)
    stranger.close()
    counted.delete(SLICE, timeout=10, seen=lost)
    counted.delete(SLICE, timeout=10, seen=lost)
    assert made["delete_queued_resource"] <= 2
    assert made["get_queued_resource"] == 1, "by the second deletion alone"


def test_a_slice_that_was_seen_to_be_suspended_by_the_cloud_is_not_deleted(
    counted: CloudTpuSlices, made: Counter[str], lost: Present
) -> None:
    with pytest.raises(Transient, match="waiting until the cloud has suspended it"):
        counted.delete(SLICE, timeout=10, seen=replace(lost, suspending=True))
    assert not made


def test_many_that_are_gone_at_once_share_the_lists_that_agree(
    cloud: Cloud, counted: CloudTpuSlices, made: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SHARED", 60.0)
    with cloud.world.lock:
        cloud.world.latencies = QUICK
    names = [replace(SLICE, name=f"tj-{n:06}-1") for n in range(20)]
    assert {look(counted, one) for one in names} == {Absent()}
    assert made["list_queued_resources"] == made["list_nodes"] == 1
    ask(counted)
    look(counted, names[0])
    assert made["list_nodes"] == 2, "nothing that was listed before a request is believed"
