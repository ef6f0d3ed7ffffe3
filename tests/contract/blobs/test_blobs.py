"""The contract of every adapter of the Blobs port."""

import os
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.blobs.storage_network import BUCKET, REGION, T, gcs
from tpujob.domain.model import Cause
from tpujob.emulator.storage import StorageServer
from tpujob.errors import BadRequest, Conflict, NotFound, Refused
from tpujob.ports import Blob, Blobs


@pytest.fixture
def blobs(server: StorageServer) -> Iterator[Blobs]:
    with gcs(server.url) as made:
        made.ensure_bucket(BUCKET, REGION, timeout=T)
        yield made


def test_an_object_is_read_back_with_its_metadata(blobs: Blobs) -> None:
    path = f"{BUCKET}/jobs/000042/report"
    before = blobs.clock(timeout=T)
    put = blobs.put(path, b"0123456789", metadata={"report": '{"step": 7, "é": 1}'}, timeout=T)
    assert (put.path, put.size, put.metadata) == (path, 10, {"report": '{"step": 7, "é": 1}'})
    assert abs(put.updated - before) < 5, "both are the storage's own clock"
    assert blobs.get(path, timeout=T) == b"0123456789"
    assert blobs.list(f"{BUCKET}/jobs/", timeout=T) == [put]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 3, b"012"), (7, None, b"789"), (2, 4, b"23"), (8, 99, b"89"), (10, None, b""), (10, 20, b""), (3, 3, b"")],
)  # fmt: skip
def test_a_range_is_from_start_up_to_not_including_end(
    blobs: Blobs, start: int, end: int | None, expected: bytes
) -> None:
    blobs.put(f"{BUCKET}/a", b"0123456789", timeout=T)
    assert blobs.get(f"{BUCKET}/a", start=start, end=end, timeout=T) == expected


def test_a_put_replaces_the_bytes_and_the_metadata(blobs: Blobs) -> None:
    first = blobs.put(f"{BUCKET}/a", b"one", metadata={"k": "1", "gone": "x"}, timeout=T)
    second = blobs.put(f"{BUCKET}/a", b"two", metadata={"k": "2"}, timeout=T)
    assert second.generation > first.generation
    assert blobs.get(f"{BUCKET}/a", timeout=T) == b"two"
    assert blobs.list(f"{BUCKET}/a", timeout=T)[0].metadata == {"k": "2"}


@pytest.mark.parametrize("size", [0, 10, 40 << 20])
def test_a_file_is_stored_whole_and_not_held_whole(blobs: Blobs, tmp_path: Path, size: int) -> None:
    (tmp_path / "content").write_bytes(os.urandom(size))
    with (tmp_path / "content").open("rb") as file:
        file.seek(size // 2)
        tracemalloc.start()
        try:
            put = blobs.put(f"{BUCKET}/file", file, if_generation=0, timeout=T)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert put.size == size
        assert peak < 12 << 20, "one piece of 8 MiB is held, and not the one before it"
        with pytest.raises(Conflict):
            blobs.put(f"{BUCKET}/file", file, if_generation=0, timeout=T)
    assert blobs.get(f"{BUCKET}/file", timeout=T) == (tmp_path / "content").read_bytes()


def test_a_missing_object_is_not_found(blobs: Blobs) -> None:
    for start, end in ((0, None), (5, 9), (3, 3)):
        with pytest.raises(NotFound, match="none"):
            blobs.get(f"{BUCKET}/none", start=start, end=end, timeout=T)
    with pytest.raises(NotFound, match="no-such-bucket"):
        blobs.put("gs://no-such-bucket/a", b"", timeout=T)
    with pytest.raises(NotFound, match="no-such-bucket"):
        blobs.list("gs://no-such-bucket/a", timeout=T)


def test_deleting_a_missing_object_succeeds(blobs: Blobs) -> None:
    blobs.put(f"{BUCKET}/a", b"", timeout=T)
    for _ in range(2):
        blobs.delete(f"{BUCKET}/a", timeout=T)
    assert blobs.list(f"{BUCKET}/", timeout=T) == []


def test_what_was_touched_or_written_since_is_not_deleted(blobs: Blobs) -> None:
    path = f"{BUCKET}/bundle"
    first = blobs.put(path, b"1", metadata={"k": "v"}, timeout=T)
    (listed,) = blobs.list(path, timeout=T)
    blobs.touch(path, timeout=T)
    (touched,) = blobs.list(path, timeout=T)
    assert (touched.metadata, touched.generation) == ({"k": "v"}, first.generation)
    blobs.put(path, b"2", timeout=T)
    for stale in (first, listed, touched):
        with pytest.raises(Conflict, match="bundle"):
            blobs.delete(path, unchanged=stale, timeout=T)
    assert blobs.get(path, timeout=T) == b"2"
    (newest,) = blobs.list(path, timeout=T)
    for _ in range(2):
        blobs.delete(path, unchanged=newest, timeout=T)
    assert blobs.list(path, timeout=T) == []
    with pytest.raises(NotFound, match="bundle"):
        blobs.touch(path, timeout=T)


def test_a_write_onto_another_generation_is_a_conflict(blobs: Blobs) -> None:
    path = f"{BUCKET}/pointer"
    first = blobs.put(path, b"1", if_generation=0, timeout=T)
    second = blobs.put(path, b"2", if_generation=first.generation, timeout=T)
    for stale in (0, first.generation):
        with pytest.raises(Conflict, match="pointer"):
            blobs.put(path, b"3", if_generation=stale, timeout=T)
    assert blobs.get(path, timeout=T) == b"2"
    assert blobs.list(path, timeout=T) == [second]
    assert second.metadata == {}, "what the adapter needs for itself is not shown"


def test_of_eight_writers_exactly_one_wins(blobs: Blobs) -> None:
    def write(i: int) -> Blob | None:
        try:
            return blobs.put(f"{BUCKET}/lock", str(i).encode(), if_generation=0, timeout=T)
        except Conflict:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [i for i, blob in enumerate(pool.map(write, range(8))) if blob]
    assert len(won) == 1
    assert blobs.get(f"{BUCKET}/lock", timeout=T) == str(won[0]).encode()


def test_a_list_has_everything_below_a_prefix_in_order(blobs: Blobs) -> None:
    names = ["a", "a/b", "a/b/c", "a/ü", "a/𝔘", "ab", "b", "a/log-00001", "a/log-00002"]
    for name in names:
        blobs.put(f"{BUCKET}/{name}", b"", timeout=T)
    paths = sorted((f"{BUCKET}/{name}" for name in names), key=str.encode)

    def listed(prefix: str) -> list[str]:
        return [blob.path for blob in blobs.list(prefix, timeout=T)]

    assert listed(f"{BUCKET}/") == listed(BUCKET) == paths
    assert listed(f"{BUCKET}/a/") == [p for p in paths if p.startswith(f"{BUCKET}/a/")]
    (first,) = blobs.list(f"{BUCKET}/a/log-", most=1, timeout=T)
    assert first.path == f"{BUCKET}/a/log-00001"


@pytest.mark.slow
def test_a_list_goes_over_many_pages(blobs: Blobs) -> None:
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(
            lambda i: blobs.put(
                f"{BUCKET}/hosts/{i:04d}", b"", metadata={"report": str(i)}, timeout=60
            ),
            range(1100),
        ):
            pass
    listed = blobs.list(f"{BUCKET}/hosts/", timeout=T)
    assert [blob.metadata["report"] for blob in listed] == [str(i) for i in range(1100)]


def test_hostile_names_come_back_as_they_are(blobs: Blobs) -> None:
    for name in ("../x", "a//b", "a/", "ü ?#&%2F", "$(reboot)", "x" * 1024):
        blobs.put(f"{BUCKET}/{name}", name.encode(), timeout=T)
        assert blobs.get(f"{BUCKET}/{name}", timeout=T) == name.encode()
        assert f"{BUCKET}/{name}" in [blob.path for blob in blobs.list(BUCKET, timeout=T)]


@pytest.mark.parametrize("path", ["", "gs://", "gs://bucket", "gs://bucket/", "/etc/passwd", "s3://b/a"])  # fmt: skip
def test_an_invalid_path_is_a_bad_request(blobs: Blobs, path: str) -> None:
    with pytest.raises(BadRequest, match="gs://"):
        blobs.get(path, timeout=T)


def test_a_bucket_in_another_region_is_refused_and_one_in_ours_is_used(blobs: Blobs) -> None:
    blobs.ensure_bucket(BUCKET, REGION, timeout=T)
    with pytest.raises(Refused, match=r"contract-bucket is in us-central2.*europe-west4") as caught:
        blobs.ensure_bucket(BUCKET, "europe-west4", timeout=T)
    assert caught.value.cause == Cause.BAD_SPEC
    with pytest.raises(Refused, match="Invalid bucket name"):
        blobs.ensure_bucket("gs://NOT A NAME", REGION, timeout=T)
    for act in (blobs.get, blobs.list, blobs.delete):
        with pytest.raises(Refused, match="Invalid bucket name"):
            act("gs://-no-name-/a", timeout=T)


def test_two_callers_that_make_the_same_bucket_both_succeed(blobs: Blobs) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(lambda _: blobs.ensure_bucket("gs://race-bucket", REGION, timeout=T), range(4))
        )
