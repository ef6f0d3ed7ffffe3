"""`tpujob doctor --probe` through its wiring: the real adapters, an emulated project, a real host."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.contracts.probe.conftest import Project
from tests.support import google_server as g
from tpujob.adapters.clock import SystemClock
from tpujob.doctor.probe import run
from tpujob.doctor.probe.table import PROBES
from tpujob.doctor.probe.verdicts import Result, Verdict
from tpujob.emulator.faults import inject
from tpujob.errors import BadRequest, Refused
from tpujob.wiring import probe as wiring
from tpujob.wiring.probe import Wanted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

OFF = "Cloud TPU API has not been used in project 471147114711 before or it is disabled."


def test_a_project_as_expected(project: Project) -> None:
    held = g.series("tpu.googleapis.com/tpu-v4s-preemptible", g.ZONE, 8)
    asked = iter([[g.series("tpu.googleapis.com/tpu-v4s-preemptible", g.ZONE, 0)]])
    project.google.answers[g.SERIES] = lambda _: {"timeSeries": next(asked, [held])}

    def meanwhile(result: Result) -> None:
        if result.probe == "list-zone":
            with pytest.raises(BadRequest, match="runs in this context already"):
                wiring.prepared(project.settings, Wanted(), print).__enter__()
            assert wiring.clear(project.settings, print) == []
            assert wiring.left_over(project.settings) == [], "what is in use is not left over"

    found = project.run(also=("lost-node",), cap=3.0, shown=meanwhile)
    assert list(found) == [probe.id for probe in PROBES]
    odd = {id: one for id, one in found.items() if one.verdict is not Verdict.OK}
    assert set(odd) <= {"usage-waiting"}, odd
    check_folder(project)
    assert "ACTIVE/READY" in found["create"].seen
    assert "a published key, ssh-ed25519" in found["ssh"].seen
    assert "gave right answers" in found["preflight"].seen
    assert "tpu-v4s-preemptible in us-central2-b by 8" in found["usage-held"].seen


def check_folder(project: Project) -> None:
    """A file for each probe, two summaries, and nothing in them that names the project or lets anybody in."""
    files = {path.name: path.read_text() for path in project.answers.iterdir()}
    assert len(files) == len(PROBES) + 2
    summary = json.loads(files["summary.json"])
    assert [one["probe"] for one in summary["results"]] == [probe.id for probe in PROBES]
    assert all(json.loads(files[one["file"]])["settles"] for one in summary["results"])
    assert summary["left"] == 0
    everything = "\n".join(files.values())
    secrets = (
        g.PROJECT,
        g.NUMBER,
        g.BUCKET,
        "AAAAC3Nza",
        "PRIVATE KEY",
        r"\b127\.\d+\.\d+\.\d+",
        r"\w@\w",
    )
    for secret in secrets:
        assert not re.search(secret, everything), secret
    node = json.loads(files["14-node-fields.json"])["answers"][1]["answer"]
    assert node["name"].startswith("projects/project-1/locations/us-central2-b/nodes/tj-probe-")
    assert node["queuedResource"].startswith("projects/project-1/")
    assert node["networkEndpoints"][0]["ipAddress"].startswith("ip-")


def test_what_the_cloud_does_otherwise_is_said(project: Project) -> None:
    """The API's answers, one after the other, in ways that were reported or that nobody has ever seen."""
    with project.cloud.world.lock:
        inject.api_bug(project.cloud.world, "no-labels")
        inject.api_bug(project.cloud.world, "late-conflict-operation")
    project.fail("GetGuestAttributes", "PERMISSION_DENIED")
    project.google.answers[f"{g.PROJECT_PATH}:testIamPermissions"] = g.grant_all
    project.google.answers[g.QUOTAS] = {"metrics": [g.metric("tpu-v9-magic", "TPU v9", {})]}
    found = project.run(shown=fail_lists(project))
    differ = {id: one.seen for id, one in found.items() if one.verdict is Verdict.DIFFERS}
    assert {
        "list-zone",
        "quota-names",
        "permissions",
        "marks-echoed",
        "guest-attributes",
        "create-operation",
    } <= set(differ)
    assert differ["list-zone"] == "UNIMPLEMENTED: locations/- is not supported"
    assert "not understood: tpu-v9-magic" in differ["quota-names"]
    assert differ["marks-echoed"] == "without ours: queued resource's node.labels, node.labels"
    assert "granted" in differ["permissions"]


def fail_lists(project: Project) -> Any:
    """The first list of nodes that a probe asks for fails."""

    def shown(result: Result) -> None:
        if result.probe == "usage-before":
            project.fail("ListNodes", "UNIMPLEMENTED", message="locations/- is not supported")

    return shown


def test_no_quota_is_said_once_and_nothing_is_made(project: Project) -> None:
    with project.cloud.world.lock:
        inject.quota(project.cloud.world, zone=g.ZONE, type="v4", pricing="spot", limit=0)
    found = project.run()
    assert "Limit 0" in found["create"].seen
    assert "read as QUOTA" in found["create"].seen
    of_slice = {one.seen for id, one in found.items() if id in ("ssh", "metadata", "node-fields")}
    assert of_slice == {
        f"there is no slice: it was refused: {found['create'].seen.partition(' (read')[0]}"
    }


def test_no_capacity_is_no_verdict(project: Project) -> None:
    with project.cloud.world.lock:
        inject.stockout(project.cloud.world, zone=g.ZONE)
    found = project.run(wait=0.5)
    assert found["create"].verdict is Verdict.UNTRIED
    assert "WAITING_FOR_RESOURCES" in found["create"].seen
    assert project.cloud.world.queued == {}


def test_an_api_that_is_switched_off_in_mid_probe_ends_it_with_one_reason(project: Project) -> None:
    def off(result: Result) -> None:
        if result.probe == "catalog":
            project.fail("*", "PERMISSION_DENIED", count=10**6, message=OFF)

    report = project.report(off)
    project.mend()
    said = {one.seen for one in report.results[-12:]}
    assert len(said) == 1, said
    assert "has not been used in project project-" in said.pop()
    assert list(report.left) == []
    assert project.left() == []


def test_a_slice_that_cannot_be_removed_is_kept_in_mind(project: Project) -> None:
    def off(result: Result) -> None:
        if result.probe == "name-taken":
            project.fail("*", "PERMISSION_DENIED", count=10**6, message=OFF)

    report = project.report(off)
    project.mend()
    (left,) = report.left
    assert any(f"{left} in {g.ZONE} may still be there" in said for said in project.said)
    assert wiring.clear(project.settings, project.said.append) == []
    assert project.left() == []


@pytest.mark.parametrize(
    ("message", "cure"),
    [
        (OFF, "gcloud services enable tpu"),
        ("This API method requires billing to be enabled.", "link a billing account"),
    ],
)
def test_a_project_whose_api_is_off_or_that_nobody_pays_for_is_told_in_one_line(
    project: Project, message: str, cure: str
) -> None:
    project.fail("*", "PERMISSION_DENIED", count=10**6, message=message)
    with pytest.raises(Refused, match=cure) as refused:
        project.report()
    assert "\n" not in refused.value.message
    assert not project.answers.exists()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"zone": "europe-west9-a"}, "Location europe-west9-a is not found"),
        ({"type": "v5litepod-1"}, "v5litepod-1 is not offered in us-central2-b"),
        ({"type": "v4-16"}, "v4-16 has several hosts"),
        ({"type": "v6e-1"}, "spot price of v6e-1 in us-central2-b is not known"),
        (
            {"cap": 0.1},
            r"the 10 min that the probes need at least are \$0.61, over the cap of \$0.10",
        ),
        ({"also": ("none",)}, "none is no probe that can be added"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked_for(
    project: Project, wanted: dict[str, Any], said: str
) -> None:
    with pytest.raises((BadRequest, Refused), match=said):
        project.report(**wanted)
    assert project.left() == []
    assert not project.answers.exists()


@pytest.mark.parametrize("after", ["create", "delete-unforced"])
def test_ctrl_c_removes_everything(project: Project, after: str) -> None:
    def interrupt(result: Result) -> None:
        if result.probe == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        project.report(interrupt)
    assert project.left() == []
    assert json.loads((project.answers / "summary.json").read_text())["left"] == 0


def test_a_deletion_that_gets_no_answer_is_repeated(project: Project) -> None:
    def fail(result: Result) -> None:
        if result.probe == "create":
            project.fail("DeleteQueuedResource", "DEADLINE_EXCEEDED", count=4)
            raise RuntimeError("a bug of ours")

    with pytest.raises(RuntimeError, match="a bug of ours"):
        project.report(fail)
    assert project.left() == []


def test_a_request_whose_answer_was_lost_is_removed(project: Project) -> None:
    def lose(result: Result) -> None:
        if result.probe == "closed-zone":
            project.fail("CreateQueuedResource", "DEADLINE_EXCEEDED", when="post")

    report = project.report(lose)
    create = next(one for one in report.results if one.probe == "create")
    assert "DEADLINE_EXCEEDED" in create.seen
    assert project.left() == []


def test_the_cap_ends_the_slice(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = 0.0

    def later(result: Result) -> None:
        nonlocal ahead
        ahead += 3600.0 * (result.probe == "ssh")

    now = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda self: now(self) + ahead)
    report = project.report(later)
    found = {one.probe: one for one in report.results}
    assert found["metadata"].seen == "the cap of $1.00 is reached"
    assert found["delete-forced"].verdict is Verdict.OK
    assert found["name-reused"].seen == "the cap of $1.00 is reached"
    assert report.usd > 3.68
    assert project.left() == []


def test_what_a_killed_run_has_left_is_removed_first(project: Project) -> None:
    killed(project)
    project.said.clear()
    (left,) = wiring.left_over(project.settings)
    assert left.names[0].startswith("tj-probe-")
    with wiring.prepared(project.settings, Wanted(), project.said.append):
        assert project.said[0].startswith(f"a probe that was cut off has left {left.names[0]}")
        assert f"{left.names[0]} is gone" in project.said
        assert project.left() == []


def killed(project: Project) -> None:
    """As after `kill -9` with the slice at hand: nothing is cleaned up."""

    def cut_off(*_: Any) -> list[str]:
        raise SystemExit(9)

    def stop(result: Result) -> None:
        if result.probe == "create":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "remove", cut_off)
        with pytest.raises(SystemExit):
            project.report(stop)
    assert project.left()
