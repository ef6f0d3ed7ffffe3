"""What each probe makes of an answer: as expected, and otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tpujob.adapters.cloud_tpu.request import MARKS
from tpujob.doctor.access import TPU_PERMISSIONS
from tpujob.doctor.probe import of_api, of_host, of_loss, of_project, of_slice
from tpujob.doctor.probe.cloud import Answer, Contact
from tpujob.doctor.probe.of_slice import Step
from tpujob.doctor.probe.verdicts import Judged, UntriedError, Verdict

MARKED = {
    "labels": dict.fromkeys(of_slice.MARKS, "1"),
    "metadata": dict.fromkeys(of_slice.MARKS, "1"),
}
NODE = {
    "acceleratorType": "v5litepod-1",
    "queuedResource": "projects/p/locations/z/queuedResources/tj-probe-1",
    "networkEndpoints": [{"ipAddress": "10.0.0.1"}],
    "createTime": "2026-11-22T05:00:00Z",
    "schedulingConfig": {"preemptible": True},
}
IMAGE: dict[str, Any] = {
    "python": "3.10.12",
    "modules": {"pip": False},
    "programs": {"python": "", "curl": "/usr/bin/curl"},
    "locks": {"/var/lib/dpkg/lock": "unattended-upgr"},
    "groups": ["tpujob"],
    "sudo": True,
    "uptime_s": 70,
}
KEYS = {
    key: {"status": status, "said": (said or ("x",))[0]}
    for key, (status, said) in of_host.WANTED.items()
}
EXITED: dict[str, Any] = {"state": {"exit_code": 0}, "preflight": {"checks": {"disk": "free"}}}
STORED: dict[str, Any] = {
    "emulated": False,
    "steps": {"multipart": {"said": "ok"}, "renewed": {"said": "ok"}},
}
POLLS: dict[str, Any] = {"said": ["", ""], "seconds": [0.01, 0.02]}


def ok(**body: Any) -> Answer:
    return Answer("a call", "OK", body=body)


def refused(code: str, read_as: str, message: str = "no") -> Answer:
    return Answer("a call", code, message, read_as=read_as)


def names(field: str, *ids: str) -> Answer:
    return ok(**{field: [{"name": f"projects/p/locations/z/x/{id}"} for id in ids]})


def guests(*keys: str) -> Answer:
    items = [{"key": key, "value": "x"} for key in keys]
    return ok(guestAttributes=[{"queryValue": {"items": items}}])


def operation(**more: Any) -> Callable[[], Judged]:
    one = {"metadata": {"target": "projects/p/queuedResources/tj-probe-1"}, **more}
    return lambda: of_slice.judge_operation({"operations": [one]}, "tj-probe-1")


def steps(*seen: tuple[str, str]) -> list[Step]:
    return [Step(float(i), queued, node) for i, (queued, node) in enumerate(seen)]


EVERY = ok(permissions=list(TPU_PERMISSIONS))
TYPES = [names("acceleratorTypes", "v2-32"), names("acceleratorTypes", "v2-8")]
RUNTIMES = [names("runtimeVersions", "base")]


@pytest.mark.parametrize(
    ("as_expected", "otherwise", "said"),
    [
        (lambda: of_project.judge_reads([ok()]),
         lambda: of_project.judge_reads([ok(), refused("HTTP 403", "PERMISSION")]), "HTTP 403: no"),
        (lambda: of_project.judge_permissions(EVERY, refused("HTTP 400", "BAD_SPEC")),
         lambda: of_project.judge_permissions(EVERY, ok(permissions=["x"])), "granted"),
        (lambda: of_project.judge_permissions(EVERY, refused("HTTP 400", "BAD_SPEC")),
         lambda: of_project.judge_permissions(ok(), refused("HTTP 400", "BAD_SPEC")), "it lacks tpu.accel"),
        (lambda: of_project.judge_names(["a/tpu-v4s"], {"a/tpu-v4s": "v4"}, "v4-8"),
         lambda: of_project.judge_names(["a/tpu-v4s"], {"a/tpu-v4s": "v4"}, "v6e-1"), "none of v6e"),
        (lambda: of_project.judge_usage({"v4": 8}, {"v4": 16}, "v4-8"),
         lambda: of_project.judge_usage({"v4": 8}, {"v4": 12}, "v4-8"), "v4 by 4"),
        (lambda: of_project.judge_usage({}, {"serving": 1}, "v5litepod-1"),
         lambda: of_project.judge_usage({}, {"pod": 2}, "v5litepod-1"), "pod by 2"),
        (lambda: of_api.judge_lists([ok(nodes=[{}])]),
         lambda: of_api.judge_lists([ok(unreachable=["z"])]), "unreachable: z"),
        (lambda: of_api.judge_catalog("v2-8", "base", TYPES, RUNTIMES),
         lambda: of_api.judge_catalog("v2-8", "newer", TYPES, RUNTIMES), "without newer"),
        (lambda: of_api.judge_refusal(refused("INVALID_ARGUMENT", "BAD_SPEC"), "BAD_SPEC"),
         lambda: of_api.judge_refusal(refused("NOT_FOUND", "transient"), "BAD_SPEC"), "read as transient"),
        (lambda: of_api.judge_refusal(refused("INVALID_ARGUMENT", "BAD_SPEC"), "BAD_SPEC"),
         lambda: of_api.judge_refusal(ok(), "BAD_SPEC"), "accepted"),
        (lambda: of_slice.judge_coming(steps(("ACCEPTED", ""), ("PROVISIONING", "CREATING"), ("ACTIVE", "READY"))),
         lambda: of_slice.judge_coming(steps(("PROVISIONING", ""), ("ACCEPTED", ""))), "0 s PROVISIONING/no node"),
        (lambda: of_slice.judge_coming(steps(("ACTIVE", "READY"))),
         lambda: of_slice.judge_coming(steps(("HATCHING", ""), ("ACTIVE", "READY"))), "HATCHING"),
        (operation(done=True), operation(error={"code": 6, "message": "there"}), "6: there"),
        (lambda: of_slice.judge_echo(MARKED, MARKED),
         lambda: of_slice.judge_echo({"metadata": MARKED["metadata"]}, MARKED), "queued resource's node.labels"),
        (lambda: of_slice.judge_node(NODE, "v5litepod-1", "tj-probe-1"),
         lambda: of_slice.judge_node(NODE | {"queuedResource": ""}, "v5litepod-1", "tj-probe-1"), "queuedResource"),
        (lambda: of_slice.judge_going(steps(("DELETING", "READY"), ("", "")), 2.0),
         lambda: of_slice.judge_going(steps(("ACTIVE", "REPAIRING"), ("", "")), 2.0), "REPAIRING"),
        (lambda: of_loss.judge(["ACTIVE", "SUSPENDING"], 9.0),
         lambda: of_loss.judge(["ACTIVE", "SUSPENDING", "DELETING"], None), "DELETING, still there"),
        (lambda: of_host.judge_guests(guests("ssh-ed25519", "hostname")),
         lambda: of_host.judge_guests(guests("hostname")), "of 1 hosts: hostname"),
        (lambda: of_host.judge_contact(Contact(True, "ssh-rsa"), 4.0),
         lambda: of_host.judge_contact(Contact(False, "ssh-rsa"), 4.0), "not published"),
        (lambda: of_host.judge_image(IMAGE),
         lambda: of_host.judge_image(IMAGE | {"python": "3.7.3"}), "Python 3.7.3"),
        (lambda: of_host.judge_metadata(KEYS),
         lambda: of_host.judge_metadata(KEYS | {"instance/no-such-key": {"status": 403, "said": ""}}), "is 403"),
        (lambda: of_host.judge_attempt(EXITED, 40.0, 60.0),
         lambda: of_host.judge_attempt(EXITED, 70.0, 60.0), "70 s in all"),
        (lambda: of_host.judge_attempt(EXITED, 40.0, 60.0),
         lambda: of_host.judge_attempt(EXITED | {"state": {"exit_code": None, "cause": "SETUP", "error": "no jax"}},
                                       40.0, 60.0), "SETUP: no jax"),
        (lambda: of_host.judge_storage(STORED),
         lambda: of_host.judge_storage({**STORED, "steps": {"multipart": {"said": "400"}}}), "multipart: 400"),
        (lambda: of_host.judge_notices(POLLS),
         lambda: of_host.judge_notices({"said": ["", None], "seconds": [0.1, 2.0]}), "1 of 2 polls"),
        (lambda: of_host.judge_notices(POLLS),
         lambda: of_host.judge_notices({"said": ["maintenance"], "seconds": [0.1]}), "maintenance"),
    ],
)  # fmt: skip
def test_as_expected_and_otherwise(
    as_expected: Callable[[], Judged], otherwise: Callable[[], Judged], said: str
) -> None:
    assert as_expected().verdict is Verdict.OK
    assert otherwise().verdict is Verdict.DIFFERS
    assert said in otherwise().seen
    assert otherwise().expected


def test_what_tells_nothing_is_no_verdict() -> None:
    with pytest.raises(UntriedError, match="may be hours late"):
        of_project.judge_usage({"v4": 8}, {"v4": 8}, "v4-8")
    with pytest.raises(UntriedError, match="no operation is listed"):
        of_slice.judge_operation({}, "tj-probe-1")
    with pytest.raises(UntriedError, match="UNAVAILABLE"):
        of_project.judge_reads([refused("UNAVAILABLE", "")])


def test_the_marks_that_are_looked_for_are_those_that_are_sent() -> None:
    assert set(MARKS) == set(of_slice.MARKS)
