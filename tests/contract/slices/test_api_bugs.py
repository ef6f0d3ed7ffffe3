"""Slices on a cloud that does what Google's is reported to do only at times."""

from dataclasses import replace

import pytest

from tests.contract.slices.tpu_slices import SLICE, ask, gone, look, wait_for
from tests.support.tpu_rig import PROJECT, QUICK, ZONE, Cloud, queued_state, until
from tests.support.waiting import LONG
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.domain.observations import Absent, Present, SliceState
from tpujob.emulator import inject
from tpujob.errors import Refused, Transient


def switch(cloud: Cloud, name: str) -> None:
    cloud.do(inject.api_bug, name)


@pytest.mark.parametrize("name", ["late-conflict", "late-conflict-operation"])
def test_a_conflict_with_itself_is_none(cloud: Cloud, slices: CloudTpuSlices, name: str) -> None:
    switch(cloud, name)
    ask(slices)
    ask(slices)
    wait_for(slices, SliceState.READY)
    assert len(cloud.world.queued) == 1


def test_metadata_mark_a_slice_without_labels(cloud: Cloud, slices: CloudTpuSlices) -> None:
    switch(cloud, "no-labels")
    ask(slices)
    wait_for(slices, SliceState.READY)
    ask(slices)
    (owned,) = slices.list_all([ZONE], timeout=LONG)
    assert (owned.name, owned.job_id) == (SLICE.name, "000007")
    other = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, owner="other")
    assert look(other) == Absent()
    with pytest.raises(Refused, match="someone else uses the name"):
        other.delete(SLICE, timeout=LONG)
    other.close()
    slices.delete(SLICE, timeout=LONG)
    gone(slices)


def test_a_suspending_slice_is_not_force_deleted(cloud: Cloud, slices: CloudTpuSlices) -> None:
    switch(cloud, "wedge")
    ask(slices)
    wait_for(slices, SliceState.READY)
    with cloud.world.lock:
        cloud.world.latencies = replace(QUICK, suspend=600)
        inject.preempt(cloud.world, SLICE.name, notice_s=0)
    until(lambda: queued_state(cloud.client(), SLICE.name) == "SUSPENDING", "SUSPENDING")
    seen = look(slices)
    assert isinstance(seen, Present)
    assert (seen.state, seen.suspending) == (SliceState.PREEMPTED, True)
    (owned,) = slices.list_all([ZONE], timeout=LONG)
    assert owned.suspending
    with pytest.raises(Transient, match="waiting until the cloud has suspended it"):
        slices.delete(SLICE, timeout=LONG)
    assert queued_state(cloud.client(), SLICE.name) == "SUSPENDING", "nothing was sent"
    slices.delete(SLICE, timeout=LONG, even_suspending=True)
    wait_for(slices, SliceState.DELETING)
