"""`gcloud storage`, of Google's Cloud SDK, finds the emulated Cloud Storage as good as the real one."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.emulator.storage_rig import ask, running
from tests.support import gcloud as sdk
from tests.support.gcloud import Gcloud

pytestmark = sdk.needed

BUCKET = "gs://shed-of-gcloud"


class Storage(Gcloud):
    """`gcloud storage ...`, and the server that it is led to."""

    def __init__(self, folder: Path, server: str) -> None:
        self.server = server
        variables = {
            "CLOUDSDK_CONFIG": str(folder / "sdk"),
            "CLOUDSDK_CORE_PROJECT": "lab",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{server}/storage/v1/",
        }
        super().__init__(variables, folder)

    def __call__(self, *words: str, code: int = 0) -> str:
        return super().__call__("storage", *words, code=code)

    def names(self) -> list[str]:
        """Return the names of all objects in the bucket, read without gcloud."""
        answer = json.loads(ask(self.server, "GET", f"/storage/v1/b/{BUCKET[5:]}/o")[2])
        return [item["name"] for item in answer.get("items", [])]


@pytest.fixture
def gcloud(tmp_path: Path) -> Iterator[Storage]:
    with running(tmp_path / "storage") as server:
        yield Storage(tmp_path, server.url)


def test_gcloud_keeps_two_folders_and_a_bucket_the_same(gcloud: Storage) -> None:
    source, back = gcloud.folder / "here", gcloud.folder / "back"
    (source / "sub").mkdir(parents=True)
    back.mkdir()
    (source / "a.txt").write_text("hello")
    (source / "sub" / "b.bin").write_bytes(os.urandom(9_000_000))  # a resumable upload
    gcloud("buckets", "create", BUCKET, "--location=us-central2", "--uniform-bucket-level-access")
    assert gcloud.json("buckets", "describe", BUCKET)["location"] == "US-CENTRAL2"
    gcloud("rsync", "-r", str(source), f"{BUCKET}/run")
    assert gcloud.names() == ["run/a.txt", "run/sub/b.bin"]
    (source / "a.txt").unlink()
    gcloud("rsync", "-r", "--delete-unmatched-destination-objects", str(source), f"{BUCKET}/run")
    assert gcloud.names() == ["run/sub/b.bin"]
    gcloud("rsync", "-r", f"{BUCKET}/run", f"{BUCKET}/twin")
    gcloud("rsync", "-r", f"{BUCKET}/twin", str(back))
    assert (back / "sub" / "b.bin").read_bytes() == (source / "sub" / "b.bin").read_bytes()
    assert "9000000" in gcloud("du", "-s", f"{BUCKET}/twin")


def test_gcloud_copies_shows_moves_joins_and_removes(gcloud: Storage) -> None:
    for name in ("one", "two"):
        (gcloud.folder / name).write_text(f"{name}\n")
    gcloud("buckets", "create", BUCKET, "--location=us-central2")
    gcloud("cp", "one", "two", f"{BUCKET}/run/")
    assert gcloud("ls", f"{BUCKET}/*/t*").split() == [f"{BUCKET}/run/two"]
    assert gcloud("cat", f"{BUCKET}/run/one") == "one\n"
    gcloud("mv", f"{BUCKET}/run/one", f"{BUCKET}/run/three")
    gcloud("objects", "compose", f"{BUCKET}/run/two", f"{BUCKET}/run/three", f"{BUCKET}/whole")
    gcloud("objects", "update", f"{BUCKET}/whole", "--custom-metadata=step=7")
    shown = gcloud.json("objects", "describe", f"{BUCKET}/whole")
    assert (shown["size"], shown["custom_fields"]) == (8, {"step": "7"})
    listed = gcloud.json("objects", "list", f"{BUCKET}/**")
    assert [item["name"] for item in listed] == ["run/three", "run/two", "whole"]

    role, member = "roles/storage.objectUser", "serviceAccount:vm@lab.iam.gserviceaccount.com"
    gcloud("buckets", "add-iam-policy-binding", BUCKET, f"--role={role}", f"--member={member}")
    policy = gcloud.json("buckets", "get-iam-policy", BUCKET)
    assert policy["bindings"] == [{"role": role, "members": [member]}]
    gcloud("rm", f"{BUCKET}/run/two")
    assert gcloud.names() == ["run/three", "whole"]
    gcloud("rm", "--recursive", BUCKET)
    assert json.loads(ask(gcloud.server, "GET", "/storage/v1/b")[2])["items"] == []
