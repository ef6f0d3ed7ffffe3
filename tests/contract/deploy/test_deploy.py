"""`deploy/`: what the scripts ask Google for, with a stand-in for gcloud; and what the image is made of.

No account is needed, so nothing here proves that Google agrees. It proves that gcloud's parser takes every command
(where the Cloud SDK is installed), that no role is wider than the table, that the scripts end well wherever an earlier
run stopped, and that the image holds what the backend imports.
"""

import argparse
import contextlib
import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from tests.support.gcloud_project import LOOKS, REGION, Parser, Project, State, parser
from tests.support.paths import ROOT
from tpujob.adapters.cloud_tpu.calls import Method
from tpujob.adapters.google.secrets import SecretManager
from tpujob.config import context as contexts
from tpujob.config import settings
from tpujob.doctor.access import TPU_PERMISSIONS, needed_services
from tpujob.doctor.quota import LIMITS_TAKE
from tpujob.domain import access
from tpujob.service.backend.status import LATE
from tpujob.web import deployed
from tpujob.web.events import StreamTimes
from tpujob.web.security import connections
from tpujob.web.security.limits import BUNDLE_S, OPEN_PATHS, Limits

__all__ = ["parser"]  # a fixture
DEPLOY = ROOT / "deploy"
#: stands for the command of the user who runs the scripts
TPUJOB = r"""#!/bin/sh
if [ "$1" = doctor ]; then
  cp "$TPUJOB_STATE/contexts/$TPUJOB_CONTEXT.yaml" "$RECORD.examined" || exit 9
  exit "${DOCTOR:-0}"
fi
echo "tpujob $*" >> "$RECORD.members"
exit "${MEMBERS:-0}"
"""
#: who may be given which role, and no other one; and whether of the whole project, always or under a condition, or of
#: one resource
ROLES = {
    "tpujob-backend": {
        "projects/my-lab-4711/roles/tpujobBackend": "project",
        "projects/my-lab-4711/roles/tpujobKeys": "project, if",
        "roles/datastore.user": "project, if",
        "roles/iam.serviceAccountUser": "resource",
        "roles/iap.tunnelResourceAccessor": "project, if",
        "roles/logging.logWriter": "project",
        "roles/secretmanager.secretAccessor": "resource",
        "roles/storage.objectUser": "resource",
        "roles/tpu.viewer": "project",
    },
    "tpujob-vm": {
        "roles/logging.logWriter": "project",
        "roles/monitoring.metricWriter": "project",
        "roles/storage.bucketViewer": "resource",
        "roles/storage.objectUser": "resource",
    },
    "tpujob-tick": {"roles/run.invoker": "resource"},
    "tpujob-build": {
        "roles/artifactregistry.writer": "resource",
        "roles/logging.logWriter": "project",
        "roles/storage.objectViewer": "resource",
    },
    "ada": {"roles/run.invoker": "resource"},
}
CLIENT = "1234-lab.apps.googleusercontent.com"
LAB = f"""name: lab
ssh: iap  # by tunnels
buckets:
  europe-west4: gs://my-lab-europe
  us-central2: "gs://my-lab-us"
sign_in:
  client_id: {CLIENT}
  client_secret: GOCSPX-x
"""
IAP = (
    f"{LAB}  iap_audience: /projects/123456789/locations/europe-west4/services/tpujob\ndoor: iap\n"
)
EVERYTHING = contexts.make(
    {"name": "lab", "backend": "https://tpujob-1.europe-west4.run.app", "store": "firestore"}
    | {"ssh": "iap", "project": "my-lab-4711", "zones": ["europe-west4-a"]}
)
#: the two names that Cloud Run gives one service; the second cannot be known before it is there
NAMED = "https://tpujob-123456789.europe-west4.run.app"
HASHED = "https://tpujob-yuquaflafa-ez.a.run.app"
TICKS = "https://tpujob-ticks-123456789.europe-west4.run.app"


BASE = "mirror.example/python:3.11-slim@sha256:" + "0a" * 32


@dataclass
class Desk:
    """Somebody who runs the scripts."""

    folder: Path
    env: dict[str, str]
    project: Project
    set_up: State = field(default_factory=State)  #: the state after setup.sh

    def run(self, script: str, *words: str, code: int | tuple[int, ...] = 0, **env: str) -> str:
        """Return the output. Fails when the script ends otherwise, or a command is not one that gcloud understands."""
        with self.project.lock:
            process = subprocess.Popen(
                [DEPLOY / script, *words],
                env={**self.env, **env},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            self.project.script = process.pid
        text, _ = process.communicate(timeout=120)
        assert not self.project.malformed, self.project.malformed
        assert process.returncode in (code if isinstance(code, tuple) else (code,)), text
        return text

    def asked(self) -> list[list[str]]:
        """Every call of gcloud so far, without what all have in common."""
        return self.project.calls

    def changes(self) -> list[str]:
        return [" ".join(words) for words in self.asked() if not set(LOOKS) & set(words)]


@pytest.fixture
def empty(tmp_path: Path, parser: Parser | None) -> Iterator[Desk]:
    """At a project in which nothing was done."""
    with _desk(tmp_path, parser) as desk:
        yield desk


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, parser: Parser | None) -> Iterator[Desk]:
    """Return a project that was empty, and was set up and deployed to once."""
    with _desk(tmp_path_factory.mktemp("done"), parser) as desk:
        desk.run("setup.sh")
        desk.set_up = copy.deepcopy(desk.project.state)
        desk.run("up.sh", WAKE="called")
        yield desk


@pytest.fixture
def desk(empty: Desk, done: Desk) -> Desk:
    """At a project that is set up, with nothing deployed."""
    empty.project.state = copy.deepcopy(done.set_up)
    return empty


@pytest.fixture
def running(empty: Desk, done: Desk) -> Desk:
    """At a project that is deployed to."""
    empty.project.state = copy.deepcopy(done.project.state)
    return empty


@contextlib.contextmanager
def _desk(tmp_path: Path, parser: Parser | None) -> Iterator[Desk]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tpujob").write_text(TPUJOB)
    (tmp_path / "bin" / "tpujob").chmod(0o755)
    (tmp_path / "lab.yaml").write_text(LAB)
    with Project(tmp_path, parser) as project:
        env = {
            **project.env,
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "POSIXLY_CORRECT": "1",
            "TMPDIR": str(tmp_path),
            "RECORD": str(tmp_path / "record"),
            "PROJECT": "my-lab-4711",
            "REGION": "europe-west4",
            "CONTEXT_FILE": "lab.yaml",
            "BUCKETS": "gs://my-lab-europe gs://my-lab-us",
            "ADMIN": "ada@example.org",
            "BASE": BASE,
        }
        yield Desk(tmp_path, env, project)


def test_no_account_gets_more_roles_than_the_table_says(done: Desk) -> None:
    grants: set[tuple[str, str, str]] = set()
    for words in done.asked():
        if "add-iam-policy-binding" not in words:
            continue
        flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        kind, _, member = flags["member"].partition(":")
        assert kind in ("serviceAccount", "user"), f"{kind}: everybody, or a whole domain"
        user, condition = member.partition("@")[0], flags.get("condition", "")
        if "/secrets/tpujob-s-" in condition:
            assert user == "tpujob-backend", "only the backend reads secrets of users"
        of = "project, if" if "expression=" in condition else "project"
        grants.add((user, flags["role"], of if words[0] == "projects" else "resource"))
    assert grants == {
        (user, role, of) for user, roles in ROLES.items() for role, of in roles.items()
    }
    text = "".join(path.read_text() for path in DEPLOY.iterdir())
    assert not re.search(r"allUsers|allAuthenticatedUsers|roles/(owner|editor)|keys create", text)
    assert not re.search(r"firewall-rules|0\.0\.0\.0/0", text), "no open port"


def test_the_role_of_the_backend_is_what_doctor_looks_for() -> None:
    role = yaml.safe_load((DEPLOY / "backend-role.yaml").read_text())
    keys = {"secretmanager.secrets.create", "secretmanager.secrets.list"}
    assert set(role["includedPermissions"]) == {*TPU_PERMISSIONS, *keys, LIMITS_TAKE}
    taken = {
        "tpu.nodes.create": "create_queued_resource",
        "tpu.nodes.delete": "delete_queued_resource delete_node",
        "tpu.nodes.get": "get_queued_resource get_node",
        "tpu.nodes.list": "list_queued_resources list_nodes",
        "tpu.acceleratortypes.list": "list_accelerator_types",
    }
    called = {*get_args(Method)} - {"get_guest_attributes"}  # by roles/tpu.viewer, says setup.sh
    assert called == set(" ".join(taken.values()).split())
    assert {*taken} == {*TPU_PERMISSIONS}, "what no call takes is not granted"


def test_the_roles_allow_each_call_of_secret_manager_and_no_other() -> None:
    needed = {
        "list": "secrets.list",
        "ensure": "secrets.create secrets.get",
        "change": "secrets.update",
        "remove": "secrets.delete",
        "access": "versions.access",
        "add": "versions.add",
        "destroy": "versions.destroy",
    }
    roles = "".join(file.read_text() for file in DEPLOY.glob("*-role.yaml"))
    granted = re.findall(r"- secretmanager\.(\S+)", roles)
    assert sorted(granted) == sorted(" ".join(needed.values()).split())
    public = {
        name for name, member in vars(SecretManager).items() if callable(member) and name[0] != "_"
    }
    assert public == {*needed, "name", "close"}, "which make no call"


def test_every_api_that_is_called_is_enabled(done: Desk) -> None:
    adapters = "".join(path.read_text() for path in (ROOT / "tpujob" / "adapters").rglob("*.py"))
    called = set(re.findall(r'"(?:https://)?([a-z]+)\.googleapis\.com"', adapters))
    called |= {"iap", "tpu"} | {name.partition(".")[0] for name in needed_services(EVERYTHING)}
    assert {"firestore", "iamcredentials", "secretmanager", "serviceusage"} <= called
    assert called <= done.project.state.apis


def test_a_second_deployment_creates_nothing_again(running: Desk) -> None:
    before = copy.deepcopy(running.project.state)
    running.run("setup.sh")
    running.run("up.sh", WAKE="called")
    made = [line for line in running.changes() if re.search(r"\b(create|undelete)\b", line)]
    assert all(line.startswith("firestore indexes composite create") for line in made), made
    replaced = [line for line in running.changes() if line.startswith("run services replace")]
    assert len(replaced) == 1, "its names were known before"
    assert without_revisions(running) == without_revisions(running, before)


def without_revisions(desk: Desk, state: State | None = None) -> State:
    """Return the content of the project, without the number of deployments and the time of the image's build."""
    state = copy.deepcopy(state or desk.project.state)
    for revisions in state.services.values():
        del revisions[:-1]
        revisions[0]["spec"]["template"]["spec"]["containers"][0]["image"] = "an image"
    return state


@pytest.mark.slow
def test_scripts_go_on_after_every_cut(
    empty: Desk, tmp_path_factory: pytest.TempPathFactory, parser: Parser | None
) -> None:
    """Each run is killed one step later than the one before; in the end everything is as after runs without a cut."""
    with _desk(tmp_path_factory.mktemp("clean"), parser) as clean:
        runs = ["setup.sh", "up.sh", "join.sh", "leave.sh", "remove.sh"]
        words = {"join.sh": ["ben@example.org", "viewer"], "leave.sh": ["ben@example.org"]}
        variables = {"WAKE": "called", "PROGRAMS": "own", "YES": "1"}
        for desk in (clean, empty):
            (desk.folder / "lab.yaml").write_text(IAP)
        for script in runs:
            made = clean.project.steps
            clean.run(script, *words.get(script, []), **variables)
            for cut in range(1, clean.project.steps - made + 1):
                empty.project.cut_after = empty.project.steps + cut
                empty.run(script, *words.get(script, []), code=(-9, 0), **variables)
            empty.project.cut_after = 0
            empty.run(script, *words.get(script, []), **variables)
            assert without_revisions(empty) == without_revisions(clean), script


def test_everything_can_be_removed_from_a_project_in_which_nothing_was_done(empty: Desk) -> None:
    empty.run("remove.sh", YES="1")
    empty.run("leave.sh", "ben@example.org")
    assert empty.project.state == State()
    assert "run deploy/setup.sh first" in empty.run("up.sh", code=2)


def test_what_google_does_not_know_yet_is_tried_again(empty: Desk) -> None:
    empty.project.lag = 2
    output = empty.run("setup.sh")
    assert "grant, API or index works; trying again in 5 s" in output
    empty.run("up.sh")
    empty.run("join.sh", "ben@example.org", "viewer", PROGRAMS="own")
    assert {*empty.project.slept} <= {5.0, 10.0, 15.0, 30.0}
    empty.project.slept.clear()
    empty.project.refuse = lambda words: "HTTPError 403" if "services replace" in words else None
    assert "HTTPError 403" in empty.run("up.sh", code=1)
    assert sum(empty.project.slept) == 120, "and not for ever"
    empty.project.slept.clear()
    empty.project.refuse = lambda words: "a quota" if "services replace" in words else None
    assert "a quota" in empty.run("up.sh", code=1)
    assert not empty.project.slept, "the first of other errors is reported"


def test_an_answer_that_does_not_say_what_is_there_ends_a_script(desk: Desk) -> None:
    desk.project.refuse = lambda words: "503" if "secrets describe" in words else None
    assert "503" in desk.run("setup.sh", code=1)
    assert not any(line.startswith("secrets create") for line in desk.changes())


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="NOT TESTED: gcloud is not installed")
def test_the_parser_of_gcloud_refuses_unknown_words(parser: Parser | None, tmp_path: Path) -> None:
    assert parser
    at = ["firestore", "indexes", "fields", "update", "at", "--collection-group=events"]
    scoped = [*at, "--index=order=descending,query-scope=collection-group"]
    assert "query-scope" in parser.refusal(folder=str(tmp_path), words=scoped)
    assert parser.refusal(folder=str(tmp_path), words=[*at, "--index=order=descending"]) == ""
    (tmp_path / "service.yaml").write_text("kind: Service\nspec: {trafic: []}\n")
    replace = ["run", "services", "replace", "service.yaml"]
    assert "trafic" in parser.refusal(folder=str(tmp_path), words=replace)
    assert "indexs" in parser.refusal(field={"indexConfig": {"indexs": []}})


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="NOT TESTED: gcloud is not installed")
def test_the_parser_of_gcloud_takes_commands_of_the_guide(tmp_path: Path, parser: Parser) -> None:
    text = (DEPLOY / "README.md").read_text()
    lines = map("".join, re.findall(r"^gcloud (.*)$|`gcloud ([^`]*)`", text, re.MULTILINE))
    commands = [line for line in lines if "--" in line or "auth" in line]  # others are only named
    assert len(commands) > 8
    for line in commands:
        words = shlex.split(line.replace("$REGION", REGION), comments=True)
        assert not parser.refusal(folder=str(tmp_path), words=words), line


def test_a_new_context_is_stored_and_old_ones_are_destroyed(desk: Desk) -> None:
    for notes in ("one", "two", "three"):
        (desk.folder / "lab.yaml").write_text(f"{LAB}notes: {notes}\n")
        desk.run("setup.sh")
    versions = desk.project.state.secrets["tpujob-context"]
    assert versions == [None, None, f"{LAB}notes: two\n", f"{LAB}notes: three\n"]


def test_setup_ends_with_the_checks_of_doctor(desk: Desk) -> None:
    assert "deploy/up.sh" in desk.run("setup.sh")
    assert (desk.folder / "record.examined").read_text() == LAB
    text = desk.run("setup.sh", DOCTOR="6", code=1)
    assert "cure what is marked FAIL" in text
    assert "deploy/up.sh" not in text
    text = desk.run("setup.sh", DOCTOR="75")
    assert "could not check everything (exit code 75)" in text
    assert "deploy/up.sh" in text


def test_hosts_get_a_way_out_where_they_have_none(desk: Desk) -> None:
    state = desk.project.state
    desk.run("setup.sh")
    assert not state.routers
    assert not state.private
    state.routers["us-central2/of-the-lab"] = "nat"
    for _ in range(2):
        desk.run("setup.sh", EGRESS="nat")
        assert state.private == {"europe-west4/default", "us-central2/default"}
        assert state.routers == {
            "us-central2/of-the-lab": "nat",
            "europe-west4/tpujob-egress": "tpujob-egress",
        }
    state.routers["europe-west4/tpujob-egress"] = ""  # cut between the two
    desk.run("setup.sh", EGRESS="nat")
    assert state.routers["europe-west4/tpujob-egress"]
    assert "Private Google Access" in desk.run("remove.sh", YES="1")
    assert state.routers == {"us-central2/of-the-lab": "nat"}


def test_a_way_out_of_a_shared_network_is_its_owners(desk: Desk) -> None:
    shared = f"{LAB}network: projects/host/global/networks/lab\n"
    (desk.folder / "lab.yaml").write_text(shared)
    assert "its owner makes Cloud NAT" in desk.run("setup.sh", EGRESS="nat", code=2)
    assert "it can be nat" in desk.run("setup.sh", EGRESS="gateway", code=2)
    desk.run("setup.sh")


@pytest.mark.parametrize(("door", "signed"), [("iam", True), ("public", False)])
def test_an_alert_is_sent_when_the_backend_does_not_answer(
    running: Desk, door: str, signed: bool
) -> None:
    (running.folder / "lab.yaml").write_text(f"{LAB}door: {door}\n")
    state = running.project.state
    running.run("alert.sh")
    running.run("alert.sh", ADMIN="ben@example.org")
    watches = {name.split("/")[2]: (name, flags) for name, flags in state.watches.items()}
    assert len(state.watches) == len(watches) == 3
    check, flags = watches["uptimeCheckConfigs"]
    channel, address = watches["notificationChannels"]
    host = NAMED.removeprefix("https://")
    assert flags["resource-labels"] == f"host={host},project_id=my-lab-4711"
    assert flags["path"] in OPEN_PATHS
    assert ("service-agent-auth" in flags) == signed
    agents = [member for _, member, role, _ in state.bindings if "monitoring-not" in member]
    assert bool(agents) == signed
    assert address["update-channel-labels"] == "email_address=ben@example.org"
    policy = json.loads(watches["alertPolicies"][1]["policy"])
    assert policy["notificationChannels"] == [channel]
    (condition,) = policy["conditions"]
    assert check.rpartition("/")[2] in condition["conditionThreshold"]["filter"]
    running.run("remove.sh", YES="1")
    assert not state.watches


def test_behind_iap_an_alert_takes_the_service_of_the_ticks(desk: Desk) -> None:
    (desk.folder / "lab.yaml").write_text(IAP)
    desk.run("setup.sh")
    desk.run("up.sh")
    assert "only with WAKE=called" in desk.run("alert.sh", code=2)
    desk.run("up.sh", WAKE="called")
    desk.run("alert.sh")
    (check,) = (flags for name, flags in desk.project.state.watches.items() if "uptime" in name)
    assert check["resource-labels"].startswith(f"host={TICKS.removeprefix('https://')}")


def test_the_context_says_where_secrets_lie(empty: Desk) -> None:
    (empty.folder / "lab.yaml").write_text(f"{LAB}secret_region: europe-west4\n")
    empty.run("setup.sh")
    assert empty.project.state.replication == {"tpujob-context": "europe-west4"}


def test_the_database_cannot_be_deleted_by_mistake_and_keeps_its_past(desk: Desk) -> None:
    assert desk.project.state.databases == {"(default)": ("delete-protection", "enable-pitr")}
    desk.project.state.databases["(default)"] = ()
    desk.run("setup.sh")
    assert desk.project.state.databases == {"(default)": ("delete-protection", "enable-pitr")}
    assert "--no-delete-protection" in desk.run("remove.sh", YES="1")


def test_back_to_an_earlier_revision_until_the_next_deployment(running: Desk) -> None:
    traffic = running.project.state.traffic
    assert "tpujob-00001-abc" in running.run("back.sh")
    running.run("back.sh", "tpujob-00001-abc")
    assert traffic == {"tpujob": "tpujob-00001-abc=100"}
    running.run("up.sh")
    assert traffic == {"tpujob": "latest"}
    running.run("back.sh", "tpujob-00002-abc")
    running.run("back.sh", "latest")
    assert traffic == {"tpujob": "latest"}
    assert "neither a revision" in running.run("back.sh", "1", code=2)


def test_setup_after_remove_takes_its_deleted_roles_back(running: Desk) -> None:
    """Google keeps the id of a deleted role for weeks: it can neither be created nor updated."""
    running.run("remove.sh", YES="1")
    running.asked().clear()
    running.run("setup.sh")
    for role in ("tpujobBackend", "tpujobKeys"):
        commands = [
            line for line in running.changes() if line.startswith("iam roles") and role in line
        ]
        assert [line.split()[2] for line in commands] == ["undelete", "update"]
    running.run("up.sh")


def test_every_index_of_the_file_is_made_and_no_other(done: Desk) -> None:
    file = json.loads((DEPLOY / "firestore.indexes.json").read_text())
    commands = [line for line in done.changes() if line.startswith("firestore indexes composite")]
    for index, line in zip(file["indexes"], commands, strict=True):
        for row in index["fields"]:
            assert f"field-path={row['fieldPath']},order={row['order'].lower()}" in line
    descending = {"fieldPath": "at", "order": "DESCENDING"}
    at = [{"queryScope": "COLLECTION_GROUP", "fields": [descending]}]
    without = [row for row in file["fieldOverrides"] if not row["indexes"]]
    exempt = {f"{row['collectionGroup']}/{row['fieldPath']}": list[Any]() for row in without}
    made = {name: row["indexConfig"]["indexes"] for name, row in done.project.state.fields.items()}
    assert made == {"events/at": at, **exempt}


def test_the_build_has_an_account_of_its_own(done: Desk) -> None:
    account = "tpujob-build@my-lab-4711.iam.gserviceaccount.com"
    (submitted,) = (line for line in done.changes() if line.startswith("builds submit"))
    assert f"--service-account=projects/my-lab-4711/serviceAccounts/{account}" in submitted
    resources = {on for on, members, *_ in done.project.state.bindings if account in members}
    assert resources == {
        "projects my-lab-4711",  # for its logs
        "storage buckets gs://my-lab-4711_cloudbuild",
        "artifacts repositories tpujob",
    }
    assert done.project.state.buckets == {"gs://my-lab-4711_cloudbuild": REGION}
    build = yaml.safe_load((DEPLOY / "cloudbuild.yaml").read_text())
    assert build["options"]["logging"] == "CLOUD_LOGGING_ONLY", "an account's own build needs it"


def test_the_image_is_built_on_a_base_by_its_digest(desk: Desk) -> None:
    builder = "mirror.example/docker@sha256:" + "0b" * 32
    desk.run("up.sh", BUILDER=builder)
    desk.run("up.sh", BASE="", UNPINNED="1")
    pinned, moving = (line for line in desk.changes() if line.startswith("builds submit"))
    assert f",_BASE={BASE},_BUILDER={builder} " in pinned
    assert "_BASE" not in moving
    build = yaml.safe_load((DEPLOY / "cloudbuild.yaml").read_text())
    assert "BASE=${_BASE}" in build["steps"][0]["args"]
    assert set(_dockerfile("FROM")) == {"${BASE} AS packages", "${BASE}"}


INTERFACE = {"network": "lab-net", "subnetwork": "lab-eu"}


@pytest.mark.parametrize(
    ("variables", "interface", "egress"),
    [
        ({}, None, None),
        ({"NETWORK": "default"}, {"network": "default"}, "private-ranges-only"),
        (
            {"NETWORK": "lab-net", "SUBNET": "lab-eu", "VPC_EGRESS": "all-traffic"},
            INTERFACE,
            "all-traffic",
        ),
    ],
    ids=["none", "usual", "of the lab"],
)
def test_the_way_into_a_network_is_a_switch(
    desk: Desk, variables: dict[str, str], interface: dict[str, str] | None, egress: str | None
) -> None:
    desk.run("up.sh", **variables)
    annotations = _service(desk)["spec"]["template"]["metadata"]["annotations"]
    interfaces = annotations.get("run.googleapis.com/network-interfaces")
    assert (json.loads(interfaces) if interfaces else None) == ([interface] if interface else None)
    assert annotations.get("run.googleapis.com/vpc-access-egress") == egress


def _service(desk: Desk) -> dict[str, Any]:
    """Return the service as it was deployed last."""
    return desk.project.state.services["tpujob"][-1]


def _deployed(desk: Desk, service: Any = None) -> argparse.Namespace:
    """Return the settings of the deployed backend."""
    (container,) = (service or _service(desk))["spec"]["template"]["spec"]["containers"]
    words = [*_entrypoint()[3:], *container["args"]]
    return deployed._options(words)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("wake", "least", "jobs"), [("always", "1", 0), ("called", "0", 2)])
def test_the_service_file_is_filled_in(desk: Desk, wake: str, least: str, jobs: int) -> None:
    desk.run("up.sh", WAKE=wake)
    service = _service(desk)
    template = service["spec"]["template"]
    annotations = template["metadata"]["annotations"]
    assert annotations["autoscaling.knative.dev/minScale"] == least
    assert annotations["run.googleapis.com/cpu-throttling"] == str(wake == "called").lower()
    (container,) = template["spec"]["containers"]
    assert ("livenessProbe" in container) == (wake == "always"), "else the loop does not run"
    assert container["image"].startswith("europe-west4-docker.pkg.dev/my-lab-4711/tpujob/backend:")
    options = _deployed(desk)
    assert options.only_called == (wake == "called")
    assert options.url == [NAMED, HASHED], "of which the second is known once it is deployed"
    tick = "tpujob-tick@my-lab-4711.iam.gserviceaccount.com"
    assert options.tick_account == (tick if wake == "called" else "")
    assert options.admin == "ada@example.org"
    (mount,), (volume,) = container["volumeMounts"], template["spec"]["volumes"]
    path = f"{mount['mountPath']}/{volume['secret']['items'][0]['path']}"
    assert str(options.context_file) == path
    assert not re.search(r"[A-Z]{5,}", json.dumps(service)), "something was not filled in"
    scheduled = [line for line in desk.changes() if line.startswith("scheduler jobs create http")]
    assert len(scheduled) == jobs
    assert all(f"--oidc-token-audience={NAMED}" in line for line in scheduled)


def test_the_service_admits_what_the_backend_serves() -> None:
    """Cloud Run would refuse, or cut off, what the limits of the process let in."""
    spec = yaml.safe_load((DEPLOY / "service.yaml").read_text())["spec"]["template"]["spec"]
    limits, (container,) = Limits(), spec["containers"]
    short_calls = limits.at_once
    connections_of_backend = limits.lives + limits.streams + short_calls
    assert connections_of_backend <= spec["containerConcurrency"] <= connections.MAX_CONNECTIONS
    assert spec["timeoutSeconds"] >= StreamTimes().life + 60
    assert spec["timeoutSeconds"] >= BUNDLE_S
    assert spec["timeoutSeconds"] <= 3600, "Cloud Run has no longer one"
    for name in ("startupProbe", "livenessProbe"):
        assert container[name]["httpGet"]["path"] in OPEN_PATHS - {"/healthz"}, "Cloud Run keeps it"
        assert container[name]["timeoutSeconds"] <= container[name]["periodSeconds"]
    start, alive = container["startupProbe"], container["livenessProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] <= 240, "Cloud Run allows no more"
    assert alive["periodSeconds"] * alive["failureThreshold"] >= LATE, "one late pass is no failure"


def test_nothing_but_what_holds_jobs_is_left(running: Desk) -> None:
    running.run("join.sh", "ben@example.org", "viewer", PROGRAMS="own")
    state = running.project.state
    state.secrets["tpujob-s-uid_3a1000-HF_TOKEN"] = ["x"]
    running.asked().clear()
    running.run("remove.sh", YES="1")
    assert not [line for line in running.changes() if "firestore" in line or "buckets" in line]
    assert state.databases == {"(default)": ("delete-protection", "enable-pitr")}
    remaining = (state.accounts, state.secrets, state.services, state.repositories, state.jobs)
    assert not any(remaining), remaining
    assert all(state.roles.values())


# Who comes in, and who leaves ----------------------------------------------------------------------------------------


def members(desk: Desk) -> list[str]:
    file = desk.folder / "record.members"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("context", [LAB, IAP], ids=["iam", "iap"])
def test_somebody_who_leaves_has_nothing_afterwards(desk: Desk, context: str) -> None:
    (desk.folder / "lab.yaml").write_text(context)
    desk.run("setup.sh")
    desk.run("up.sh")
    service = "ci@my-lab-4711.iam.gserviceaccount.com"
    desk.project.state.accounts[service] = ""
    before = copy.deepcopy(desk.project.state)
    for programs, account in (("shared", service), ("own", "ben@example.org"), ("own", service)):
        desk.run("join.sh", account, "submitter", PROGRAMS=programs)
        granted = desk.project.state.bindings - before.bindings
        assert [binding for binding in granted if account in binding[1]]
        assert len(granted) == (10 if programs == "own" else 1)
        desk.run("setup.sh")  # beside the conditions of their account
        desk.run("leave.sh", account)
        assert desk.project.state == before
        commands = [f"tpujob members add {account} submitter", f"tpujob members remove {account}"]
        assert members(desk)[-2:] == commands


@pytest.mark.parametrize(
    ("context", "grant"),
    [(LAB, "run services add-iam-policy-binding tpujob --region=europe-west4 "
      "--member=user:ben@example.org --role=roles/run.invoker"),
     (IAP, "beta iap web add-iam-policy-binding --resource-type=cloud-run --service=tpujob --region=europe-west4 "
      "--member=user:ben@example.org --role=roles/iap.httpsResourceAccessor"),
     (f"{LAB}door: public\n", "")],
    ids=["iam", "iap", "public"],
)  # fmt: skip
def test_people_get_one_role_on_the_service_alone(running: Desk, context: str, grant: str) -> None:
    """Give no role where the door is `public`: the list of members alone decides."""
    desk = running
    (desk.folder / "lab.yaml").write_text(context)
    desk.run("join.sh", "ben@example.org", "viewer")
    assert desk.changes() == ([grant] if grant else [])


def test_an_account_that_keeps_a_binding_is_deleted_all_the_same(running: Desk) -> None:
    accounts = running.project.state.accounts
    before = {*accounts}
    running.run("join.sh", "ben@example.org", "viewer", PROGRAMS="own")
    (own,) = {*accounts} - before
    unwilling = re.compile("gs://my-lab-europe|remove-iam.*run.invoker")
    running.project.refuse = lambda words: "503" if unwilling.search(words) else None
    output = running.run("leave.sh", "ben@example.org", code=1)
    assert {*accounts} == before
    assert f"some bindings of {own} could not be removed" in output
    (binding,) = [line for line in output.splitlines() if line.startswith("  ")]
    assert "roles/run.invoker" in binding, "what a second run can still take away"
    running.project.refuse = lambda _: None
    assert "has nothing here any more" in running.run("leave.sh", "ben@example.org")


@pytest.mark.parametrize(
    "refusal",
    ["PERMISSION_DENIED: Permission 'iam.serviceAccounts.get' denied on resource (or it may not exist).",
     "User [ben@example.org] does not have permission to access it (or it may not exist)"],
)  # fmt: skip
def test_a_refusal_is_not_taken_for_something_that_is_gone(running: Desk, refusal: str) -> None:
    running.run("join.sh", "ben@example.org", "viewer", PROGRAMS="own")
    before = copy.deepcopy(running.project.state)
    running.project.refuse = lambda _: refusal
    assert "nothing here any more" not in running.run("leave.sh", "ben@example.org", code=1)
    assert "Gone" not in running.run("remove.sh", YES="1", code=1)
    assert running.project.state == before


def test_an_account_of_ones_own_reaches_ones_own_folder(running: Desk) -> None:
    desk, before = running, {*running.project.state.bindings}
    output = desk.run("join.sh", "ben@example.org", "submitter", PROGRAMS="own")
    (made,) = (words[3] for words in desk.asked() if "create" in words)
    account = f"{made}@my-lab-4711.iam.gserviceaccount.com"
    assert f"    ben@example.org: {account}" in output
    granted = [b for b in desk.project.state.bindings - before if account in f"{b[0]} {b[1]}"]
    assert {(on, role) for on, _, role, _ in granted} == {
        ("projects my-lab-4711", "roles/logging.logWriter"),
        ("projects my-lab-4711", "roles/monitoring.metricWriter"),
        ("storage buckets gs://my-lab-europe", "roles/storage.objectUser"),
        ("storage buckets gs://my-lab-us", "roles/storage.objectUser"),
        ("storage buckets gs://my-lab-europe", "roles/storage.objectViewer"),
        ("storage buckets gs://my-lab-us", "roles/storage.objectViewer"),
        ("storage buckets gs://my-lab-europe", "roles/storage.bucketViewer"),
        ("storage buckets gs://my-lab-us", "roles/storage.bucketViewer"),
        (f"iam service-accounts {account}", "roles/iam.serviceAccountUser"),
    }
    folder = "my-lab-4711-fs/u/ben-at-example.org/"
    for bucket in ("my-lab-europe", "my-lab-us"):
        for role, prefix in (("User", folder), ("Viewer", "datasets/")):
            (condition,) = (
                b[3]
                for b in granted
                if b[0].endswith(f"gs://{bucket}") and b[2] == f"roles/storage.object{role}"
            )
            assert f"startsWith('projects/_/buckets/{bucket}/objects/{prefix}')" in condition
            assert f"'').startswith('{prefix}')".lower() in condition.lower(), "and lists no other"
    (acts,) = (b for b in granted if b[0].startswith("iam service-accounts"))
    assert acts[1] == "serviceAccount:tpujob-backend@my-lab-4711.iam.gserviceaccount.com"


def shell(desk: Desk, command: str, **variables: str) -> str:
    script = f"source {DEPLOY}/common.sh; {command}"
    env = {**desk.env, **variables}
    return subprocess.run(
        ["bash", "-c", script, str(DEPLOY / "test.sh")],
        env=env, cwd=desk.folder, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip


@pytest.mark.parametrize(
    "address",
    ["ada@example.org", "a.b+c_d@x-y.example.co.uk", "__ada--@example.org",
     "ci@my-lab-4711.iam.gserviceaccount.com", f"{'long' * 15}@example.org"],
)  # fmt: skip
def test_the_scripts_name_accounts_by_the_rules_of_google(desk: Desk, address: str) -> None:
    account = shell(desk, f"programs_of {address}")
    assert re.fullmatch(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])", account), "as Google wants ids"


WITH_HASH = access.slug("a+x@example.org")  #: with a hash at its end
ODD_NAMES = [
    "a+x@example.org", "a-x@example.org", "a_x@example.org", WITH_HASH,
    WITH_HASH.replace("-at-", "@"), "a@example.org", "a-at-example.org", "a-at-example@org", "a@at@example.org",
    "a-at-at-example.org", "@", "", "user", "-", "--a", "a", "a-", ".a", "é@example.org", "è@example.org", "É",
    "\u212a", "k", "\u0130", "i", "a b", "a  b", "a\nb", "a\n", "a'b", 'a"b', "$HOME", "a*", "\U0001f600",
    "ci@my-lab-4711.iam.gserviceaccount.com", "x" * 63, "x" * 64, "x" * 65,
    *(f"{'long' * 15}{end}@example.org" for end in ("", "a", "b", "ab")),
]  # fmt: skip


def test_each_name_has_its_folder_and_the_scripts_know_it_as_the_backend_does(desk: Desk) -> None:
    folders = {name: access.slug(name) for name in ODD_NAMES}
    assert len(set(folders.values())) == len(set(ODD_NAMES))
    assert all(re.fullmatch("[a-z0-9][a-z0-9._-]{0,62}", word) for word in folders.values())
    names = {f"N{number}": name for number, name in enumerate(folders)}
    calls = " ".join(f'folder_of "${word}";' for word in names)
    assert shell(desk, calls, **names).splitlines() == list(folders.values())
    assert access.slug("A-x@Example.org") == shell(desk, "folder_of A-x@Example.org")
    assert access.slug("A-x@Example.org") == folders["a-x@example.org"]
    assert folders["a-x@example.org"] == "a-x-at-example.org", "readable names stay as they were"


@pytest.mark.parametrize(
    ("project", "database"),
    [("my-lab-4711", "(default)"), ("my-lab-4711", "jobs"), ("x" * 30, "jobs-of-everybody-here"),
     ("example.com:my-lab-1", "(default)")],
)  # fmt: skip
def test_scripts_and_backend_agree_on_its_folder(desk: Desk, project: str, database: str) -> None:
    fields = {"name": "lab", "project": project, "zones": ["europe-west4-a"], "store": "firestore"}
    made = contexts.make(fields | {"database": database})
    (desk.folder / "lab.yaml").write_text(contexts.text(made))
    expected = contexts.owner(settings.load(desk.folder / "state"), made)
    assert shell(desk, "owner", PROJECT=project) == expected


def test_whoever_cannot_be_taken_off_the_list_keeps_the_rest(running: Desk) -> None:
    """Keep the rest, as that member can still act."""
    running.run("leave.sh", "ben@example.org", code=1, MEMBERS="77")
    assert running.changes() == []
    running.run("leave.sh", "ben@example.org", MEMBERS="3")
    assert len(running.changes()) == 2, "a user on no list may still have the rest"


DIGEST = "name a digest"

#: script, its words, the context, settings, and the error
REFUSED = [
    ("setup.sh", (), "name: lab\n", {}, "open to the world"),
    ("setup.sh", (), "name: lab\nssh: external\n", {}, "ssh: internal"),
    ("setup.sh", (), LAB, {"BUCKETS": ""}, "BUCKETS is not set"),
    ("setup.sh", (), f"{LAB}door: open\n", {}, "it can be iam, iap or public"),
    ("up.sh", (), f"{LAB}door: open\n", {}, "it can be iam, iap or public"),
    ("up.sh", (), LAB.replace("ssh: iap", "ssh: internal"), {}, "NETWORK is not set"),
    ("up.sh", (), LAB, {"VPC_EGRESS": "none", "NETWORK": "x"}, "private-ranges-only or all-"),
    ("up.sh", (), LAB, {"VPC_EGRESS": "all-traffic"}, "NETWORK is not set"),
    ("up.sh", (), LAB, {"NETWORK": "a'b"}, "are names"),
    ("up.sh", (), LAB, {"SUBNET": "a|b"}, "are names"),
    ("up.sh", (), LAB, {"PROJECT": ""}, "PROJECT is not set"),
    ("up.sh", (), LAB, {"ADMIN": ""}, "ADMIN is not set"),
    ("up.sh", (), LAB, {"ADMIN": 'ada"|x'}, "no e-mail address"),
    ("up.sh", (), LAB, {"CONTEXT_FILE": ""}, "CONTEXT_FILE is not set"),
    ("up.sh", (), LAB, {"WAKE": "sometimes"}, "always or called"),
    ("up.sh", (), LAB, {"BASE": ""}, "BASE is not set"),
    ("up.sh", (), LAB, {"BASE": "python:3.11-slim"}, DIGEST),
    ("up.sh", (), LAB, {"BASE": "python@sha256:12"}, DIGEST),
    ("up.sh", (), LAB, {"BUILDER": "x,_IMAGE=y@sha256:" + "0" * 64}, DIGEST),
    ("remove.sh", (), LAB, {}, "no job runs"),
    ("join.sh", ("ben@example.org", "owner"), LAB, {}, "viewer, submitter or admin"),
    ("join.sh", ("ben@example.org",), LAB, {}, "viewer, submitter or admin"),
    ("join.sh", ("group:lab@example.org", "viewer"), LAB, {}, "no e-mail address"),
    ("join.sh", ("Ben@example.org", "viewer"), LAB, {}, "in small letters"),
    ("leave.sh", (), LAB, {}, "no e-mail address"),
]


@pytest.mark.parametrize(("script", "words", "context", "env", "error"), REFUSED)
def test_what_cannot_work_is_refused_before_anything_is_done(
    empty: Desk, script: str, words: tuple[str, ...], context: str, env: dict[str, str], error: str
) -> None:
    (empty.folder / "lab.yaml").write_text(context)
    assert error in empty.run(script, *words, code=2, **env)
    assert empty.asked() == []
    assert members(empty) == []


def test_the_audience_of_iap_must_be_that_of_the_service(desk: Desk) -> None:
    (desk.folder / "lab.yaml").write_text(IAP.replace("123456789", "1"))
    output = desk.run("up.sh", code=2)
    assert "iap_audience: /projects/123456789/locations/europe-west4/services/tpujob" in output
    assert desk.changes() == []


# The door ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "switched", "way"),
    [(LAB, set(), ""), (f"{LAB}door: public\n", {"invoker-iam-disabled"}, " --door public"),
     (IAP, {"iap-enabled", "launch-stage"}, " --door iap")],
    ids=["iam", "public", "iap"],
)  # fmt: skip
def test_what_stands_in_front_is_a_switch_of_the_context(
    desk: Desk, context: str, switched: set[str], way: str
) -> None:
    (desk.folder / "lab.yaml").write_text(context)
    output = desk.run("up.sh", WAKE="called").splitlines()
    use = f"  tpujob use {NAMED} --client-id {CLIENT} --client-secret GOCSPX-x"
    assert f"{use}{way}" in output, "what people run"
    annotations = _service(desk)["metadata"]["annotations"]
    of_cloud_run = {name.removeprefix("run.googleapis.com/") for name in annotations}
    assert of_cloud_run == {"ingress", "custom-audiences"} | switched
    assert json.loads(annotations["run.googleapis.com/custom-audiences"]) == [CLIENT]
    ada = [b for b in desk.project.state.bindings if b[1] == "user:ada@example.org"]
    assert len(ada) == (0 if "public" in context else 1)


def test_behind_iap_the_scheduler_calls_a_service_of_its_own(desk: Desk) -> None:
    (desk.folder / "lab.yaml").write_text(IAP)
    desk.run("up.sh", WAKE="called")
    (_, ticks) = desk.project.state.services["tpujob-ticks"]
    assert "livenessProbe" not in ticks["spec"]["template"]["spec"]["containers"][0]
    assert not [name for name in ticks["metadata"]["annotations"] if "iap" in name]
    options = _deployed(desk, ticks)
    assert (options.door, options.only_called) == ("iam", True)
    assert options.tick_account == "tpujob-tick@my-lab-4711.iam.gserviceaccount.com"
    assert options.url == [TICKS, "https://tpujob-ticks-yuquaflafa-ez.a.run.app"]
    assert _deployed(desk).tick_account == ""
    agent, tick = "service-123456789@gcp-sa-iap", "tpujob-tick@my-lab-4711"
    assert {b[:2] for b in desk.project.state.bindings if b[0].startswith("run ")} == {
        ("run services tpujob", f"serviceAccount:{agent}.iam.gserviceaccount.com"),
        ("run services tpujob-ticks", f"serviceAccount:{tick}.iam.gserviceaccount.com"),
    }
    scheduled = [line for line in desk.changes() if line.startswith("scheduler jobs create http")]
    assert len(scheduled) == 2
    assert all(f"--uri={TICKS}/v1/tick" in line for line in scheduled)
    assert all(f"--oidc-token-audience={TICKS}" in line for line in scheduled)


# The image -----------------------------------------------------------------------------------------------------------


def _dockerfile(word: str) -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return [line[len(word) :].strip() for line in text.splitlines() if line.startswith(f"{word} ")]


def _entrypoint() -> list[str]:
    return json.loads(_dockerfile("ENTRYPOINT")[0])


@pytest.mark.slow
def test_the_image_has_what_the_backend_needs_and_an_ordinary_user(tmp_path: Path) -> None:
    """The image's own COPY lines are carried out in a folder, with the packages of this machine."""
    for line in _dockerfile("COPY"):
        *sources, target = shlex.split(line)
        if sources[0].startswith("--from"):
            continue
        place = tmp_path / target.lstrip("/")
        for source in map(ROOT.joinpath, sources):
            ignore = shutil.ignore_patterns("__pycache__")
            if source.is_dir():
                shutil.copytree(source, place, ignore=ignore)
            else:
                shutil.copy(source, place)
    env = {"PYTHONPATH": str(tmp_path / "app"), "PATH": os.environ["PATH"]}
    where = "import sys, tpujob, workloads, tpujob.web.deployed; print(tpujob.__file__)"
    for words in (["-c", where], [*_entrypoint()[1:3], "--help"]):
        done = subprocess.run(
            [sys.executable, "-P", *words], env=env, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert str(tmp_path) in done.stdout or "--only-called" in done.stdout
    assert _dockerfile("USER")[-1] not in ("0", "root")


def test_the_image_has_the_packages_that_the_tests_ran_with() -> None:
    """`make lock` writes both; the image's has no program for a TPU in it."""
    ours, every = (_locked(path / "requirements.lock") for path in (DEPLOY, ROOT))
    assert ours, "nothing is locked"
    different = {name for name, block in ours.items() if every.get(name) != block}
    assert not different, f"run `make lock`: {different}"
    assert not {"jax", "pytest", "flax"} & set(ours)
    project: Any = _project()["dependencies"]
    direct = {re.split(r"[<>=\[ ]", line)[0].lower() for line in project}
    assert direct <= set(ours), f"run `make lock`: {direct - set(ours)}"


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _locked(path: Path) -> dict[str, str]:
    blocks = re.split(r"\n(?=\S)", path.read_text())
    return {re.split(r"[ ;=\\]", block)[0]: block.strip() for block in blocks if block.strip()}
