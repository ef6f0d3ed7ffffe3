"""The official client against the emulated API: what the real service does, where it hurts included."""

from dataclasses import replace
from typing import Any

import pytest
from google.api_core import exceptions as google
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2

from tests.support.tpu_rig import (
    PARENT,
    PROJECT,
    QUICK,
    ZONE,
    Cloud,
    node,
    node_name,
    node_state,
    queued,
    queued_name,
    queued_state,
    result,
    until,
)
from tests.support.waiting import LONG
from tpujob.emulator import inject
from tpujob.emulator.cloud.records import Latencies, id_of
from tpujob.emulator.control import Control


def ready(client: tpu_v2.TpuClient, id: str, type: str = "v4-16", *, spot: bool = True) -> None:
    result(client.create_queued_resource(queued(id, type, spot=spot)))
    until(lambda: queued_state(client, id) == "ACTIVE", f"{id} ACTIVE")


def reserved(name: str) -> dict[str, Any]:
    request = queued("q", spot=False)
    request["queued_resource"]["reservation_name"] = name
    return request


def until_time(**timestamp: int) -> dict[str, Any]:
    request = queued("q")
    request["queued_resource"]["queueing_policy"] = {"valid_until_time": timestamp}
    return request


def test_a_node_is_made_and_deleted(client: tpu_v2.TpuClient) -> None:
    operation = client.create_node(parent=PARENT, node=node("v4-32"), node_id="one")
    assert operation.metadata.verb == "create"
    assert operation.metadata.target == node_name("one")
    made = operation.result(timeout=LONG)
    assert made.state is tpu_v2.Node.State.READY
    assert made.health is tpu_v2.Node.Health.HEALTHY
    assert len({e.ip_address for e in made.network_endpoints}) == 4, "v4-32 has four hosts"
    assert made.accelerator_config.topology == "2x2x4"
    client.delete_node(name=node_name("one")).result(timeout=LONG)
    assert node_state(client, "one") == ""


def test_another_client_takes_up_an_operation_by_its_name(cloud: Cloud) -> None:
    name = cloud.client().create_node(parent=PARENT, node=node(), node_id="one").operation.name
    other = cloud.client()
    request = operations_pb2.GetOperationRequest(name=name)
    done = until(lambda: (o := other.get_operation(request)).done and o, "the operation done")
    made = tpu_v2.Node.pb()()
    assert done.response.Unpack(made)
    assert made.name == node_name("one")
    listed = other.list_operations(operations_pb2.ListOperationsRequest(name=PARENT))
    assert [o.name for o in listed.operations] == [name]


def test_a_queued_resource_becomes_active(client: tpu_v2.TpuClient) -> None:
    accepted = result(client.create_queued_resource(queued("q", labels={"team": "blue"})))
    assert accepted.state.state.name == "ACCEPTED", "the operation does not wait for the slice"
    until(lambda: queued_state(client, "q") == "ACTIVE", "ACTIVE")
    made = client.get_node(name=node_name("q"))
    assert made.state is tpu_v2.Node.State.READY
    assert made.queued_resource == queued_name("q")
    assert made.scheduling_config.spot
    assert dict(made.labels) == {"team": "blue"}
    shown = client.get_queued_resource(name=queued_name("q"))
    assert dict(shown.tpu.node_spec[0].node.labels) == {"team": "blue"}


def test_the_same_request_id_starts_nothing_twice(client: tpu_v2.TpuClient) -> None:
    request = {**queued("q"), "request_id": "6f1d2a52-4c6e-4f0e-9a51-7d9f2f5a1b11"}
    first = client.create_queued_resource(request)
    again = client.create_queued_resource(request)
    assert again.operation.name == first.operation.name


NETWORK = {"network": "projects/p/global/networks/lab"}
MARS = {**queued("q"), "parent": f"projects/{PROJECT}/locations/mars-1-a"}
#: by what is wrong: the request, and what is answered
REFUSED = {
    "size": (
        queued("q", "v4-99"),
        '400 .*invalid AcceleratorType, "v4-99" for zone "us-central2-b"',
    ),
    "zone-lacks-type": (queued("q", "v5litepod-8"), "400 .*invalid AcceleratorType"),
    "name": (queued("Q_1"), "400 .*lowercase letter"),
    "no-spec": ({**queued("q"), "queued_resource": {"spot": {}}}, "400 .*node spec"),
    "two-tiers": (queued("q", scheduling_config={"preemptible": True}), "400 .*scheduling_config"),
    "reserved-in-the-node": (
        queued("q", spot=False, scheduling_config={"reserved": True}),
        "400 .*scheduling_config must not be set",
    ),
    "reservation": (reserved("ours"), "400 .*reservation name"),
    "reservation-elsewhere": (
        reserved(f"projects/{PROJECT}/locations/us-east5-a/reservations/-"),
        "400 .*reservation name",
    ),
    "reservation-unknown": (
        reserved(f"projects/{PROJECT}/locations/{ZONE}/reservations/ours"),
        "404 .*'reservations/ours'",
    ),
    "runtime": (queued("q", runtime_version="tpu-vm"), "400 .*runtime version"),
    "runtime-of-others": (
        queued("q", runtime_version="v2-alpha-tpuv5"),
        '400 .*for zone "us-central2-b" and version "v2-alpha-tpuv5"',
    ),
    "label-capital": (queued("q", labels={"Team": "blue"}), "400 .*lowercase letters"),
    "label-long": (queued("q", labels={"team": "b" * 64}), "400 .*lowercase letters"),
    "network": (
        queued("q", network_config=NETWORK),
        "404 The resource 'networks/lab' was not found",
    ),
    "subnetwork": (
        queued("q", network_config={"subnetwork": "lab"}),
        "404 .*'subnetworks/lab' was",
    ),
    "account": (
        queued("q", service_account={"email": "a@p.iam.gserviceaccount.com"}),
        "404 .*'serviceAccounts/a@p.iam",
    ),
    "disk": (
        queued("q", data_disks=[{"source_disk": "projects/p/zones/z/disks/d"}]),
        "404 .*disks/d",
    ),
    "valid-until-past": (until_time(seconds=1), "400 .*must be in the future"),
    "other-zone": (MARS, "400 .*must name the zone"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_bad_requests_are_refused(client: tpu_v2.TpuClient, wrong: str) -> None:
    request, answer = REFUSED[wrong]
    with pytest.raises(google.ClientError, match=answer):
        client.create_queued_resource(request)
    assert not list(client.list_queued_resources(parent=PARENT))


def test_an_added_network_is_accepted_until_removed(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    control = Control(cloud.world)
    lab = {"kind": "network", "name": "projects/p/global/networks/lab"}
    in_lab = {"network_config": {"network": "lab", "subnetwork": "lab"}}
    assert control.perform("POST", "/add", lab)[0] == 200
    result(client.create_queued_resource(queued("q", **in_lab)))
    assert control.perform("POST", "/add", {**lab, "off": True})[0] == 200
    with pytest.raises(google.NotFound, match="networks/lab"):
        client.create_queued_resource(queued("r", **in_lab))
    with pytest.raises(google.NotFound, match="networks/lab"):
        client.create_node(parent=PARENT, node=node(**in_lab), node_id="r")
    status, answer = control.perform("POST", "/add", {"kind": "vpc", "name": "lab"})
    assert (status, "not one of network, subnetwork" in answer["error"]) == (400, True)


def test_names_are_taken_once(client: tpu_v2.TpuClient) -> None:
    ready(client, "q")
    with pytest.raises(google.AlreadyExists):
        client.create_queued_resource(queued("q"))
    with pytest.raises(google.AlreadyExists):
        client.create_node(parent=PARENT, node=node(), node_id="q")


def test_a_stockout_ends_the_creation_of_a_node(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    cloud.do(inject.stockout, ZONE, "v4")
    operation = client.create_node(parent=PARENT, node=node(), node_id="one")
    with pytest.raises(google.ResourceExhausted, match="no more capacity in the zone"):
        result(operation)
    until(lambda: node_state(client, "one") == "", "nothing left behind")


def test_suspended_still_counts_against_the_quota(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    cloud.do(inject.quota, ZONE, "v4-16", 16, "spot")
    ready(client, "q")
    cloud.do(inject.preempt, "q", notice_s=0)
    until(lambda: queued_state(client, "q") == "SUSPENDED", "SUSPENDED")
    limit = "Quota 'TPUV4sPreemptiblePodPerProjectPerZoneForTPUAPI' exhausted. Limit 16 in zone"
    with pytest.raises(google.ResourceExhausted, match=limit):
        client.create_queued_resource(queued("r"))
    client.create_queued_resource(queued("on-demand", spot=False))
    result(client.delete_queued_resource({"name": queued_name("q"), "force": True}))
    ready(client, "r")


def test_a_preempted_request_is_suspended_by_google(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    ready(client, "q")
    with cloud.world.lock:
        cloud.world.latencies = replace(QUICK, suspend=0.2)
        inject.preempt(cloud.world, "", notice_s=0)
    until(lambda: node_state(client, "q") == "PREEMPTED", "PREEMPTED")
    until(lambda: queued_state(client, "q") == "SUSPENDED", "SUSPENDED")
    state = client.get_queued_resource(name=queued_name("q")).state
    assert state.state_initiator.name == "SERVICE"
    result(client.reset_queued_resource(name=queued_name("q")))
    until(lambda: queued_state(client, "q") == "ACTIVE", "ACTIVE again after a reset")


def test_a_request_waits_no_longer_than_asked(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    cloud.do(inject.stockout, ZONE)
    request = queued("q")
    request["queued_resource"]["queueing_policy"] = {"valid_until_duration": {"nanos": 80_000_000}}
    client.create_queued_resource(request)
    policy = client.get_queued_resource(name=queued_name("q")).queueing_policy
    assert not policy.valid_until_duration, "the API answers with a time, whatever it was sent"
    assert policy.valid_until_time
    until(lambda: queued_state(client, "q") == "FAILED", "FAILED when its time is over")


def test_a_request_that_may_not_wait_is_refused(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    now = 1_800_000_000.046
    cloud.world.clock = lambda: now
    assert int(now * 1e9) / 1e9 > now, "in nanoseconds and back, it is later"
    request = queued("q")
    request["queued_resource"]["queueing_policy"] = {"valid_until_duration": {}}
    with pytest.raises(google.InvalidArgument, match="must be in the future"):
        client.create_queued_resource(request)


def test_only_a_single_host_can_be_stopped(client: tpu_v2.TpuClient) -> None:
    result(client.create_node(parent=PARENT, node=node("v4-8"), node_id="one"))
    result(client.create_node(parent=PARENT, node=node("v4-16"), node_id="two"))
    assert result(client.stop_node({"name": node_name("one")})).state.name == "STOPPED"
    assert result(client.start_node({"name": node_name("one")})).state.name == "READY"
    with pytest.raises(google.FailedPrecondition):
        client.stop_node({"name": node_name("two")})


def test_a_list_that_lags_shows_the_past(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    ready(client, "old")
    with cloud.world.lock:
        for record in (*cloud.world.nodes.values(), *cloud.world.queued.values()):
            record.created_at -= 3600
        cloud.world.latencies = Latencies(0.01, 0.01, 0.01, 0.01, 0.01, list_lag=600)
    ready(client, "new")
    result(client.delete_queued_resource({"name": queued_name("old"), "force": True}))
    assert node_state(client, "old") == "", "get is up to date"
    assert [n.name for n in client.list_nodes(parent=PARENT)] == [node_name("old")]


def test_long_lists_come_in_pages(cloud: Cloud) -> None:
    paged = Cloud(page_size=2)
    client = paged.client()
    names = [f"n{k}" for k in range(5)]
    for name in names:
        client.create_node(parent=PARENT, node=node("v4-8"), node_id=name)
    assert len(client.list_nodes(parent=PARENT).nodes) == 2
    assert [n.name for n in client.list_nodes(parent=PARENT)] == [node_name(n) for n in names]
    everywhere = client.list_nodes(parent=f"projects/{PROJECT}/locations/-")
    assert len(list(everywhere)) == 5
    paged.stop()


def test_a_zone_lists_its_types_and_runtimes(client: tpu_v2.TpuClient) -> None:
    types = {t.type_ for t in client.list_accelerator_types(parent=PARENT)}
    assert {"v4-8", "v4-4096"} <= types
    assert "v5p-8" not in types
    v4_16 = client.get_accelerator_type(name=f"{PARENT}/acceleratorTypes/v4-16")
    assert v4_16.accelerator_configs[0].topology == "2x2x2"
    versions = {v.version for v in client.list_runtime_versions(parent=PARENT)}
    assert "tpu-ubuntu2204-base" in versions
    zones = client.list_locations(locations_pb2.ListLocationsRequest(name=f"projects/{PROJECT}"))
    assert ZONE in {zone.location_id for zone in zones.locations}


def test_runtime_versions_of_every_family_are_known(client: tpu_v2.TpuClient) -> None:
    tensorflow = ("tpu-vm-tf-2.17.0-pjrt", "tpu-vm-tf-2.16.1-pod-pjrt")
    others = (
        "tpu-vm-base",
        "tpu-ubuntu2204-base",
        "tpu-vm-pt-2.0",
        "tpu-vm-v4-pt-1.13",
        "v2-alpha",
    )
    versions = (*tensorflow, *others, "v2-alpha-tpuv4-pod", "tpu-vm-cos-109")
    for number, version in enumerate(versions):
        client.create_queued_resource(queued(f"q{number}", runtime_version=version))
    assert len(list(client.list_queued_resources(parent=PARENT))) == len(versions)


def several(**how: Any) -> dict[str, Any]:
    request = queued("many")
    spec = request["queued_resource"]["tpu"]["node_spec"][0]
    del spec["node_id"]
    spec["multislice_params"] = how
    return request


def test_several_slices_of_one_request(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    with pytest.raises(google.InvalidArgument, match="greater than 1"):
        client.create_queued_resource(several(node_count=1))
    client.create_queued_resource(several(node_count=2, node_id_prefix="one"))
    until(lambda: queued_state(client, "many") == "ACTIVE", "ACTIVE when both are ready")
    listed = list(client.list_nodes(parent=PARENT))
    assert [(id_of(n.name), n.state.name) for n in listed] == [
        ("one-0", "READY"),
        ("one-1", "READY"),
    ]
    assert all(n.multislice_node and id_of(n.queued_resource) == "many" for n in listed)
    for api in (client, cloud.alpha()):
        shown = api.get_queued_resource(name=queued_name("many")).tpu.node_spec
        assert [(spec.node_id, spec.node.accelerator_type) for spec in shown] == [
            ("one-0", "v4-16"),
            ("one-1", "v4-16"),
        ]
    with pytest.raises(google.FailedPrecondition, match="still has nodes"):
        client.delete_queued_resource(name=queued_name("many"))
    result(client.delete_queued_resource({"name": queued_name("many"), "force": True}))
    assert not list(client.list_nodes(parent=PARENT))


def test_several_slices_are_named_after_the_request_by_default(client: tpu_v2.TpuClient) -> None:
    client.create_queued_resource(several(node_count=2))
    until(lambda: queued_state(client, "many") == "ACTIVE", "ACTIVE when all are ready")
    made = [id_of(n.name) for n in client.list_nodes(parent=PARENT)]
    assert made == ["many-0", "many-1"]


def test_the_alpha_version_answers_the_same_with_its_own_enum_numbers(cloud: Cloud) -> None:
    alpha, client = cloud.alpha(), cloud.client()
    spec = {"parent": PARENT, "node_id": "q", "node": node(labels={"a": "b"})}
    request = {
        "parent": PARENT,
        "queued_resource_id": "q",
        "queued_resource": {"tpu": {"node_spec": [spec]}, "guaranteed": {"reserved": True}},
    }
    made = result(alpha.create_queued_resource(request))
    assert isinstance(made, tpu_v2alpha1.QueuedResource)
    until(lambda: queued_state(client, "q") == "ACTIVE", "ACTIVE, as v2 sees it")
    seen, shown = client.get_node(name=node_name("q")), alpha.get_node(name=node_name("q"))
    assert seen.scheduling_config.reserved
    assert dict(shown.labels) == {"a": "b"}
    assert shown.accelerator_config.topology == seen.accelerator_config.topology == "2x2x2"
    assert shown.queued_resource == seen.queued_resource
    result(alpha.simulate_maintenance_event({"name": node_name("q"), "worker_ids": ["0"]}))
    assert alpha.get_node(name=node_name("q")).health.name == "UNHEALTHY_MAINTENANCE"
    gone = result(alpha.delete_queued_resource({"name": queued_name("q"), "force": True}))
    assert isinstance(gone, tpu_v2alpha1.QueuedResource)
    assert node_state(client, "q") == ""
