"""The proxy of the environment: who goes through it, and how."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tpujob.adapters.gcs.client import StorageClient
from tpujob.adapters.web_files import Web
from tpujob.errors import Refused, Transient
from tpujob.lib.tries import Deadline

HOST = "https://storage.example"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def proxy() -> Iterator[tuple[list[str], int]]:
    """A proxy that refuses each tunnel: what it was asked, and its port."""
    heads: list[str] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += client.recv(1)
                heads.append(head.decode())
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    yield heads, server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(20)


def read(url: str = f"{HOST}/file") -> None:
    """Read an object as a source of `tpujob data sync`."""
    web = Web()
    try:
        web.ask("GET", url)
    finally:
        web.close()


def look(endpoint: str = HOST) -> None:
    client = StorageClient("p", endpoint)
    try:
        client.retry("look", Deadline(0), lambda _: client.json("GET", "/bucket", 5))
    finally:
        client.close()


def test_tls_goes_through_the_proxy_whose_refusal_is_named_without_its_password(
    proxy: tuple[list[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, port = proxy
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss@127.0.0.1:{port}")
    with pytest.raises(Transient, match="407 Proxy Authentication Required") as raised:
        look()
    assert "p@ss" not in str(raised.value)
    with pytest.raises(Transient, match="does not answer"):
        read()
    assert len(heads) >= 2
    for head in heads:
        assert head.startswith("CONNECT storage.example:443 HTTP/1.")
        assert "proxy-authorization: basic bwu6cebzcw==\r\n" in head.lower()


def test_a_proxy_is_found_without_its_scheme_and_left_out_for_hosts_of_no_proxy(
    proxy: tuple[list[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, port = proxy
    monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{port}")
    with pytest.raises(Transient, match="407"):
        look()
    with pytest.raises(Transient, match="does not answer"):
        read()
    through_proxy = len(heads)
    monkeypatch.setenv("NO_PROXY", "localhost")
    for endpoint in ("https://localhost:9", "http://127.0.0.1:9"):
        with pytest.raises(Transient, match=r"does not answer$"):
            look(endpoint)
    assert len(heads) == through_proxy >= 2


def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy.example:1080")
    for do in (look, read):
        with pytest.raises(Refused, match="not an http:// proxy"):
            do()
