"""Both adapters of outgoing HTTP keep the promises of the port, against a real server."""

import contextlib
import io
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.support.local_server import LocalServer
from tests.support.tls import https
from tpujob.adapters.session_http import SessionHttp
from tpujob.lib.http import Http, HttpRequest
from tpujob.lib.plain_http import PlainHttp, connection_to


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

            do_POST = do_GET  # noqa: N815

        super().__init__(Handler)

    def close(self) -> None:
        self.release.set()
        super().close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


#: return an adapter that reaches a URL's server
ADAPTERS: dict[str, Callable[[str], Http]] = {
    "plain": lambda url: PlainHttp(lambda: connection_to(url)),
    "session": lambda _: SessionHttp(),
}


@pytest.fixture(params=ADAPTERS)
def to(request: pytest.FixtureRequest) -> Callable[[str], Http]:
    return ADAPTERS[request.param]


@pytest.fixture
def http(server: Server, to: Callable[[str], Http]) -> Iterator[Http]:
    with contextlib.closing(to(server.url)) as made:
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
    response = http.send(HttpRequest("GET", f"{server.url}/short"))
    with contextlib.closing(response), pytest.raises(ConnectionError):
        b"".join(iter(lambda: response.read(size), b""))


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


def test_a_closed_port_is_an_os_error_that_says_so(to: Callable[[str], Http]) -> None:
    url = "http://127.0.0.1:9/?signature=secret"
    with contextlib.closing(to(url)) as http, pytest.raises(OSError, match="refused") as caught:
        http.send(HttpRequest("GET", url))
    assert "secret" not in str(caught.value)


def test_a_certificate_that_is_not_trusted_is_an_error_of_its_own(
    server: Server,
    to: Callable[[str], Http],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with https(server.url, tmp_path) as (url, certificate):
        with (
            contextlib.closing(to(url)) as http,
            pytest.raises(ssl.SSLError, match="certificate verify failed"),
        ):
            http.send(HttpRequest("GET", f"{url}/"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with contextlib.closing(to(url)) as trusting:
            assert body(trusting, HttpRequest("GET", f"{url}/")) == b"GET /  "
