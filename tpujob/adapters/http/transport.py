"""Requests to one backend and its replies: connections that are kept, and what is done before a request is given up.

What is asked, and what a refusal means to the user, is in `client.py`.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import time
import weakref
from collections.abc import Callable, Mapping
from email.message import Message
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tpujob import errors
from tpujob.errors import BackendGone, BadRequest, TpujobError, Transient
from tpujob.lib import unix_sockets

#: the headers that say who asks; called for each request, and with True once more when those were refused
Sign = Callable[[bool], Mapping[str, str]]
#: the errors of a kept connection that the other side has closed
BROKEN = (ConnectionError, http.client.RemoteDisconnected, http.client.BadStatusLine)


class BackendAddress(NamedTuple):
    """A backend at `unix:PATH` on this machine, or at `https://HOST`."""

    url: str
    uid: int | None = None  #: whose process must answer at a unix socket; None: this user's
    sign: Sign | None = None  #: for `https`

    def checked(self) -> BackendAddress:
        """The same. Raises BadRequest for an address to which requests would travel unencrypted."""
        if not self.url.startswith(("unix:/", "https://")):
            raise BadRequest(
                f"{self.url} is not safe: what is sent there would travel unencrypted",
                hint="a backend has an https:// URL, or unix:/PATH on this machine",
            )
        return self

    def connection(self) -> http.client.HTTPConnection:
        """Return a new connection, which connects at its first request."""
        if self.url.startswith("unix:"):
            uid = os.geteuid() if self.uid is None else self.uid
            return _UnixConnection(self.url.removeprefix("unix:"), uid)
        parts = urlsplit(self.url)
        return http.client.HTTPSConnection(parts.hostname or "", parts.port)

    def in_front(self, status: int, hint: str) -> TpujobError:
        """Return what an answer means that a backend never sends: it is from Google Cloud in front of it, or from
        another server. `hint`: what to do about another server."""
        if status in (401, 403) and self.sign:
            kind, cure = (
                (errors.Unauthorized, "sign in again: tpujob login")
                if status == 401
                else (
                    errors.Forbidden,
                    "an admin gives you access: deploy/join.sh YOUR_ADDRESS ROLE",
                )
            )
            return kind(f"Google Cloud refuses you access to {self.url}", hint=cure)
        if 300 <= status < 400 and self.sign:
            # never followed: the server that it leads to would get the token
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


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket. It sends nothing to a server whose process has another uid."""

    def __init__(self, path: str, uid: int) -> None:
        super().__init__("localhost")
        self._path, self._uid = path, uid

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        found = unix_sockets.uid_of_peer(self.sock)
        if found != self._uid:
            raise BackendGone(
                f"what answers at {self._path} belongs to the uid {found}, not to {self._uid}: nothing was sent",
                hint="if the backend has moved to another account: tpujob use PATH",
            )


#: the HTTP status by which the backend asks to be asked again later, and for how many seconds that is done
BUSY = 429
PATIENCE = 60.0
PIECE = 65_536  #: bytes of an answer that are passed on at once, at most
IDLE = 8  #: connections that are kept for the next requests


class BackendRequest(NamedTuple):
    verb: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None
    within: float = 60.0  #: seconds; of an answer in pieces, seconds of silence
    once: bool = False  #: not sent again, although it may not have arrived


class BackendReply(NamedTuple):
    status: int
    body: bytes
    headers: Message

    @property
    def wait(self) -> float:
        """Seconds until the next request may be sent."""
        pause = self.headers["Retry-After"]
        return float(pause) if pause and pause.isdecimal() else 0.0


class BackendTransport:
    """Connections that are kept for later requests. The layers of `open` lie one in the other: sign, reconnect. Threads
    share it."""

    def __init__(
        self, address: BackendAddress, find_again: Callable[[], str | None] | None = None
    ) -> None:
        """`find_again`: called once when the very first connection is refused, for another URL; None: there is none."""
        self.address, self._find_again = address.checked(), find_again
        self._idle: list[http.client.HTTPConnection] = []
        self._busy = set[BackendAnswer]()
        # not at exit: a thread that still reads then would report that nothing answers
        weakref.finalize(self, _close_all, self._idle).atexit = False

    def request(self, request: BackendRequest) -> BackendReply:
        """The whole reply; sent again while the backend is busy, which has then done nothing. Raises OSError,
        HTTPException."""
        waited = 0.0
        while True:
            with contextlib.closing(self.open(request)) as answer:
                reply = BackendReply(answer.status, answer.whole(), answer.headers)
            waited += reply.wait
            if reply.status != BUSY or not reply.wait or waited > PATIENCE:
                return reply
            time.sleep(reply.wait)

    def open(self, request: BackendRequest) -> BackendAnswer:
        """The beginning of the answer; sent as the user, and once more when the token was refused: a key of Google's
        may have changed. Raises OSError, HTTPException."""
        sign = self.address.sign
        if sign is None:
            return self._reconnecting(request)
        answer = self._reconnecting(request._replace(headers={**request.headers, **sign(False)}))
        if answer.status == 401:
            answer.close()
            renewed = {**request.headers, **sign(True)}
            answer = self._reconnecting(request._replace(headers=renewed))
        return answer

    def close(self) -> None:
        """Close every connection that no answer uses. A later request opens another."""
        _close_all(self._idle)

    def cut(self) -> None:
        """Close every connection: threads that wait for an answer get its end."""
        self.close()
        for answer in self._busy.copy():
            answer.cut()

    def _reconnecting(self, request: BackendRequest) -> BackendAnswer:
        """Sent again when a kept connection turns out to be closed, or when the backend is found elsewhere."""
        find_again, self._find_again = self._find_again, None
        while True:
            kept = None if request.once else self._kept()
            try:
                return self._exchange(kept or self.address.connection(), request)
            except (*BROKEN, FileNotFoundError) as error:
                refused = isinstance(error, (ConnectionRefusedError, FileNotFoundError))
                if refused and find_again and (url := find_again()):
                    self.address = self.address._replace(url=url).checked()
                    find_again = None
                elif kept is None:
                    raise

    def _kept(self) -> http.client.HTTPConnection | None:
        with contextlib.suppress(IndexError):
            return self._idle.pop()

    def _exchange(
        self, connection: http.client.HTTPConnection, request: BackendRequest
    ) -> BackendAnswer:
        connection.timeout = request.within
        if connection.sock is not None:
            connection.sock.settimeout(request.within)
        try:
            try:
                connection.request(
                    request.verb, request.target, body=request.body, headers=dict(request.headers)
                )
            except (BrokenPipeError, ConnectionResetError):
                if connection.sock is None:
                    raise
                # otherwise the server may have refused the body unread, and its reply is there
            sock = connection.sock  # the connection forgets it if this answer is the last one
            answer = BackendAnswer(connection, sock, connection.getresponse(), self._release)
        except BaseException:
            connection.close()  # an unread reply would be taken for that of the next request
            raise
        self._busy.add(answer)
        return answer

    def _release(self, answer: BackendAnswer, connection: http.client.HTTPConnection) -> None:
        self._busy.discard(answer)
        if connection.sock is not None and len(self._idle) < IDLE:
            self._idle.append(connection)
        else:
            connection.close()


class BackendAnswer:
    """One answer of the backend, of which only the beginning is there yet. The caller closes it."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        sock: socket.socket | None,
        response: http.client.HTTPResponse,
        release: Callable[[BackendAnswer, http.client.HTTPConnection], None],
    ) -> None:
        """`release`: takes the connection back."""
        self._connection, self._sock, self._response = connection, sock, response
        self._release: Callable[[BackendAnswer, http.client.HTTPConnection], None] | None = release
        self.status, self.headers = response.status, response.headers

    def whole(self) -> bytes:
        return self._response.read()

    def read(self) -> bytes:
        """What has come, as soon as there is anything; empty: that was all. Raises OSError, HTTPException."""
        return self._response.read1(PIECE)

    def cut(self) -> None:
        """Let a `read` in another thread end."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        release, self._release = self._release, None
        if release is None:
            return
        if not self._response.isclosed():  # the rest would be taken for the next answer
            self.cut()  # another thread may still read
            self._connection.close()
        self._response.close()
        release(self, self._connection)


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


# The page of a backend elsewhere -------------------------------------------------------------------------------------


#: seconds of silence after which an answer is given up; a stream of the page is never silent for as long
SILENCE = 90.0
#: what every answer of a backend has (`web/security/middleware.py`), and what no other server gives
_OURS: Final = "x-request-id"


class ProxyClient:
    """Passes a browser's requests on to a backend, as the user of this process, and its answers back as they come. Safe
    to use from several threads."""

    def __init__(self, address: BackendAddress, timeout: float = SILENCE) -> None:
        self._transport, self._timeout = BackendTransport(address), timeout

    @property
    def url(self) -> str:
        return self._transport.address.url

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> BackendAnswer:
        """The backend's answer. No redirect is followed. Raises Unauthorized, Forbidden, BackendGone, Transient."""
        once = method not in ("GET", "HEAD")
        request = BackendRequest(method, target, headers, body or None, self._timeout, once)
        try:
            answer = self._transport.open(request)
        except TimeoutError:
            raise Transient(f"the backend at {self.url} did not answer in time") from None
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise BackendGone(f"nothing answers at {self.url} ({reason})") from None
        if answer.status != 401 and _OURS in answer.headers:
            return answer
        answer.close()
        if _OURS in answer.headers:
            raise errors.Unauthorized(
                f"the backend at {self.url} does not accept your sign-in any more",
                hint="sign in again: `tpujob login`",
            )
        hint = "check the address, and that the service runs"
        raise self._transport.address.in_front(answer.status, hint)

    def close(self) -> None:
        """Cut every connection: threads that wait for an answer get its end."""
        self._transport.cut()
