"""gcloud against the REST face of the emulated API, and its requests beside ours, field by field."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from google.cloud import tpu_v2
from google.protobuf import json_format
from starlette.responses import Response

from tests.support import gcloud as sdk
from tests.support.gcloud import Gcloud
from tests.support.tpu_rig import PARENT, PROJECT, ZONE, Cloud, node_state, queued, result, until
from tpujob.adapters.cloud_tpu.request import Options, newer_fields, queued_request
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Slice
from tpujob.emulator import inject
from tpujob.emulator.http_server import HttpThread, Request
from tpujob.emulator.tpu import rest

pytestmark = sdk.needed

QUEUED = ("compute", "tpus", "queued-resources")
NODES = ("compute", "tpus", "tpu-vm")
IN_ZONE = f"--zone={ZONE}"
RUNTIME = "tpu-ubuntu2204-base"


@dataclass(frozen=True)
class Sent:
    """A request that gcloud has sent."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


class Stage:
    """An emulated API behind a recorder, and a gcloud that uses it."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[Sent] = []
        self.cloud = Cloud()
        self._answer = rest.handler(self.cloud.world)
        self._http = HttpThread(self._record, 0, name="recorder")
        variables = {
            "CLOUDSDK_CONFIG": str(folder / "sdk"),
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{self._http.url}/",
        }
        self.gcloud = Gcloud(variables, folder)

    async def _record(self, request: Request) -> Response:
        body = await request.body()
        message = json.loads(body) if body else None
        self.sent.append(Sent(request.method, request.path, dict(request.query_params), message))
        return await self._answer(request)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._http.url}{path}", timeout=20) as answer:
            return json.load(answer)

    def queued_state(self, id: str) -> str:
        resource = self.cloud.world.queued.get(f"{PARENT}/queuedResources/{id}")
        return str(resource.state) if resource else ""

    def stop(self) -> None:
        self._http.stop()
        self.cloud.stop()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("gcloud"))
    yield made
    made.stop()


# The same slice, asked for by gcloud and by us ------------------------------------------------------------------------

KEY = "ssh-ed25519 AAAA ada"
DEFAULTS = Options()
NODE = "queuedResource.tpu.nodeSpec[0].node"
#: where the two differ on purpose: fields that the one sends and the other does not
OURS_ALONE = {
    "requestId": "a request whose answer was lost can be sent again",
    f"{NODE}.labels": "whose slice it is",
    f"{NODE}.metadata": "the same, the key for SSH, and that hosts may publish their own keys",
}
GCLOUDS_ALONE = {
    f"{NODE}.networkConfig.network": "`default`, which the API takes by itself",
    f"{NODE}.serviceAccount": "an empty one, which is none",
    f"{NODE}.metadata": "an empty one, which is none",
    "queuedResource.provisioningModel": "STANDARD (v2alpha1); the client library does not know it",
}


@dataclass(frozen=True)
class Tier:
    """One slice in the words of gcloud and in ours."""

    words: tuple[str, ...]
    pricing: Any
    options: Options = DEFAULTS
    nodes: int = 1


TIERS = {
    "tj-000007-1": Tier(("--spot",), "spot"),
    "tj-000007-2": Tier((), "on-demand"),
    "tj-000007-3": Tier(("--reserved",), "reserved"),
    "tj-000007-4": Tier(
        ("--reservation-host-project=shop",),
        "reserved",
        Options(reservation="projects/shop/reservations/-"),
    ),
    "tj-000007-5": Tier(("--spot",), "spot", nodes=2),
}


@pytest.mark.parametrize("name", TIERS)
def test_a_slice_is_requested_with_the_fields_that_gcloud_sends(stage: Stage, name: str) -> None:
    tier = TIERS[name]
    several = (f"--node-count={tier.nodes}", f"--node-prefix={name}")
    which = several if tier.nodes > 1 else (f"--node-id={name}",)
    options = ("--accelerator-type=v4-8", f"--runtime-version={RUNTIME}", IN_ZONE, "--async")
    stage.gcloud(*QUEUED, "create", name, *which, *options, *tier.words)
    (create,) = [request for request in stage.sent if request.query.get("queuedResourceId") == name]
    assert (create.method, create.path) == ("POST", f"/v2/{PARENT}/queuedResources")
    theirs = fields({**create.query, "queuedResource": create.body})
    theirs.pop("alt")  # of HTTP
    ours = fields(our_request(name, tier))
    del ours["parent"]  # in gcloud's path
    assert {k: v for k, v in ours.items() if not listed(k, OURS_ALONE)} == {
        k: v for k, v in theirs.items() if not listed(k, GCLOUDS_ALONE)
    }
    until(lambda: stage.queued_state(name) == "ACTIVE", f"{name} ACTIVE")


#: terms that end by themselves: the words of gcloud's alpha surface, and ours
ENDING: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "tj-000008-1": (
        ("--provisioning-model=flex-start", "--max-run-duration=6h"),
        {"pricing": "flex-start", "run_for": 6 * 3600},
    ),
    "tj-000008-2": (
        ("--provisioning-model=reservation-bound", "--reservation=october"),
        {"pricing": "calendar", "reservation": "october"},
    ),
}


@pytest.mark.parametrize("name", ENDING)
def test_a_slice_with_a_planned_end_is_requested_as_gcloud_does(stage: Stage, name: str) -> None:
    words, ours = ENDING[name]
    stage.cloud.do(inject.add, "reservation", "october", for_s=3600.0)
    type, runtime = "v6e-8", "v2-alpha-tpuv6e"
    options = (f"--node-id={name}", f"--accelerator-type={type}", f"--runtime-version={runtime}")
    stage.gcloud("alpha", *QUEUED, "create", name, *options, IN_ZONE, "--async", *words)
    (create,) = [request for request in stage.sent if request.query.get("queuedResourceId") == name]
    assert create.path == f"/v2alpha1/{PARENT}/queuedResources"
    slice = replace(Slice(name, 1, type, ZONE, "", CLOUD_TPU, runtime, None, 0.0), **ours)
    request = queued_request(
        slice, DEFAULTS, project=PROJECT, owner="ada", job_id="000008", public_key=KEY
    )
    kind = tpu_v2.QueuedResource
    message = json_format.MessageToDict(kind.pb(kind(request["queued_resource"])))
    mine = message | newer_fields(slice)
    for key in ("provisioningModel", "runDuration", "reservationName", "spot", "guaranteed"):
        assert mine.get(key) == create.body.get(key), key
    until(lambda: stage.queued_state(name) == "ACTIVE", f"{name} ACTIVE")
    (shown,) = json.loads(
        stage.gcloud(*("alpha", *NODES), "list", IN_ZONE, "--format=json", f"--filter=name:{name}")
    )
    assert shown["schedulingConfig"]["terminationTimestamp"]


def our_request(name: str, tier: Tier) -> dict[str, Any]:
    """Return the request of the client library, as JSON."""
    slice = Slice(
        name, 1, "v4-8", ZONE, tier.pricing, CLOUD_TPU, RUNTIME, None, 0.0, tpu_slices=tier.nodes
    )
    request = queued_request(
        slice, tier.options, project=PROJECT, owner="ada", job_id="000007", public_key=KEY
    )
    kind = tpu_v2.CreateQueuedResourceRequest
    return json_format.MessageToDict(kind.pb(kind(request)))


def fields(value: Any, place: str = "") -> dict[str, Any]:
    """Every field by its path; a message or a list without fields is one, too."""
    if isinstance(value, dict) and value:
        inner = [(f"{place}.{key}" if place else key, item) for key, item in value.items()]
    elif isinstance(value, list) and value:
        inner = [(f"{place}[{at}]", item) for at, item in enumerate(value)]
    else:
        return {place: value}
    return {path: item for at, nested in inner for path, item in fields(nested, at).items()}


def listed(path: str, reasons: dict[str, str]) -> bool:
    return any(path == field or path.startswith(f"{field}.") for field in reasons)


# The commands ---------------------------------------------------------------------------------------------------------


def test_gcloud_shows_and_deletes_queued_resources(stage: Stage) -> None:
    client, gcloud = stage.cloud.client(), stage.gcloud
    result(client.create_queued_resource(queued("q", "v4-8")))
    until(lambda: stage.queued_state("q") == "ACTIVE", "ACTIVE")
    shown = gcloud.json(*QUEUED, "describe", "q", IN_ZONE)
    assert (shown["state"]["state"], shown["spot"]) == ("ACTIVE", {})
    lines = [line.split() for line in gcloud(*QUEUED, "list", IN_ZONE).splitlines()]
    assert ["q", ZONE, "1", "v4-8", "ACTIVE"] in lines
    refused = gcloud(*QUEUED, "delete", "q", IN_ZONE, code=1)
    assert "FAILED_PRECONDITION" in refused
    assert "force" in refused
    gcloud(*QUEUED, "delete", "q", IN_ZONE, "--force")  # waits for the operation
    assert stage.queued_state("q") == ""
    assert "NOT_FOUND" in gcloud(*QUEUED, "describe", "q", IN_ZONE, code=1)


def test_gcloud_sees_every_node_of_a_multislice(stage: Stage) -> None:
    gcloud = stage.gcloud
    several = ("--node-count=2", "--node-prefix=pair", "--async", "--spot")
    options = ("--accelerator-type=v4-8", f"--runtime-version={RUNTIME}", IN_ZONE)
    gcloud(*QUEUED, "create", "pair", *several, *options)
    until(lambda: stage.queued_state("pair") == "ACTIVE", "ACTIVE")
    lines = [line.split() for line in gcloud(*QUEUED, "list", IN_ZONE).splitlines()]
    assert ["pair", ZONE, "2", "v4-8", "ACTIVE"] in lines
    keys = gcloud.folder / ".ssh"
    keys.mkdir(mode=0o700)
    make_key = ("ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", keys / "google_compute_engine")
    subprocess.run(make_key, check=True)
    before = len(stage.sent)
    ssh = ("ssh", "pair", IN_ZONE, "--node=all", "--command=true", "--dry-run")
    gcloud("alpha", *QUEUED, *ssh)
    paths = {request.path for request in stage.sent[before:]}
    assert paths >= {f"/v2alpha1/{PARENT}/nodes/pair-{place}" for place in range(2)}


def test_gcloud_makes_stops_starts_and_deletes_a_tpu_vm(stage: Stage) -> None:
    gcloud = stage.gcloud
    options = ("--type=v4", "--topology=2x2x1", f"--version={RUNTIME}", "--labels=team=blue")
    gcloud(*NODES, "create", "vm", *options, IN_ZONE)
    shown = gcloud.json(*NODES, "describe", "vm", IN_ZONE)
    assert (shown["acceleratorType"], shown["state"]) == ("v4-8", "READY")
    assert shown["labels"] == {"team": "blue"}
    assert gcloud.json(*NODES, "get-guest-attributes", "vm", IN_ZONE) == []
    gcloud(*NODES, "stop", "vm", IN_ZONE)
    assert node_state(stage.cloud.client(), "vm") == "STOPPED"
    gcloud(*NODES, "start", "vm", IN_ZONE)
    lines = [line.split() for line in gcloud(*NODES, "list", IN_ZONE).splitlines()]
    assert ["vm", ZONE, "v4-8", "V4", "2x2x1", "default", "127.0.0.0/8", "READY"] in lines
    gcloud(*NODES, "delete", "vm", IN_ZONE)
    assert node_state(stage.cloud.client(), "vm") == ""


def test_gcloud_lists_what_a_zone_offers(stage: Stage) -> None:
    gcloud = stage.gcloud
    for words in (NODES, NODES[:2]):  # of version 2 and of version 1
        assert "v4-32" in gcloud(*words, "accelerator-types", "list", IN_ZONE).split()
    assert RUNTIME in gcloud(*NODES, "versions", "list", IN_ZONE).split()
    assert ZONE in gcloud("compute", "tpus", "locations", "list").split()


@pytest.mark.parametrize("version", ["v2", "v2alpha1"])
def test_the_http_rules_are_those_that_gcloud_was_generated_from(version: str) -> None:
    generated = Path("lib/googlecloudsdk/generated_clients/apis/tpu", version)
    text = (sdk.folder() / generated / f"tpu_{version}_client.py").read_text()
    rules = re.findall(r"flat_path='([^']+)',\s+http_method='(\w+)'", text)
    theirs = {(method, "/" + re.sub(r"\{\w+\}", "*", path)) for path, method in rules}
    ours = {
        (rule.method, re.sub(r"\{[\w.]+=([^}]+)\}", r"\1", rule.uri))
        for rule in rest.http_rules()
        if rule.version == version
    }
    assert ours <= theirs
    not_served = {path.rpartition(":")[2] for _, path in theirs - ours}
    maintenance = {"performMaintenance", "performMaintenanceQueuedResource"}
    assert not_served == (maintenance if version == "v2alpha1" else set())


#: prints the fields that gcloud's messages do not have, one a line; on standard input: version, message and answer
KNOWS = """
import importlib, json, sys
lib = sys.argv[1]
sys.path[:0] = [lib, lib + "/third_party"]
from apitools.base.protorpclite import messages
from apitools.base.py import encoding

def unknown(value):
    yield from value.all_unrecognized_fields()
    for field in value.all_fields():
        found = getattr(value, field.name)
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, messages.Message) and not isinstance(one, LOOSE):
                yield from unknown(one)

for version, name, answer in json.load(sys.stdin):
    module = f"googlecloudsdk.generated_clients.apis.tpu.{version}.tpu_{version}_messages"
    kinds = importlib.import_module(module)
    LOOSE = (kinds.Node.LabelsValue, kinds.Node.MetadataValue, kinds.Location.LabelsValue)
    LOOSE += (kinds.Operation.MetadataValue, kinds.Operation.ResponseValue)
    for field in unknown(encoding.JsonToMessage(getattr(kinds, name), json.dumps(answer))):
        print(version, name, field)
"""


def test_gcloud_knows_every_field_that_the_emulator_answers(stage: Stage) -> None:
    client = stage.cloud.client()
    result(client.create_queued_resource(queued("known", "v4-16", labels={"team": "blue"})))
    until(lambda: stage.queued_state("known") == "ACTIVE", "ACTIVE")
    answers: list[tuple[str, str, Any]] = []
    for version in ("v2", "v2alpha1"):
        for path, name in {
            "nodes/known": "Node",
            "nodes": "ListNodesResponse",
            "queuedResources/known": "QueuedResource",
            "queuedResources": "ListQueuedResourcesResponse",
            "operations": "ListOperationsResponse",
            "acceleratorTypes": "ListAcceleratorTypesResponse",
            "runtimeVersions": "ListRuntimeVersionsResponse",
        }.items():
            answer = stage.get(f"/{version}/{PARENT}/{path}")
            answers.append((version, name, answer))
            if name == "ListOperationsResponse":
                done = [o["response"] for o in answer["operations"] if "response" in o]
                answers += [packed(r) for r in done if r["@type"].endswith("QueuedResource")]
        locations = stage.get(f"/{version}/projects/{PROJECT}/locations")
        answers.append((version, "ListLocationsResponse", locations))
    assert unknown_to_gcloud(answers) == []
    odd = {**answers[0][2], "colour": "blue"}
    assert unknown_to_gcloud([("v2", "Node", odd)]) == ["v2 Node colour"], "it would be seen"


def packed(answer: dict[str, Any]) -> tuple[str, str, Any]:
    """Return version, message and content of an operation's result."""
    _, version, name = answer["@type"].rsplit(".", 2)
    return version, name, {key: value for key, value in answer.items() if key != "@type"}


def unknown_to_gcloud(answers: list[tuple[str, str, Any]]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", KNOWS, str(sdk.folder() / "lib")],
        input=json.dumps(answers),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
