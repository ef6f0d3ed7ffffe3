"""The session of Google's client of Cloud Storage: tokens, and what the server gets."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from google.auth.credentials import Credentials

from tpujob.adapters.calling import ServerClock
from tpujob.adapters.gcs.session import StorageSession


class Tokens(Credentials):
    """Has the token `old` until it is refreshed."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.refreshed = "old", 0

    def refresh(self, request: Any) -> None:
        del request
        self.token, self.refreshed = "new", self.refreshed + 1


class Server(ThreadingHTTPServer):
    """Takes the token `new` alone."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lines: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.lines.append(self.requestline)
        accepted = self.headers["Authorization"] == "Bearer new"
        self.send_response(200 if accepted else 401)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_refused_token_is_replaced_once_and_the_request_sent_again(server: Server) -> None:
    credentials, clock = Tokens(), ServerClock()
    session = StorageSession(server.url, credentials, clock)
    try:
        for _ in range(2):
            answer = session.request("GET", f"{server.url}/storage/v1/b/x", params={"fields": "a"})
            assert (answer.status_code, answer.json()) == (200, {})
    finally:
        session.close()
    assert credentials.refreshed == 1
    assert server.lines == ["GET /storage/v1/b/x?fields=a HTTP/1.1"] * 3
    assert clock.now() is not None
