"""Uploads to the emulated Cloud Storage: in pieces, cut in the middle, damaged, in parallel; and hostile requests."""

import asyncio
import base64
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage

from tests.contract.emulator.storage_rig import (
    BUCKET,
    ask,
    error_of,
    files_below,
    official,
    send_part,
)
from tests.support.waiting import LONG, until
from tpujob.emulator.storage import StorageServer
from tpujob.emulator.storage.faults import Billed
from tpujob.emulator.storage.upload import split_related

UPLOAD = f"/upload/storage/v1/b/{BUCKET}/o"
PIECE = 256 * 1024


def crc(data: bytes) -> str:
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def begin(url: str, name: str, **headers: str) -> str:
    """A resumable session; returns its path."""
    path = f"{UPLOAD}?uploadType=resumable&name={name}"
    status, answer, _ = ask(url, "POST", path, b"{}", **headers)
    assert status == 200
    where = urlsplit(answer["location"])
    return f"{where.path}?{where.query}"


def test_a_resumable_upload_in_pieces_reports_how_far_it_is(
    server: StorageServer, state: Path, bucket: storage.Bucket
) -> None:
    data = os.urandom(2 * PIECE + 10)
    path, end = begin(server.url, "pieces"), len(data) - 1

    def put(part: bytes | None, where: str) -> tuple[int, dict[str, str], bytes]:
        return ask(server.url, "PUT", path, part, Content_Range=f"bytes {where}")

    status, headers, _ = put(None, "*/*")
    assert (status, headers.get("range")) == (308, None)
    put(data[:PIECE], f"0-{PIECE - 1}/*")
    # Once more, as a client does that did not hear the answer; what is known is skipped.
    status, headers, _ = put(data[: 2 * PIECE], f"0-{2 * PIECE - 1}/*")
    assert (status, headers["range"]) == (308, f"bytes=0-{2 * PIECE - 1}")
    assert put(b"x", f"{len(data)}-*/*")[0] == 400
    status, _, body = put(b"x", f"{len(data)}-{len(data)}/*")
    assert (status, error_of(body)["code"]) == (400, 400), "a gap"
    status, _, body = put(data[2 * PIECE :], f"{2 * PIECE}-{end}/{len(data)}")
    assert (status, json.loads(body)["size"]) == (200, str(len(data)))
    status, _, repeated = put(None, f"*/{len(data)}")
    assert (status, json.loads(repeated)) == (200, json.loads(body))
    assert bucket.blob("pieces").download_as_bytes() == data

    path = begin(server.url, "given-up")
    put(data[:PIECE], f"0-{PIECE - 1}/*")
    assert ask(server.url, "DELETE", path)[0] == 499
    assert put(None, "*/*")[0] == 404
    assert files_below(state / "uploads") == []


def test_the_oldest_of_too_many_resumable_uploads_is_given_up(
    server: StorageServer, state: Path, bucket: storage.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpujob.emulator.storage.upload._SESSIONS", 2)
    paths = [begin(server.url, f"n{number}") for number in range(3)]
    seen = [ask(server.url, "PUT", path, None, Content_Range="bytes */*")[0] for path in paths]
    assert seen == [404, 308, 308]
    assert len(files_below(state / "uploads")) == 2


def test_a_resumable_upload_between_two_pieces_has_no_open_file(
    server: StorageServer, state: Path, bucket: storage.Bucket
) -> None:
    """Clients that die leave uploads behind; the descriptors of a process are few."""
    paths = [begin(server.url, f"n{number}") for number in range(3)]
    first = {"Content_Range": "bytes 0-2/6"}
    assert [ask(server.url, "PUT", path, b"abc", **first)[0] for path in paths] == [308] * 3
    links = (os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    assert [link for link in links if link.startswith(str(state / "uploads"))] == []
    assert ask(server.url, "PUT", paths[0], b"def", Content_Range="bytes 3-5/6")[0] == 200
    assert bucket.blob("n0").download_as_bytes() == b"abcdef"


def test_googles_go_library_is_served(
    server: StorageServer, bucket: storage.Bucket, billed: Billed
) -> None:
    """Between two pieces it wants a 200 that says 308 in a header, and it sends `null` for an empty object."""
    data = os.urandom(PIECE + 5)
    path, before = begin(server.url, "pieces"), billed.counts()
    go = {"X_GUploader_No_308": "yes"}
    part = f"bytes 0-{PIECE - 1}/{len(data)}"
    status, headers, _ = ask(server.url, "PUT", path, data[:PIECE], Content_Range=part, **go)
    assert (status, headers["x-http-status-code-override"]) == (200, "308")
    assert headers["range"] == f"bytes=0-{PIECE - 1}"
    assert billed.counts() == before, "a piece is free"
    rest = f"bytes {PIECE}-{len(data) - 1}/{len(data)}"
    status, headers, _ = ask(server.url, "PUT", path, data[PIECE:], Content_Range=rest, **go)
    assert (status, "x-http-status-code-override" in headers) == (200, False)
    twin = f"/storage/v1/b/{BUCKET}/o/pieces/copyTo/b/{BUCKET}/o/twin"
    status, _, body = ask(server.url, "POST", twin, b"null")
    assert (status, json.loads(body)["size"]) == (200, str(len(data)))


def test_a_resumable_upload_goes_on_after_its_connection_was_cut(
    server: StorageServer, state: Path, bucket: storage.Bucket
) -> None:
    data = os.urandom(4 * PIECE)
    path = begin(server.url, "cut")
    head = f"PUT {path} HTTP/1.1\nHost: 127.0.0.1\nContent-Length: {len(data)}"

    def reached() -> int:
        _, headers, _ = ask(server.url, "PUT", path, Content_Range=f"bytes */{len(data)}")
        return int(headers["range"].rpartition("-")[2]) + 1 if "range" in headers else 0

    def arrived() -> int:
        return sum(file.stat().st_size for file in (state / "uploads").rglob("*") if file.is_file())

    # a question ends the request before it, so it is asked once that has arrived
    send_part(server.url, head, data[:300_000], lambda: arrived() == 300_000)
    assert reached() == 300_000, "what was sent before the cut is kept"
    assert bucket.get_blob("cut") is None
    rest = f"bytes 300000-{len(data) - 1}/{len(data)}"
    hashes = f"crc32c={crc(data)}"
    status, _, _ = ask(
        server.url, "PUT", path, data[300_000:], Content_Range=rest, X_Goog_Hash=hashes
    )
    assert status == 200
    assert bucket.blob("cut").download_as_bytes() == data


@pytest.mark.parametrize("kind", ["media", "multipart"])
def test_an_upload_that_is_cut_leaves_the_old_version_and_a_repeat_succeeds(
    server: StorageServer, state: Path, bucket: storage.Bucket, kind: str
) -> None:
    bucket.blob("torn").upload_from_string(b"old")
    path = f"{UPLOAD}?uploadType={kind}&name=torn"
    head = f"POST {path} HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 4000000"
    body = b"x" * 1_000_000
    if kind == "multipart":
        head += "\nContent-Type: multipart/related; boundary=bb"
        body = b"--bb\r\n\r\n{}\r\n--bb\r\n\r\n" + body
    send_part(server.url, head, body, lambda: files_below(state / "uploads") != [])
    until(lambda: files_below(state / "uploads") == [], "the temporary file is removed")
    assert bucket.blob("torn").download_as_bytes() == b"old"
    bucket.blob("torn").upload_from_string(b"whole")
    assert bucket.blob("torn").download_as_bytes() == b"whole"


@pytest.mark.parametrize("size", [100, 9 << 20])
def test_bytes_with_a_bad_sum_are_refused(bucket: storage.Bucket, state: Path, size: int) -> None:
    blob = bucket.blob("damaged")
    blob.crc32c = crc(b"something else")
    with pytest.raises(exceptions.BadRequest, match="doesn't match calculated CRC32C"):
        blob.upload_from_string(b"x" * size, checksum=None)
    assert bucket.get_blob("damaged") is None
    assert files_below(state / "uploads") == []


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
def test_line_ends_of_a_multipart_body_may_be_either(
    server: StorageServer, bucket: storage.Bucket, newline: bytes
) -> None:
    content = b"--bb\r\n--bb\nnot the end" + newline
    lines = [b"--bb", b"Content-Type: application/json", b"", b'{"name": "a"}']
    lines += [b"--bb", b"content-type: text/plain", b"", content, b"--bb--"]
    path, kind = f"{UPLOAD}?uploadType=multipart", 'multipart/related; boundary="bb"'
    status, _, body = ask(server.url, "POST", path, newline.join(lines), Content_Type=kind)
    assert (status, json.loads(body)["contentType"]) == (200, "text/plain")
    assert bucket.blob("a").download_as_bytes() == content


def test_a_multipart_body_is_read_however_it_is_cut_into_pieces() -> None:
    head = b'--b\r\nContent-Type: application/json\r\n\r\n{"name": "a"}\r\n--b\r\n'
    body = head + b"content-type: text/plain\r\n\r\nsome words\r\n--b--"

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 7):
            yield body[start : start + 7]

    async def read() -> tuple[object, str, bytes]:
        kind = "multipart/related; boundary=b"
        metadata, content_type, content = await split_related(kind, pieces())
        return metadata, content_type, b"".join([piece async for piece in content])

    assert asyncio.run(read()) == ({"name": "a"}, "text/plain", b"some words")


def test_too_long_a_boundary_is_refused(server: StorageServer, bucket: storage.Bucket) -> None:
    path = f"{UPLOAD}?uploadType=multipart&name=long"
    body = b"--%b\r\n\r\n{}\r\n--%b\r\n\r\nx\r\n--%b--"
    for length, status in ((70, 200), (71, 400)):
        kind = f"multipart/related; boundary={'b' * length}"
        line = b"b" * length
        answered, _, _ = ask(server.url, "POST", path, body % (line, line, line), Content_Type=kind)
        assert answered == status, length


@pytest.mark.parametrize(
    ("header", "status", "body"),
    [
        ("bytes=0-0", 206, b"0"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=-3", 206, b"789"),
        ("bytes=-99", 206, b"0123456789"),
        ("bytes=10-", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=5-2", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
def test_ranges(
    server: StorageServer, bucket: storage.Bucket, header: str, status: int, body: bytes | None
) -> None:
    bucket.blob("digits").upload_from_string(b"0123456789")
    path = f"/storage/v1/b/{BUCKET}/o/digits?alt=media"
    answered, _, read = ask(server.url, "GET", path, Range=header)
    assert answered == status
    assert body is None or read == body


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /storage/v1/b/%ff/o HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"400"),
        (b"POST /storage/v1/b?project=p HTTP/1.1\r\nHost: 127.0.0.1\r\n"
         b"Content-Length: 9\r\n\r\n[[[[[[[[[", b"400"),
        (b"POST /storage/v1/b?project=p HTTP/1.1\r\nHost: 127.0.0.1\r\n"
         b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
)  # fmt: skip
def test_invalid_requests_get_an_error(server: StorageServer, sent: bytes, status: bytes) -> None:
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port), timeout=LONG) as wire:
        wire.sendall(sent)
        assert wire.recv(4096).startswith(b"HTTP/1.1 " + status)
    assert ask(server.url, "GET", "/storage/v1/b")[0] == 200


def test_a_large_object_needs_little_memory(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from tpujob.emulator.storage import StorageServer;"
        " s = StorageServer(pathlib.Path(sys.argv[1])); print(s.url, flush=True);"
        " sys.stdin.read(); s.stop()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "state")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        before = peak_memory(process.pid)
        with official(url):
            wire = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LONG)
            pieces = (bytes(1 << 20) for _ in range(150))
            path = f"{UPLOAD}?uploadType=media&name=large"
            wire.request("POST", path, pieces, {"Content-Length": str(150 << 20)})
            assert json.loads(wire.getresponse().read())["size"] == str(150 << 20)
            wire.request("GET", f"/storage/v1/b/{BUCKET}/o/large?alt=media")
            answer = wire.getresponse()
            size = 0
            while piece := answer.read(1 << 20):
                size += len(piece)
            assert size == 150 << 20
            wire.close()
        grown = peak_memory(process.pid) - before
        process.communicate()
    assert grown < 20 << 20, f"the server grew by {grown >> 20} MiB"


def peak_memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
