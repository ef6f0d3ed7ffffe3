"""The REST face of the emulated API: by the official client's REST transport, and as HTTP and JSON."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions as google
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2

from tests.support import http
from tests.support.tpu_rig import (
    PARENT,
    PROJECT,
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
from tpujob.emulator.fault_commands import perform
from tpujob.emulator.tpu import rest
from tpujob.emulator.tpu.server import services

V2, ALPHA = f"/v2/{PARENT}", f"/v2alpha1/{PARENT}"
SPEC = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    made = Cloud()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def client(cloud: Cloud) -> Iterator[tpu_v2.TpuClient]:
    made = tpu_v2.TpuClient(
        transport="rest",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": cloud.rest().url},
    )
    with made:
        yield made


def ask(cloud: Cloud, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Return status and answer of one request with nothing between the test and the wire."""
    text = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    status, _, answer = http.ask(cloud.rest().url, method, path, headers, text, timeout=LONG)
    return status, answer


V6E = {"acceleratorType": "v6e-8", "runtimeVersion": "v2-alpha-tpuv6e"}


def asked(id: str, **fields: Any) -> dict[str, Any]:
    """The body of a request for a queued resource with one node."""
    return {"tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": id, "node": SPEC}]}, **fields}


def test_every_call_has_one_http_rule_in_each_version(cloud: Cloud) -> None:
    ruled = [(rule.version, rule.call) for rule in rest.http_rules()]
    assert len(ruled) == len(set(ruled))
    for service, calls in services(cloud.world).items():
        version = service.split(".")[-2]
        versions = (version,) if version in ("v2", "v2alpha1") else ("v2", "v2alpha1")
        assert {(version, call) for version in versions for call in calls} <= set(ruled), service


@pytest.mark.parametrize(
    "rule", [*rest.http_rules()], ids=lambda rule: f"{rule.version}-{rule.call}"
)
def test_each_path_leads_to_its_own_call_alone(rule: rest.HttpRule) -> None:
    field = re.search(r"{([\w.]+)=(.*?)}", rule.uri)
    assert field
    name = field[2].replace("projects/*", "projects/example.com:p").replace("*", "one-1")
    path = rule.uri.replace(field[0], name)
    matches = [(other.call, other.match(rule.method, path)) for other in rest.http_rules()]
    assert [match for match in matches if match[1] is not None] == [(rule.call, {field[1]: name})]


def test_the_official_rest_client_handles_a_slice(cloud: Cloud, client: tpu_v2.TpuClient) -> None:
    accepted = result(client.create_queued_resource(queued("q", labels={"team": "blue"})))
    assert accepted.state.state.name == "ACCEPTED"
    until(lambda: queued_state(client, "q") == "ACTIVE", "ACTIVE")
    made = client.get_node(name=node_name("q"))
    assert made.state is tpu_v2.Node.State.READY
    assert made.id > 0, "an int64"
    assert made == cloud.client().get_node(name=node_name("q")), "gRPC shows the same"
    assert [r.name for r in client.list_queued_resources(parent=PARENT)] == [queued_name("q")]
    with pytest.raises(google.BadRequest, match="force"):
        client.delete_queued_resource(name=queued_name("q"))
    result(client.delete_queued_resource({"name": queued_name("q"), "force": True}))
    assert (queued_state(client, "q"), node_state(client, "q")) == ("", "")


def test_the_official_rest_client_gets_the_errors_of_the_api(client: tpu_v2.TpuClient) -> None:
    with pytest.raises(google.NotFound, match="was not found"):
        client.get_node(name=node_name("nobody"))
    with pytest.raises(google.Forbidden, match="is not found or access is unauthorized"):
        client.get_node(name=f"projects/{PROJECT}/locations/mars1-a/nodes/one")
    with pytest.raises(google.BadRequest, match="invalid AcceleratorType"):
        client.create_node(parent=PARENT, node=node("v4-99"), node_id="one")


def test_json_is_as_google_spells_it(cloud: Cloud) -> None:
    status, started = ask(cloud, "POST", f"{V2}/nodes?nodeId=spelled&alt=json", SPEC)
    assert status == 200
    assert started["metadata"]["@type"].endswith("google.cloud.tpu.v2.OperationMetadata")
    path = f"/v2/{started['name']}"
    done = until(lambda: (o := ask(cloud, "GET", path)[1]).get("done") and o, "the operation done")
    made = done["response"]
    assert made["@type"] == "type.googleapis.com/google.cloud.tpu.v2.Node"
    assert made["state"] == "READY"
    assert made["acceleratorConfig"] == {"type": "V4", "topology": "2x2x1"}
    assert made["id"].isdecimal(), "an int64 is a text"
    by_number = ask(cloud, "GET", f"{V2}/nodes/spelled?%24alt=json;enum-encoding=int")[1]
    assert by_number["state"] == int(tpu_v2.Node.State.READY)
    status, page = ask(cloud, "GET", f"{V2}/acceleratorTypes?pageSize=2")
    assert status == 200
    assert len(page["acceleratorTypes"]) == 2
    assert page["nextPageToken"]
    assert ask(cloud, "DELETE", f"{V2}/nodes/spelled")[0] == 200
    until(lambda: ask(cloud, "GET", f"{V2}/nodes/spelled")[0] == 404, "the node gone")


ONE, ASK = f"{V2}/nodes?nodeId=one", "queuedResources?queuedResourceId=one"


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "text"),
    [
        ("GET", f"{V2}/nothing", None, "404 NOT_FOUND", "Method not found."),
        ("PUT", f"{V2}/nodes/one", {}, "404 NOT_FOUND", "Method not found."),
        ("GET", f"/v1/{PARENT}/nodes", None, "404 NOT_FOUND", "Method not found."),
        ("PATCH", f"{V2}/nodes/one?updateMask=tags", {}, "400 UNIMPLEMENTED", "UpdateNode"),
        (
            "POST",
            ONE,
            {"node_type": "v4-8"},
            "",
            'no field named "node_type" at "CreateNodeRequest.node"',
        ),
        (
            "POST",
            f"{V2}/{ASK}",
            {"tpu": {"nodeSpec": [{"node": {"bootDisk": "big"}}]}},
            "",
            '"google.cloud.tpu.v2.Node" has no field named "bootDisk" at "CreateQueuedResourceRequest',
        ),
        ("POST", f"{V2}/{ASK}", asked("one", bestEffort={}), "", 'no field named "bestEffort"'),
        (
            "POST",
            f"{ALPHA}/{ASK}",
            asked("one", provisioningModel="FLEX_START"),
            "",
            "FLEX_START needs a run_duration.max_run_duration of at most 7 days",
        ),
        (
            "POST",
            f"{ALPHA}/{ASK}",
            asked("one", provisioningModel="RESERVATION_BOUND"),
            "",
            "RESERVATION_BOUND needs a reservation_name",
        ),
        (
            "POST",
            f"{ALPHA}/{ASK}",
            asked("one", provisioningModel="LATER"),
            "",
            "Invalid value at 'queued_resource.provisioning_model': 'LATER'",
        ),
        (
            "POST",
            f"{ALPHA}/{ASK}",
            asked("one", provisioningModel="FLEX_START", runDuration={"maxRunDuration": 60}),
            "",
            "Invalid JSON payload received.",
        ),
        (
            "POST",
            f"{ALPHA}/{ASK}",
            asked("one", runDuration="60s"),
            "",
            "Invalid value at 'queued_resource.run_duration': '60s'",
        ),
        (
            "POST",
            f"{V2}/{ASK}",
            asked("one", runDuration={"maxRunDuration": "60s"}),
            "",
            'no field named "runDuration"',
        ),
        (
            "GET",
            f"{V2}/nodes?size=2",
            None,
            "",
            "Unknown name \"size\": Cannot bind query parameter. Field 'size' could not be found",
        ),
        ("GET", f"{V2}/nodes?pageSize=two", None, "", "page"),
        ("DELETE", f"{V2}/queuedResources/q?force=1", None, "", "force"),
        ("POST", ONE, b"{", "", "Invalid JSON payload received."),
        ("POST", ONE, b"[]", "", "JSON"),
        ("POST", ONE, {"state": "BUSY"}, "", "BUSY"),
        ("POST", ONE, {"tags": 3}, "", "tags"),
    ],
)
def test_a_request_that_google_refuses_is_refused(
    cloud: Cloud, method: str, path: str, body: Any, code: str, text: str
) -> None:
    """`code`: empty: 400 INVALID_ARGUMENT."""
    status, name = (code or "400 INVALID_ARGUMENT").split()
    answered, answer = ask(cloud, method, path, body)
    error = answer["error"]
    assert (answered, error["code"], error["status"]) == (int(status), int(status), name)
    assert text in error["message"]
    assert ask(cloud, "GET", f"{V2}/nodes/one")[0] == 404, "nothing was made"


def test_v2alpha1_has_names_of_its_own(cloud: Cloud) -> None:
    several = {"parent": PARENT, "multiNodeParams": {"nodeCount": 2}, "node": SPEC}
    body = {"tpu": {"nodeSpec": [several]}, "bestEffort": {}, "provisioningModel": "STANDARD"}
    status, _ = ask(cloud, "POST", f"{ALPHA}/queuedResources?queuedResourceId=two", body)
    assert status == 200
    path = f"{ALPHA}/queuedResources/two"
    shown = until(
        lambda: (q := ask(cloud, "GET", path)[1])["state"]["state"] == "ACTIVE" and q, "ACTIVE"
    )
    assert [spec["nodeId"] for spec in shown["tpu"]["nodeSpec"]] == ["two-0", "two-1"]
    assert ask(cloud, "POST", f"{ALPHA}/nodes/two-1:simulateMaintenanceEvent", {})[0] == 200
    assert ask(cloud, "GET", f"{ALPHA}/reservations") == (200, {})
    assert ask(cloud, "DELETE", f"{path}?force=True")[0] == 200, "as gcloud spells it"
    until(lambda: ask(cloud, "GET", path)[0] == 404, "the queued resource gone")


def test_fields_that_the_library_lacks_are_shown_as_they_were_sent(cloud: Cloud) -> None:
    """In every answer of v2alpha1, and in none of v2."""
    sent = {"provisioningModel": "FLEX_START", "runDuration": {"maxRunDuration": "3600s"}}
    path = f"/tpu.googleapis.com{ALPHA}/queuedResources"
    body = asked("flex", **sent)
    body["tpu"]["nodeSpec"][0]["node"] = V6E
    status, _ = ask(cloud, "POST", f"{path}?queuedResourceId=flex", body)
    assert status == 200
    client = cloud.client()
    until(lambda: queued_state(client, "flex") == "ACTIVE", "ACTIVE")
    _, shown = ask(cloud, "GET", f"{path}/flex")
    (listed,) = [q for q in ask(cloud, "GET", path)[1]["queuedResources"] if q == shown]
    assert {key: listed[key] for key in sent} == sent
    assert not sent.keys() & ask(cloud, "GET", f"{V2}/queuedResources/flex")[1].keys()
    scheduling = ask(cloud, "GET", f"{ALPHA}/nodes/flex")[1]["schedulingConfig"]
    assert re.fullmatch(r"20[-0-9]+T[0-9:.]+Z", scheduling["terminationTimestamp"])
    assert ask(cloud, "DELETE", f"{path}/flex?force=true")[0] == 200


@pytest.mark.parametrize(("after", "made"), [(False, 404), (True, 200)])
def test_faults_of_calls_hold_for_rest_too(cloud: Cloud, after: bool, made: int) -> None:
    fault = {"method": "create_node", "code": "UNAVAILABLE", "after": after, "hang_s": 0.01}
    cloud.do(perform, "api-error", fault)
    status, answer = ask(cloud, "POST", f"{V2}/nodes?nodeId=faulty-{made}", SPEC)
    assert (status, answer["error"]["status"]) == (503, "UNAVAILABLE")
    assert ask(cloud, "GET", f"{V2}/nodes/faulty-{made}")[0] == made


@pytest.mark.parametrize(
    "header",
    [
        {"Host": "tpu.example.org"},
        {"Origin": "http://x.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_only_programs_of_this_machine_are_served(cloud: Cloud, header: dict[str, str]) -> None:
    status, answer = ask(cloud, "GET", f"{V2}/nodes", **header)
    assert (status, answer["error"]["status"]) == (403, "PERMISSION_DENIED")
