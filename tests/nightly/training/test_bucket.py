"""Checkpoints in a bucket, written by Orbax over the Cloud Storage API."""

import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.responses import Response

from tests.support.workload_rig import Job
from tpujob.contract import Exit
from tpujob.emulator.http_server import Request
from tpujob.emulator.storage import StorageServer
from tpujob.emulator.storage.bucket_api import BucketApi
from tpujob.emulator.storage.json_api import JsonApi

LONG = ("--hidden=64,32", "--batch=64", "--steps=100000", "--checkpoint-every=40", "--keep=3")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the requests for the bucket itself: `get`, or the prefix of a list."""
    requests: list[str] = []
    get_bucket, list_objects = BucketApi.get_bucket, JsonApi.list_objects

    async def get(self: BucketApi, request: Request, bucket: str) -> Response:
        requests.append("get")
        return await get_bucket(self, request, bucket)

    async def listed(self: JsonApi, request: Request, bucket: str) -> Response:
        requests.append(request.query_params.get("prefix", ""))
        return await list_objects(self, request, bucket)

    monkeypatch.setattr(BucketApi, "get_bucket", get)
    monkeypatch.setattr(JsonApi, "list_objects", listed)
    return requests


@pytest.fixture
def storage(tmp_path: Path, requests: list[str]) -> Iterator[StorageServer]:
    server = StorageServer(tmp_path / "storage")
    yield server
    server.stop()


def _call(storage: StorageServer, method: str, path: str, body: bytes | None = None) -> bytes:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(storage.url + path, body, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def test_a_run_resumes_at_the_newest_committed_and_whole_step_of_the_bucket(
    tmp_path: Path, cache: Path, storage: StorageServer, requests: list[str]
) -> None:
    _call(storage, "POST", "/storage/v1/b?project=p", json.dumps({"name": "bucket"}).encode())
    job = Job(
        tmp_path,
        cache,
        STORAGE_EMULATOR_HOST=storage.url,
        TENSORSTORE_GCS_HTTP_URL=storage.url,
        GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT="false",
    )
    job.workdir = "gs://bucket/jobs/000001"
    with job.start(*LONG) as [first]:
        first.until(lambda host: len(host.events("checkpoint")) >= 3)
        first.tell(signal.SIGTERM)
        assert first.code() == Exit.INTERRUPTED, first.log.read_text()
    saved = [event["step"] for event in first.events("checkpoint")]

    checkpoints = "jobs/000001/checkpoints"
    marker = quote(f"{checkpoints}/{saved[-1]}/commit_success.txt", safe="")
    _call(storage, "DELETE", f"/storage/v1/b/bucket/o/{marker}")
    notes = quote(f"{checkpoints}/{saved[-2]}/data/metadata", safe="")
    _call(storage, "POST", f"/upload/storage/v1/b/bucket/o?uploadType=media&name={notes}", b"")
    with job.start(*LONG) as [second]:
        second.until(lambda host: max(host.losses(), default=0) >= saved[-1])

    assert [event["step"] for event in second.events("damaged")] == [saved[-2]]
    assert second.events("resume")[0]["step"] == saved[-3], "a torn or damaged save was taken"
    replayed = first.losses().items() & second.losses().items()
    assert len(replayed) == saved[-1] - saved[-3], "replayed steps differ"
    listed = json.loads(_call(storage, "GET", "/storage/v1/b/bucket/o?prefix=jobs/000001/"))
    aside = f"{checkpoints}-damaged/{saved[-2]}"
    moved = {item["name"] for item in listed["items"] if item["name"].startswith(aside)}
    assert {f"{aside}.txt", f"{aside}/data/metadata", f"{aside}/commit_success.txt"} < moved
    below = [prefix for prefix in requests if prefix.startswith("jobs/000001/")]
    assert sorted({*requests} - {*below}) == ["get"], (
        "the accounts of deploy/ may read the bucket, and list the folder of their user"
    )
