"""The port Slices on Cloud TPU: the official client against the emulated API."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.slices.tpu_slices import KEY, SLICE, ask, fail, gone, look, wait_for
from tests.support.tpu_rig import (
    PARENT,
    PROJECT,
    QUICK,
    ZONE,
    Cloud,
    node,
    node_name,
    queued,
    queued_state,
    result,
    until,
)
from tests.support.waiting import LONG
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.adapters.cloud_tpu.errors import CALL_CODES
from tpujob.domain.model import Cause
from tpujob.domain.observations import Absent, Present, SliceState, Unknown
from tpujob.emulator import inject
from tpujob.emulator.tpu.server import TpuServer
from tpujob.errors import Refused, Transient

# The life of a slice -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pricing", ["spot", "on-demand", "reserved"])
def test_a_slice_is_created_and_deleted(cloud: Cloud, slices: CloudTpuSlices, pricing: str) -> None:
    slice = replace(SLICE, pricing=pricing)
    assert look(slices, slice) == Absent()
    ask(slices, slice)
    seen = wait_for(slices, SliceState.READY, slice)
    assert [(e.host, bool(e.address)) for e in seen.endpoints] == [(0, True), (1, True)]
    ask(slices, slice)  # what is there already is adopted
    assert wait_for(slices, SliceState.READY, slice) == seen
    made = cloud.client().get_node(name=node_name(slice.name))
    assert made.metadata["ssh-keys"] == f"tpujob:{KEY}"
    assert made.scheduling_config.spot is (pricing == "spot")
    assert made.scheduling_config.reserved is (pricing == "reserved")
    slices.delete(slice, timeout=LONG)
    gone(slices, slice)
    slices.delete(slice, timeout=LONG)  # absent is success


def test_a_request_in_the_queue_is_waiting(cloud: Cloud, slices: CloudTpuSlices) -> None:
    cloud.do(inject.stockout, ZONE)
    ask(slices)
    until(lambda: "WAITING_FOR_RESOURCES" in str(look(slices)), "the cloud's word for it")
    assert wait_for(slices, SliceState.WAITING).cause is None


def test_a_stockout_is_recognised(cloud: Cloud, slices: CloudTpuSlices) -> None:
    cloud.do(inject.stockout, ZONE, fail=True)
    ask(slices)
    seen = wait_for(slices, SliceState.FAILED)
    assert seen.cause is Cause.STOCKOUT
    (owned,) = slices.list_all([ZONE], timeout=LONG)
    assert "queued resource FAILED" in owned.detail, "it counts against quota until it is deleted"
    slices.delete(SLICE, timeout=LONG)
    gone(slices)


def test_an_exhausted_quota_is_recognised(cloud: Cloud, slices: CloudTpuSlices) -> None:
    cloud.do(inject.quota, ZONE, "v4", 8, "spot")
    with pytest.raises(Refused, match="Limit 8 in zone us-central2-b") as refused:
        ask(slices)
    assert refused.value.cause == Cause.QUOTA


@pytest.mark.parametrize(
    ("change", "cause", "cure"),
    [
        ({"type": "v5p-8"}, Cause.BAD_SPEC, "this zone does not offer that type"),
        ({"zone": "mars-1-a"}, Cause.PERMISSION, "name others in tpu.zones"),
        ({"system_image": "v0"}, Cause.BAD_SPEC, ""),
    ],
)
def test_an_impossible_slice_is_refused_in_one_line_and_leaves_nothing(
    cloud: Cloud, slices: CloudTpuSlices, change: dict[str, str], cause: Cause, cure: str
) -> None:
    with pytest.raises(Refused) as refused:
        ask(slices, replace(SLICE, **change))
    assert refused.value.cause == cause
    assert cure in refused.value.message
    assert "\n" not in refused.value.message
    assert not cloud.world.queued


# Preemption ----------------------------------------------------------------------------------------------------------


def test_a_preempted_slice_is_shown_until_deleted(cloud: Cloud, slices: CloudTpuSlices) -> None:
    ask(slices)
    wait_for(slices, SliceState.READY)
    cloud.do(inject.preempt, "000007", notice_s=0)
    seen: set[SliceState] = set()
    client = cloud.client()
    while queued_state(client, SLICE.name) != "SUSPENDED":
        now = look(slices)
        assert isinstance(now, Present)
        seen.add(now.state)
    wait_for(slices, SliceState.PREEMPTED)
    assert seen <= {SliceState.READY, SliceState.PREEMPTED}, "nothing else on the way"
    (owned,) = slices.list_all([ZONE], timeout=LONG)
    assert "queued resource SUSPENDED" in owned.detail
    slices.delete(SLICE, timeout=LONG)
    gone(slices)


def test_a_node_without_a_request_is_seen_and_deleted(cloud: Cloud, slices: CloudTpuSlices) -> None:
    labels = {"tpujob": "1", "tpujob-job": "000007", "tpujob-owner": "local"}
    bare = node(labels=labels, scheduling_config={"spot": True})
    cloud.client().create_node(parent=PARENT, node=bare, node_id=SLICE.name)
    wait_for(slices, SliceState.READY)
    cloud.do(inject.preempt, SLICE.name, notice_s=0)
    wait_for(slices, SliceState.PREEMPTED)
    slices.delete(SLICE, timeout=LONG)
    gone(slices)


def test_a_node_deleted_by_a_person_is_no_preemption(cloud: Cloud, slices: CloudTpuSlices) -> None:
    ask(slices)
    wait_for(slices, SliceState.READY)
    result(cloud.client().delete_node(name=node_name(SLICE.name)))
    assert "by a person" in wait_for(slices, SliceState.STOPPED).detail


# Whose it is ---------------------------------------------------------------------------------------------------------


def test_a_slice_that_is_gone_can_be_requested_again(cloud: Cloud, slices: CloudTpuSlices) -> None:
    """The cloud knows the id of the request by then, and would answer with what became of the first."""
    ask(slices)
    wait_for(slices, SliceState.READY)
    slices.delete(SLICE, timeout=LONG)
    gone(slices)
    ask(slices)
    wait_for(slices, SliceState.READY)
    assert len(cloud.world.queued) == 1


@pytest.mark.parametrize(
    "labels",
    [{}, {"tpujob": "1", "tpujob-job": "000007", "tpujob-owner": "somebody-else"}],
    ids=["not-ours", "another-backend"],
)
def test_slices_of_others_are_neither_used_nor_deleted(
    cloud: Cloud, slices: CloudTpuSlices, labels: dict[str, str]
) -> None:
    client = cloud.client()
    client.create_queued_resource(queued(SLICE.name, labels=labels))
    until(lambda: queued_state(client, SLICE.name) == "ACTIVE", "theirs ACTIVE")
    with pytest.raises(Refused, match="someone else uses the name") as refused:
        ask(slices)
    assert refused.value.cause == Cause.BAD_SPEC
    assert look(slices) == Absent(), "ours is not there"
    with pytest.raises(Refused, match="someone else uses the name"):
        slices.delete(SLICE, timeout=LONG)
    assert slices.list_all([ZONE], timeout=LONG) == []
    assert queued_state(client, SLICE.name) == "ACTIVE"


def test_a_slice_of_another_job_is_not_adopted(slices: CloudTpuSlices) -> None:
    ask(slices, job_id="000008")
    with pytest.raises(Refused, match="someone else uses the name"):
        ask(slices, job_id="000007")


def test_all_our_slices_are_listed_also_in_short_pages() -> None:
    paged = Cloud(page_size=2)
    slices = CloudTpuSlices(PROJECT, endpoint=paged.tpu.address)
    for k in range(1, 6):
        ask(slices, replace(SLICE, name=f"tj-000007-{k}", k=k, type="v4-8"))
    paged.client().create_node(parent=PARENT, node=node(), node_id="theirs")
    until(lambda: len(paged.world.nodes) == 6, "all nodes")
    listed = slices.list_all([ZONE, "us-east5-a", "mars-1-a"], timeout=LONG)
    assert [o.name for o in listed] == [f"tj-000007-{k}" for k in range(1, 6)]
    assert {(o.zone, o.job_id) for o in listed} == {(ZONE, "000007")}
    assert all(time.time() - 60 < o.created_at < time.time() + 60 for o in listed)
    result = slices.survey([ZONE, "us-east5-a"], timeout=LONG)
    assert ({*result.seen}, result.calls) == ({o.name for o in listed}, 6)
    slices.close()
    paged.stop()


@pytest.mark.parametrize("pricing", ["spot", "on-demand", "reserved"])
def test_lists_have_type_and_pricing(cloud: Cloud, slices: CloudTpuSlices, pricing: str) -> None:
    """While it is asked for, when the node is there, and when only a node is left."""
    slice = replace(SLICE, pricing=pricing)

    def listed() -> tuple[str, str]:
        (owned,) = slices.list_all([ZONE], timeout=LONG)
        return owned.type, owned.pricing

    ask(slices, slice)
    assert listed() == ("v4-16", pricing)
    wait_for(slices, SliceState.READY, slice)
    assert listed() == ("v4-16", pricing)
    with cloud.world.lock:
        cloud.world.queued.clear()
    assert listed() == ("v4-16", pricing)


# Not knowing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GetNode", "GetQueuedResource", "ListNodes"])
@pytest.mark.parametrize(
    "code", ["UNAVAILABLE", "PERMISSION_DENIED", "UNAUTHENTICATED", "INTERNAL"]
)
def test_an_error_is_never_taken_for_absence(
    cloud: Cloud, slices: CloudTpuSlices, method: str, code: str
) -> None:
    fail(cloud, method, code)
    assert isinstance(look(slices), Unknown)
    assert look(slices) == Absent()


def test_a_slice_is_absent_only_when_both_lists_agree(cloud: Cloud, slices: CloudTpuSlices) -> None:
    ask(slices)
    wait_for(slices, SliceState.READY)
    with cloud.world.lock:
        for record in (*cloud.world.nodes.values(), *cloud.world.queued.values()):
            record.created_at -= 3600
        cloud.world.latencies = replace(QUICK, list_lag=600)
    slices.delete(SLICE, timeout=LONG)
    until(lambda: not cloud.world.nodes and not cloud.world.queued, "really gone")
    assert look(slices) == Unknown(f"{SLICE.name} is not found, but is still listed")
    with cloud.world.lock:
        cloud.world.latencies = QUICK
    until(lambda: look(slices) == Absent(), "a list of a moment ago may serve")


def test_an_emulator_that_is_gone_is_unknown_and_comes_back(cloud: Cloud, tmp_path: Path) -> None:
    slices = CloudTpuSlices(PROJECT, endpoint=f"unix:{tmp_path}/tpu.sock")
    assert isinstance(look(slices), Unknown)
    with pytest.raises(Transient):
        ask(slices)
    with pytest.raises(Transient):
        slices.delete(SLICE, timeout=5)
    with pytest.raises(Transient):
        slices.list_all([ZONE], timeout=5)
    back = TpuServer(cloud.world, tmp_path)
    until(lambda: look(slices) == Absent(), "seen again, without a new client")
    slices.close()
    back.stop()


def test_without_time_left_no_call_is_made(slices: CloudTpuSlices) -> None:
    with pytest.raises(Transient):
        slices.create(SLICE, job_id="000007", public_key=KEY, timeout=0)
    assert isinstance(slices.look(SLICE, timeout=-1), Unknown)


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "ABORTED"])
def test_an_error_of_create_is_translated(cloud: Cloud, slices: CloudTpuSlices, code: str) -> None:
    fail(cloud, "CreateQueuedResource", code)
    with pytest.raises(Refused if CALL_CODES[code] else Transient) as raised:
        ask(slices)
    assert getattr(raised.value, "cause", None) == CALL_CODES[code]


def test_a_look_says_when_the_cloud_created_the_slice(cloud: Cloud, slices: CloudTpuSlices) -> None:
    """A request may wait for hours before its node is created; a suspended one has no node any more."""
    ask(slices)
    wait_for(slices, SliceState.READY)
    with cloud.world.lock:
        for queued in cloud.world.queued.values():
            queued.created_at -= 3600
        [node] = cloud.world.nodes.values()
        created = node.created_at
        requested = next(iter(cloud.world.queued.values())).created_at
    present = look(slices)
    assert isinstance(present, Present)
    assert present.created_at == pytest.approx(created, abs=1e-3)
    listed = slices.survey([SLICE.zone], timeout=LONG).seen[SLICE.name]
    assert listed == present
    cloud.do(inject.preempt, SLICE.name, notice_s=0)
    until(lambda: not cloud.world.nodes, "suspended")
    suspended = wait_for(slices, SliceState.PREEMPTED)
    assert suspended.created_at == pytest.approx(requested, abs=1e-3)
