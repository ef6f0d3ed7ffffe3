"""`tpujob doctor` and `tpujob quota`, as a person meets them: golden pages, JSON, exit codes, no credentials."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support import google_server as g
from tests.support.commands import Tpujob, stand_in
from tests.support.golden import golden
from tests.support.google_server import GoogleServer
from tests.support.signed_in import signed_in
from tests.support.tpu_rig import Cloud, node
from tpujob.adapters import this_machine
from tpujob.api import AllowanceView
from tpujob.cli.commands.doctor import doctor_page, quota_page
from tpujob.cli.render.text import width
from tpujob.doctor.findings import NotSeen, fail, ok, unknown, warn
from tpujob.doctor.machine import Software
from tpujob.doctor.quota import QuotaOverview

PARENT = f"projects/{g.PROJECT}/locations/{g.ZONE}"
LAB = f"""
name: lab
project: {g.PROJECT}
zones: [{g.ZONE}]
buckets: {{{g.REGION}: gs://{g.BUCKET}}}
service_account: {g.ACCOUNT}
ssh: external
grants: [{{type: v4, zone: {g.ZONE}, pricing: spot, chips: 32}}]
"""


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed where the tests run."""
    software = Software((3, 11, 7), ["google-cloud-tpu>=1.28"], {"google-cloud-tpu": "1.28.0"})
    monkeypatch.setattr(this_machine, "software", lambda: software)


@pytest.fixture(name="cloud")
def _cloud() -> Iterator[Cloud]:
    made = Cloud()
    yield made
    made.stop()


@pytest.fixture(name="google")
def _google(
    tpujob_state: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GoogleServer]:
    """A healthy project, and a context for it that is the current one."""
    (tpujob_state / "contexts").mkdir(mode=0o700)
    (tpujob_state / "contexts" / "lab.yaml").write_text(LAB)
    monkeypatch.setenv("TPUJOB_CONTEXT", "lab")
    monkeypatch.setenv("TPUJOB_TPU_ENDPOINT", cloud.tpu.address)
    with g.healthy() as server:
        monkeypatch.setenv("TPUJOB_GOOGLE_ENDPOINT", server.url)
        yield server


def checks(tpujob: Tpujob, code: int = 0) -> dict[str, Any]:
    """Return the findings of `tpujob doctor` by the name of the check."""
    return {check["name"]: check for check in tpujob("doctor", "--json", code=code).json}


def test_a_healthy_context(tpujob: Tpujob, google: GoogleServer) -> None:
    golden("doctor", tpujob("doctor").out)
    google.answers[g.BUCKET_PATH]["softDeletePolicy"]["retentionDurationSeconds"] = "604800"
    assert "1 with a warning." in tpujob("doctor").out, "which is a success"


def test_a_fault_comes_with_a_cure_and_exit_code_6(tpujob: Tpujob, google: GoogleServer) -> None:
    google.answers[g.SERVICES] = g.enabled("storage")
    google.answers[g.FIREWALLS] = {}
    google.answers[g.PROJECT_PATH] = g.DENIED
    google.answers[f"{g.IN_REGION}"] = {"quotas": [{"metric": "IN_USE_ADDRESSES", "limit": 4}]}
    output = " ".join(tpujob("doctor", code=6).out.split())
    for part in (
        "FAIL APIs not enabled: storage.googleapis.com",
        "-> gcloud services enable storage.googleapis.com --project my-lab-4711",
        "? project could not be checked: The caller does not have permission",
        "FAIL SSH no firewall rule of default allows TCP 22 from",
        "warn addresses us-central2 4 of 4 external addresses are free",
        "Context lab: 18 checks, 3 failed, 1 could not be checked, 1 with a warning.",
    ):
        assert part in output


def test_a_check_without_a_result_is_no_success(tpujob: Tpujob, google: GoogleServer) -> None:
    google.answers[g.SERVICES] = g.UNAVAILABLE
    [check] = [check for check in checks(tpujob, 75).values() if check["verdict"] != "ok"]
    assert check == {
        "name": "APIs",
        "verdict": "unknown",
        "what": "could not be checked: serviceusage.googleapis.com: The service is currently unavailable",
        "cure": "",
    }


def test_quota_of_a_context(tpujob: Tpujob, google: GoogleServer, cloud: Cloud) -> None:
    spot = node("v4-32", scheduling_config={"spot": True})
    cloud.client().create_node(parent=PARENT, node_id="mine", node=spot)
    golden("quota", tpujob("quota").out)
    record = tpujob("quota", "--json").json
    assert record["of"] == g.PROJECT
    limits = {"limit": 64, "zone_limit": 64, "region_limit": None, "used": 32, "granted_chips": 32}
    kind = {"type": "v4", "part": "", "pricing": "spot", "provider": "cloud-tpu"}
    place = {"zone": g.ZONE, "unit": "cores", "known": True}
    assert record["rows"][0] == {**kind, **limits, **place}
    assert record["others"][0]["limit"] == 91


def test_quota_everywhere_shows_the_other_quotas_too(tpujob: Tpujob, google: GoogleServer) -> None:
    requests = {"unit": "1/{project}", "quotaBuckets": [g.bucket(600)]}
    google.answers[g.QUOTAS] = {
        "metrics": [
            g.metric("tpu-v6e", "TPU v6e chips", {"us-east1-d": 8}),
            {"metric": "tpu.googleapis.com/requests", "consumerQuotaLimits": [requests]},
        ]
    }
    out = tpujob("quota", "--all").out
    assert "v6e  on-demand us-east1-d" in out, out
    assert "tpu.googleapis.com/requests the project   600" in out, out
    google.answers[g.QUOTAS] = g.disabled("serviceusage.googleapis.com")
    error = tpujob("quota", code=73).err
    assert f"gcloud services enable serviceusage.googleapis.com --project {g.PROJECT}" in error


def without_credentials(monkeypatch: pytest.MonkeyPatch, empty: Path) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(empty))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


def test_without_credentials(
    tpujob: Tpujob, google: GoogleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TPUJOB_GOOGLE_ENDPOINT")
    without_credentials(monkeypatch, tmp_path)
    output = tpujob("doctor", code=6).out
    assert "FAIL credentials  this machine has no credentials for Google Cloud" in output
    assert "Context lab: 3 checks, 1 failed." in output, "nothing else only repeats it"
    assert "gcloud auth application-default login" in tpujob("quota", code=73).err
    assert google.asked == []


def test_a_deployed_backend(
    tpujob: Tpujob, google: GoogleServer, edge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context without a project has one check: that its backend answers."""
    lab = tpujob.state / "contexts" / "lab"
    lab.with_suffix(".yaml").write_text(f"name: lab\nbackend: {edge}\n")
    assert "FAIL backend   you are not signed in at" in tpujob("doctor", code=6).out
    signed_in(tpujob.state, "lab", edge)
    assert f"{edge} answers, and lets you in" in tpujob("doctor").out
    assert "does not say which project" in tpujob("quota", code=2).err

    lab.with_suffix(".yaml").write_text(f"{LAB}\nbackend: {edge}\n")
    names = checks(tpujob).keys()
    assert {"backend", "project", "SSH"} <= names
    assert not {"permissions", "objects", "hosts' account"} & names, "it has its own rights"
    monkeypatch.delenv("TPUJOB_GOOGLE_ENDPOINT")
    without_credentials(monkeypatch, lab)
    findings = checks(tpujob, 75)
    assert findings["backend"]["verdict"] == "ok"
    assert "to look at the project of the backend with" in findings["credentials"]["what"]


def test_this_machine(tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    tpujob.state.chmod(0o755)
    findings = checks(tpujob, 6)
    names = ["Python", "packages", "loopback", "disk", "state", "SSH", "local stack"]
    assert list(findings) == names
    assert findings["state"]["cure"] == f"chmod 700 '{tpujob.state}'"
    tpujob.state.chmod(0o700)
    findings = checks(tpujob)
    assert findings["state"]["verdict"] == "ok"
    assert findings["SSH"]["what"] == "/usr/bin/ssh"
    (tpujob.state / "queue.yaml").write_text("high: [ada]\nkeap: 10m\n")
    finding = checks(tpujob, 6)["settings"]
    assert finding["what"].startswith(f"{tpujob.state}/queue.yaml:2: ")
    assert finding["cure"] == "the backend does not start until it is corrected"


def test_the_emulator_has_quotas(tpujob: Tpujob, cloud: Cloud) -> None:
    stand_in(tpujob.state, "emulator", control=str(cloud.control().path))
    assert "No TPU quota of the emulator in these zones." in tpujob("quota").out
    spot = node("v4-8", scheduling_config={"spot": True})
    cloud.client().create_node(parent=PARENT, node_id="mine", node=spot)
    assert "no limit  no limit no limit    8 cores" in tpujob("quota").out
    tpujob("emulator", "quota", g.ZONE, "v4", "32", "--pricing", "spot")
    tpujob("emulator", "quota", g.ZONE, "v6e", "0", "--pricing", "spot")
    golden("quota-emulator", tpujob("quota").out)


def test_the_installed_packages_satisfy_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    software = this_machine.software()
    assert software.python == sys.version_info[:3]
    assert software.installed.keys() >= {"google-cloud-tpu", "google-cloud-storage", "fabric"}


def test_a_page_fits_its_width_and_shows_nothing_harmful() -> None:
    long = "a very long sentence that goes on " * 6
    findings = [
        ok(long).named("clock"),
        warn("\x1b[31m" + long, "do\nthis").named("x" * 20),
        fail("c", "d").named("b"),
        unknown(NotSeen("f")).named("e"),
    ]
    page = doctor_page("lab", findings, 60)
    assert max(width(line) for line in page.splitlines()) <= 60
    assert "\x1b" not in page
    assert "     -> do this" in page.splitlines()
    assert "\x1b[31mFAIL" in doctor_page("lab", findings, 60, color=True)


def test_the_widest_row_fits_80_columns() -> None:
    limits = {"limit": 1536, "zone_limit": 1536, "region_limit": 100000, "used": 1536}
    kind = {"type": "v5e", "part": "one host", "pricing": "on-demand", "unit": "chips"}
    place = {"zone": "northamerica-northeast1-b", "granted_chips": 1024, "provider": "cloud-tpu"}
    row = cast(AllowanceView, {**kind, **limits, **place, "known": True})
    unseen = cast(AllowanceView, {**row, "known": False, "used": None})
    notes = ["europe-west4-a: Location europe-west4-a is not found or access is unauthorized."]
    page = quota_page(QuotaOverview("lab", [row, unseen], notes=notes), 80)
    assert max(width(line) for line in page.splitlines()) <= 80, page
    assert "nort" in page
    assert "?" in page.splitlines()[2]
    assert "Could not be read: europe-west4-a" in page
