"""Real receivers on loopback: a web server and a mail server, which record requests and answer as a test demands."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from tests.support.local_server import LocalServer
from tpujob.domain.notifications.delivery import message_for
from tpujob.domain.notifications.model import Message, Notification, NotificationKind


@dataclass
class Got:
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Web:
    url: str
    status: int = 200
    text: str = "ok"
    more: dict[str, str] = field(default_factory=dict)  #: headers of the answer
    got: list[Got] = field(default_factory=list)
    release: threading.Event | None = None  #: answers wait for it
    drip: bytes | None = (
        None  #: the beginning of an answer that goes on byte by byte, without an end
    )


@contextmanager
def web() -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server_state.got.append(Got(self.path, dict(self.headers.items()), body))
            if server_state.release:
                server_state.release.wait(30)
            if server_state.drip is not None:
                self._drip(server_state.drip)
                return
            self.send_response(server_state.status)
            for name, value in server_state.more.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(server_state.text.encode())))
            self.end_headers()
            self.wfile.write(server_state.text.encode())

        def _drip(self, begin: bytes) -> None:
            try:
                self.wfile.write(begin)
                while True:
                    self.wfile.write(b"H")
                    self.wfile.flush()
                    threading.Event().wait(0.05)
            except OSError:
                self.close_connection = True

    with LocalServer(Handler) as server:
        server_state = Web(f"{server.url}/hook?a=b")
        yield server_state


@dataclass
class Post:
    port: int = 0
    answer: str = ""  #: the answer to each message; empty: it is accepted
    got: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)


class AnyPort(Controller):
    """A controller that can listen at port 0: it connects to the port that the kernel chose."""

    def _trigger_server(self) -> None:
        assert self.server
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def post(tls: ssl.SSLContext | None = None, *, implicit: bool = False) -> Iterator[Post]:
    """Yield a mail server; with a certificate, it demands a login over TLS."""
    server_state = Post()

    class Handler:
        async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:
            if server_state.answer:
                return server_state.answer
            parsed = BytesParser(policy=default).parsebytes(envelope.content)
            server_state.got.append(cast("EmailMessage", parsed))
            server_state.envelopes.append((envelope.mail_from, envelope.rcpt_tos))
            return "250 taken"

    def login(
        server: SMTP, session: Any, envelope: Any, mechanism: str, data: LoginPassword
    ) -> AuthResult:
        server_state.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"right", handled=False)

    options: dict[str, Any] = {}
    if tls:
        options = {
            "authenticator": login,
            "auth_required": not implicit,
            "auth_require_tls": not implicit,
            "tls_context": None if implicit else tls,
        }

    controller = AnyPort(
        Handler(), hostname="127.0.0.1", port=0, ssl_context=tls if implicit else None, **options
    )
    controller.start()
    server_state.port = controller.port
    try:
        yield server_state
    finally:
        controller.stop()


def a_message(*, further: int = 0, **fields: Any) -> Message:
    defaults: dict[str, Any] = {
        "key": "000042/1/failed/CRASH",
        "kind": NotificationKind.FAILED,
        "at": 1_700_000_000.0,
        "text": "attempt 1 ended, CRASH: KeyError",
        "job": "000042",
        "name": "llama",
        "user": "ada",
        "attempt": 1,
        "cause": "CRASH",
        "zone": "us-central2-b",
    }
    return replace(message_for("lab", Notification(**defaults | fields)), more=further)
