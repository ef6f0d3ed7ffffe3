"""Where a browser on this machine brings the code: a port of our own on 127.0.0.1, for one sign-in."""

from __future__ import annotations

import contextlib
import hmac
import time
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tpujob.adapters.sign_in.google import Attempt
from tpujob.errors import BadRequest, Unauthorized

PATIENCE = 300.0  #: seconds that a person gets
SLOW = 5.0  #: seconds that one connection gets: somebody else's must not block the browser's
_DONE = b"<!doctype html><title>tpujob</title><p>You are signed in. This window can be closed."
_OTHER = b"<!doctype html><title>tpujob</title><p>This is no answer to a sign-in of tpujob."


class Listener:
    """Listens before the address is shown to anybody, so that nobody else can take the port."""

    def __init__(self) -> None:
        self._code = ""
        self._error: Unauthorized | None = None
        self._attempt: Attempt | None = None
        self._server = TCPServer(("127.0.0.1", 0), self._handler())
        self.redirect = f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait(self, attempt: Attempt, patience: float = PATIENCE) -> str:
        """The code that a browser brings. Raises Unauthorized when the person refused, or nobody came."""
        self._attempt, until = attempt, time.monotonic() + patience
        while not self._code and self._error is None:
            self._server.timeout = until - time.monotonic()
            if self._server.timeout <= 0:
                raise Unauthorized(
                    f"nobody signed in within {patience / 60:.0f} minutes",
                    hint="without a browser on this machine: tpujob login --no-browser",
                )
            self._server.handle_request()
        if self._error is not None:
            raise self._error
        return self._code

    def close(self) -> None:
        self._server.server_close()

    def _take(self, path: str) -> bool:
        assert self._attempt is not None
        try:
            self._code = code_in(path, self._attempt)
        except Unauthorized as error:
            self._error = error
        except BadRequest:
            return False
        return True

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            timeout = SLOW

            def do_GET(self) -> None:
                ours = take(self.path)
                self.send_response(200 if ours else 400)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Security-Policy", "default-src 'none'")
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(_DONE if ours else _OTHER)

            def log_message(self, format: str, *args: Any) -> None:
                del format, args  # the path has the code in it

        return Handler


def code_in(address: str, attempt: Attempt) -> str:
    """The code in the address to which a browser was sent. Raises BadRequest for one of no sign-in, or of another;
    Unauthorized when the person refused."""
    query = parse_qs(urlsplit(address.strip()).query)

    def one(name: str) -> str:
        return query[name][0] if len(query.get(name, [])) == 1 else ""

    if not hmac.compare_digest(one("state").encode(), attempt.state.encode()):
        raise BadRequest(
            "that is not the address of this sign-in",
            hint="Paste the whole address that the browser shows at the end; it begins with "
            f"{attempt.redirect}.",
        )
    if error := one("error"):
        said = ascii(error)[1:-1][:80]
        raise Unauthorized(f"Google did not sign you in: {said}", hint="tpujob login")
    if not one("code"):
        raise BadRequest("that address has no code", hint="Paste the whole address.")
    return one("code")
