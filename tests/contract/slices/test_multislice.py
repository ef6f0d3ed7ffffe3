"""The port Slices where one slice of ours is several of the cloud's: Multislice."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from google.cloud import tpu_v2

from tests.contract.slices.tpu_slices import SLICE, ask, fail, gone, look, wait_for
from tests.support.tpu_rig import PARENT, ZONE, Cloud, node, node_name, until
from tests.support.waiting import LONG
from tpujob.adapters.cloud_tpu import CloudTpuSlices
from tpujob.adapters.cloud_tpu.calls import refusal
from tpujob.adapters.cloud_tpu.messages import queued_seen
from tpujob.adapters.cloud_tpu.request import node_ids, slice_of
from tpujob.adapters.cloud_tpu.slice_state import (
    NODE_STATES,
    QUEUED_STATES,
    NodeSeen,
    QueuedSeen,
    slice_state,
)
from tpujob.domain.model import Endpoint
from tpujob.domain.observations import Absent, Present, SliceState, Unknown
from tpujob.emulator import inject

THREE = replace(SLICE, tpu_slices=3)
OURS = {"tpujob": "1", "tpujob-job": "000007", "tpujob-owner": "local"}


def nodes(cloud: Cloud) -> list[str]:
    with cloud.world.lock:
        return sorted(n.id for n in cloud.world.nodes.values())


@pytest.mark.parametrize(
    "specs",
    [
        [{"multislice_params": {"node_count": 3, "node_id_prefix": "one"}}],
        [{"node_id": f"one-{place}"} for place in range(3)],
    ],
    ids=["as requested", "one spec a node"],
)
def test_the_nodes_of_a_request_are_counted_in_both_forms(specs: list[dict[str, Any]]) -> None:
    shown = tpu_v2.QueuedResource(tpu={"node_spec": [{**spec, "node": node()} for spec in specs]})
    assert queued_seen(shown).nodes == 3


# The life of it ------------------------------------------------------------------------------------------------------


def test_a_node_without_guest_attributes_does_not_hide_those_of_the_others(
    slices: CloudTpuSlices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the keys of all hosts would be pinned at the first contact. The text is Google's."""
    key = {"query_value": {"items": [{"key": "ssh-ed25519", "value": "AAAA"}]}}
    text = 'Cloud TPU received an invalid argument. The "GuestAttributes" value "" was not found.'

    def answer(_method: str, request: dict[str, Any], *_: object) -> Any:
        if request["name"].endswith("-0"):
            raise refusal("looking", "INVALID_ARGUMENT", text)
        return tpu_v2.GetGuestAttributesResponse(guest_attributes=[key, key])

    monkeypatch.setattr(slices.api, "call", answer)
    ready = replace(THREE, endpoints=tuple(Endpoint(host, "10.0.0.1") for host in range(6)))
    hosts = slices.guest_attributes.look(ready, 20)
    assert [len(host.host_keys) for host in hosts] == [0, 0, 1, 1, 1, 1]


def test_many_slices_are_created_and_deleted_as_one(cloud: Cloud, slices: CloudTpuSlices) -> None:
    assert look(slices, THREE) == Absent()
    ask(slices, THREE)
    seen = wait_for(slices, SliceState.READY, THREE)
    assert nodes(cloud) == [f"{THREE.name}-{place}" for place in range(3)]
    assert [e.host for e in seen.endpoints] == list(range(6)), "numbered through"
    client = cloud.client()
    listed = [
        endpoint.ip_address
        for id in node_ids(THREE)
        for endpoint in client.get_node(name=node_name(id)).network_endpoints
    ]
    assert [e.internal_ip for e in seen.endpoints] == listed, "the hosts of the first slice first"
    ask(slices, THREE)  # what is already there is adopted
    slices.delete(THREE, timeout=LONG)
    gone(slices, THREE)
    assert nodes(cloud) == []
    slices.delete(THREE, timeout=LONG)  # absent is success


def test_one_preempted_slice_of_several_preempts_all(cloud: Cloud, slices: CloudTpuSlices) -> None:
    ask(slices, THREE)
    wait_for(slices, SliceState.READY, THREE)
    cloud.do(inject.preempt, node_ids(THREE)[2], notice_s=0)
    seen: set[SliceState] = set()
    while "SUSPENDED" not in str(now := look(slices, THREE)):
        assert isinstance(now, Present), now
        seen.add(now.state)
    assert seen <= {SliceState.READY, SliceState.PREEMPTED}, "nothing else on the way"
    wait_for(slices, SliceState.PREEMPTED, THREE)
    slices.delete(THREE, timeout=LONG)
    gone(slices, THREE)
    assert nodes(cloud) == []


# Half of it ----------------------------------------------------------------------------------------------------------


def left_over(cloud: Cloud, slices: CloudTpuSlices, *places: int) -> None:
    """Nodes of a slice whose queued resource is gone, and which are not all there."""
    client = cloud.client()
    for place in places:
        leftover = node(labels=OURS, scheduling_config={"spot": True})
        client.create_node(parent=PARENT, node=leftover, node_id=f"{THREE.name}-{place}")
    names = [f"{THREE.name}-{place}" for place in places]
    until(lambda: nodes(cloud) == names, "what is left over")


def test_one_of_several_slices_is_no_answer_for_all(cloud: Cloud, slices: CloudTpuSlices) -> None:
    left_over(cloud, slices, 0, 2)
    seen = look(slices, THREE)
    assert isinstance(seen, Present)
    assert (seen.state, seen.detail) == (
        SliceState.PREEMPTED,
        "node 1 of 3 does not exist any more",
    )
    slices.delete(THREE, timeout=LONG)
    gone(slices, THREE)
    assert nodes(cloud) == []


def test_a_list_without_a_node_does_not_make_it_gone(cloud: Cloud, slices: CloudTpuSlices) -> None:
    """Lists of the real service lag; the name itself decides."""
    ask(slices, THREE)
    wait_for(slices, SliceState.READY, THREE)
    with cloud.world.lock:
        cloud.world.latencies = replace(cloud.world.latencies, list_lag=600)
        for record in (*cloud.world.nodes.values(), *cloud.world.queued.values()):
            record.created_at -= 3600
        cloud.world.get_node(node_name(node_ids(THREE)[1])).created_at += 3600
    assert len(list(cloud.client().list_nodes(parent=PARENT))) == 2, "the list lacks one"
    listed = slices.survey([ZONE], timeout=LONG).seen[THREE.name]
    assert isinstance(listed, Present)
    assert listed.state is SliceState.PREEMPTED, "see also test_slice_cache.py"
    seen = look(slices, THREE)
    assert isinstance(seen, Present)
    assert seen.state is SliceState.READY
    assert len(seen.endpoints) == 6


@pytest.mark.parametrize("method", ["GetQueuedResource", "ListNodes"])
def test_unreadable_slices_are_unknown(cloud: Cloud, slices: CloudTpuSlices, method: str) -> None:
    fail(cloud, method, "UNAVAILABLE")
    assert isinstance(look(slices, THREE), Unknown)
    assert look(slices, THREE) == Absent()


def test_many_slices_are_listed_as_one_even_in_part(cloud: Cloud, slices: CloudTpuSlices) -> None:
    """So that it is claimed by its job, and deleted as a whole where no job claims it."""
    ask(slices, THREE)
    (requested,) = slices.list_all([ZONE], timeout=LONG)
    wait_for(slices, SliceState.READY, THREE)
    (ready,) = slices.list_all([ZONE], timeout=LONG)
    assert [(o.name, o.tpu_slices, o.type) for o in (requested, ready)] == [
        (THREE.name, 3, "v4-16")
    ] * 2
    assert ready.detail == "queued resource ACTIVE, node READY"
    slices.delete(THREE, timeout=LONG)
    gone(slices, THREE)
    left_over(cloud, slices, 0, 2)
    (remaining,) = slices.list_all([ZONE], timeout=LONG)
    assert (remaining.name, remaining.tpu_slices) == (THREE.name, 3)
    # As the sweep deletes it: all that it knows is what was listed.
    slices.delete(
        replace(SLICE, name=remaining.name, tpu_slices=remaining.tpu_slices), timeout=LONG
    )
    until(lambda: nodes(cloud) == [], "all that was left is deleted")


def test_the_names_of_nodes_lead_back_to_their_request() -> None:
    assert [slice_of(id) for id in node_ids(THREE)] == [(THREE.name, place) for place in range(3)]
    assert [slice_of(id) for id in node_ids(SLICE)] == [(SLICE.name, 0)]
    assert slice_of("my-tpu-1") == ("my-tpu-1", 0), "of another owner"
    for word in ("5f0c9a1e", "12345678"):
        for s in (replace(slice_, name=f"tj-000007-1-{word}") for slice_ in (SLICE, THREE)):
            nodes = node_ids(s)
            assert [slice_of(id) for id in nodes] == [(s.name, at) for at in range(len(nodes))]


# The rules, whole ----------------------------------------------------------------------------------------------------


def hosts(number: int) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(host, f"10.0.{number}.{host}") for host in range(2))


#: one node in each kind of state that the table knows, or none; and what is seen of two nodes where it is the stronger
#: one
KINDS: Sequence[tuple[NodeSeen | None, SliceState | None]] = (
    (NodeSeen("PREEMPTED"), SliceState.PREEMPTED),
    (NodeSeen("STOPPED"), SliceState.STOPPED),
    (NodeSeen("DELETING"), SliceState.DELETING),
    (None, SliceState.PREEMPTED),
    (NodeSeen("UNKNOWN"), None),
    (NodeSeen("REPAIRING", hosts(0)), SliceState.REPAIRING),
    (NodeSeen("CREATING"), SliceState.CREATING),
    (NodeSeen("READY", hosts(0)), SliceState.READY),
)


def state(seen: Present | Unknown | None) -> SliceState | None:
    assert seen is not None
    return seen.state if isinstance(seen, Present) else None


def test_every_pair_of_nodes_has_the_state_of_the_stronger_one() -> None:
    assert {NODE_STATES[n.state] for n, _ in KINDS if n} == set(NODE_STATES.values())
    assert slice_state(None, [None, None]) is None
    assert state(slice_state(QueuedSeen("ACTIVE"), [None, None])) is None, "it should be there"
    for first, second in itertools.product(range(len(KINDS)), repeat=2):
        pair = [KINDS[first][0], KINDS[second][0]]
        for queued in (None, QueuedSeen("ACTIVE")):
            if any(pair):
                expected = KINDS[min(first, second)][1]
                assert state(slice_state(queued, pair)) is expected, pair


def test_the_state_of_a_request_comes_before_that_of_its_nodes() -> None:
    nodes = [node for node, _ in KINDS]
    for word, meaning in QUEUED_STATES.items():
        if meaning is SliceState.READY:
            continue  # then the nodes decide
        for pair in itertools.product(nodes, repeat=2):
            lost = any(n and n.state == "PREEMPTED" for n in pair)
            early = meaning in (SliceState.WAITING, SliceState.CREATING)
            expected = SliceState.PREEMPTED if lost and early else meaning
            assert state(slice_state(QueuedSeen(word), pair)) is expected, (word, pair)


def test_the_node_that_is_in_the_way_is_named() -> None:
    ready, preempted = NodeSeen("READY", hosts(0)), NodeSeen("PREEMPTED")
    seen = slice_state(QueuedSeen("ACTIVE"), [ready, preempted, ready])
    assert seen == Present(SliceState.PREEMPTED, (), "node 1 is PREEMPTED")
    unknown = slice_state(QueuedSeen("ACTIVE"), [ready, ready, NodeSeen("99")])
    assert unknown == Unknown("node 2 is in state 99")


def test_hosts_are_numbered_through_and_only_when_all_are_known() -> None:
    first, second = NodeSeen("READY", hosts(0)), NodeSeen("READY", hosts(1), "TIMEOUT")
    seen = slice_state(QueuedSeen("ACTIVE"), [first, second])
    assert isinstance(seen, Present)
    addresses = ["10.0.0.0", "10.0.0.1", "10.0.1.0", "10.0.1.1"]
    assert [(e.host, e.internal_ip) for e in seen.endpoints] == [*enumerate(addresses)]
    assert seen.detail.startswith("node 1: TIMEOUT")
    half = slice_state(QueuedSeen("ACTIVE"), [first, NodeSeen("READY", hosts(1)[:1])])
    assert state(half) is SliceState.CREATING
    assert (
        state(slice_state(QueuedSeen("ACTIVE"), [first, NodeSeen("READY")])) is SliceState.CREATING
    )
