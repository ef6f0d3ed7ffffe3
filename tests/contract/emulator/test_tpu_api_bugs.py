"""Rare behaviour of Google's service, each by its switch, through the official client."""

from dataclasses import replace

import pytest
from google.api_core import exceptions as google
from google.cloud import tpu_v2

from tests.support.tpu_rig import (
    PARENT,
    PROJECT,
    QUICK,
    ZONE,
    Cloud,
    node_name,
    queued,
    queued_name,
    queued_state,
    result,
    until,
)
from tpujob.emulator import inject

EVERYWHERE = f"projects/{PROJECT}/locations/-"


def switch(cloud: Cloud, name: str, *, off: bool = False) -> None:
    cloud.do(inject.api_bug, name, off)


def ready(client: tpu_v2.TpuClient, id: str = "q") -> None:
    client.create_queued_resource(queued(id, labels={"team": "blue"}, metadata={"color": "red"}))
    until(lambda: queued_state(client, id) == "ACTIVE", f"{id} ACTIVE")


def suspending(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    """One that the service is suspending, for as long as the test lasts."""
    ready(client)
    with cloud.world.lock:
        cloud.world.latencies = replace(QUICK, suspend=600)
        inject.preempt(cloud.world, "q", notice_s=0)
    until(lambda: queued_state(client, "q") == "SUSPENDING", "SUSPENDING")


def test_an_accepted_request_is_a_conflict(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    switch(cloud, "late-conflict")
    with pytest.raises(google.AlreadyExists):
        client.create_queued_resource(queued("q"))
    until(lambda: queued_state(client, "q") == "ACTIVE", "ACTIVE all the same")


def test_an_operation_conflicts_with_what_it_made(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    switch(cloud, "late-conflict-operation")
    operation = client.create_queued_resource(queued("q"))
    with pytest.raises(google.AlreadyExists):
        result(operation)
    until(lambda: queued_state(client, "q") == "ACTIVE", "ACTIVE all the same")


def test_answers_lack_labels_and_have_metadata(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    ready(client)
    switch(cloud, "no-labels")
    nodes = [client.get_node(name=node_name("q")), *client.list_nodes(parent=PARENT)]
    requests = [
        client.get_queued_resource(name=queued_name("q")),
        *client.list_queued_resources(parent=PARENT),
    ]
    for node in (*nodes, *(request.tpu.node_spec[0].node for request in requests)):
        assert (dict(node.labels), dict(node.metadata)) == ({}, {"color": "red"})
    switch(cloud, "no-labels", off=True)
    assert dict(client.get_node(name=node_name("q")).labels) == {"team": "blue"}


def test_a_forced_deletion_in_suspension_hangs(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    switch(cloud, "wedge")
    suspending(cloud, client)
    client.delete_queued_resource({"name": queued_name("q"), "force": True})
    until(lambda: not cloud.world.nodes, "its node is gone")
    assert queued_state(client, "q") == "DELETING"
    again = client.delete_queued_resource({"name": queued_name("q"), "force": True})
    assert not again.done()
    assert queued_state(client, "q") == "DELETING"
    switch(cloud, "wedge", off=True)
    client.delete_queued_resource({"name": queued_name("q"), "force": True})
    until(lambda: queued_state(client, "q") == "", "gone")


def test_a_suspended_one_is_deleted_all_the_same(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    switch(cloud, "wedge")
    ready(client)
    cloud.do(inject.preempt, "q", notice_s=0)
    until(lambda: queued_state(client, "q") == "SUSPENDED", "SUSPENDED")
    result(client.delete_queued_resource({"name": queued_name("q"), "force": True}))
    assert queued_state(client, "q") == ""


def test_google_suspends_it_after_its_maximum_run(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    cloud.do(inject.max_run, 0.05)
    client.create_queued_resource(queued("q"))
    until(lambda: queued_state(client, "q") == "SUSPENDED", "SUSPENDED")
    state = client.get_queued_resource(name=queued_name("q")).state
    assert state.state_initiator.name == "SERVICE"
    until(lambda: not cloud.world.nodes, "its node is deleted")


def test_a_list_says_which_zones_it_could_not_reach(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    ready(client)
    cloud.do(inject.unreachable, ZONE)
    for parent in (PARENT, EVERYWHERE):
        nodes = client.list_nodes(parent=parent)
        requests = client.list_queued_resources(parent=parent)
        assert (list(nodes.nodes), list(requests.queued_resources)) == ([], [])
        assert list(nodes.unreachable) == list(requests.unreachable) == [PARENT]
    cloud.do(inject.unreachable, ZONE, off=True)
    assert [node.name for node in client.list_nodes(parent=EVERYWHERE)] == [node_name("q")]
