"""Requests to one backend and its replies: reused connections, authorization and retries.

`client.py` builds the requests of commands and interprets refusals.
"""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tpujob import errors
from tpujob.errors import BackendGone, BadRequest, TpujobError, Transient
from tpujob.lib import unix_sockets
from tpujob.lib.http import HttpReply, HttpRequest, fetch
from tpujob.lib.plain_http import PlainHttp, PlainResponse, UnixConnection, connection_to

#: returns the headers that identify the user; called for each request, and with True for new ones after a refusal
Sign = Callable[[bool], Mapping[str, str]]


class BackendAddress(NamedTuple):
    """A backend at `unix:PATH` on this machine, or at `https://HOST`."""

    url: str
    uid: int | None = None  #: the user whose process must answer at a Unix socket; None: this user
    sign: Sign | None = None  #: for `https`; None: no sign-in

    def checked(self) -> BackendAddress:
        """Return the address. Raises BadRequest if requests would travel there unencrypted."""
        if not self.url.startswith(("unix:/", "https://")):
            raise BadRequest(
                f"{self.url} is not safe: what is sent there would travel unencrypted",
                hint="a backend has an https:// URL, or unix:/PATH on this machine",
            )
        return self

    def url_of(self, target: str) -> str:
        """Return the URL of a path at the backend."""
        return ("http://localhost" if self.url.startswith("unix:") else self.url) + target

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection that opens at its first request. It sends nothing to a server at a Unix socket whose
        process has another uid."""
        if self.url.startswith("unix:"):
            return UnixConnection(self.url.removeprefix("unix:"), self._check_uid)
        return connection_to(self.url)

    def _check_uid(self, sock: socket.socket) -> None:
        expected = os.geteuid() if self.uid is None else self.uid
        uid = unix_sockets.uid_of_peer(sock)
        if uid != expected:
            path = self.url.removeprefix("unix:")
            raise BackendGone(
                f"what answers at {path} belongs to the uid {uid}, not to {expected}: nothing was sent",
                hint="if the backend has moved to another account: tpujob use PATH",
            )

    def error_of_other_server(self, status: int, hint: str) -> TpujobError:
        """Return the error for an answer that no backend sends. It is from Google Cloud in front of the backend, or
        from another server, for which `hint` is the hint."""
        if status in (401, 403) and self.sign:
            text = f"Google Cloud refuses you access to {self.url}"
            if status == 401:
                return errors.Unauthorized(text, hint="sign in again: tpujob login")
            cure = "an admin gives you access: deploy/join.sh YOUR_ADDRESS ROLE"
            return errors.Forbidden(text, hint=cure)
        if 300 <= status < 400 and self.sign:
            # redirects are not followed: another server would get the token
            return errors.Unauthorized(
                f"Google Cloud asks for a sign-in in front of {self.url} (Identity-Aware Proxy)",
                hint="choose the backend again with `tpujob use URL --door iap`; its admin must have"
                " allowed the OAuth client of the context",
            )
        if status == 413:
            return BadRequest(
                f"the proxy in front of the backend at {self.url} accepts no request of that size",
                hint="ship less code: .tpujobignore; Cloud Run takes 32 MiB",
            )
        return BackendGone(
            f"what answers at {self.url} is not a tpujob backend (HTTP {status})", hint=hint
        )


BUSY = 429  #: HTTP status of a backend that is too busy for the request


class BackendTransport:
    """Implements `Http` for a backend."""

    busy_timeout = 60.0  #: seconds for which a request is repeated while the backend is busy
    sleep: Callable[[float], object] = staticmethod(time.sleep)

    def __init__(
        self, address: BackendAddress, find_again: Callable[[], str | None] | None = None
    ) -> None:
        """`find_again`: called once if the very first connection is refused; returns another URL, or None."""
        self.address = address.checked()
        self._find_again = find_again
        self._http = PlainHttp(lambda: self.address.connection())

    def request(self, request: HttpRequest) -> HttpReply:
        """Return the whole reply. Sends the request again while the backend is busy, and so has not carried it out.
        Raises OSError."""
        waited = 0.0
        while True:
            reply = fetch(self, request)
            after = reply.headers["Retry-After"] or ""
            wait = float(after) if after.isdecimal() else 0.0  # by the backend's demand
            waited += wait
            if reply.status != BUSY or not wait or waited > self.busy_timeout:
                return reply
            self.sleep(wait)

    def send(self, request: HttpRequest) -> PlainResponse:
        """Return the answer, of which only status and headers are read. Sends the request as the user, and again with a
        new token if the first was refused: a key of Google's may have changed. Raises OSError."""
        sign = self.address.sign
        if sign is None:
            return self._send(request)
        answer = self._send(request._replace(headers={**request.headers, **sign(False)}))
        if answer.status == 401:
            answer.close()
            answer = self._send(request._replace(headers={**request.headers, **sign(True)}))
        return answer

    def close(self) -> None:
        self._http.close()

    def _send(self, request: HttpRequest) -> PlainResponse:
        """Send a request; again when the very first connection is refused and the backend is found elsewhere."""
        find_again, self._find_again = self._find_again, None
        try:
            return self._http.send(request)
        except (ConnectionRefusedError, FileNotFoundError):
            if not find_again or not (url := find_again()):
                raise
            self.address = self.address._replace(url=url).checked()
            return self._http.send(request)


# The page of a backend elsewhere -------------------------------------------------------------------------------------


#: seconds of silence after which an answer is given up; streams of the page are never silent for as long
SILENCE = 90.0
#: a header of every answer of a backend (`web/security/middleware.py`), and of no other server
_BACKEND_HEADER: Final = "x-request-id"


class ProxyClient:
    """Forwards a browser's requests to a backend, as the user of this process, and streams the answers back.
    Thread-safe."""

    def __init__(self, address: BackendAddress, timeout: float = SILENCE) -> None:
        self._transport, self._timeout = BackendTransport(address), timeout

    @property
    def url(self) -> str:
        return self._transport.address.url

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> PlainResponse:
        """Return the backend's answer. Follows no redirect. Raises Unauthorized, Forbidden, BackendGone, Transient."""
        once = method not in ("GET", "HEAD")
        url = self._transport.address.url_of(target)
        request = HttpRequest(method, url, headers, body or None, self._timeout, once)
        try:
            answer = self._transport.send(request)
        except TimeoutError:
            raise Transient(f"the backend at {self.url} did not answer in time") from None
        except OSError as error:
            reason = str(error) or type(error).__name__
            raise BackendGone(f"nothing answers at {self.url} ({reason})") from None
        if answer.status != 401 and _BACKEND_HEADER in answer.headers:
            return answer
        answer.close()
        if _BACKEND_HEADER in answer.headers:
            raise errors.Unauthorized(
                f"the backend at {self.url} does not accept your sign-in any more",
                hint="sign in again: `tpujob login`",
            )
        hint = "check the address, and that the service runs"
        raise self._transport.address.error_of_other_server(answer.status, hint)

    def close(self) -> None:
        self._transport.close()
