"""What names a project, a person or a machine, or opens a door, is not in the folder of a probe."""

from __future__ import annotations

import json

import pytest

from tpujob.doctor.probe.redact import Redactor

KNOWN = {"my-lab-4711": "project", "ada": "user"}
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIJb1V0PqWnW2v0Yw3n1q7rj7nWkz"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("projects/my-lab-4711/locations/us-west4-a", "projects/project-1/locations/us-west4-a"),
        ("projects/other-lab/zones/x", "projects/project-1/zones/x"),
        ("projects/project-of-ours/zones/x", "projects/project-1/zones/x"),
        ("projects/example.com:lab/zones/x", "projects/project-1/zones/x"),
        ("t1v-n-0a1b2c3d-w-0", "t1v-n-machine-1-w-0"),
        ("project 471147114711 is off", "project number-1 is off"),
        ("tpujob-vm@my-lab-4711.iam.gserviceaccount.com", "mail-1"),
        ("ada@example.org said", "mail-1 said"),
        ("unknown:unknown:10.128.0.7,unknown:unknown:34.1.2.3", "unknown:unknown:ip-1,unknown:unknown:ip-2"),
        ("jaxlib 0.10.2, libtpu 0.0.42.1 on 10.0.0.2", "jaxlib 0.10.2, libtpu 0.0.42.1 on ip-1"),
        ("fe80::4001:aff:fe80:7", "ip-1"),
        ("2600:1900:4000:1:0:0:0:7 at 05:48:40", "ip-1 at 05:48:40"),
        (f"tpujob:ssh-ed25519 {KEY} tpujob", "tpujob:ssh-ed25519 key-1 tpujob"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----", "key-1"),
        ("Authorization: Bearer ya29.a0AfB_x-y", "Authorization: token-1"),
        ("gs://lab-bucket/probes/x", "gs://bucket-1/probes/x"),
        ("networks/secret-net and subnetworks/inner", "networks/network-1 and subnetworks/network-2"),
        ("CONSUMER_PROJECT_ID: 'my-lab-4711'", "CONSUMER_PROJECT_ID: 'project-1'"),
        ("in the home of ada, not of adam", "in the home of user-1, not of adam"),
        ("v2-alpha-tpuv5-lite 1.28.0 2026-11-22T05:48:40.131287808Z", None),
        ("projects/-/locations/-", "projects/-/locations/-"),
    ],
)  # fmt: skip
def test_forms(said: str, shown: str | None) -> None:
    assert Redactor(KNOWN).text(said) == (said if shown is None else shown)


def test_equal_stays_equal_and_different_stays_different() -> None:
    redactor = Redactor(KNOWN)
    found = redactor.json(
        {
            "node": "projects/my-lab-4711/nodes/a",
            "again": ["my-lab-4711", "10.0.0.1", "10.0.0.2", "10.0.0.1"],
            "number": 7,
            "none": None,
        }
    )
    assert found == {
        "node": "projects/project-1/nodes/a",
        "again": ["project-1", "ip-1", "ip-2", "ip-1"],
        "number": 7,
        "none": None,
    }
    assert redactor.json(found) == found, "what is redacted stays as it is"


def test_fields_that_are_secret_by_name_are_removed_whatever_is_in_them() -> None:
    found = Redactor({}).json(
        {"access_token": "plain", "nextPageToken": "", "uid": "abc", "etag": "x", "keys": ["y"]}
    )
    assert found == {
        "access_token": "secret-1",
        "nextPageToken": "",
        "uid": "number-1",
        "etag": "number-2",
        "keys": ["y"],
    }


def test_keys_are_redacted_too() -> None:
    assert json.dumps(Redactor(KNOWN).json({"10.0.0.1": {"my-lab-4711": 1}})) == (
        '{"ip-1": {"project-1": 1}}'
    )
