"""Requests to one backend and its replies: connections that are kept, and what is done before a request is given up.

What is asked, and what a refusal means to the user, is in `client.py`.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from email.message import Message
from typing import NamedTuple
from urllib.parse import urlsplit

from tpujob import errors
from tpujob.errors import BackendGone, BadRequest, TpujobError
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
        """A new one, which connects at its first request."""
        if self.url.startswith("unix:"):
            uid = os.geteuid() if self.uid is None else self.uid
            return _UnixConnection(self.url.removeprefix("unix:"), uid)
        parts = urlsplit(self.url)
        return http.client.HTTPSConnection(parts.hostname or "", parts.port)

    def in_front(self, status: int, hint: str) -> TpujobError:
        """What an answer means that no backend gives: it is that of Google Cloud in front of it, or of a stranger.
        `hint`: what to do about a stranger."""
        if status in (401, 403) and self.sign:
            kind, cure = (
                (errors.Unauthorized, "sign in again: tpujob login")
                if status == 401
                else (errors.Forbidden, "an admin lets you in: deploy/join.sh YOUR_ADDRESS ROLE")
            )
            return kind(f"Google Cloud does not let you through to {self.url}", hint=cure)
        if 300 <= status < 400 and self.sign:
            # never followed: the server that it leads to would get the token
            return errors.Unauthorized(
                f"Google Cloud asks for a sign-in in front of {self.url} (Identity-Aware Proxy)",
                hint="choose the backend again with `tpujob use URL --door iap`; its admin must have let"
                " the OAuth client of the context in",
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


class BackendRequest(NamedTuple):
    verb: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None
    within: float = 60.0  #: seconds
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
    """Each thread has its own connection. The layers of `request` lie one in the other: wait, sign, reconnect."""

    def __init__(
        self, address: BackendAddress, find_again: Callable[[], str | None] | None = None
    ) -> None:
        """`find_again`: asked once when the very first connection is refused, for another URL; None: there is none."""
        self.address, self._find_again = address.checked(), find_again
        self._mine = threading.local()
        self._open: set[http.client.HTTPConnection] = set()
        # not at exit: a thread that still reads then would report that nothing answers
        weakref.finalize(self, _close_all, self._open).atexit = False

    def request(self, request: BackendRequest) -> BackendReply:
        """The reply; sent again while the backend is busy, which has then done nothing. Raises OSError,
        HTTPException."""
        waited = 0.0
        while True:
            reply = self._signed(request)
            waited += reply.wait
            if reply.status != BUSY or not reply.wait or waited > PATIENCE:
                return reply
            time.sleep(reply.wait)

    def close(self) -> None:
        """Close this thread's connection. A later request opens another."""
        connection = vars(self._mine).pop("connection", None)
        if connection is not None:
            self._open.discard(connection)
            connection.close()

    def _signed(self, request: BackendRequest) -> BackendReply:
        """Sent as the user; once more when the token was refused: a key of Google's may have changed."""
        sign = self.address.sign
        if sign is None:
            return self._reconnecting(request)
        reply = self._reconnecting(request._replace(headers={**request.headers, **sign(False)}))
        if reply.status == 401:
            renewed = {**request.headers, **sign(True)}
            reply = self._reconnecting(request._replace(headers=renewed))
        return reply

    def _reconnecting(self, request: BackendRequest) -> BackendReply:
        """Sent again when a kept connection turns out to be closed, or when the backend is found elsewhere."""
        kept = getattr(self._mine, "connection", None) is not None
        find_again, self._find_again = self._find_again, None
        try:
            return self._exchange(request)
        except BaseException as error:
            self.close()  # an unread reply would be taken for that of the next request
            again = kept and not request.once and isinstance(error, BROKEN)
            refused = isinstance(error, (ConnectionRefusedError, FileNotFoundError))
            if refused and find_again and (url := find_again()):
                self.address = self.address._replace(url=url).checked()
                again = True
            if not again:
                raise
        return self._reconnecting(request)

    def _exchange(self, request: BackendRequest) -> BackendReply:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self.address.connection()
            self._open.add(connection)
        connection.timeout = request.within
        if connection.sock is not None:
            connection.sock.settimeout(request.within)
        try:
            connection.request(
                request.verb, request.target, body=request.body, headers=dict(request.headers)
            )
        except (BrokenPipeError, ConnectionResetError):
            if connection.sock is None:
                raise
            # otherwise the server may have refused the body unread, and its reply is there
        response = connection.getresponse()
        body = response.read()
        if response.will_close:
            self.close()
        return BackendReply(response.status, body, response.headers)


def _close_all(connections: set[http.client.HTTPConnection]) -> None:
    for connection in connections.copy():  # a thread of a deadline may still open one
        connection.close()
