"""The emulated Cloud Storage through Google's own client: objects, lists, preconditions, copies, batches."""

import base64
import hashlib
import http.client
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from google.api_core import exceptions
from google.cloud import storage

from tests.contract.emulator.storage_rig import (
    BUCKET,
    ask,
    error_of,
    files_below,
    official,
    running,
)
from tests.support.waiting import LONG
from tpujob.emulator.storage import StorageServer, json_api


def test_a_bucket_has_a_place_and_is_removed_only_when_empty(client: storage.Client) -> None:
    bucket = client.create_bucket("other-bucket", location="europe-west4")
    assert client.get_bucket("other-bucket").location == "EUROPE-WEST4"
    assert {b.name for b in client.list_buckets()} == {BUCKET, "other-bucket"}
    with pytest.raises(exceptions.Conflict, match="already own it"):
        client.create_bucket("other-bucket", location="europe-west4")
    bucket.labels = {"team": "vision"}
    bucket.patch()
    assert client.get_bucket("other-bucket").labels == {"team": "vision"}
    bucket.blob("a").upload_from_string(b"1")
    with pytest.raises(exceptions.Conflict, match="not empty"):
        bucket.delete()
    bucket.blob("a").delete()
    bucket.delete()
    assert client.lookup_bucket("other-bucket") is None


@pytest.mark.parametrize("name", ["..", "a", "UPPER", "a/b", "-ab", "a..b"])
def test_a_bucket_name_that_the_cloud_refuses_is_refused(server: StorageServer, name: str) -> None:
    body = json.dumps({"name": name}).encode()
    status, _, answer = ask(server.url, "POST", "/storage/v1/b?project=p", body)
    assert (status, error_of(answer)["code"]) == (400, 400)


def test_bytes_metadata_and_checksums_come_back(bucket: storage.Bucket) -> None:
    blob = bucket.blob("folder/report")
    blob.metadata = {"report": '{"step": 7, "text": "größer → ∞"}'}
    blob.upload_from_string(b"hello storage", content_type="text/x-report")
    seen = bucket.get_blob("folder/report")
    assert seen is not None
    assert seen.metadata == {"report": '{"step": 7, "text": "größer → ∞"}'}
    md5 = base64.b64encode(hashlib.md5(b"hello storage").digest()).decode()
    assert (seen.size, seen.crc32c, seen.md5_hash) == (13, blob.crc32c, md5)
    assert (seen.content_type, seen.generation) == ("text/x-report", blob.generation)
    assert seen.download_as_bytes() == b"hello storage"
    assert seen.download_as_bytes(start=6) == b"storage"
    assert seen.download_as_bytes(start=2, end=3) == b"ll"


def test_too_much_metadata_is_refused_and_nothing_is_stored(bucket: storage.Bucket) -> None:
    blob = bucket.blob("big")
    blob.metadata = {"k": "x" * 9000}
    with pytest.raises(exceptions.BadRequest, match="8192"):
        blob.upload_from_string(b"x")
    assert not blob.exists()


def test_what_is_missing_is_reported_as_google_does(
    server: StorageServer, client: storage.Client, bucket: storage.Bucket
) -> None:
    for act in (bucket.blob("none").download_as_bytes, bucket.blob("none").delete):
        with pytest.raises(exceptions.NotFound, match=f"No such object: {BUCKET}/none"):
            act()
    with pytest.raises(exceptions.NotFound, match="The specified bucket does not exist"):
        list(client.list_blobs("no-such-bucket"))
    status, headers, body = ask(server.url, "GET", "/storage/v1/b/no-such-bucket")
    assert (status, error_of(body)["errors"][0]["reason"]) == (404, "notFound")
    assert headers["content-type"] == "application/json; charset=UTF-8"
    assert headers["date"].endswith("GMT")


def test_preconditions_hold_for_every_verb(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"1", if_generation_match=0)
    first = blob.generation
    blob.upload_from_string(b"2", if_generation_match=first)
    refused = [
        lambda: blob.upload_from_string(b"3", if_generation_match=first),
        lambda: blob.upload_from_string(b"3", if_generation_not_match=blob.generation),
        lambda: blob.upload_from_string(b"x" * (9 << 20), if_generation_match=0),
        lambda: blob.delete(if_generation_match=first),
        lambda: blob.reload(if_generation_match=first),
        lambda: blob.download_as_bytes(if_metageneration_match=9),
        lambda: blob.patch(if_metageneration_match=9),
        lambda: bucket.copy_blob(blob, bucket, "b", if_source_generation_match=first),
        lambda: bucket.copy_blob(blob, bucket, "a", if_generation_match=0),
        lambda: bucket.blob("a").compose([blob], if_generation_match=first),
        lambda: bucket.blob("a").compose([blob], if_source_generation_match=[first]),
        lambda: bucket.move_blob(blob, "b", if_source_generation_match=first),
    ]
    for number, act in enumerate(refused):
        with pytest.raises(exceptions.PreconditionFailed):
            pytest.fail(f"act {number} was let through: {act()}")
    assert blob.download_as_bytes() == b"2"
    assert bucket.get_blob("b") is None


def test_lists_page_fold_and_cut(client: storage.Client, bucket: storage.Bucket) -> None:
    names = [f"run/{i:03d}/{part}" for i in range(7) for part in ("a", "b")] + ["run/", "other"]
    for name in names:
        bucket.blob(name).upload_from_string(b"")
    paged = client.list_blobs(BUCKET, prefix="run/", page_size=3)
    assert [blob.name for blob in paged] == sorted(n for n in names if n.startswith("run/"))
    folded = client.list_blobs(BUCKET, prefix="run/", delimiter="/", page_size=2)
    assert [blob.name for blob in folded] == ["run/"]
    assert folded.prefixes == {f"run/{i:03d}/" for i in range(7)}
    part = client.list_blobs(BUCKET, start_offset="run/002/b", end_offset="run/004/a")
    assert [blob.name for blob in part] == ["run/002/b", "run/003/a", "run/003/b"]
    trailing = client.list_blobs(BUCKET, delimiter="/", include_trailing_delimiter=True)
    assert [blob.name for blob in trailing] == ["other", "run/"]
    with pytest.raises(exceptions.BadRequest, match="page token"):
        list(client.list_blobs(BUCKET, page_token="bm9uZQ=="))


def test_a_large_rewrite_to_another_region_takes_several_calls(
    client: storage.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_api, "REWRITE_BYTES", 1 << 20)
    near, far = client.bucket(BUCKET), client.bucket("far-from-here")
    far.create(location="europe-west4")
    blob = near.blob("large")
    blob.upload_from_string(b"x" * (5 << 19))
    twin = far.blob("twin")
    token, done, size = twin.rewrite(blob)
    assert (done, size) == (1 << 20, 5 << 19)
    assert not twin.exists()
    again, done, _ = twin.rewrite(blob, token=token)
    assert done == 2 << 20
    assert twin.rewrite(blob, token=token)[1] == done, "a call whose answer was lost is repeated"
    assert twin.rewrite(blob, token=again) == (None, 5 << 19, 5 << 19)
    assert twin.crc32c == blob.crc32c
    with pytest.raises(exceptions.BadRequest, match="rewriteToken"):
        far.blob("other").rewrite(blob, token=token)
    assert near.blob("near").rewrite(blob)[0] is None, "within one place one call is enough"


def test_compose_copy_rewrite_move_and_rename(client: storage.Client, tmp_path: Path) -> None:
    bucket = client.bucket(BUCKET)
    parts = [bucket.blob(f"part-{i}") for i in range(3)]
    for i, part in enumerate(parts):
        part.metadata = {"part": str(i)}
        part.upload_from_string(str(i) * 4)
    whole = bucket.blob("whole")
    whole.compose(parts)
    assert whole.download_as_bytes() == b"000011112222"
    assert (whole.component_count, whole.md5_hash) == (3, None)
    copy = bucket.copy_blob(parts[1], bucket, "copy")
    assert (copy.download_as_bytes(), copy.metadata) == (b"1111", {"part": "1"})
    assert bucket.blob("again").rewrite(whole) == (None, 12, 12)
    moved = bucket.move_blob(copy, "moved")
    assert moved.download_as_bytes() == b"1111"
    bucket.rename_blob(moved, "renamed")
    assert bucket.get_blob("copy") is None
    assert bucket.get_blob("moved") is None
    assert bucket.blob("renamed").download_as_bytes() == b"1111"
    whole.update_storage_class("NEARLINE")
    assert bucket.get_blob("whole").storage_class == "NEARLINE"


def test_a_batch_does_each_of_its_requests(client: storage.Client, bucket: storage.Bucket) -> None:
    for name in ("a", "b", "c d/ü"):
        bucket.blob(name).upload_from_string(name)
    with client.batch():
        for name in ("a", "c d/ü"):
            bucket.blob(name).delete()
        changed = bucket.blob("b")
        changed.metadata = {"seen": "yes"}
        changed.patch()
    assert [blob.name for blob in client.list_blobs(BUCKET)] == ["b"]
    assert bucket.get_blob("b").metadata == {"seen": "yes"}
    with pytest.raises(exceptions.NotFound), client.batch():
        bucket.blob("none").delete()


def test_a_replaced_object_comes_whole(server: StorageServer, bucket: storage.Bucket) -> None:
    size = 24 << 20  # more than the buffers between the two can hold
    bucket.blob("large").upload_from_string(b"a" * size)
    wire = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=LONG)
    wire.request("GET", f"/storage/v1/b/{BUCKET}/o/large?alt=media")
    answer = wire.getresponse()
    assert answer.read(1) == b"a"
    bucket.blob("large").upload_from_string(b"b" * size)
    assert answer.read() == b"a" * (size - 1)
    wire.close()


def test_everything_is_there_after_a_restart_and_no_stray_file(tmp_path: Path) -> None:
    state = tmp_path / "storage"
    with running(state) as server, official(server.url) as client:
        blob = client.bucket(BUCKET).blob("a/b")
        blob.metadata = {"k": "v"}
        blob.upload_from_string(b"kept")
        generation = blob.generation
        assert _started_with(state, tmp_path) == (
            1,
            f"the emulator cannot start: another emulated Cloud Storage uses {state}\n",
        )
    (state / "objects" / "1").write_bytes(b"a row was never written for this")
    with running(state) as server, official(server.url) as client:
        blob = client.bucket(BUCKET).get_blob("a/b")
        assert (blob.generation, blob.metadata) == (generation, {"k": "v"})
        assert blob.download_as_bytes() == b"kept"
        assert files_below(state / "objects") == [str(generation)]
        blob.delete()
        assert list((state / "objects").iterdir()) == []


def _started_with(state: Path, folder: Path) -> tuple[int, str]:
    """The exit code and the errors of an emulator that cannot use this folder."""
    words = ["--ready", folder / "ready", "--state", state, "--farm-ready", folder / "farm"]
    command = [sys.executable, "-m", "tpujob.emulator", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    return done.returncode, done.stderr


def test_only_clients_of_this_machine_are_served(server: StorageServer) -> None:
    assert server.url.startswith("http://127.0.0.1:")
    for headers in (
        {"Host": "evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},  # an image or a script of a page has no Origin
        {"Sec-Fetch-Site": "same-site"},  # a page at another port of this machine
    ):
        status, _, body = ask(server.url, "GET", "/storage/v1/b", **headers)
        assert (status, error_of(body)["code"]) == (403, 403), headers


def test_unsupported_requests_say_so(server: StorageServer, client: storage.Client) -> None:
    for path, feature in (
        ("o?softDeleted=true", "softDeleted"),
        ("o?matchGlob=**.txt", "matchGlob"),
        ("acl", "acl"),
        ("folders/a", "folders"),
    ):
        status, _, body = ask(server.url, "GET", f"/storage/v1/b/{BUCKET}/{path}")
        assert (status, error_of(body)["message"]) == (400, f"{feature} is not emulated."), (
            "gcloud repeats a 501 for half a minute"
        )
    assert ask(server.url, "POST", f"/storage/v1/b/{BUCKET}")[0] == 405
