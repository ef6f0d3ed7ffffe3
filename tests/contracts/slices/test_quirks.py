"""Slices on a cloud that does what Google's is reported to do only at times."""

from __future__ import annotations

import pytest

from tests.contracts.slices.tpu_slices import SLICE, ask, gone, look, wait_for
from tests.support.tpu_rig import PROJECT, ZONE, Cloud
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.domain.observations import Absent, SliceState
from tpujob.emulator.faults import inject
from tpujob.errors import Refused


def quirk(cloud: Cloud, name: str) -> None:
    with cloud.world.lock:
        inject.quirk(cloud.world, name)


@pytest.mark.parametrize("name", ["late-conflict", "late-conflict-operation"])
def test_a_conflict_with_what_was_just_made_is_no_conflict(
    cloud: Cloud, slices: CloudTpuSlices, name: str
) -> None:
    quirk(cloud, name)
    ask(slices)
    ask(slices)
    wait_for(slices, SliceState.READY)
    assert len(cloud.world.queued) == 1


def test_a_slice_is_ours_by_its_metadata_where_answers_have_no_labels(
    cloud: Cloud, slices: CloudTpuSlices
) -> None:
    quirk(cloud, "no-labels")
    ask(slices)
    wait_for(slices, SliceState.READY)
    ask(slices)
    (owned,) = slices.list_all([ZONE], timeout=10)
    assert (owned.name, owned.job_id) == (SLICE.name, "000007")
    other = CloudTpuSlices(PROJECT, endpoint=cloud.tpu.address, owner="other")
    assert look(other) == Absent()
    with pytest.raises(Refused, match="someone else uses the name"):
        other.delete(SLICE, timeout=10)
    other.close()
    slices.delete(SLICE, timeout=10)
    gone(slices)
