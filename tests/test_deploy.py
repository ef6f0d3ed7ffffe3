"""`deploy/`: what the scripts ask Google for, with a gcloud that only writes down; and what the image is made of.

No account is needed, so nothing here proves that Google agrees. It proves that no role is wider than the table, that a
second run changes nothing that is there, and that the image holds what the backend imports.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tpujob.config import context as contexts
from tpujob.config import settings
from tpujob.doctor.access import TPU_PERMISSIONS
from tpujob.doctor.quota import LIMITS_TAKE, USE_TAKES
from tpujob.domain import access
from tpujob.web import deployed

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
GCLOUD = r"""#!/bin/sh
{ for word; do printf '%s\037' "$word"; done; echo; } >> "$RECORD"
case " $* " in
  *" projects describe "*) echo 123456789 ;;
  *" iam roles describe "*)
    [ -n "$THERE$DELETED" ] || exit 1
    printf 'projects/my-lab-4711/roles/%s\t%s\n' "$6" "$DELETED" ;;
  *" run services describe tpujob-ticks "*)
    [ -n "$THERE" ] || [ -e "$RECORD.ticks" ] || exit 1
    echo https://tpujob-ticks-yuquaflafa-ez.a.run.app ;;
  *" run services describe "*)
    [ -n "$THERE" ] || [ -e "$RECORD.yaml" ] || exit 1
    printf '%s\trun.googleapis.com/ingress=all;run.googleapis.com/urls=["%s", "%s"]\n' "$HASHED" \
      https://tpujob-123456789.europe-west4.run.app "$HASHED" ;;
  *" describe "*) [ -n "$THERE" ] || exit 1 ;;
  *" secrets list "*) [ -z "$THERE" ] || echo tpujob-s-uid_3a1000-HF_TOKEN ;;
  *" services replace "*)
    if grep -q "^  name: tpujob-ticks" "$6"; then cp "$6" "$RECORD.ticks"; else cp "$6" "$RECORD.yaml"; fi ;;
esac
"""
#: stands for the command of whoever runs the scripts
TPUJOB = r"""#!/bin/sh
echo "tpujob $*" >> "$RECORD.members"
exit "${MEMBERS:-0}"
"""
#: who may be given which role, and no other one
ALLOWED = {
    "tpujob-backend": {
        "projects/my-lab-4711/roles/tpujobBackend",
        "projects/my-lab-4711/roles/tpujobKeys",
        "roles/datastore.user",
        "roles/iam.serviceAccountUser",
        "roles/iap.tunnelResourceAccessor",
        "roles/logging.logWriter",
        "roles/secretmanager.secretAccessor",
        "roles/storage.legacyBucketReader",
        "roles/storage.objectUser",
        "roles/tpu.viewer",
    },
    "tpujob-vm": {
        "roles/logging.logWriter",
        "roles/monitoring.metricWriter",
        "roles/storage.objectUser",
    },
    "tpujob-tick": {"roles/run.invoker"},
    "tpujob-build": {
        "roles/artifactregistry.writer",
        "roles/logging.logWriter",
        "roles/storage.objectViewer",
    },
    "ada": {"roles/run.invoker"},
}
#: roles of a whole project; the others are given on one resource
OF_THE_PROJECT = {
    "projects/my-lab-4711/roles/tpujobBackend",
    "projects/my-lab-4711/roles/tpujobKeys",
    "roles/datastore.user",
    "roles/iap.tunnelResourceAccessor",
    "roles/logging.logWriter",
    "roles/monitoring.metricWriter",
    "roles/storage.objectViewer",
    "roles/tpu.viewer",
}
CONDITIONAL = {
    "projects/my-lab-4711/roles/tpujobKeys",
    "roles/datastore.user",
    "roles/iap.tunnelResourceAccessor",
    "roles/storage.objectViewer",
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
#: the two names that Cloud Run gives one service; the second cannot be known before it is there
NAMED = "https://tpujob-123456789.europe-west4.run.app"
HASHED = "https://tpujob-yuquaflafa-ez.a.run.app"
TICKS = "https://tpujob-ticks-123456789.europe-west4.run.app"


@dataclass
class Desk:
    """Somebody who runs the scripts."""

    folder: Path
    env: dict[str, str]

    def run(self, script: str, *words: str, there: bool = False, code: int = 0, **more: str) -> str:
        env = {**self.env, "THERE": "1" if there else "", **more}
        done = subprocess.run(
            [DEPLOY / script, *words],
            env=env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def asked(self) -> list[list[str]]:
        """Every call of gcloud so far, without what all have in common."""
        lines = (self.folder / "record").read_text().splitlines()
        calls = [line.split("\x1f")[:-1] for line in lines]
        return [[w for w in words if w not in COMMON] for words in calls]

    def changes(self) -> list[str]:
        looks = {"describe", "list"}
        return [" ".join(words) for words in self.asked() if looks.isdisjoint(words)]


COMMON = ("--project=my-lab-4711", "--quiet", "--format=none")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return _desk(tmp_path)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Where an empty project was set up and deployed to once."""
    desk = _desk(tmp_path_factory.mktemp("done"))
    desk.run("setup.sh")
    desk.run("up.sh", WAKE="called")
    return desk


def _desk(tmp_path: Path) -> Desk:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gcloud").write_text(GCLOUD)
    (tmp_path / "bin" / "gcloud").chmod(0o755)
    (tmp_path / "bin" / "tpujob").write_text(TPUJOB)
    (tmp_path / "bin" / "tpujob").chmod(0o755)
    (tmp_path / "lab.yaml").write_text(LAB)
    (tmp_path / "record").write_text("")
    env = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RECORD": str(tmp_path / "record"),
        "PROJECT": "my-lab-4711",
        "REGION": "europe-west4",
        "CONTEXT_FILE": "lab.yaml",
        "BUCKETS": "gs://my-lab-europe gs://my-lab-us",
        "ADMIN": "ada@example.org",
        "HASHED": HASHED,
    }
    return Desk(tmp_path, env)


def test_no_account_gets_more_roles_than_the_table_says(done: Desk) -> None:
    given: dict[str, set[str]] = {}
    for words in done.asked():
        if "add-iam-policy-binding" not in words:
            continue
        flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        kind, _, who = flags["member"].partition(":")
        assert kind in ("serviceAccount", "user"), (
            f"{flags['member']} is everybody, or a whole domain"
        )
        given.setdefault(who.partition("@")[0], set()).add(flags["role"])
        if words[0] == "projects":
            if "/secrets/tpujob-s-" in flags.get("condition", ""):
                assert who.startswith("tpujob-backend@"), "nobody else reads what users have set"
            assert flags["role"] in OF_THE_PROJECT, words
            assert kind == "serviceAccount", f"{who} reads secrets, or more, of the whole project"
        if flags["role"] in CONDITIONAL:
            assert "expression=" in flags["condition"], f"{flags['role']} without a condition"
    assert given == ALLOWED
    text = "".join(path.read_text() for path in DEPLOY.iterdir())
    assert not re.search(r"allUsers|allAuthenticatedUsers|roles/(owner|editor)|keys create", text)


def test_people_lose_the_keys_of_slices_that_they_once_were_given(done: Desk) -> None:
    (taken,) = (words for words in done.asked() if "remove-iam-policy-binding" in words)
    assert {"--member=user:ada@example.org", "--role=roles/secretmanager.secretAccessor"} <= {
        *taken
    }
    assert "/secrets/tpujob-tj-" in next(word for word in taken if word.startswith("--condition="))


def test_the_role_of_the_backend_is_what_doctor_looks_for() -> None:
    role = yaml.safe_load((DEPLOY / "backend-role.yaml").read_text())
    keys = {"secretmanager.secrets.create", "secretmanager.secrets.list"}
    quotas = {LIMITS_TAKE, USE_TAKES}
    assert set(role["includedPermissions"]) == {*TPU_PERMISSIONS, *keys, *quotas}


def test_a_second_deployment_creates_nothing_again(desk: Desk) -> None:
    desk.run("setup.sh", there=True)
    made = [line for line in desk.changes() if re.search(r"\bcreate\b", line)]
    assert all(line.startswith("firestore indexes composite create") for line in made), made
    assert not any("undelete" in line for line in desk.changes())
    assert "secrets versions add tpujob-context --data-file=lab.yaml" in desk.changes()
    desk.run("up.sh", there=True, WAKE="called")
    assert any("scheduler jobs update http tpujob-tick" in line for line in desk.changes())
    replaced = [line for line in desk.changes() if line.startswith("run services replace")]
    assert len(replaced) == 1, "its names were known before"
    assert _deployed(desk).url == [NAMED, HASHED]


def test_setup_after_remove_takes_its_deleted_roles_back(desk: Desk) -> None:
    """Google keeps the id of a deleted role for weeks: it can neither be created nor updated."""
    desk.run("setup.sh", DELETED="True")
    for role in ("tpujobBackend", "tpujobKeys"):
        asked = [line for line in desk.changes() if line.startswith("iam roles") and role in line]
        assert [line.split()[2] for line in asked] == ["undelete", "update"]


def test_removing_twice_deletes_no_role_again(desk: Desk) -> None:
    desk.run("remove.sh", DELETED="True", YES="1")
    assert desk.changes() == []


def test_every_index_of_the_file_is_created(done: Desk) -> None:
    asked = [line for line in done.changes() if line.startswith("firestore indexes composite")]
    wanted = json.loads((DEPLOY / "firestore.indexes.json").read_text())["indexes"]
    assert len(asked) == len(wanted) > 0
    for index, line in zip(wanted, asked, strict=True):
        for field in index["fields"]:
            assert f"field-path={field['fieldPath']},order={field['order'].lower()}" in line


def test_every_field_gets_the_indexes_that_it_needs_and_no_others(done: Desk) -> None:
    asked = [
        words for words in done.asked() if words[:4] == ["firestore", "indexes", "fields", "update"]
    ]
    wanted = json.loads((DEPLOY / "firestore.indexes.json").read_text())["fieldOverrides"]
    assert len(asked) == len(wanted) > 0
    for field, words in zip(wanted, asked, strict=True):
        assert words[4] == field["fieldPath"]
        assert f"--collection-group={field['collectionGroup']}" in words
        of_all = "query-scope=collection-group"
        own = [f"--index=order={i['order'].lower()},{of_all}" for i in field["indexes"]]
        assert words[6 : 6 + len(own or "-")] == (own or ["--disable-indexes"])


@pytest.mark.parametrize("written", ["", "ssh: external\n"])
def test_hosts_with_an_open_port_22_are_refused_before_anything_is_done(
    desk: Desk, written: str
) -> None:
    """Cloud Run calls from changing addresses, so a firewall would have to let everybody in."""
    (desk.folder / "lab.yaml").write_text(f"name: lab\n{written}")
    said = desk.run("setup.sh", code=2)
    assert "open to the world" in said
    assert "ssh: internal" in said
    assert desk.asked() == []


def test_no_script_opens_a_firewall() -> None:
    text = "".join(path.read_text() for path in DEPLOY.glob("*.*"))
    assert not re.search(r"firewall-rules|0\.0\.0\.0/0", text)


def test_the_build_has_an_account_of_its_own(done: Desk) -> None:
    account = "tpujob-build@my-lab-4711.iam.gserviceaccount.com"
    (submitted,) = (line for line in done.changes() if line.startswith("builds submit"))
    assert f"--service-account=projects/my-lab-4711/serviceAccounts/{account}" in submitted
    (reads,) = (line for line in done.changes() if "roles/storage.objectViewer" in line)
    assert "/buckets/my-lab-4711_cloudbuild/" in reads
    (writes,) = (line for line in done.changes() if "roles/artifactregistry.writer" in line)
    assert writes.startswith("artifacts repositories add-iam-policy-binding tpujob ")
    build = yaml.safe_load((DEPLOY / "cloudbuild.yaml").read_text())
    assert build["options"]["logging"] == "CLOUD_LOGGING_ONLY", "an account's own build needs it"


def test_the_image_is_built_on_a_base_by_its_digest(desk: Desk) -> None:
    for moving in (
        "python:3.11-slim",
        "python",
        "python@sha256:12",
        "x,_IMAGE=y@sha256:" + "0" * 64,
    ):
        assert "name a digest" in desk.run("up.sh", code=2, BASE=moving)
    assert desk.asked() == []
    pinned = "mirror.example/python:3.11-slim@sha256:" + "0a" * 32
    desk.run("up.sh", BASE=pinned)
    (submitted,) = (line for line in desk.changes() if line.startswith("builds submit"))
    assert f",_BASE={pinned} " in submitted
    build = yaml.safe_load((DEPLOY / "cloudbuild.yaml").read_text())
    assert "BASE=${_BASE}" in build["steps"][0]["args"]
    assert set(_dockerfile("FROM")) == {"${BASE} AS packages", "${BASE}"}


@pytest.mark.parametrize(
    ("given", "interface", "egress"),
    [
        ({}, None, None),
        ({"NETWORK": "default"}, {"network": "default"}, "private-ranges-only"),
        (
            {"NETWORK": "lab-net", "SUBNET": "lab-eu", "VPC_EGRESS": "all-traffic"},
            {"network": "lab-net", "subnetwork": "lab-eu"},
            "all-traffic",
        ),
        (
            {"SUBNET": "projects/host-1/regions/europe-west4/subnetworks/a"},
            {"subnetwork": "projects/host-1/regions/europe-west4/subnetworks/a"},
            "private-ranges-only",
        ),
    ],
)
def test_the_way_into_a_network_is_a_switch(
    desk: Desk, given: dict[str, str], interface: dict[str, str] | None, egress: str | None
) -> None:
    desk.run("up.sh", **given)
    annotations = _service(desk)["spec"]["template"]["metadata"]["annotations"]
    found = annotations.get("run.googleapis.com/network-interfaces")
    assert (json.loads(found) if found else None) == ([interface] if interface else None)
    assert annotations.get("run.googleapis.com/vpc-access-egress") == egress


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"VPC_EGRESS": "none", "NETWORK": "x"}, "private-ranges-only or all-traffic"),
        ({"VPC_EGRESS": "all-traffic"}, "NETWORK is not set"),
        ({"NETWORK": "a'b"}, "are names"),
        ({"SUBNET": "a|b"}, "are names"),
    ],
)
def test_a_wrong_way_is_refused_before_anything_is_done(
    desk: Desk, given: dict[str, str], said: str
) -> None:
    assert said in desk.run("up.sh", code=2, **given)
    assert desk.asked() == []


def test_the_first_deployment_tells_the_backend_the_name_that_nobody_knew_before(
    done: Desk,
) -> None:
    replaced = [line for line in done.changes() if line.startswith("run services replace")]
    assert len(replaced) == 2
    assert _deployed(done).url == [NAMED, HASHED]


def _service(desk: Desk) -> dict[str, Any]:
    """As it was deployed last."""
    return yaml.safe_load((desk.folder / "record.yaml").read_text())


def _deployed(desk: Desk, service: Any = None) -> argparse.Namespace:
    """What the deployed backend is told."""
    (container,) = (service or _service(desk))["spec"]["template"]["spec"]["containers"]
    words = [*_entrypoint()[3:], *container["args"]]
    return deployed._options(words)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("wake", "least", "jobs"), [("always", "1", 0), ("called", "0", 2)])
def test_the_service_file_is_filled_in(desk: Desk, wake: str, least: str, jobs: int) -> None:
    said = desk.run("up.sh", WAKE=wake)
    service = _service(desk)
    template = service["spec"]["template"]
    annotations = template["metadata"]["annotations"]
    assert annotations["autoscaling.knative.dev/minScale"] == least
    assert annotations["run.googleapis.com/cpu-throttling"] == str(wake == "called").lower()
    (container,) = template["spec"]["containers"]
    assert container["image"].startswith("europe-west4-docker.pkg.dev/my-lab-4711/tpujob/backend:")
    assert NAMED in said
    options = _deployed(desk)
    assert options.only_called == (wake == "called")
    assert options.url[0] == NAMED, "which Cloud Scheduler's tokens are for"
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


def test_missing_settings_are_reported_before_anything_is_done(desk: Desk) -> None:
    assert "BUCKETS is not set" in desk.run("setup.sh", code=2, BUCKETS="")
    assert "PROJECT is not set" in desk.run("up.sh", code=2, PROJECT="")
    assert "ADMIN is not set" in desk.run("up.sh", code=2, ADMIN="")
    assert "CONTEXT_FILE is not set" in desk.run("up.sh", code=2, CONTEXT_FILE="")
    assert "no e-mail address" in desk.run("up.sh", code=2, ADMIN='ada"|x')
    assert "always or called" in desk.run("up.sh", code=2, WAKE="sometimes")
    assert "no job runs" in desk.run("remove.sh", code=2)
    assert desk.asked() == []


def test_nothing_that_holds_jobs_is_ever_removed(desk: Desk) -> None:
    desk.run("remove.sh", there=True, YES="1")
    assert len(desk.changes()) == 14
    assert "secrets delete tpujob-s-uid_3a1000-HF_TOKEN" in desk.changes()
    assert not [line for line in desk.changes() if "firestore" in line or "buckets" in line]


# Who comes in, and who leaves ----------------------------------------------------------------------------------------


def bindings(desk: Desk) -> set[tuple[str, ...]]:
    """What is left of all roles that were given and taken: on what, to whom, which, under which condition."""
    left: set[tuple[str, ...]] = set()
    for words in desk.asked():
        verb = next((w for w in words if w.endswith("-iam-policy-binding")), "")
        if not verb:
            continue
        rest = tuple(sorted(w for w in words if w != verb))
        left = left | {rest} if verb.startswith("add") else left - {rest}
    gone = {
        words[3] for words in desk.asked() if words[:3] == ["iam", "service-accounts", "delete"]
    }
    return {one for one in left if not gone & set(one)}


def members(desk: Desk) -> list[str]:
    file = desk.folder / "record.members"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("context", [LAB, IAP], ids=["iam", "iap"])
@pytest.mark.parametrize("programs", ["shared", "own"])
@pytest.mark.parametrize("who", ["ben@example.org", "ci@my-lab-4711.iam.gserviceaccount.com"])
def test_somebody_who_leaves_has_nothing_afterwards(
    desk: Desk, context: str, programs: str, who: str
) -> None:
    (desk.folder / "lab.yaml").write_text(context)
    desk.run("up.sh")
    before = bindings(desk)
    desk.run("join.sh", who, "submitter", PROGRAMS=programs)
    given = bindings(desk) - before
    assert [one for one in given if any(who in word for word in one)]
    desk.run("leave.sh", who, there=programs == "own")
    assert bindings(desk) == before
    assert members(desk) == [f"tpujob members add {who} submitter", f"tpujob members remove {who}"]
    made = [
        words[3] for words in desk.asked() if words[:3] == ["iam", "service-accounts", "create"]
    ]
    gone = [
        words[3] for words in desk.asked() if words[:3] == ["iam", "service-accounts", "delete"]
    ]
    assert gone == [f"{name}@my-lab-4711.iam.gserviceaccount.com" for name in made]
    assert bool(made) == (programs == "own")


@pytest.mark.parametrize(
    ("context", "given"),
    [(LAB, "run services add-iam-policy-binding tpujob --region=europe-west4 "
      "--member=user:ben@example.org --role=roles/run.invoker"),
     (IAP, "beta iap web add-iam-policy-binding --resource-type=cloud-run --service=tpujob --region=europe-west4 "
      "--member=user:ben@example.org --role=roles/iap.httpsResourceAccessor"),
     (f"{LAB}door: public\n", "")],
    ids=["iam", "iap", "public"],
)  # fmt: skip
def test_people_get_one_role_on_the_service_and_nothing_else(
    desk: Desk, context: str, given: str
) -> None:
    """With the door `public` not even that: the list of members alone decides."""
    (desk.folder / "lab.yaml").write_text(context)
    desk.run("join.sh", "ben@example.org", "viewer")
    (taken,) = (line for line in desk.changes() if "remove-iam-policy-binding" in line)
    assert "--role=roles/secretmanager.secretAccessor" in taken, "what earlier versions gave"
    assert [line for line in desk.changes() if line != taken] == ([given] if given else [])


def test_an_account_of_ones_own_reaches_ones_own_folder(desk: Desk) -> None:
    said = desk.run("join.sh", "ben@example.org", "submitter", PROGRAMS="own")
    (made,) = (words[3] for words in desk.asked() if "create" in words)
    assert re.fullmatch(r"tpujob-vm-ben-[0-9a-f]{6}", made)
    account = f"{made}@my-lab-4711.iam.gserviceaccount.com"
    assert f"    ben@example.org: {account}" in said
    given = [words for words in desk.asked() if f"--member=serviceAccount:{account}" in words]
    roles = sorted(
        word.removeprefix("--role=") for words in given for word in words if "--role=" in word
    )
    logs = ["roles/logging.logWriter", "roles/monitoring.metricWriter"]
    assert roles == [*logs, "roles/storage.objectUser", "roles/storage.objectUser"]
    for bucket in ("my-lab-europe", "my-lab-us"):
        (words,) = (words for words in given if f"gs://{bucket}" in words)
        (condition,) = (word for word in words if word.startswith("--condition="))
        folder = "my-lab-4711-fs/u/ben-at-example.org/"
        assert f"startsWith('projects/_/buckets/{bucket}/objects/{folder}')" in condition
        assert f"'').startswith('{folder}')".lower() in condition.lower(), "and lists no other"
    (be,) = (words for words in desk.asked() if "--role=roles/iam.serviceAccountUser" in words)
    assert be[:4] == ["iam", "service-accounts", "add-iam-policy-binding", account]
    assert "--member=serviceAccount:tpujob-backend@my-lab-4711.iam.gserviceaccount.com" in be


def shell(desk: Desk, command: str, **more: str) -> str:
    script = f"source {DEPLOY}/common.sh; {command}"
    env = {**desk.env, **more}
    return subprocess.run(
        ["bash", "-c", script, str(DEPLOY / "test.sh")],
        env=env, cwd=desk.folder, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip


@pytest.mark.parametrize(
    "address",
    ["ada@example.org", "a.b+c_d@x-y.example.co.uk", "__ada--@example.org",
     "ci@my-lab-4711.iam.gserviceaccount.com", f"{'long' * 15}@example.org"],
)  # fmt: skip
def test_the_scripts_know_a_persons_folder_as_the_backend_does(desk: Desk, address: str) -> None:
    assert shell(desk, f"folder_of {address}") == access.slug(address)
    account = shell(desk, f"programs_of {address}")
    assert re.fullmatch(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])", account), "as Google wants ids"


@pytest.mark.parametrize(
    ("project", "database"),
    [("my-lab-4711", "(default)"), ("my-lab-4711", "jobs"), ("x" * 30, "jobs-of-everybody-here"),
     ("example.com:my-lab-1", "(default)")],
)  # fmt: skip
def test_the_scripts_know_the_backends_folder_as_the_backend_does(
    desk: Desk, project: str, database: str
) -> None:
    fields = {"name": "lab", "project": project, "zones": ["europe-west4-a"], "store": "firestore"}
    made = contexts.make(fields | {"database": database})
    (desk.folder / "lab.yaml").write_text(contexts.text(made))
    wanted = contexts.owner(settings.load(desk.folder / "state"), made)
    assert shell(desk, "owner", PROJECT=project) == wanted


@pytest.mark.parametrize("code", ["1", "69", "77"])
def test_whoever_cannot_be_taken_off_the_list_keeps_the_rest(desk: Desk, code: str) -> None:
    """Else the scripts would say that somebody has left who has not."""
    desk.run("leave.sh", "ben@example.org", code=1, MEMBERS=code)
    assert desk.changes() == []
    desk.run("leave.sh", "ben@example.org", MEMBERS="3")
    assert len(desk.changes()) == 3, "whoever is on no list may still have the rest"


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [("join.sh", ("ben@example.org", "owner"), "viewer, submitter or admin"),
     ("join.sh", ("ben@example.org",), "viewer, submitter or admin"),
     ("join.sh", ("group:lab@example.org", "viewer"), "no e-mail address"),
     ("join.sh", ("Ben@example.org", "viewer"), "in small letters"),
     ("leave.sh", ("ben",), "no e-mail address"),
     ("leave.sh", (), "no e-mail address")],
)  # fmt: skip
def test_whoever_cannot_be_a_member_is_refused_before_anything_is_done(
    desk: Desk, script: str, words: tuple[str, ...], said: str
) -> None:
    assert said in desk.run(script, *words, code=2)
    assert desk.asked() == []
    assert members(desk) == []


# The door ------------------------------------------------------------------------------------------------------------


def test_people_are_told_one_line(desk: Desk) -> None:
    (said,) = (line for line in desk.run("up.sh").splitlines() if line.startswith("  tpujob use"))
    assert said == f"  tpujob use {NAMED} --client-id {CLIENT} --client-secret GOCSPX-x"
    (desk.folder / "lab.yaml").write_text(IAP)
    assert f"{said} --door iap" in desk.run("up.sh").splitlines()


@pytest.mark.parametrize(
    ("context", "switched"),
    [(LAB, set()), (f"{LAB}door: public\n", {"invoker-iam-disabled"}),
     (IAP, {"iap-enabled", "launch-stage"})],
    ids=["iam", "public", "iap"],
)  # fmt: skip
def test_what_stands_in_front_is_a_switch_of_the_context(
    desk: Desk, context: str, switched: set[str]
) -> None:
    (desk.folder / "lab.yaml").write_text(context)
    desk.run("up.sh", WAKE="called")
    found = _service(desk)["metadata"]["annotations"]
    given = {name.removeprefix("run.googleapis.com/") for name in found}
    assert given == {"ingress", "custom-audiences"} | switched
    assert json.loads(found["run.googleapis.com/custom-audiences"]) == [CLIENT]
    assert not re.search(r"[A-Z]{5,}", json.dumps(_service(desk)).replace("GOCSPX", ""))
    of_people = [
        line
        for line in desk.changes()
        if "add-iam-policy-binding" in line and "--member=user:ada@example.org" in line
    ]
    assert len(of_people) == (0 if "public" in context else 1)


def test_behind_iap_the_scheduler_calls_a_service_of_its_own(desk: Desk) -> None:
    (desk.folder / "lab.yaml").write_text(IAP)
    desk.run("up.sh", WAKE="called")
    ticks = yaml.safe_load((desk.folder / "record.ticks").read_text())
    assert ticks["metadata"]["name"] == "tpujob-ticks"
    assert not [name for name in ticks["metadata"]["annotations"] if "iap" in name]
    options = _deployed(desk, ticks)
    assert (options.door, options.only_called) == ("iam", True)
    assert options.tick_account == "tpujob-tick@my-lab-4711.iam.gserviceaccount.com"
    assert options.url == [TICKS, "https://tpujob-ticks-yuquaflafa-ez.a.run.app"]
    assert _deployed(desk).tick_account == ""
    invokers = {
        (words[3], word.partition(":")[2])
        for words in desk.asked()
        if words[:3] == ["run", "services", "add-iam-policy-binding"]
        for word in words
        if word.startswith("--member=")
    }
    assert invokers == {
        ("tpujob", "service-123456789@gcp-sa-iap.iam.gserviceaccount.com"),
        ("tpujob-ticks", "tpujob-tick@my-lab-4711.iam.gserviceaccount.com"),
    }
    scheduled = [line for line in desk.changes() if line.startswith("scheduler jobs create http")]
    assert len(scheduled) == 2
    assert all(f"--uri={TICKS}/v1/tick" in line for line in scheduled)
    assert all(f"--oidc-token-audience={TICKS}" in line for line in scheduled)


def test_the_audience_of_iap_must_be_that_of_the_service(desk: Desk) -> None:
    (desk.folder / "lab.yaml").write_text(IAP.replace("123456789", "1"))
    said = desk.run("up.sh", code=2)
    assert "iap_audience: /projects/123456789/locations/europe-west4/services/tpujob" in said
    assert desk.changes() == []
    (desk.folder / "lab.yaml").write_text(f"{LAB}door: open\n")
    for script in ("setup.sh", "up.sh"):
        assert "it can be iam, iap or public" in desk.run(script, code=2)


def test_the_token_of_earlier_versions_goes_once_the_new_one_runs(desk: Desk) -> None:
    desk.run("up.sh", there=True)
    changes = desk.changes()
    assert changes.index("secrets delete tpujob-token") > changes.index(
        next(line for line in changes if line.startswith("run services replace"))
    )


# The image -----------------------------------------------------------------------------------------------------------


def _dockerfile(word: str) -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return [line[len(word) :].strip() for line in text.splitlines() if line.startswith(f"{word} ")]


def _entrypoint() -> list[str]:
    return json.loads(_dockerfile("ENTRYPOINT")[0])


def test_the_image_has_what_the_backend_needs_and_an_ordinary_user(tmp_path: Path) -> None:
    """Its own COPY lines, into a folder instead of an image, with the packages of this machine."""
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
