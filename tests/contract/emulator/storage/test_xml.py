"""The XML API of the emulated Cloud Storage: raw requests, obstore, boto3 as a client of S3, signed URLs."""

import contextlib
import http.client
import io
import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import boto3
import obstore
import pytest
import requests
from botocore.exceptions import ClientError
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt
from google.cloud import storage
from google.oauth2 import service_account
from obstore.exceptions import AlreadyExistsError, NotModifiedError, PreconditionError
from obstore.store import GCSStore

from tests.contract.emulator.storage_rig import BUCKET, ask
from tests.support.waiting import LONG
from tpujob.emulator.storage import StorageServer

NAME = "run 1/a+b&<ü>"
OBJECT = f"/{BUCKET}/run"


@pytest.fixture
def store(server: StorageServer, bucket: storage.Bucket) -> GCSStore:
    key = {"gcs_base_url": server.url, "disable_oauth": True, "client_email": "", "private_key": ""}
    return GCSStore(
        bucket.name,
        service_account_key=json.dumps({**key, "private_key_id": ""}),
        client_options={"allow_http": True},
    )


@pytest.fixture
def s3(server: StorageServer, bucket: storage.Bucket) -> Any:
    """A client of S3 with an HMAC key of Cloud Storage."""
    del bucket  # it exists
    key = {"aws_access_key_id": "GOOG1EEMULATED", "aws_secret_access_key": "secret"}
    return boto3.client("s3", endpoint_url=server.url, region_name="auto", **key)


# Raw requests ---------------------------------------------------------------------------------------------------------


def test_both_apis_show_the_same_object(server: StorageServer, bucket: storage.Bucket) -> None:
    meta = {"content_type": "text/plain", "x_goog_meta_step": "7"}
    status, put, _ = ask(server.url, "PUT", OBJECT, b"hello", **meta)
    blob = bucket.get_blob("run")
    assert (status, put["x-goog-generation"]) == (200, str(blob.generation))
    assert (blob.content_type, blob.metadata) == ("text/plain", {"step": "7"})
    assert put["x-goog-hash"] == f"crc32c={blob.crc32c},md5={blob.md5_hash}"
    status, headers, body = ask(server.url, "GET", OBJECT, range="bytes=1-3")
    assert (status, body, headers["content-range"]) == (206, b"ell", "bytes 1-3/5")
    assert (headers["x-goog-meta-step"], headers["x-goog-stored-content-length"]) == ("7", "5")
    status, head, body = ask(server.url, "HEAD", OBJECT)
    assert (status, body, head["content-length"]) == (200, b"", "5")
    assert head["etag"] == put["etag"] == '"5d41402abc4b2a76b9719d911017c592"', "the MD5"
    assert ask(server.url, "DELETE", OBJECT)[0] == 204
    assert bucket.get_blob("run") is None


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("GET", "/none-such/run", {}, 404, "NoSuchBucket"),
        ("GET", f"/{BUCKET}/none", {}, 404, "NoSuchKey"),
        ("DELETE", f"/{BUCKET}/none", {}, 404, "NoSuchKey"),
        ("GET", OBJECT, {"range": "bytes=9-"}, 416, "InvalidRange"),
        ("GET", OBJECT, {"x_goog_if_generation_match": "1"}, 412, "PreconditionFailed"),
        ("PUT", OBJECT, {"x_goog_if_generation_match": "0"}, 412, "PreconditionFailed"),
        ("PUT", OBJECT, {"x_goog_if_metageneration_match": "9"}, 412, "PreconditionFailed"),
        ("DELETE", OBJECT, {"x_goog_if_generation_match": "1"}, 412, "PreconditionFailed"),
        ("PUT", OBJECT, {"x_goog_if_generation_match": "no"}, 400, "InvalidArgument"),
        ("PUT", OBJECT, {"x_goog_hash": "crc32c=AAAAAA=="}, 400, "BadDigest"),
        ("PUT", OBJECT, {"content_md5": "XUFAKrxLKna5cZ2REBfFkg=="}, 400, "BadDigest"),
        ("PUT", OBJECT, {"x_goog_copy_source": BUCKET}, 400, "InvalidArgument"),
        ("PUT", OBJECT, {"content_encoding": "aws-chunked"}, 400, "NotImplemented"),
        ("PUT", OBJECT, {"if_none_match": "*"}, 400, "NotImplemented"),
        ("GET", f"{OBJECT}?acl", {}, 400, "NotImplemented"),
        ("POST", OBJECT, {}, 400, "NotImplemented"),
        ("PUT", "/new-bucket", {}, 400, "NotImplemented"),
        ("GET", OBJECT, {"host": "evil.example"}, 403, "AccessDenied"),
    ],
)
def test_a_refusal_has_the_code_of_the_xml_api_and_changes_nothing(
    server: StorageServer,
    bucket: storage.Bucket,
    method: str,
    path: str,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    bucket.blob("run").upload_from_string(b"before")
    answered, _, body = ask(server.url, method, path, b"after", **headers)
    assert (answered, f"<Code>{code}</Code>" in body.decode()) == (status, True), body
    assert [blob.name for blob in bucket.list_blobs()] == ["run"]
    assert bucket.blob("run").download_as_bytes() == b"before"


def test_what_no_header_can_carry_ends_no_line_and_no_connection(
    server: StorageServer, bucket: storage.Bucket
) -> None:
    blob = bucket.blob("odd")
    blob.metadata = {"step": "7\r\nX-Evil: 1", "a key": "x", "ключ": "y"}
    blob.cache_control = "no-ü\n"
    blob.upload_from_string(b"x")
    status, headers, body = ask(server.url, "GET", f"/{BUCKET}/odd")
    assert (status, body, headers["cache-control"]) == (200, b"x", "no-??")
    named = {name: value for name, value in headers.items() if name.startswith("x-goog-meta-")}
    assert named == {"x-goog-meta-step": "7??X-Evil: 1"}


def test_a_client_that_sends_much_after_its_refusal_reads_it_and_goes_on(
    server: StorageServer, bucket: storage.Bucket
) -> None:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=LONG)
    with contextlib.closing(connection):
        for _ in range(2):
            connection.request("PUT", "/no-such-bucket/x", bytes(16 << 20))
            answer = connection.getresponse()
            assert (answer.status, b"NoSuchBucket" in answer.read()) == (404, True)


def test_old_generations_are_read_by_number(server: StorageServer, bucket: storage.Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.patch()
    first, second = (ask(server.url, "PUT", OBJECT, body)[1] for body in (b"one", b"two"))
    old = f"{OBJECT}?generation={first['x-goog-generation']}"
    assert ask(server.url, "GET", old)[2] == b"one"
    assert ask(server.url, "DELETE", old)[0] == 204
    assert ask(server.url, "GET", old)[0] == 404
    assert bucket.get_blob("run").generation == int(second["x-goog-generation"])


# obstore --------------------------------------------------------------------------------------------------------------


def test_obstore_writes_reads_lists_copies_and_deletes(store: GCSStore) -> None:
    store.put(NAME, b"hello", attributes={"Content-Type": "text/plain"})
    store.put("two", b"2")
    data = os.urandom(12 << 20)
    store.put("large", data, use_multipart=True, chunk_size=5 << 20)
    assert bytes(store.get("large").bytes()) == data, "what it wrote in parts, it reads"
    assert store.get(NAME).attributes == {"Content-Type": "text/plain"}
    assert bytes(store.get_range(NAME, start=1, end=3)) == b"el"
    ranges = store.get_ranges("large", starts=[0, 9 << 20], ends=[9, (9 << 20) + 9])
    assert [bytes(item) for item in ranges] == [data[:9], data[9 << 20 :][:9]]
    assert [item["path"] for item in store.list().collect()] == ["large", NAME, "two"]
    assert [item["path"] for item in store.list(offset="large").collect()] == [NAME, "two"]
    assert store.list_with_delimiter()["common_prefixes"] == ["run 1"]
    store.copy(NAME, "copied")
    with pytest.raises(AlreadyExistsError):
        store.copy("two", "copied", overwrite=False)
    store.rename("copied", "renamed")
    assert store.get("renamed").attributes == {"Content-Type": "text/plain"}
    with obstore.open_writer(store, "streamed") as file:
        file.write(data)
    assert bytes(obstore.open_reader(store, "streamed").read()) == data
    store.delete(["large", "renamed", "streamed", "two"])
    assert [item["path"] for item in store.list().collect()] == [NAME]
    with pytest.raises(FileNotFoundError):
        store.head("two")


def test_obstore_keeps_conditions(store: GCSStore) -> None:
    first = store.put("run", b"one", mode="create")
    with pytest.raises(AlreadyExistsError):
        store.put("run", b"two", mode="create")
    second = store.put("run", b"two", mode=first)
    with pytest.raises(PreconditionError):
        store.put("run", b"three", mode=first)
    with pytest.raises(NotModifiedError):
        store.get("run", options={"if_none_match": second["e_tag"]})
    with pytest.raises(PreconditionError):
        store.get("run", options={"if_match": first["e_tag"]})
    changed = store.head("run")["last_modified"]
    with pytest.raises(NotModifiedError):
        store.get("run", options={"if_modified_since": changed})
    with pytest.raises(PreconditionError):
        store.get("run", options={"if_unmodified_since": changed - timedelta(seconds=1)})
    fresh = {"if_modified_since": changed - timedelta(seconds=1), "if_unmodified_since": changed}
    assert bytes(store.get("run", options=fresh).bytes()) == b"two"
    assert bytes(store.get("run", options={"version": second["version"]}).bytes()) == b"two"


# boto3 ----------------------------------------------------------------------------------------------------------------


def test_a_client_of_s3_writes_reads_copies_and_deletes(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key=NAME, Body=b"hello", Metadata={"step": "7"})
    shown = s3.head_object(Bucket=BUCKET, Key=NAME)
    assert (shown["ContentLength"], shown["Metadata"]) == (5, {"step": "7"})
    source = {"Bucket": BUCKET, "Key": NAME}
    s3.copy_object(Bucket=BUCKET, Key="same", CopySource=source)
    s3.copy_object(
        Bucket=BUCKET, Key="other", CopySource=source, MetadataDirective="REPLACE", Metadata={}
    )
    metadata = [s3.head_object(Bucket=BUCKET, Key=key)["Metadata"] for key in ("same", "other")]
    assert metadata == [{"step": "7"}, {}]
    data = os.urandom(20 << 20)
    s3.upload_fileobj(io.BytesIO(data), BUCKET, "large")  # in parts
    back = io.BytesIO()
    s3.download_fileobj(BUCKET, "large", back)  # by ranges
    assert back.getvalue() == data
    s3.delete_object(Bucket=BUCKET, Key=NAME)
    with pytest.raises(ClientError, match="NoSuchKey"):
        s3.get_object(Bucket=BUCKET, Key=NAME)
    url = s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "same"})
    assert requests.get(url, timeout=LONG).content == b"hello"


@pytest.mark.parametrize("version", ["list_objects", "list_objects_v2"])
def test_a_client_of_s3_lists_page_by_page(s3: Any, version: str) -> None:
    for name in ("a", NAME, "run 1/c", "run 1/d/e", "run 2/x", "run 2/y", "z"):
        s3.put_object(Bucket=BUCKET, Key=name, Body=b"")

    def listed(size: int, **how: str) -> list[list[str]]:
        pages = s3.get_paginator(version).paginate(
            Bucket=BUCKET, PaginationConfig={"PageSize": size}, **how
        )
        return [
            [entry["Key"] for entry in page.get("Contents", [])]
            + [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
            for page in pages
        ]

    assert listed(4) == [["a", NAME, "run 1/c", "run 1/d/e"], ["run 2/x", "run 2/y", "z"]]
    assert listed(1, Delimiter="/") == [["a"], ["run 1/"], ["run 2/"], ["z"]]
    assert listed(9, Delimiter="/", Prefix="run 1/") == [[NAME, "run 1/c", "run 1/d/"]]
    after = {"list_objects": "Marker", "list_objects_v2": "StartAfter"}[version]
    second = getattr(s3, version)(Bucket=BUCKET, **{after: "run 2/x"})
    assert [entry["Key"] for entry in second["Contents"]] == ["run 2/y", "z"]


# Signed URLs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def account() -> service_account.Credentials:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    signer = crypt.RSASigner.from_string(pem)
    return service_account.Credentials(signer, "lab@p.iam.gserviceaccount.com", "")


def test_urls_that_googles_client_has_signed_are_followed(
    server: StorageServer, bucket: storage.Bucket, account: service_account.Credentials
) -> None:
    blob = bucket.blob(NAME)

    def signed(method: str, **options: Any) -> str:
        return blob.generate_signed_url(
            version="v4",
            expiration=datetime.now(UTC) + timedelta(minutes=5),
            method=method,
            credentials=account,
            api_access_endpoint=server.url,
            **options,
        )

    assert requests.put(signed("PUT"), data=b"hello", timeout=LONG).status_code == 200
    shown = requests.get(signed("GET", response_disposition="attachment"), timeout=LONG)
    assert (shown.content, shown.headers["Content-Disposition"]) == (b"hello", "attachment")
    assert requests.head(signed("HEAD"), timeout=LONG).headers["Content-Length"] == "5"
    assert requests.delete(signed("DELETE"), timeout=LONG).status_code == 204
    assert not blob.exists()
