"""`env` and `mounts` of a job file, as hosts and the plan's page show them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import a_job
from tpujob.domain.host import environment
from tpujob.domain.host import plan as launch
from tpujob.domain.spec.jobspec import dump, load, parse

PLAIN = "name: a\ntpu: {type: v4-16}\nrun: {command: x}\n"
DIGEST = "ghcr.io/lab/train@sha256:" + "0" * 64


def document(lines: str) -> dict[str, Any]:
    """Return the plan of host 0 for a job file with these lines."""
    job = replace(a_job(), spec=load(PLAIN + lines, "job.yaml"))
    return dict(launch.plans(job)[0].document)


@pytest.mark.parametrize(
    ("lines", "order"),
    [
        ("", None),
        (
            'env: {uv: requirements.txt, python: "3.11"}\ncode: .',
            {"kind": "uv", "file": "requirements.txt", "python": "3.11"},
        ),
        ("env: {pip: a/b.txt}\ncode: .", {"kind": "pip", "file": "a/b.txt", "python": None}),
        ("env: {conda: e.yml}\ncode: .", {"kind": "conda", "file": "e.yml", "python": None}),
        (
            f"env: {{docker: '{DIGEST}', args: [--shm-size=1g]}}",
            {"kind": "docker", "image": DIGEST, "args": ["--shm-size=1g"]},
        ),
    ],
)
def test_each_kind_of_environment_reaches_the_hosts(lines: str, order: Any) -> None:
    assert document(lines)["environment"] == order
    spec = load(PLAIN + lines, "job.yaml")
    assert parse(dump(spec)) == spec, "the JSON form loses nothing"


def test_mounts_reach_the_hosts_in_mib_and_seconds() -> None:
    lines = """\
mounts:
  - {bucket: gs://lab-data, to: ~/data/, only_dir: c4/, cache: {size: 50GiB, ttl: 2h}}
  - {bucket: gs://out, to: /mnt/out, read_only: false}
"""
    assert document(lines)["mounts"] == [
        {
            "bucket": "gs://lab-data",
            "to": "~/data",
            "read_only": True,
            "only_dir": "c4",
            "cache": {"mib": 51200, "ttl": 7200},
        },
        {
            "bucket": "gs://out",
            "to": "/mnt/out",
            "read_only": False,
            "only_dir": None,
            "cache": None,
        },
    ]
    spec = load(PLAIN + lines, "job.yaml")
    assert dump(spec)["mounts"][0]["cache"] == {"size": "50GiB", "ttl": "2h"}
    assert parse(dump(spec)) == spec


def test_a_person_reads_in_the_plan_what_a_job_runs_in_and_what_may_surprise() -> None:
    lines = "env: {docker: 'lab/train:1'}\nmounts: [{bucket: gs://out, to: ~/o, read_only: false}]"
    spec = load(PLAIN + lines, "job.yaml")
    assert environment.environment_words(spec) == "docker lab/train:1"
    assert environment.mount_words(spec) == ["gs://out at ~/o, may be written to"]
    tag, shared = environment.warnings(spec)
    assert tag.startswith("lab/train:1 is a tag, not a digest: a later attempt may get another")
    assert shared == "gs://out may be written to by every host at ~/o"
    mounts = "mounts: [{bucket: gs://lab, to: ~/i, only_dir: c4, cache: {size: 1536MiB, ttl: 90m}}]"
    assert environment.mount_words(load(PLAIN + mounts, "job.yaml")) == [
        "gs://lab/c4 at ~/i, read only, 1.5 GiB kept on disk for 1h30m"
    ]
    bundled = PLAIN.replace("command: x", "workload: mlp") + f"env: {{docker: '{DIGEST}'}}"
    (needs,) = environment.warnings(load(bundled, "job.yaml"))
    assert "needs python3 and the packages of the bundled program" in needs
    pinned = load(PLAIN + f"env: {{docker: '{DIGEST}'}}", "job.yaml")
    assert environment.warnings(pinned) == []


@pytest.mark.parametrize(
    ("command", "warned"),
    [
        ("python train.py", True),
        ("cd src && python -u train.py", True),
        ("set -e\npython train.py", True),
        ("python3 train.py", False),
        ("./python train.py", False),
        ("echo python", False),
    ],
)
def test_a_command_for_one_python_name_is_warned_about(command: str, warned: bool) -> None:
    """Ubuntu has `python3` alone; an environment has both."""
    spec = load(PLAIN.replace("command: x", f"command: {json.dumps(command)}"), "job.yaml")
    assert [w.split(":")[0] for w in environment.warnings(spec)] == [
        "a TPU VM has `python3` and no `python`"
    ] * warned
    with_env = PLAIN.replace("command: x", f"command: {json.dumps(command)}") + "env: {uv: r.txt}"
    assert environment.warnings(load(with_env + "\ncode: .", "job.yaml")) == []


def test_a_bundled_program_brings_its_own_environment_unless_a_job_names_another() -> None:
    spec = load(PLAIN.replace("command: x", "workload: mlp"), "job.yaml")
    assert environment.environment_order(spec) == {
        "kind": "uv", "file": "workloads/requirements.lock", "python": "3.11", "unless_installed": True,
    }  # fmt: skip
    assert environment.environment_words(spec) == "that of the bundled program, with Python 3.11"
    own = PLAIN.replace("command: x", "workload: mlp") + "code: .\nenv: {uv: r.txt}"
    assert environment.environment_order(load(own, "job.yaml")) == {
        "kind": "uv", "file": "r.txt", "python": None,
    }  # fmt: skip
    assert environment.environment_order(load(PLAIN, "job.yaml")) is None
