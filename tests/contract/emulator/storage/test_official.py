"""Uses of Google's client of Cloud Storage, each by itself, against the emulator."""

import datetime
import gzip
import io
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage import transfer_manager
from google.cloud.storage.exceptions import InvalidResponse

from tests.contract.emulator.storage_rig import ask, official, running
from tpujob.emulator.storage import StorageServer

WRONG = {"X_Goog_Hash": "crc32c=AAAAAA=="}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageServer]:
    with running(tmp_path_factory.mktemp("storage")) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: StorageServer) -> Iterator[storage.Client]:
    with official(server.url) as client:
        yield client


@pytest.fixture
def bucket(client: storage.Client) -> storage.Bucket:
    """One for each check."""
    return client.create_bucket(f"check-{next(_numbers)}", location="us-central2")


def filled(bucket: storage.Bucket, *names: str) -> list[storage.Blob]:
    """Objects whose bytes are their names."""
    blobs = [bucket.blob(name) for name in names]
    for blob in blobs:
        blob.upload_from_string(blob.name)
    return blobs


def names(blobs: Iterator[storage.Blob]) -> list[str]:
    return [blob.name for blob in blobs]


# Buckets


def test_rules_and_labels_of_a_bucket_are_set_and_taken_away(bucket: storage.Bucket) -> None:
    bucket.add_lifecycle_delete_rule(age=90, matches_prefix=["logs/"])
    bucket.labels = {"team": "vision", "old": "yes"}
    bucket.patch()
    bucket.reload()
    assert [rule["action"]["type"] for rule in bucket.lifecycle_rules] == ["Delete"]
    bucket.clear_lifecyle_rules()
    labels = bucket.labels
    del labels["old"]
    bucket.labels = labels
    bucket.patch()
    bucket.reload()
    assert list(bucket.lifecycle_rules) == []
    assert bucket.labels == {"team": "vision"}


def test_a_bucket_is_changed_only_as_it_was_seen(bucket: storage.Bucket) -> None:
    seen = bucket.metageneration
    bucket.labels = {"a": "1"}
    bucket.patch(if_metageneration_match=seen)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.patch(if_metageneration_match=seen)


def test_a_policy_of_a_bucket_is_read_changed_and_kept(bucket: storage.Bucket) -> None:
    policy = bucket.get_iam_policy(requested_policy_version=3)
    role, member = "roles/storage.objectUser", "serviceAccount:vm@lab.iam.gserviceaccount.com"
    policy.bindings.append({"role": role, "members": {member}})
    bucket.set_iam_policy(policy)
    assert list(bucket.get_iam_policy().bindings) == [{"role": role, "members": {member}}]
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.set_iam_policy(policy)  # its etag is that of the first one
    permissions = ["storage.objects.create", "storage.objects.delete"]
    assert bucket.test_iam_permissions(permissions) == permissions
    bucket.reload()
    assert "iamPolicy" not in bucket._properties


# Lists


@pytest.mark.parametrize(
    "fields",
    [
        "items(name,size),nextPageToken",
        "items/name,items/size",
        "items(name),items/size",
        "items/name,items/metadata/goog-reserved-file-mtime,items(size)",
        "nextPageToken, items( name , size )",
    ],
)
def test_a_list_shows_the_fields_that_are_asked_for(bucket: storage.Bucket, fields: str) -> None:
    (blob,) = filled(bucket, "a")
    blob.metadata = {"goog-reserved-file-mtime": "17", "other": "x"}
    blob.patch()
    (seen,) = bucket.list_blobs(fields=fields)
    assert (seen.name, seen.size, seen.generation) == ("a", 1, None)
    assert seen.metadata == ({"goog-reserved-file-mtime": "17"} if "mtime" in fields else None)


# Writing and reading


def test_an_object_is_written_and_read_as_a_file(bucket: storage.Bucket) -> None:
    with bucket.blob("lines").open("w", chunk_size=256 * 1024) as file:
        for number in range(100_000):
            file.write(f"{number}\n")
    with bucket.blob("lines").open("r") as file:
        assert sum(1 for _ in file) == 100_000
    with bucket.blob("lines").open("rb") as file:
        file.seek(-7, io.SEEK_END)
        assert file.read() == b"\n99999\n"


def test_a_compressed_object_comes_as_it_was_or_as_it_is(bucket: storage.Bucket) -> None:
    blob = bucket.blob("log.gz")
    blob.content_encoding = "gzip"
    packed = gzip.compress(b"a line\n" * 100)
    blob.upload_from_string(packed, content_type="text/plain")
    assert blob.download_as_bytes() == b"a line\n" * 100
    assert blob.download_as_bytes(raw_download=True) == packed


def test_what_is_said_of_an_object_is_kept(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.cache_control, blob.content_language = "no-store", "en"
    blob.content_disposition = "attachment"
    blob.custom_time = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    blob.metadata = {"step": "7"}
    blob.upload_from_string(b"1", content_type="application/x-ckpt")
    stored = bucket.get_blob("a")
    assert (stored.cache_control, stored.content_language) == ("no-store", "en")
    assert (stored.content_disposition, stored.content_type) == ("attachment", "application/x-ckpt")
    assert stored.custom_time == blob.custom_time
    stored.metadata = {"step": "7", "new": "1"}
    stored.patch(if_metageneration_match=1)
    assert (stored.metageneration, stored.generation) == (2, blob.generation), "the same bytes"
    stored.metadata = None
    stored.patch()
    stored.reload()
    assert stored.metadata is None


def test_an_object_that_is_known_already_is_not_sent_again(bucket: storage.Bucket) -> None:
    (blob,) = filled(bucket, "a")
    with pytest.raises(exceptions.NotModified):
        blob.reload(if_generation_not_match=blob.generation)
    with pytest.raises(exceptions.NotModified):
        blob.download_as_bytes(if_etag_not_match=blob.etag)
    assert blob.download_as_bytes(if_etag_match=blob.etag) == b"a"
    with pytest.raises(exceptions.PreconditionFailed):
        blob.download_as_bytes(if_etag_match="another")


# Copies


def test_older_generations_are_listed_read_and_deleted(bucket: storage.Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.patch()
    blob = bucket.blob("a")
    blob.upload_from_string(b"1")
    first = blob.generation
    blob.upload_from_string(b"2")
    bucket.blob("a").delete()
    assert names(bucket.list_blobs()) == []
    assert len(list(bucket.list_blobs(versions=True))) == 2
    bucket.copy_blob(bucket.blob("a"), bucket, "a", source_generation=first)
    assert bucket.blob("a").download_as_bytes() == b"1"
    bucket.blob("a", generation=first).delete()
    assert bucket.get_blob("a", generation=first) is None


# Many at once


def test_a_file_goes_up_and_down_in_parallel_parts(bucket: storage.Bucket, tmp_path: Path) -> None:
    source, back = tmp_path / "there", tmp_path / "back"
    source.write_bytes(os.urandom((11 << 20) + 1))
    blob = bucket.blob("odd name/ü&<.bin")
    blob.metadata, blob.content_type = {"step": "7"}, "application/x-ckpt"
    how = {"worker_type": transfer_manager.THREAD, "max_workers": 3, "chunk_size": 5 << 20}
    transfer_manager.upload_chunks_concurrently(source, blob, **how)
    transfer_manager.download_chunks_concurrently(blob, back, **how)
    assert back.read_bytes() == source.read_bytes()
    stored = bucket.get_blob(blob.name)
    assert (stored.metadata, stored.content_type) == ({"step": "7"}, "application/x-ckpt")
    assert (stored.md5_hash, stored.component_count) == (None, None), "as Google's"


def test_a_failed_upload_in_parts_leaves_nothing(bucket: storage.Bucket, tmp_path: Path) -> None:
    source = tmp_path / "there"
    source.write_bytes(bytes(3000))
    how = {"worker_type": transfer_manager.THREAD, "max_workers": 1, "chunk_size": 1000}
    with pytest.raises(InvalidResponse, match="400"):  # parts of less than 5 MiB
        transfer_manager.upload_chunks_concurrently(source, bucket.blob("a"), **how)
    assert names(bucket.list_blobs()) == []


def test_parts_that_do_not_fit_are_refused(server: StorageServer, bucket: storage.Bucket) -> None:
    path = f"/{bucket.name}/a"
    begun = ask(server.url, "POST", f"{path}?uploads")[2].decode()
    key = begun.partition("<UploadId>")[2].partition("<")[0]
    for number, header, code in (("0", {}, b"InvalidArgument"), ("1", WRONG, b"BadDigest")):
        target = f"{path}?partNumber={number}&uploadId={key}"
        status, _, body = ask(server.url, "PUT", target, b"bytes", **header)
        assert (status, code in body) == (400, True), body
    part = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part>"
    status, _, body = ask(server.url, "POST", f"{path}?uploadId={key}", part)
    assert (status, b"InvalidPart" in body) == (400, True), body
    assert ask(server.url, "DELETE", f"{path}?uploadId={key}")[0] == 204
    status, _, body = ask(server.url, "PUT", f"{path}?partNumber=1&uploadId={key}", b"bytes")
    assert (status, b"NoSuchUpload" in body) == (404, True), body
    assert ask(server.url, "POST", "/check-none/a?uploads")[0] == 404
    assert names(bucket.list_blobs()) == []
