"""Both adapters of outgoing HTTP keep the promises of the port, against a real server."""

import contextlib
import io
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.support.local_server import LocalServer
from tests.support.tls import https
from tpujob.adapters.pooled_http import PooledHttp
from tpujob.lib.http import Http, HttpRequest
from tpujob.lib.plain_http import PlainHttp


class Server(LocalServer):
    """Answers with what it received, and misbehaves at some paths."""

    def __init__(self) -> None:
        self.ports: list[int] = []  #: of the clients' ends, for each request
        self.release, server = threading.Event(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.ports.append(self.client_address[1])
                sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path == "/silent":
                    server.release.wait(60)
                    return
                status = {"/moved": 302, "/missing": 404}.get(self.path, 200)
                words = (self.command, self.path, self.headers.get("X-Word", ""), sent.decode())
                body = " ".join(words).encode()
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body) + 5 * (self.path == "/short")))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = self.path in ("/short", "/last", "/closes")

            do_POST = do_GET

        super().__init__(Handler)

    def close(self) -> None:
        self.release.set()
        super().close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


@pytest.fixture(params=[PlainHttp, PooledHttp])
def http(request: pytest.FixtureRequest) -> Iterator[Http]:
    with contextlib.closing(request.param()) as made:
        yield made


def body(http: Http, request: HttpRequest) -> bytes:
    with contextlib.closing(http.send(request)) as response:
        return response.read()


@pytest.mark.parametrize("content", [b"a body", io.BytesIO(b"a body")])
def test_a_request_arrives_whole(server: Server, http: Http, content: bytes | io.BytesIO) -> None:
    if isinstance(content, io.BytesIO):
        content.seek(3)  # it may have been read before
    request = HttpRequest("POST", f"{server.url}/a%20b?c=d&e=%2F", {"X-Word": "w"}, content)
    assert body(http, request) == b"POST /a%20b?c=d&e=%2F w a body"


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/missing", 404), ("/moved", 302)])
def test_every_status_is_a_response_and_no_redirect_is_followed(
    server: Server, http: Http, path: str, status: int
) -> None:
    with contextlib.closing(http.send(HttpRequest("GET", server.url + path))) as response:
        assert (response.status, response.headers["location"]) == (status, "/elsewhere")
        assert response.headers["X-None"] is None


def test_a_body_is_read_in_pieces(server: Server, http: Http) -> None:
    with contextlib.closing(http.send(HttpRequest("GET", f"{server.url}/pieces"))) as response:
        assert list(iter(lambda: response.read(4), b"")) == [b"GET ", b"/pie", b"ces ", b" "]


@pytest.mark.parametrize("size", [-1, 4])
def test_a_body_that_ends_early_is_an_error(server: Server, http: Http, size: int) -> None:
    with (
        contextlib.closing(http.send(HttpRequest("GET", f"{server.url}/short"))) as response,
        pytest.raises(ConnectionError),
    ):
        while response.read(size):
            pass


def test_a_connection_is_used_again_after_a_whole_body_only(server: Server, http: Http) -> None:
    server.ports.clear()
    for _ in range(2):
        body(http, HttpRequest("GET", f"{server.url}/whole"))
    http.send(HttpRequest("GET", f"{server.url}/unread")).close()
    assert body(http, HttpRequest("GET", f"{server.url}/next")) == b"GET /next  "
    first, second, third, fourth = server.ports
    assert first == second == third != fourth


def test_a_silent_server_is_a_timeout(server: Server, http: Http) -> None:
    with pytest.raises(TimeoutError):
        http.send(HttpRequest("GET", f"{server.url}/silent", timeout=0.05))


def test_a_closed_port_is_an_os_error_that_says_so(http: Http) -> None:
    with pytest.raises(OSError, match="refused"):
        http.send(HttpRequest("GET", "http://127.0.0.1:9/"))


def test_a_certificate_that_is_not_trusted_is_an_error_of_its_own(
    server: Server, http: Http, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with https(server.url, tmp_path) as (url, certificate):
        with pytest.raises(ssl.SSLError, match="certificate verify failed"):
            http.send(HttpRequest("GET", f"{url}/"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with contextlib.closing(type(http)()) as trusting:
            assert body(trusting, HttpRequest("GET", f"{url}/")) == b"GET /  "
