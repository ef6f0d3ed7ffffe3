"""The proxy of the environment: who goes through it, and how."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.adapters.gcs.proxy import Proxy, open_tunnel, proxy_for
from tpujob.errors import Transient


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://proxy.example:3128", Proxy("proxy.example", 3128)),
        ("proxy.example:3128", Proxy("proxy.example", 3128)),
        ("http://me:p%40ss@proxy.example", Proxy("proxy.example", 80, "bWU6cEBzcw==")),
    ],
)
def test_the_proxy_is_read_from_the_environment(
    url: str, found: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert proxy_for("storage.googleapis.com") is None
    monkeypatch.setenv("HTTPS_PROXY", url)
    assert proxy_for("storage.googleapis.com") == found
    monkeypatch.setenv("NO_PROXY", ".googleapis.com")
    assert proxy_for("storage.googleapis.com") is None


def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy.example:1080")
    with pytest.raises(OSError, match="no http:// proxy"):
        proxy_for("storage.googleapis.com")


@pytest.fixture
def answering() -> Iterator[tuple[list[bytes], list[bytes], int]]:
    """Proxies of one connection each, which say what they are told to: answers, what was asked, port."""
    answers: list[bytes] = []
    asked: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(20)

    def serve() -> None:
        while answers:
            client, _ = server.accept()
            with client:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += client.recv(1)
                asked.append(head)
                client.sendall(answers.pop(0))

    thread = threading.Thread(target=lambda: serve() if ready.wait(20) else None)
    ready = threading.Event()
    thread.start()
    answers.clear()

    class Answers(list[bytes]):
        def append(self, item: bytes) -> None:
            answers.append(item)
            ready.set()

    yield Answers(), asked, server.getsockname()[1]
    ready.set()
    thread.join(20)
    server.close()


def test_a_tunnel_is_opened_with_the_credentials_and_no_byte_of_the_host_is_lost(
    answering: tuple[list[bytes], list[bytes], int],
) -> None:
    answers, asked, port = answering
    answers.append(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello")
    with socket.create_connection(("127.0.0.1", port)) as wire:
        open_tunnel(wire, Proxy("127.0.0.1", port, "c2VjcmV0"), "storage.googleapis.com", 443)
        assert wire.recv(5, socket.MSG_WAITALL) == b"hello"
    head = asked[0].decode()
    assert head.startswith("CONNECT storage.googleapis.com:443 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic c2VjcmV0\r\n" in head


def test_a_proxy_that_refuses_is_named_and_its_password_is_not(
    answering: tuple[list[bytes], list[bytes], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, _, port = answering
    answers.append(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:hidden@127.0.0.1:{port}")
    objects = JsonObjects("https://storage.example", patience=0.1)
    with pytest.raises(Transient, match=r"refuses: HTTP/1\.1 407") as raised:
        objects.look("b", "x")
    objects.close()
    assert "hidden" not in str(raised.value)
