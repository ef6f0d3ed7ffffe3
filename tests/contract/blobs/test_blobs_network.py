"""The Blobs of Cloud Storage when the network, the server or a clock misbehaves."""

import socket
import subprocess
import sys
import threading
import time
from email.utils import parsedate_to_datetime

import pytest

from tests.contract.blobs.storage_network import BUCKET, REGION, T, cut, damage, gcs, network, on
from tests.contract.data.proxy import Proxy
from tpujob.adapters.calling import ServerClock
from tpujob.adapters.gcs.client import credentials_error, refusal
from tpujob.domain.model import Cause
from tpujob.emulator.storage import StorageFault, StorageFaults, StorageServer
from tpujob.errors import Conflict, NotFound, Refused, Transient


def strike(between: Proxy, faults: StorageFaults, method: str, fault: str) -> None:
    """The next request of that method fails."""
    match fault:
        case "cut":
            part = b"GET " if method == "GET" else b"precious"
            between.change = on(cut, part, up=True)
        case "lose answer":
            between.change = on(cut, b"HTTP/1.1 200", up=False)
        case _:
            faults.add(StorageFault(int(fault), 1, method))


@pytest.mark.parametrize("fault", ["503", "429", "cut", "lose answer"])
def test_a_read_is_repeated(server: StorageServer, faults: StorageFaults, fault: str) -> None:
    with network(server) as (between, blobs):
        blobs.put(f"{BUCKET}/a", b"precious", timeout=T)
        strike(between, faults, "GET", fault)
        assert blobs.get(f"{BUCKET}/a", timeout=T) == b"precious"


@pytest.mark.parametrize("fault", ["503", "cut", "lose answer"])
def test_a_conditional_write_is_repeated_and_knows_its_own_work(
    server: StorageServer, faults: StorageFaults, fault: str
) -> None:
    with network(server) as (between, blobs):
        strike(between, faults, "POST", fault)
        put = blobs.put(f"{BUCKET}/a", b"precious", metadata={"k": "v"}, if_generation=0, timeout=T)
        assert put.metadata == {"k": "v"}
        assert blobs.list(BUCKET, timeout=T) == [put]


def test_a_lost_race_is_a_conflict_even_of_equal_bytes(server: StorageServer) -> None:
    with network(server) as (between, blobs), gcs(server.url) as rival:

        def rival_first(_: bytes) -> None:
            rival.put(f"{BUCKET}/lock", b"precious", if_generation=0, timeout=T)

        between.change = on(rival_first, b"precious", up=True)
        with pytest.raises(Conflict):
            blobs.put(f"{BUCKET}/lock", b"precious", if_generation=0, timeout=T)


def test_a_conditional_write_that_somebody_undid_is_a_conflict(server: StorageServer) -> None:
    with network(server) as (between, blobs), gcs(server.url) as rival:
        lose = on(cut, b"HTTP/1.1 200", up=False)

        def change(data: bytes, up: bool) -> bytes | None:
            if up and data.startswith(b"GET"):  # it looks whose write has won
                rival.delete(f"{BUCKET}/a", timeout=T)
            return lose(data, up)

        between.change = change
        with pytest.raises(Conflict):
            blobs.put(f"{BUCKET}/a", b"precious", if_generation=0, timeout=T)


@pytest.mark.parametrize("fault", ["503", "cut", "lose answer"])
def test_an_unconditional_write_is_not_repeated(
    server: StorageServer, faults: StorageFaults, fault: str
) -> None:
    with network(server) as (between, blobs):
        strike(between, faults, "POST", fault)
        with pytest.raises(Transient, match=r"write gs://contract-bucket/a"):
            blobs.put(f"{BUCKET}/a", b"precious", timeout=T)
        if fault != "lose answer":
            assert blobs.list(BUCKET, timeout=T) == [], "an upload that is cut leaves no object"
        assert blobs.put(f"{BUCKET}/a", b"precious", timeout=T).size == 8


def test_bytes_damaged_on_the_way_up_are_sent_again(server: StorageServer) -> None:
    with network(server) as (between, blobs):
        between.change = on(damage, b"precious", up=True)
        blobs.put(f"{BUCKET}/a", b"precious", timeout=T)
        assert blobs.get(f"{BUCKET}/a", timeout=T) == b"precious"
        between.change = on(damage, b"precious", up=True, times=99)
        with pytest.raises(Transient, match=f"write {BUCKET}/b.*CRC32C"):
            blobs.put(f"{BUCKET}/b", b"precious", timeout=T)
        assert [blob.path for blob in blobs.list(BUCKET, timeout=T)] == [f"{BUCKET}/a"]


def test_bytes_damaged_on_the_way_down_are_read_again(server: StorageServer) -> None:
    with network(server) as (between, blobs):
        blobs.put(f"{BUCKET}/a", b"precious", timeout=T)
        between.change = on(damage, b"precious", up=False)
        assert blobs.get(f"{BUCKET}/a", timeout=T) == b"precious"
        between.change = on(damage, b"precious", up=False, times=99)
        with pytest.raises(Transient, match=f"read {BUCKET}/a"):
            blobs.get(f"{BUCKET}/a", timeout=T)


def test_a_missing_right_is_refused_at_once(server: StorageServer, faults: StorageFaults) -> None:
    faults.add(StorageFault(403, 6))
    with gcs(server.url) as blobs:
        for act in (
            lambda: blobs.get(f"{BUCKET}/a", timeout=T),
            lambda: blobs.put(f"{BUCKET}/a", b"", timeout=T),
            lambda: blobs.list(BUCKET, timeout=T),
            lambda: blobs.delete(f"{BUCKET}/a", timeout=T),
            lambda: blobs.ensure_bucket("gs://foreign-bucket", REGION, timeout=T),
            lambda: blobs.place("gs://foreign-bucket", timeout=T),
        ):
            with pytest.raises(Refused) as caught:
                act()
            assert caught.value.cause == Cause.PERMISSION
            assert "the bucket belongs to another project" in caught.value.hint


def test_every_refusal_becomes_an_error_of_ours() -> None:
    table: dict[int, type[Exception]] = {
        400: Refused,
        401: Refused,
        403: Refused,
        404: NotFound,
        408: Transient,
        409: Transient,
        410: NotFound,
        412: Conflict,
        413: Refused,
        418: Refused,
        429: Transient,
        500: Transient,
        503: Transient,
        507: Refused,
        520: Transient,
    }
    for status, ours in table.items():
        assert type(refusal(status, b"")) is ours, status
    error = refusal(401, b"")
    assert isinstance(error, Refused)
    assert "gcloud auth application-default login" in error.hint


def test_credentials_that_are_refused_differ_from_a_token_server_that_is_silent() -> None:
    from google.auth import exceptions as auth

    table: list[tuple[Exception, type[Exception]]] = [
        (auth.DefaultCredentialsError("x"), Refused),
        (auth.RefreshError("x"), Refused),
        (auth.RefreshError("x", retryable=True), Transient),
        (auth.RefreshError(auth.TransportError("x")), Transient),
        (auth.TransportError("x"), Transient),
    ]
    for error, ours in table:
        assert type(credentials_error(error)) is ours, error


def test_a_server_that_is_gone_is_transient_within_the_time_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with gcs(f"http://127.0.0.1:{port}") as blobs:
        with pytest.raises(Transient, match="cannot read"):
            blobs.get(f"{BUCKET}/a", timeout=0.3)
        with pytest.raises(Transient, match="time"):
            blobs.clock(timeout=0.3)


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


def test_the_time_of_a_server_is_that_of_its_newest_answer() -> None:
    clock = ServerClock()
    assert clock.now() is None, "nothing was heard yet"
    clock.note("no date", time.monotonic())
    assert clock.now() is None
    for date in ("Sat, 21 Nov 2026 10:00:00 GMT", "Wed, 25 Nov 2026 10:00:00 GMT"):
        clock.note(date, time.monotonic())
        now = clock.now()
        assert now is not None
        assert abs(now - parsedate_to_datetime(date).timestamp()) < 5
    clock.note(date, time.monotonic() - 1000)
    ahead = clock.now()
    assert ahead is not None
    assert ahead - now > 400, "its answer is taken to have been made halfway"


def test_the_servers_time_is_asked_for_when_the_last_answer_is_old(server: StorageServer) -> None:
    with gcs(server.url) as blobs:
        assert abs(blobs.clock(timeout=T) - time.time()) < 5, "both are this machine's clock"


def test_the_storage_library_is_imported_only_where_it_is_used() -> None:
    code = (
        "import sys; from tpujob.adapters.gcs.blobs import GcsBlobs; GcsBlobs('p');"
        " sys.exit(any(m.split('.')[0] in ('google', 'requests', 'grpc') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
