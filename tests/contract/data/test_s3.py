"""S3 to a bucket and to a folder, by moto's server. It takes wrong checksums and sends few, so a proxy that flips bytes
stands before it."""

import random
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import urllib3

from tests.contract.data import moto as moto_server
from tests.contract.data.rig import Rig, files_in, named, split_uploads
from tests.support.local_server import LocalServer
from tests.support.waiting import LONG
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.adapters.s3_objects import S3Objects
from tpujob.data.locations import S3Prefix
from tpujob.data.objects import ObjectContent, ObjectFacts
from tpujob.data.sync.stream_copy import GONE
from tpujob.errors import NotFound, Refused, Transient

MIB = 1 << 20
KEYS = {
    "a//b": b"two slashes",
    "dir/": b"",
    "a b+%2F?#&=": b"odd",
    "cafe\u0301": b"NFD",
    "caf\u00e9": b"NFC",
    "empty": b"",
    "\U0001f600": b"smile",
    "x" * 900: b"long",
}


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server.running() as url:
        yield url


@pytest.fixture
def s3(moto: str, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of another user, and an empty bucket `data`. The environment leads to the server."""
    for name, value in moto_server.settings(moto, rig.folder).items():
        monkeypatch.setenv(name, value)
    client = moto_server.client()
    client.create_bucket(Bucket="data")
    yield client
    client.close()
    assert urllib3.request("POST", f"{moto}/moto-api/reset").status == 200


def put(s3: Any, files: dict[str, bytes], **options: Any) -> None:
    for key, data in files.items():
        s3.put_object(Bucket="data", Key=key, Body=data, **options)


def fetch(
    rig: Rig,
    target: object,
    objects: JsonObjects | None = None,
    reader: Any = None,
    below: str = "",
) -> Any:
    used = reader or S3Objects(patience=LONG)
    try:
        return rig.from_outside(S3Prefix("data", below), target, used, objects)
    finally:
        used.close()


def test_keys_are_taken_as_they_are_and_the_second_run_reads_nothing(rig: Rig, s3: Any) -> None:
    put(s3, KEYS)
    reader = S3Objects(patience=LONG)
    preview = rig.preview_outside(S3Prefix("data", ""), rig.place, reader)
    reader.close()
    assert rig.stored() == {}, "nothing was written"
    done = fetch(rig, rig.place)
    used = rig.objects.operations
    assert (preview.objects, preview.bytes) == (done.copied, done.copied_bytes)
    assert (preview.class_a, preview.class_b) == (used.class_a, used.class_b)
    assert (done.copied, done.left_out, done.unverified) == (len(KEYS), 0, 0)
    assert rig.stored() == KEYS

    class Reading(S3Objects):
        def open(self, *arguments: Any) -> Any:
            raise AssertionError(arguments)

    again = fetch(rig, rig.place, reader=Reading())
    assert (again.copied, again.same, again.sent_bytes) == (0, len(KEYS), 0)
    assert rig.objects.operations.class_a == 1, "one page of the bucket"
    rig.cache.close()
    (rig.folder / "ledger" / "ledger.db").unlink()
    rig.cache = type(rig.cache)(rig.folder / "ledger")
    assert fetch(rig, rig.place, reader=Reading()).copied == 0, "nor from another machine"


def test_to_a_folder_what_is_no_path_is_left_out_by_name(rig: Rig, s3: Any) -> None:
    put(s3, {f"in/{key}": data for key, data in KEYS.items() if len(key) < 255} | {"out": b"x"})
    back = rig.folder / "back"
    done = fetch(rig, back, below="in/")
    assert set(named(done.problems)) == {"a//b", "dir/"}
    expected = {k: v for k, v in KEYS.items() if k not in ("a//b", "dir/") and len(k) < 255}
    assert {k: v for k, v in files_in(back).items() if not k.startswith(".tpujob")} == expected
    again = fetch(rig, back, below="in/")
    assert (again.copied, again.same, again.sent_bytes) == (0, len(expected), 0)
    (back / "empty").write_bytes(b"edited")
    put(s3, {"in/caf\u00e9": b"new"})
    again = fetch(rig, back, below="in/")
    assert again.copied == 2, "one was edited here, one replaced there"
    assert (back / "empty").read_bytes() == b""


def test_more_than_one_page_is_listed(rig: Rig, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    put(s3, {f"{i}": b"" for i in range(7)})
    assert len(s3.list_objects_v2(Bucket="data")["Contents"]) == 3
    assert fetch(rig, rig.place).copied == 7


@pytest.mark.parametrize("algorithm", [{}, {"ChecksumAlgorithm": "CRC32"}], ids=["none", "crc32"])
@pytest.mark.parametrize("small", [1000, 8 * MIB])
def test_an_object_of_parts_has_no_checksum_that_its_bytes_are_compared_with(
    rig: Rig, s3: Any, small: int, algorithm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """moto says a checksum of the parts' checksums as one of the bytes: two reads that agree outvote it."""
    split_uploads(monkeypatch, small)
    data = random.Random(1).randbytes(5 * MIB + 7)
    place = {"Bucket": "data", "Key": "parts"}
    place["UploadId"] = s3.create_multipart_upload(**place, **algorithm)["UploadId"]
    parts: list[dict[str, Any]] = []
    for n, body in ((1, data[: 5 * MIB]), (2, data[5 * MIB :])):
        made = s3.upload_part(**place, PartNumber=n, Body=body, **algorithm)
        sums = {name: made[name] for name in ("ETag", "ChecksumCRC32") if name in made}
        parts.append({"PartNumber": n, **sums})
    s3.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
    facts = s3.head_object(Bucket="data", Key="parts", ChecksumMode="ENABLED")
    assert "-2" in facts["ETag"]
    assert "-" not in facts.get("ChecksumCRC32", "")
    put(s3, {"whole": b"x" * 10}, **algorithm)
    for target in (rig.place, rig.folder / "back"):
        done = fetch(rig, target)
        assert (done.copied, done.left_out, done.unverified) == (2, 0, 1)
    assert rig.stored() == files_in(rig.folder / "back") == {"parts": data, "whole": b"x" * 10}


class Flipped(S3Objects):
    """A server with an object whose bytes do not have the declared checksum."""

    read = 0  #: times that it was read

    @contextmanager
    def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:
        with super().open(bucket, facts, start) as content:
            if facts.name == "bad":
                self.read += 1
                content.chunks = self.spoiled(content.chunks, start)
            yield content

    def spoiled(self, chunks: Iterator[bytes], start: int) -> Iterator[bytes]:
        del start
        return (bytes(len(data)) for data in chunks)


class Short(Flipped):
    """A server that announces more bytes of an object than it sends."""

    def spoiled(self, chunks: Iterator[bytes], start: int) -> Iterator[bytes]:
        del chunks
        return iter([] if start else [b"ba"])


@pytest.mark.parametrize("small", [1, 1000])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Flipped, "its bytes do not have the checksum that its source gives"),
        (Short, "its source sends 2 of the 3 bytes that it announced"),
    ],
)
def test_an_object_whose_bytes_are_wrong_twice_is_left_out_by_name_and_the_rest_copied(
    rig: Rig, s3: Any, small: int, kind: type[Flipped], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_uploads(monkeypatch, small)
    put(s3, {f"{n}": b"good" for n in range(5)} | {"bad": b"bad"}, ChecksumAlgorithm="CRC32")
    for target in (rig.place, rig.folder / "back"):
        reader = kind()
        done = fetch(rig, target, reader=reader)
        assert (done.copied, done.left_out) == (5, 1)
        (problem,) = done.problems
        assert (problem.name, problem.reason, reader.read) == ("bad", reason, 2)
    fetched = {n for n in files_in(rig.folder / "back") if not n.startswith(".tpujob-parts/")}
    assert rig.stored().keys() == fetched == {"0", "1", "2", "3", "4"}


def test_an_object_that_changes_in_mid_copy_is_named_and_comes_with_the_next_sync(
    rig: Rig, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_uploads(monkeypatch, MIB)

    class Replacing(S3Objects):
        done = False

        @contextmanager
        def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:
            with super().open(bucket, facts, start) as content:
                if not self.done:
                    self.done = True
                    content.chunks = self.replaced(content.chunks)
                yield content

        def replaced(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
            yield next(chunks)
            put(s3, {"x": b"B" * (3 * MIB)})
            text = "the connection was cut"
            raise Transient(text)

    for target in (rig.place, rig.folder / "back"):
        put(s3, {"x": b"A" * (3 * MIB)})
        done = fetch(rig, target, reader=Replacing())
        assert (done.copied, named(done.problems)) == (0, {"x": GONE})
        assert fetch(rig, target).copied == 1
    assert rig.stored() == files_in(rig.folder / "back") == {"x": b"B" * (3 * MIB)}


def test_an_object_that_is_deleted_after_the_list_is_named(rig: Rig, s3: Any) -> None:
    put(s3, {"gone": b"x", "here": b"y"})

    class Deleting(S3Objects):
        def pages(self, bucket: str, prefix: str) -> Any:
            pages = list(super().pages(bucket, prefix))
            s3.delete_object(Bucket="data", Key="gone")
            return iter(pages)

    done = fetch(rig, rig.place, reader=Deleting())
    assert named(done.problems) == {"gone": GONE}
    assert rig.stored() == {"here": b"y"}


def test_an_archived_object_is_left_out_by_name(rig: Rig, s3: Any) -> None:
    put(s3, {"cold": b"x"}, StorageClass="GLACIER")
    put(s3, {"warm": b"y"})
    done = fetch(rig, rig.place)
    assert named(done.problems) == {"cold": "it is archived (GLACIER): restore it first"}
    assert rig.stored() == {"warm": b"y"}


def test_a_missing_bucket_and_an_empty_prefix_are_named(rig: Rig, s3: Any) -> None:
    reader = S3Objects(patience=LONG)
    with pytest.raises(NotFound, match="s3://no-such-bucket/x/: The specified bucket does not"):
        rig.from_outside(S3Prefix("no-such-bucket", "x/"), rig.place, reader)
    reader.close()
    with pytest.raises(NotFound, match="nothing below s3://data/none/"):
        fetch(rig, rig.place, below="none/")


class Refusing(BaseHTTPRequestHandler):
    """Refuses what is signed, as a public bucket of another owner does; or everything; or leads elsewhere."""

    mode = "public"
    requests: list[tuple[str, bool]]

    def do_GET(self) -> None:
        signed = "Authorization" in self.headers
        self.requests.append((self.path, signed))
        code, body = 200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
        if self.mode == "elsewhere":
            code, body = 307, b"<Error><Code>TemporaryRedirect</Code></Error>"
        elif self.mode == "objects" and self.path.startswith("/data?"):
            entry = b"<Contents><Key>theirs</Key><Size>1</Size><ETag>x</ETag></Contents>"
            body = body.replace(b"</IsTruncated>", b"</IsTruncated>" + entry)
        elif self.mode in ("private", "objects") or signed:
            code, body = 403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        if code == 307:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/trap")
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def refusing(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Refusing]]:
    class Own(Refusing):
        requests: list[tuple[str, bool]] = []  # noqa: RUF012

    with LocalServer(Own) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield Own


def test_a_public_bucket_is_read_unsigned_with_credentials_and_without(
    rig: Rig, refusing: type[Refusing], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match="nothing below"):
        fetch(rig, rig.place)
    assert [signed for _, signed in refusing.requests] == [True, False]
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    refusing.requests.clear()
    with pytest.raises(NotFound, match="nothing below"):
        fetch(rig, rig.place)
    assert [signed for _, signed in refusing.requests] == [False]


def test_no_permission_is_one_error_with_what_to_do(
    rig: Rig, refusing: type[Refusing], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing.mode = "private"
    with pytest.raises(Refused) as refused:
        fetch(rig, rig.place)
    assert "s3:GetObject" in refused.value.hint
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(Refused) as refused:
        fetch(rig, rig.place)
    assert "has no credentials of AWS" in refused.value.hint


def test_an_object_that_is_refused_is_left_out_by_name(rig: Rig, refusing: type[Refusing]) -> None:
    """Such as an object with a key that this account may not use."""
    refusing.mode = "objects"
    for target in (rig.place, rig.folder / "back"):
        done = fetch(rig, target)
        assert (done.copied, done.left_out) == (0, 1)
        assert named(done.problems) == {"theirs": "cannot read s3://data/theirs: no"}


def test_no_redirect_is_followed_with_credentials(rig: Rig, refusing: type[Refusing]) -> None:
    refusing.mode = "elsewhere"
    with pytest.raises(Refused, match="in another region"):
        fetch(rig, rig.place)
    assert not any("trap" in path for path, _ in refusing.requests)


def test_a_server_that_is_down_is_a_transient_error(
    rig: Rig, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Transient, match="S3 does not answer"):
        fetch(rig, rig.place, reader=S3Objects(patience=0.3))
