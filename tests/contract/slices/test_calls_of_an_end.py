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
from tpujob.emulator import inject


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
    cloud.do(inject.preempt, SLICE.name, notice_s=0)
    while wait_for(counted, SliceState.PREEMPTED).suspending:
        pass
    made.clear()
    seen = look(counted)
    assert isinstance(seen, Present)
    assert made == {"get_queued_resource": 1}, "its node has nothing to add"
    made.clear()
    return seen


def test_a_deletion_is_a_look_and_a_request(
    counted: CloudTpuSlices, made: Counter[str], lost: Present
) -> None:
    assert not lost.suspending
    counted.delete(SLICE, timeout=10)
    assert made == {"get_queued_resource": 1, "delete_queued_resource": 1}
    gone(counted)


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
