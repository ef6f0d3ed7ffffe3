"""Faults of the emulated Cloud Storage, met by Google's own client."""

import pytest
from google.api_core.exceptions import Forbidden, NotFound, ServiceUnavailable, TooManyRequests
from google.cloud.storage.bucket import Bucket

from tests.contract.emulator.storage_rig import BUCKET, ask
from tests.support.waiting import LONG
from tpujob.emulator.storage import StorageFault, StorageFaults, StorageServer


def put(bucket: Bucket, name: str, text: str = "x") -> None:
    bucket.blob(name).upload_from_string(text, retry=None)


def test_a_write_fails_before_it_takes_effect(bucket: Bucket, faults: StorageFaults) -> None:
    faults.add(StorageFault(503, count=2, method="POST"))
    for _ in range(2):
        with pytest.raises(ServiceUnavailable):
            put(bucket, "before/a")
    assert not bucket.blob("before/a").exists(), "it took effect all the same"
    put(bucket, "before/a")
    assert faults.all() == [], "the count was not used up"


def test_a_write_fails_after_it_took_effect(bucket: Bucket, faults: StorageFaults) -> None:
    faults.add(StorageFault(503, count=1, method="POST", when="post"))
    with pytest.raises(ServiceUnavailable):
        put(bucket, "after/a", "kept")
    assert bucket.blob("after/a").download_as_bytes() == b"kept"
    faults.add(StorageFault(403, count=1, method="GET", when="post"))
    with pytest.raises(Forbidden):
        bucket.blob("after/a").download_as_bytes(retry=None)


@pytest.mark.parametrize(
    ("method", "act"),
    [
        ("LIST", lambda b: list(b.list_blobs(prefix="kind/", retry=None))),
        ("GET", lambda b: b.blob("kind/a").reload(retry=None)),
        ("DELETE", lambda b: b.blob("kind/a").delete(retry=None)),
        ("POST", lambda b: put(b, "kind/b")),
        ("*", lambda b: put(b, "kind/b")),
    ],
)
def test_all_kinds_are_recognised(bucket: Bucket, faults: StorageFaults, method: str, act) -> None:
    put(bucket, "kind/a")
    faults.add(StorageFault(429, count=1, method=method))
    for other in {"LIST", "GET", "DELETE", "PUT"} - {method}:
        faults.add(StorageFault(404, count=1, method=other))
    with pytest.raises(TooManyRequests):
        act(bucket)


def test_only_what_the_path_names_fails(bucket: Bucket, faults: StorageFaults) -> None:
    """An upload says its name in its body."""
    faults.add(StorageFault(404, count=100, path="jobs/7/report"))
    put(bucket, "jobs/6/report")
    put(bucket, "jobs/7/log")
    with pytest.raises(NotFound):
        put(bucket, "jobs/7/report")
    with pytest.raises(NotFound):
        bucket.blob("jobs/7/report").upload_from_string(b"x" * 100_000, retry=None)
    assert bucket.blob("jobs/7/log").exists()
    assert bucket.blob("jobs/6/report").download_as_bytes() == b"x"


def test_a_request_hangs_and_is_answered(bucket: Bucket, faults: StorageFaults) -> None:
    put(bucket, "slow/a")
    faults.add(StorageFault(200, count=1, method="GET", hang_s=0.2))
    with pytest.raises(OSError, match=r"(?i)timed out"):
        bucket.blob("slow/a").download_as_bytes(timeout=0.05, retry=None)
    faults.add(StorageFault(200, count=1, method="GET", hang_s=0.05))
    assert bucket.blob("slow/a").download_as_bytes(timeout=LONG) == b"x"


def test_clients_can_read_the_error(server: StorageServer, faults: StorageFaults) -> None:
    faults.add(StorageFault(429, count=1))
    status, headers, body = ask(server.url, "GET", f"/storage/v1/b/{BUCKET}/o")
    assert status == 429
    assert b"rateLimitExceeded" in body
    assert headers["content-type"].startswith("application/json")
