"""What every adapter of the Blobs port promises; and what Cloud Storage's does when the network misbehaves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tpujob.adapters.gcs import GcsBlobs, Offset, translate
from tpujob.domain.model import Cause
from tpujob.emulator.storage import StorageServer, start_storage
from tpujob.errors import BadRequest, Conflict, NotFound, Refused, Transient
from tpujob.ports import Blob, Blobs

T = 20.0  # seconds; far more than anything here takes
REGION = "us-central2"
BUCKET = "gs://contract-bucket"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StorageServer]:
    server = start_storage(tmp_path / "storage")
    yield server
    server.stop()


@contextmanager
def gcs(url: str) -> Iterator[GcsBlobs]:
    blobs = GcsBlobs("test-project", url)
    try:
        yield blobs
    finally:
        blobs.close()


@pytest.fixture(params=[gcs])
def blobs(request: pytest.FixtureRequest, server: StorageServer) -> Iterator[Blobs]:
    with request.param(server.url) as made:
        made.ensure_bucket(BUCKET, REGION, timeout=T)
        yield made


def test_what_is_put_is_got_with_its_metadata(blobs: Blobs) -> None:
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


def test_an_empty_object_and_a_large_one(blobs: Blobs) -> None:
    large = os.urandom(1 << 20) * 10
    for name, data in (("empty", b""), ("large", large)):
        assert blobs.put(f"{BUCKET}/{name}", data, timeout=T).size == len(data)
        assert blobs.get(f"{BUCKET}/{name}", timeout=T) == data


def test_what_is_absent_is_not_found(blobs: Blobs) -> None:
    for start, end in ((0, None), (5, 9), (3, 3)):
        with pytest.raises(NotFound, match="none"):
            blobs.get(f"{BUCKET}/none", start=start, end=end, timeout=T)
    with pytest.raises(NotFound, match="no-such-bucket"):
        blobs.put("gs://no-such-bucket/a", b"", timeout=T)
    with pytest.raises(NotFound, match="no-such-bucket"):
        blobs.list("gs://no-such-bucket/a", timeout=T)


def test_deleting_what_is_absent_is_success(blobs: Blobs) -> None:
    blobs.put(f"{BUCKET}/a", b"", timeout=T)
    for _ in range(2):
        blobs.delete(f"{BUCKET}/a", timeout=T)
    assert blobs.list(f"{BUCKET}/", timeout=T) == []


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

    def listed(prefix: str, after: str = "") -> list[str]:
        return [blob.path for blob in blobs.list(prefix, after=after, timeout=T)]

    assert listed(f"{BUCKET}/") == listed(BUCKET) == paths
    assert listed(f"{BUCKET}/a/") == [p for p in paths if p.startswith(f"{BUCKET}/a/")]
    after = f"{BUCKET}/a/log-00001"
    assert listed(f"{BUCKET}/a/log-", after=after) == [f"{BUCKET}/a/log-00002"]
    assert listed(f"{BUCKET}/a/log-", after=f"{BUCKET}/a/log-00002") == []
    assert listed(f"{BUCKET}/a/log-", after=f"{BUCKET}/a/log-000015") == [f"{BUCKET}/a/log-00002"]


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
    found = blobs.list(f"{BUCKET}/hosts/", timeout=T)
    assert [blob.metadata["report"] for blob in found] == [str(i) for i in range(1100)]


def test_hostile_names_come_back_as_they_are(blobs: Blobs) -> None:
    for name in ("../x", "a//b", "a/", "ü ?#&%2F", "$(reboot)", "x" * 1024):
        blobs.put(f"{BUCKET}/{name}", name.encode(), timeout=T)
        assert blobs.get(f"{BUCKET}/{name}", timeout=T) == name.encode()
        assert f"{BUCKET}/{name}" in [blob.path for blob in blobs.list(BUCKET, timeout=T)]


@pytest.mark.parametrize("path", ["", "gs://", "gs://bucket", "gs://bucket/", "/etc/passwd", "s3://b/a"])  # fmt: skip
def test_a_path_that_is_none_is_a_bad_request(blobs: Blobs, path: str) -> None:
    with pytest.raises(BadRequest, match="gs://"):
        blobs.get(path, timeout=T)


def test_a_bucket_in_another_region_is_refused_and_one_in_ours_is_used(blobs: Blobs) -> None:
    blobs.ensure_bucket(BUCKET, REGION, timeout=T)
    with pytest.raises(Refused, match=r"contract-bucket lies in us-central2.*europe-west4") as told:
        blobs.ensure_bucket(BUCKET, "europe-west4", timeout=T)
    assert told.value.cause == Cause.BAD_SPEC
    with pytest.raises(Refused, match="Invalid bucket name"):
        blobs.ensure_bucket("gs://NOT A NAME", REGION, timeout=T)


def test_buckets_are_private_and_keep_nothing_that_was_deleted(
    blobs: Blobs, server: StorageServer
) -> None:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        "p", credentials=AnonymousCredentials(), client_options={"api_endpoint": server.url}
    )
    bucket = client.get_bucket(BUCKET.removeprefix("gs://"))
    assert bucket.iam_configuration.uniform_bucket_level_access_enabled
    assert bucket.iam_configuration.public_access_prevention == "enforced"
    assert bucket.soft_delete_policy.retention_duration_seconds == 0
    client.close()


def test_two_that_make_the_same_bucket_both_succeed(blobs: Blobs) -> None:
    with ThreadPoolExecutor(4) as pool:
        for made in [
            pool.submit(blobs.ensure_bucket, "gs://race-bucket", REGION, timeout=T)
            for _ in range(4)
        ]:
            made.result()


# Cloud Storage only: the network ---------------------------------------------------------------------------


class Network:
    """A way to the server that can fail: `fault` sees each request's first bytes and says what becomes of it."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._server = (place.hostname, place.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.fault: Callable[[bytes], str] = lambda _: "pass"
        self.seen: list[bytes] = []  #: the request lines
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in list(self._threads):
            thread.join(20)

    def _spawn(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._spawn(self._one, client)

    def _one(self, client: socket.socket) -> None:
        """One request of one connection."""
        with suppress(OSError), client, socket.create_connection(self._server) as server:
            client.settimeout(T)
            server.settimeout(T)
            request = self._whole_request(client)
            if not request:
                return
            self.seen.append(request.split(b" HTTP", 1)[0])
            fault = self.fault(request)
            if fault == "cut":
                server.sendall(request[: len(request) * 2 // 3])
                return
            if fault == "damage":
                request = request.replace(b"precious", b"prec1ous")
            if fault.isdigit():
                client.sendall(
                    b"HTTP/1.1 %s No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    % fault.encode()
                )
                return
            head, _, body = request.partition(b"\r\n\r\n")
            server.sendall(head.replace(b"keep-alive", b"close") + b"\r\n\r\n" + body)
            answer = bytearray()
            while chunk := server.recv(1 << 16):
                answer += chunk
            if fault == "lose answer":
                return
            if fault == "damage answer":
                answer = answer.replace(b"precious", b"prec1ous")
            client.sendall(answer)

    def _whole_request(self, client: socket.socket) -> bytes:
        data = bytearray()
        while b"\r\n\r\n" not in data:
            chunk = client.recv(1 << 16)
            if not chunk:
                return b""
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        while len(body) < sum(lengths):
            body += client.recv(1 << 16)
        return bytes(head + b"\r\n\r\n" + body)


@contextmanager
def network(server: StorageServer) -> Iterator[tuple[Network, GcsBlobs]]:
    with gcs(server.url) as direct:
        direct.ensure_bucket(BUCKET, REGION, timeout=T)
    between = Network(server.url)
    try:
        with gcs(between.url) as blobs:
            yield between, blobs
    finally:
        between.close()


def once(fault: str, method: bytes) -> Callable[[bytes], str]:
    """`fault` for the first request of that method, and nothing afterwards."""
    left = [fault]

    def choose(request: bytes) -> str:
        return left.pop() if left and request.startswith(method) else "pass"

    return choose


@pytest.mark.parametrize("fault", ["503", "429", "cut", "lose answer"])
def test_a_read_is_repeated(server: StorageServer, fault: str) -> None:
    with network(server) as (between, blobs):
        blobs.put(f"{BUCKET}/a", b"precious", timeout=T)
        between.fault = once(fault, b"GET")
        assert blobs.get(f"{BUCKET}/a", timeout=T) == b"precious"


@pytest.mark.parametrize("fault", ["503", "cut", "lose answer"])
def test_a_conditional_write_is_repeated_and_knows_its_own_work(
    server: StorageServer, fault: str
) -> None:
    with network(server) as (between, blobs):
        between.fault = once(fault, b"POST")
        put = blobs.put(f"{BUCKET}/a", b"precious", metadata={"k": "v"}, if_generation=0, timeout=T)
        assert put.metadata == {"k": "v"}
        assert blobs.list(BUCKET, timeout=T) == [put]


def test_a_conditional_write_whose_rival_won_is_a_conflict_although_the_bytes_are_equal(
    server: StorageServer,
) -> None:
    with network(server) as (between, blobs), gcs(server.url) as rival:

        def choose(_: bytes) -> str:
            between.fault = lambda _: "pass"
            rival.put(f"{BUCKET}/lock", b"same", if_generation=0, timeout=T)
            return "cut"

        between.fault = choose
        with pytest.raises(Conflict):
            blobs.put(f"{BUCKET}/lock", b"same", if_generation=0, timeout=T)


@pytest.mark.parametrize("fault", ["503", "cut", "lose answer"])
def test_an_unconditional_write_is_not_repeated(server: StorageServer, fault: str) -> None:
    with network(server) as (between, blobs):
        between.fault = once(fault, b"POST")
        with pytest.raises(Transient, match=r"write gs://contract-bucket/a"):
            blobs.put(f"{BUCKET}/a", b"precious", timeout=T)
        assert len(between.seen) == 1
        if fault != "lose answer":
            assert blobs.list(BUCKET, timeout=T) == [], "an upload that is cut leaves no object"
        assert blobs.put(f"{BUCKET}/a", b"precious", timeout=T).size == 8


@pytest.mark.parametrize("size", [1, 10 << 17], ids=["in one request", "resumable"])
def test_a_large_upload_that_is_cut_leaves_no_object_and_succeeds_when_repeated(
    server: StorageServer, size: int
) -> None:
    with network(server) as (between, blobs):
        between.fault = lambda request: "cut" if b"precious" in request else "pass"
        data = b"precious" * size
        with pytest.raises(Transient):
            blobs.put(f"{BUCKET}/large", data, timeout=T)
        assert blobs.list(BUCKET, timeout=T) == []
        between.fault = lambda _: "pass"
        blobs.put(f"{BUCKET}/large", data, timeout=60)
        assert blobs.get(f"{BUCKET}/large", timeout=T) == data


def test_bytes_damaged_on_the_way_up_are_sent_again_once(server: StorageServer) -> None:
    with network(server) as (between, blobs):
        between.fault = once("damage", b"POST")
        blobs.put(f"{BUCKET}/a", b"precious", timeout=T)
        assert blobs.get(f"{BUCKET}/a", timeout=T) == b"precious"
        between.fault = lambda _: "damage"
        with pytest.raises(Transient, match=f"write {BUCKET}/b.*CRC32C"):
            blobs.put(f"{BUCKET}/b", b"precious", timeout=T)
        assert [blob.path for blob in blobs.list(BUCKET, timeout=T)] == [f"{BUCKET}/a"]


def test_bytes_damaged_on_the_way_down_are_read_again_once(server: StorageServer) -> None:
    with network(server) as (between, blobs):
        blobs.put(f"{BUCKET}/a", b"precious", timeout=T)
        between.fault = once("damage answer", b"GET")
        assert blobs.get(f"{BUCKET}/a", timeout=T) == b"precious"
        between.fault = lambda _: "damage answer"
        with pytest.raises(Transient, match=f"read {BUCKET}/a"):
            blobs.get(f"{BUCKET}/a", timeout=T)


def test_a_missing_right_is_refused_at_once(server: StorageServer) -> None:
    with network(server) as (between, blobs):
        between.fault = lambda _: "403"
        for act in (
            lambda: blobs.get(f"{BUCKET}/a", timeout=T),
            lambda: blobs.put(f"{BUCKET}/a", b"", timeout=T),
            lambda: blobs.list(BUCKET, timeout=T),
            lambda: blobs.delete(f"{BUCKET}/a", timeout=T),
            lambda: blobs.ensure_bucket("gs://foreign-bucket", REGION, timeout=T),
        ):
            with pytest.raises(Refused) as told:
                act()
            assert told.value.cause == Cause.PERMISSION


def test_every_error_of_the_vendor_becomes_one_of_ours() -> None:
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    table: list[tuple[Exception, type[Exception]]] = [
        (api.NotFound("x"), NotFound),
        (api.PreconditionFailed("x"), Conflict),
        (api.Unauthorized("x"), Refused),
        (api.Forbidden("x"), Refused),
        (api.BadRequest("x"), Refused),
        (api.TooManyRequests("x"), Transient),
        (api.from_http_status(408, "x"), Transient),
        (api.InternalServerError("x"), Transient),
        (api.ServiceUnavailable("x"), Transient),
        (auth.DefaultCredentialsError("x"), Refused),
        (auth.RefreshError("x"), Refused),
        (auth.RefreshError("x", retryable=True), Transient),
        (auth.TransportError("x"), Transient),
        (requests.ConnectionError("x"), Transient),
        (ConnectionResetError("x"), Transient),
        (TimeoutError("x"), Transient),
    ]
    for error, ours in table:
        told = translate(error, "do this")
        assert type(told) is ours, error
        assert str(told).startswith("cannot do this: "), error
    assert translate(KeyError("a bug"), "do this") is None


def test_a_server_that_is_gone_is_transient_within_the_time_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with gcs(f"http://127.0.0.1:{port}") as blobs:
        with pytest.raises(Transient, match="cannot read"):
            blobs.get(f"{BUCKET}/a", timeout=0.3)
        with pytest.raises(Transient, match="time"):
            blobs.clock(timeout=0.3)


def test_a_server_that_says_nothing_is_transient_within_the_time_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        begin = time.monotonic()
        with gcs(url) as blobs, pytest.raises(Transient, match=f"list {BUCKET}"):
            blobs.list(BUCKET, timeout=0.5)
        assert time.monotonic() - begin < 15, "it gave up near its deadline, not at the library's"


def test_a_server_that_trickles_does_not_outlast_the_time_given() -> None:
    def trickle() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(1 << 16)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not done.wait(0.05):
                try:
                    client.sendall(b"x" * 9000)
                except OSError:
                    return

    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            with gcs(url) as blobs, pytest.raises(Transient):
                blobs.get(f"{BUCKET}/a", timeout=0.5)
        finally:
            done.set()
            thread.join()


def test_the_clock_narrows_down_what_a_date_of_whole_seconds_says() -> None:
    offset = Offset()
    assert offset.apply(0.0) is None, "nothing was heard yet"
    for tick in range(20):
        ours = tick * 0.37
        offset.observe(float(int(1_000_000.25 + ours)), ours, ours)
    now = offset.apply(8.0)
    assert now is not None
    assert abs(now - 1_000_008.25) < 0.1
    offset.observe(2_000_000.0, 9.0, 9.0)  # somebody set a clock
    now = offset.apply(9.0)
    assert now is not None
    assert abs(now - 2_000_000.5) < 0.51
    assert offset.apply(1000.0) is None, "too long ago"


def test_a_process_that_does_not_use_it_does_not_pay_for_the_library() -> None:
    code = (
        "import sys; from tpujob.adapters.gcs import GcsBlobs; GcsBlobs('p');"
        " sys.exit(any(m.split('.')[0] in ('google', 'requests', 'grpc') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
