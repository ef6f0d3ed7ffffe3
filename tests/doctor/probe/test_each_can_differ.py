"""Each probe, asked of a cloud that answers as nobody expects, says so: one that cannot differ tells nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tpujob.doctor.probe.cloud import Answer, Contact
from tpujob.doctor.probe.probing import Probing
from tpujob.doctor.probe.record import bare_slice
from tpujob.doctor.probe.spend import Budget, Choice
from tpujob.doctor.probe.table import IDS, PROBES
from tpujob.doctor.probe.verdicts import Verdict
from tpujob.domain.model import Endpoint
from tpujob.domain.observations import Present, SliceState
from tpujob.errors import Refused

CHOICE = Choice("v5litepod-1", "us-west4-a", 0.5, "v2-alpha-tpuv5-lite")
ODD: dict[str, Any] = {"state": {"state": "HATCHING"}, "tpu": {"nodeSpec": [{"node": {}}]}}
INTERNAL = Answer("a call", "INTERNAL", "it broke", read_as="transient")
WANTED = Answer("a call", "INVALID_ARGUMENT", "no such request", read_as="BAD_SPEC")
IMAGE = {
    "python": "3.6.9",
    "modules": {},
    "programs": {},
    "locks": {},
    "groups": [],
    "sudo": True,
    "uptime_s": 1,
}
FAILED = {"state": {"phase": "exited", "exit_code": None, "cause": "SETUP"}, "preflight": {}}
TARGET = {"target": "projects/p/queuedResources/tj-probe-1"}


@dataclass
class Odd:
    """Answers: by method, by path, by part of the script on the host; anything else is OK, and empty."""

    calls: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    created: Answer = field(default_factory=lambda: Answer("create", "OK"))
    hosts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    series: Mapping[str, Any] = field(default_factory=dict[str, Any])
    refused: bool = False  #: by what is not a call
    t: float = 0.0

    def now(self) -> float:
        return self.t

    def sleep(self, seconds: float) -> None:
        self.t += seconds

    def parent(self, zone: str) -> str:
        return f"projects/p/locations/{zone}"

    def call(self, method: str, request: Mapping[str, Any], **_: Any) -> Answer:
        return self.calls.get(method, Answer(method, "OK"))

    def rest(self, host: str, path: str, *_: Any, **__: Any) -> Answer:
        if self.refused:
            return Answer(path, "HTTP 403", "no", read_as="PERMISSION")
        metrics = [{"metric": "tpu.googleapis.com/tpu-v9"}]
        return Answer(path, "OK", body={"metrics": metrics, **self.series})

    def quota_kinds(self, names: list[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "")

    def create(self, *_: Any, **__: Any) -> Answer:
        return self.created

    def delete(self, *_: Any, **__: Any) -> Answer:
        return self.created

    def look(self, *_: Any, **__: Any) -> Present:
        return Present(SliceState.READY, (Endpoint(0, "10.0.0.1"),))

    def meet(self, *_: Any, **__: Any) -> Contact:
        return Contact(published=False, key_type="ssh-rsa")

    def on_host(self, slice: Any, part: str, *_: Any, **__: Any) -> Any:
        return self.hosts[part]

    def start(self, *_: Any, **__: Any) -> None:
        if self.refused:
            raise Refused("no python3", cause="SETUP")

    def make_bucket(self, *_: Any, **__: Any) -> None: ...


def figure(amount: int) -> dict[str, Any]:
    labels = {"labels": {"quota_metric": "x/tpu-v5s-litepod", "location": CHOICE.zone}}
    return {"metric": labels, "points": [{"value": {"int64Value": str(amount)}}]}


CLOUDS: dict[str, Odd] = {
    "reads": Odd(refused=True),
    "permissions": Odd(),
    "quota-names": Odd(),
    "usage-before": Odd(),
    "list-zone": Odd({"list_nodes": INTERNAL}),
    "list-everywhere": Odd({"list_queued_resources": INTERNAL}),
    "catalog": Odd(),
    "unknown-type": Odd(),
    "closed-zone": Odd({"create_queued_resource": WANTED}),
    "create": Odd({"get_queued_resource": Answer("get", "OK", body=ODD)}),
    "name-taken": Odd(),
    "create-operation": Odd({"list_operations": Answer("list", "OK", body={
        "operations": [{"metadata": TARGET, "error": {"code": 6, "message": "exists"}}]})}),
    "marks-echoed": Odd({"get_queued_resource": Answer("get", "OK", body=ODD)}),
    "node-fields": Odd(),
    "wait-bound": Odd(),
    "usage-waiting": Odd(),
    "usage-held": Odd(series={"timeSeries": [figure(7)]}),
    "guest-attributes": Odd({"get_guest_attributes": INTERNAL}),
    "ssh": Odd(),
    "image": Odd(hosts={"image": IMAGE}),
    "metadata": Odd(hosts={"metadata": {"keys": {}}}),
    "preflight": Odd(hosts={"attempt": FAILED}),
    "storage": Odd(hosts={"storage": {"emulated": False, "steps": {"multipart": {"said": "HTTP 400"}}}}),
    "notices": Odd(hosts={"notices": {"said": ["", None], "seconds": [0.1, 2.0]}}),
    "delete-unforced": Odd(),
    "delete-forced": Odd({"get_node": Answer("get", "OK", body={"state": "HATCHING"})}),
    "name-reused": Odd(created=INTERNAL),
    "lost-node": Odd({"get_queued_resource": Answer("get", "OK", body={"state": {"state": "ACTIVE"}})}),
}  # fmt: skip


def test_none_is_left_out() -> None:
    assert set(CLOUDS) == IDS


@pytest.mark.parametrize("probe", PROBES, ids=[probe.id for probe in PROBES])
def test_it_can_differ(probe: Any) -> None:
    cloud: Any = replace(CLOUDS[probe.id])
    probing = Probing(
        cloud=cloud,
        clock=cloud,
        choice=CHOICE,
        budget=Budget(0.5, 1.0),
        slice=replace(bare_slice("tj-probe-1", CHOICE.zone, 0.0), type=CHOICE.type),
        workdir="gs://b/probes/x",
        project="p",
        wait=60.0,
        poll=5.0,
        say=lambda _: None,
        usage_before={},
        usage_waiting={"tpu-v5s-litepod": 7},
    )
    probing.ready([Endpoint(0, "10.0.0.1")])
    if probe.id == "name-reused":
        probing.deleted_at = 0.0
    elif probe.id in ("create", "lost-node"):
        probing.ready_at = None
    else:
        probing.asked_at = 0.0
    judged = probe.look(probing)
    assert judged.verdict is Verdict.DIFFERS, judged
    assert judged.expected
    assert judged.seen
