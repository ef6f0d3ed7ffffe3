"""The proxy that leads TensorFlow to the emulated storage, by curl, whose library TensorFlow contains."""

import base64
import os
import queue
import shutil
import socket
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.emulator.storage_rig import BUCKET, ask
from tpujob.emulator.client import proxy_variables
from tpujob.emulator.storage import StorageServer
from tpujob.emulator.storage.certificate import server_context
from tpujob.emulator.storage.proxy import NAMES, Destination, StorageProxy, destination, user_proxy


@contextmanager
def proxied(folder: Path) -> Generator[dict[str, str]]:
    """Run an emulated storage with its proxy and a bucket; yield the variables of a host."""
    tls = folder / "tls.sock"
    server = StorageServer(folder / "objects", tls=(tls, server_context(NAMES, folder / "ca.pem")))
    proxy = StorageProxy(tls)
    try:
        made = ask(
            server.url, "POST", "/storage/v1/b?project=p", b'{"name": "%s"}' % BUCKET.encode()
        )
        assert made[0] == 200
        assert ask(server.url, "PUT", f"/{BUCKET}/x", b"emulated")[0] == 200
        yield {"PATH": os.environ["PATH"], **proxy_variables(proxy.url, folder / "ca.pem")}
    finally:
        proxy.stop()
        server.stop()


@pytest.mark.skipif(shutil.which("curl") is None, reason="NOT TESTED: curl is not installed")
def test_a_client_like_tensorflow_reaches_the_emulated_storage_alone(tmp_path: Path) -> None:
    def curl(*words: str) -> str:
        command = ["curl", "-sS", "--max-time", "60", "--user-agent", "TSL", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    with proxied(tmp_path) as env:
        assert curl(f"https://storage.googleapis.com/{BUCKET}/x") == "emulated"
        listed = curl(f"https://www.googleapis.com/storage/v1/b/{BUCKET}/o")
        assert f"https://www.googleapis.com/storage/v1/b/{BUCKET}/o/x" in listed
        upload = f"https://www.googleapis.com/upload/storage/v1/b/{BUCKET}/o"
        # as TensorFlow sends an empty body, and as it spells the header that it then looks for
        empty = ("-X", "POST", "-H", "Content-Length: 0", "-H", "Transfer-Encoding: identity")
        begun = curl(*empty, "--include", f"{upload}?uploadType=resumable&name=y")
        (session,) = [line[10:] for line in begun.splitlines() if line.startswith("Location: ")]
        assert session.startswith(upload)
        curl("-X", "PUT", "--data-binary", "content", session)
        assert curl(f"https://storage.googleapis.com/{BUCKET}/y") == "content"


def test_other_connections_end_where_their_program_wants(tmp_path: Path) -> None:
    with proxied(tmp_path) as env, socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        threading.Thread(target=_echo, args=(other,), daemon=True).start()
        with _connected(env) as client:
            client.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            stream = client.makefile("rb")
            assert stream.readline().split()[1] == b"200"
            assert stream.readline() == b"\r\n"
            client.sendall(b"hello\n")
            assert stream.readline() == b"hello\n"
        with _connected(env) as client:
            client.sendall(b"GET http://example.com/ HTTP/1.1\r\n\r\n")
            assert client.makefile("rb").readline().split()[1] == b"405"


@pytest.mark.parametrize(("status", "expected"), [(b"200 OK", b"200"), (b"407 No", b"502")])
def test_other_connections_go_through_the_proxy_that_the_user_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: bytes, expected: bytes
) -> None:
    requests = queue.SimpleQueue[bytes]()

    def serve() -> None:
        connection, _ = users.accept()
        with connection, connection.makefile("rb") as stream:
            requests.put(b"".join(iter(stream.readline, b"\r\n")))
            connection.sendall(b"HTTP/1.1 %s\r\n\r\n" % status)
            connection.sendall(stream.readline())

    for name in ("https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with proxied(tmp_path) as env, socket.create_server(("127.0.0.1", 0)) as users:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss@127.0.0.1:{users.getsockname()[1]}")
        threading.Thread(target=serve, daemon=True).start()
        with _connected(env) as client, client.makefile("rb") as stream:
            client.sendall(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
            assert stream.readline().split()[1] == expected
            if expected == b"200":
                assert stream.readline() == b"\r\n"
                client.sendall(b"hello\n")
                assert stream.readline() == b"hello\n"
    request = requests.get(timeout=60)
    assert request.startswith(b"CONNECT example.com:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic %s\r\n" % base64.b64encode(b"me:p@ss") in request


def test_the_users_proxy_is_not_asked_for_this_machine_and_for_what_no_proxy_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", ".example.org")
    assert user_proxy("example.com") == "http://proxy:3128"
    for name in ("a.example.org", "localhost", "127.1.2.3", "::1"):
        assert user_proxy(name) == ""


def _connected(env: dict[str, str]) -> socket.socket:
    """Return a connection to the emulator's proxy."""
    host, _, port = env["HTTPS_PROXY"].removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def _echo(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(connection.recv(100))


#: as TensorFlow 2.21 asks a proxy
TENSORFLOW = "Host: {0}\r\nUser-Agent: TSL\r\nProxy-Connection: Keep-Alive\r\n\r\n"
CURL = "Host: {0}\r\nUser-Agent: curl/8.5.0\r\n\r\n"


@pytest.mark.parametrize(
    ("place", "headers", "emulated"),
    [
        ("www.googleapis.com:443", TENSORFLOW, True),
        ("storage.googleapis.com:443", TENSORFLOW, True),
        ("WWW.googleapis.com.:443", TENSORFLOW, True),
        ("www.googleapis.com:443", CURL, True),
        ("storage.googleapis.com:443", CURL, False),  # public files
        ("storage.googleapis.com.example.com:443", TENSORFLOW, False),
        ("oauth2.googleapis.com:443", TENSORFLOW, False),
    ],
)
def test_the_emulated_storage_takes_the_place_of(place: str, headers: str, emulated: bool) -> None:
    head = f"CONNECT {place} HTTP/1.1\r\n{headers.format(place)}"
    host = place.partition(":")[0].lower().rstrip(".")
    assert destination(head) == Destination(host, 443, emulated)


def test_only_tunnels_have_a_destination() -> None:
    assert destination("CONNECT [::1]:8443 HTTP/1.1\r\n\r\n") == Destination("::1", 8443, False)
    assert destination("GET http://www.googleapis.com/ HTTP/1.1\r\n\r\n") is None
