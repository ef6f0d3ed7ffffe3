"""Requests to one backend and its replies: reused connections, authorization and retries.

`client.py` builds the requests of commands and interprets refusals.
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
from typing import IO, Final, NamedTuple
from urllib.parse import urlsplit

from tpujob import errors
from tpujob.errors import BackendGone, BadRequest, TpujobError, Transient
from tpujob.lib import unix_sockets

#: returns the headers that identify the user; called for each request, and with True for new ones after a refusal
Sign = Callable[[bool], Mapping[str, str]]
#: the errors of an idle connection that the other side has closed
BROKEN = (ConnectionError, http.client.RemoteDisconnected, http.client.BadStatusLine)


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

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection that opens at its first request."""
        if self.url.startswith("unix:"):
            uid = os.geteuid() if self.uid is None else self.uid
            return _UnixConnection(self.url.removeprefix("unix:"), uid)
        parts = urlsplit(self.url)
        return http.client.HTTPSConnection(parts.hostname or "", parts.port)

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


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket. Sends nothing to a server whose process has another uid."""

    def __init__(self, path: str, uid: int) -> None:
        super().__init__("localhost")
        self._path, self._uid = path, uid

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        uid = unix_sockets.uid_of_peer(self.sock)
        if uid != self._uid:
            raise BackendGone(
                f"what answers at {self._path} belongs to the uid {uid}, not to {self._uid}: nothing was sent",
                hint="if the backend has moved to another account: tpujob use PATH",
            )


BUSY = 429  #: HTTP status of a backend that is too busy for the request
CHUNK = 65_536  #: bytes of an answer that one `read` returns, at most
IDLE = 8  #: connections that stay open for later requests


class BackendRequest(NamedTuple):
    verb: str
    target: str
    headers: Mapping[str, str]
    body: bytes | IO[bytes] | None = None
    within: float = 60.0  #: seconds for the answer; of a stream, seconds of silence
    once: bool = False  #: not sent again when the connection breaks


class BackendReply(NamedTuple):
    status: int
    body: bytes
    headers: Message

    @property
    def wait(self) -> float:
        """The seconds that the backend demands before the next try; 0: none."""
        pause = self.headers["Retry-After"]
        return float(pause) if pause and pause.isdecimal() else 0.0


class BackendTransport:
    """Sends requests to a backend over connections that are reused. Thread-safe; a forked process opens its own
    connections."""

    busy_timeout = 60.0  #: seconds for which a request is repeated while the backend is busy
    sleep: Callable[[float], object] = staticmethod(time.sleep)

    def __init__(
        self, address: BackendAddress, find_again: Callable[[], str | None] | None = None
    ) -> None:
        """`find_again`: called once if the very first connection is refused; returns another URL, or None."""
        self.address = address.checked()
        self._find_again = find_again
        self._idle: list[http.client.HTTPConnection] = []
        self._busy = set[BackendAnswer]()
        self._pid = os.getpid()  #: of the process whose connections these are
        # not at exit, when a thread that still reads would report that nothing answers
        weakref.finalize(self, _close_all, self._idle).atexit = False

    def request(self, request: BackendRequest) -> BackendReply:
        """Return the whole reply. Sends the request again while the backend is busy, and so has not carried it out.
        Raises OSError, HTTPException."""
        waited = 0.0
        while True:
            with contextlib.closing(self.open(request)) as answer:
                reply = BackendReply(answer.status, answer.whole(), answer.headers)
            waited += reply.wait
            if reply.status != BUSY or not reply.wait or waited > self.busy_timeout:
                return reply
            self.sleep(reply.wait)

    def open(self, request: BackendRequest) -> BackendAnswer:
        """Return the answer, of which only status and headers are read. Sends the request as the user, and again with a
        new token if the first was refused: a key of Google's may have changed. Raises OSError, HTTPException."""
        sign = self.address.sign
        if sign is None:
            return self._send(request)
        answer = self._send(request._replace(headers={**request.headers, **sign(False)}))
        if answer.status == 401:
            answer.close()
            answer = self._send(request._replace(headers={**request.headers, **sign(True)}))
        return answer

    def close(self) -> None:
        """Close every connection that no answer uses. A later request opens another."""
        _close_all(self._idle)

    def cut(self) -> None:
        """Close every connection: threads that wait for an answer see its end."""
        self.close()
        for answer in self._busy.copy():
            answer.cut()

    def _send(self, request: BackendRequest) -> BackendAnswer:
        """Send a request, again when an idle connection turns out to be closed or the backend is found elsewhere."""
        if (
            self._pid != os.getpid()
        ):  # a forked process: an answer here would be taken from its parent
            self._pid = os.getpid()
            self._busy.clear()
            self.close()
        find_again, self._find_again = self._find_again, None
        while True:
            idle = None if request.once else self._idle_connection()
            try:
                return self._exchange(idle or self.address.connection(), request)
            except (*BROKEN, FileNotFoundError) as error:
                refused = isinstance(error, (ConnectionRefusedError, FileNotFoundError))
                if refused and find_again and (url := find_again()):
                    self.address = self.address._replace(url=url).checked()
                    find_again = None
                elif idle is None:
                    raise

    def _idle_connection(self) -> http.client.HTTPConnection | None:
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
                headers = dict(request.headers)
                if request.body is not None and not isinstance(request.body, bytes):
                    headers["Content-Length"] = str(request.body.seek(0, os.SEEK_END))
                    request.body.seek(0)  # it may be sent again
                connection.request(request.verb, request.target, request.body, headers)
            except (BrokenPipeError, ConnectionResetError):
                if connection.sock is None:
                    raise
                # otherwise the server may have refused the body unread, and sent its reply
            sock = connection.sock  # the connection drops its socket if this answer is the last one
            answer = BackendAnswer(connection, sock, connection.getresponse(), self._release)
        except BaseException:
            connection.close()  # an unread reply would be taken for the next one
            raise
        self._busy.add(answer)
        return answer

    def _release(self, answer: BackendAnswer, connection: http.client.HTTPConnection) -> None:
        self._busy.discard(answer)
        own = self._pid == os.getpid()
        if connection.sock is not None and own and len(self._idle) < IDLE:
            self._idle.append(connection)
        else:
            connection.close()


class BackendAnswer:
    """An answer whose body is still to be read. The caller closes it."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        sock: socket.socket | None,
        response: http.client.HTTPResponse,
        release: Callable[[BackendAnswer, http.client.HTTPConnection], None],
    ) -> None:
        """`release`: called at the end with the connection, which may be reused."""
        self._connection, self._sock, self._response = connection, sock, response
        self._release: Callable[[BackendAnswer, http.client.HTTPConnection], None] | None = release
        self.status, self.headers = response.status, response.headers

    def whole(self) -> bytes:
        """Return the whole body. Raises OSError, HTTPException."""
        return self._response.read()

    def read(self) -> bytes:
        """Return the next bytes as soon as any arrive; empty at the end. Raises OSError, HTTPException."""
        return self._response.read1(CHUNK)

    def cut(self) -> None:
        """End a `read` in another thread."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        release, self._release = self._release, None
        if release is None:
            return
        if not self._response.isclosed():  # unread bytes would be taken for the next answer
            self.cut()  # another thread may still read
            self._connection.close()
        self._response.close()
        release(self, self._connection)


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


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
    ) -> BackendAnswer:
        """Return the backend's answer. Follows no redirect. Raises Unauthorized, Forbidden, BackendGone, Transient."""
        once = method not in ("GET", "HEAD")
        request = BackendRequest(method, target, headers, body or None, self._timeout, once)
        try:
            answer = self._transport.open(request)
        except TimeoutError:
            raise Transient(f"the backend at {self.url} did not answer in time") from None
        except (OSError, http.client.HTTPException) as error:
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
        """Cut every connection: threads that wait for an answer see its end."""
        self._transport.cut()
