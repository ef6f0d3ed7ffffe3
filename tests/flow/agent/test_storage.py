"""The agent's client of the storage: tokens, refused requests and truncated answers."""

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tests.support.agent_host import MetadataServer
from tests.support.local_server import LocalServer
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.storage import Storage, StorageError, retry

TOKEN = "service-accounts/default/token"


class Guarded(LocalServer):
    """A storage that answers requests with the token `good`. If `packed`, it has `data` stored as gzip, and unpacks it
    unless the request accepts gzip."""

    def __init__(self) -> None:
        self.tokens: list[str | None] = []
        self.data, self.packed, server = b"data", False, self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.tokens.append(self.headers.get("Authorization"))
                self.send_response(200 if server.tokens[-1] == "Bearer good" else 401)
                data = server.data
                if server.packed and "gzip" not in self.headers.get("Accept-Encoding", ""):
                    data = gzip.decompress(data)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        super().__init__(Handler)


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    server = Guarded()
    yield server
    server.close()


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataServer]:
    server = MetadataServer()
    monkeypatch.setenv("GCE_METADATA_HOST", server.address)
    yield server
    server.close()


@pytest.fixture
def storage(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A client as on Google Cloud, with another address."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    made = Storage(MetadataClient())
    monkeypatch.setattr(made, "_base", guarded.url)
    monkeypatch.setattr(made, "_direct", True)
    return made


def token(name: str, seconds: int = 3600) -> str:
    return json.dumps({"access_token": name, "expires_in": seconds})


def read(storage: Storage) -> bytes:
    pieces: list[bytes] = []
    storage.read("gs://shed/a", pieces.append)
    return b"".join(pieces)


def refused(storage: Storage) -> StorageError:
    with pytest.raises(StorageError) as error:
        read(storage)
    return error.value


def test_no_request_is_sent_without_a_token_while_the_metadata_server_is_silent(
    monkeypatch: pytest.MonkeyPatch, guarded: Guarded, metadata: MetadataServer, storage: Storage
) -> None:
    metadata.facts[TOKEN] = token("good")
    with monkeypatch.context() as away:
        away.setattr(storage._metadata, "_base", "http://127.0.0.1:9/")
        error = refused(storage)
    assert (error.is_permanent, guarded.tokens) == (False, []), (
        "a moment's silence counted as a refusal"
    )
    assert read(storage) == b"data"


def test_a_token_is_used_to_its_end_while_the_metadata_server_is_silent(
    monkeypatch: pytest.MonkeyPatch, metadata: MetadataServer, storage: Storage
) -> None:
    metadata.facts[TOKEN] = token("good", seconds=50)  # it is time to ask for the next one
    assert read(storage) == b"data"
    monkeypatch.setattr(storage._metadata, "_base", "http://127.0.0.1:9/")
    assert read(storage) == b"data"


def test_a_host_without_an_account_is_refused_for_good(
    guarded: Guarded, metadata: MetadataServer, storage: Storage
) -> None:
    assert metadata.facts.get(TOKEN) is None
    assert refused(storage).is_permanent
    assert guarded.tokens == [None]


def test_a_refused_token_is_renewed_once(metadata: MetadataServer, storage: Storage) -> None:
    metadata.facts[TOKEN] = token("old")
    assert not refused(storage).is_permanent
    assert storage._drop_token("old"), "it was refused for another thread, too"
    metadata.facts[TOKEN] = token("good")
    assert read(storage) == b"data"
    metadata.facts[TOKEN] = token("bad")
    storage._token_until = 0.0
    assert [refused(storage).is_permanent for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("patience", "seconds", "tries"),
    [
        pytest.param(60.0, 0.0, 11, id="refused at once"),
        pytest.param(60.0, 15.0, 4, id="no answer"),
        pytest.param(60.0, 300.0, 4, id="a long transfer that is cut off"),
        pytest.param(600.0, 300.0, 4, id="the same with more patience"),
    ],
)
def test_what_fails_is_tried_several_times_however_long_a_try_takes(
    patience: float, seconds: float, tries: int
) -> None:
    now, tried = [0.0], list[float]()

    def sleep(pause: float) -> None:
        now[0] += pause

    def fail() -> None:
        tried.append(now[0])
        now[0] += seconds
        raise StorageError("HTTP 503: busy", 503)

    with pytest.raises(StorageError):
        retry(fail, patience, sleep, lambda: now[0])
    assert len(tried) == tries


def test_what_is_stored_as_gzip_comes_as_it_is_stored(
    guarded: Guarded, metadata: MetadataServer, storage: Storage
) -> None:
    """Else a small object could become one of any size."""
    metadata.facts[TOKEN] = token("good")
    guarded.data, guarded.packed = gzip.compress(bytes(1_000_000)), True
    assert read(storage) == guarded.data


def test_a_truncated_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(1 << 16)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 500)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=cut, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        assert "cut off" in str(refused(Storage(MetadataClient())))


def test_a_full_disk_is_no_fault_of_the_storage(metadata: MetadataServer, storage: Storage) -> None:
    """Else a host would repeat the download for minutes."""
    metadata.facts[TOKEN] = token("good")
    with open("/dev/full", "wb", buffering=0) as disk, pytest.raises(OSError, match="No space"):
        retry(lambda: storage.read("gs://shed/a", disk.write))
