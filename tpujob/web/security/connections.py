"""Limits that uvicorn lacks: the number of connections, the time to send a request's headers, and the headers' size.

Even half a request costs a file descriptor, and the backend needs descriptors to look after jobs.
"""

from __future__ import annotations

import json
import resource
import socket
from asyncio import TimerHandle, Transport
from collections.abc import Container
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tpujob.errors import BadRequest, TpujobError
from tpujob.lib import unix_sockets

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PEER = "peer"  #: in the state of a request: the uid of who sent it, where the kernel is asked
LINE = "line"  #: in the state of each request: its connection
MAX_CONNECTIONS = 512  #: connections at once
#: connections of one user of this machine; the peer of a TCP connection may be a proxy for everybody
EACH = 128
HEADERS_S = 10.0  #: seconds for the headers of a request, and for the first byte of the first
HEADERS = 100  #: of a request
HEADER_BYTES = 64 << 10  #: of its first line and all of its headers
RESERVE = 512  #: file descriptors that stay for the backend's own files and calls
#: seconds that running requests get when the process is to end; Cloud Run kills it after ten
LAST_ANSWERS = 5
FILES = 4096  #: file descriptors that the process requests; a system's default is 1,024


def most_connections() -> int:
    """Raise the limit of file descriptors as far as allowed, and return how many connections that makes possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    limit = FILES if hard == unlimited else min(FILES, hard)
    if soft != unlimited and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft = limit
    return (
        MAX_CONNECTIONS
        if soft == unlimited
        else min(MAX_CONNECTIONS, max(soft - RESERVE, soft // 2))
    )


class Connections:
    """The open connections of one server. A connection beyond the limit replaces the longest idle one; if all are busy,
    the new connection is closed."""

    def __init__(
        self,
        most: int,
        each: int = EACH,
        headers_s: float = HEADERS_S,
        *,
        ports: Container[int] = (),
    ) -> None:
        """`ports`: loopback ports, at which the kernel reports the connecting user, as at a unix socket."""
        self.ports = ports
        self._most, self._each, self.headers_s = most, each, headers_s
        self._open = dict[ClientConnection, None]()  # the longest silent first

    def protocol(self, *words: Any, **options: Any) -> ClientConnection:
        """Return a new connection, for `uvicorn.Config(http=...)`."""
        return ClientConnection(self, *words, **options)

    def opened(self, connection: ClientConnection) -> None:
        self._open[connection] = None
        mine = [other for other in self._open if other.peer == connection.peer]
        if connection.peer is not None and len(mine) > self._each:
            next(other for other in mine if not other.busy).drop()
        elif len(self._open) > self._most:
            next(other for other in self._open if not other.busy).drop()

    def silent(self, connection: ClientConnection) -> None:
        """Note that the connection's request is answered."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def closed(self, connection: ClientConnection) -> None:
        self._open.pop(connection, None)


class ClientConnection(HttpToolsProtocol):
    """One connection. It is closed when headers take too long, and answered 431 when they are too large."""

    def __init__(self, all: Connections, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._all = all
        self._timer: TimerHandle | None = None
        self._count, self._bytes, self._in_headers = 0, 0, True
        self.peer: int | None = None  #: the uid at the other end, if the kernel says so
        self.busy = False  #: it has a request

    def drop(self) -> None:
        """Close the connection without an answer."""
        self._all.closed(self)
        self.transport.abort()

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self.app_state: dict[str, Any] = {**self.app_state, LINE: self}
        self._know_peer(transport.get_extra_info("socket"))
        self._wait_for_headers()
        self._all.opened(self)

    def _know_peer(self, connection: socket.socket) -> None:
        """Put the peer's uid, as the kernel reports it, into the state of each request from a user of this machine."""
        if connection.family == socket.AF_UNIX or connection.getsockname()[1] in self._all.ports:
            self.peer = unix_sockets.uid_of_peer(connection)
            self.app_state = {**self.app_state, PEER: self.peer}

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_are_there()
        self._all.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._too_large() and not self.transport.is_closing():
            self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._count, self._in_headers = 0, True
        self._wait_for_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += 1
        if self._count <= HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._headers_are_there()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self._bytes = size  # what came so far may be of the body
        if self._too_large():
            raise _TooLarge  # the parser stops
        self._in_headers, self._bytes = False, 0
        self.busy = True
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline:
            self.busy = False
            self._all.silent(self)
            self._wait_for_headers()

    def send_400_response(self, msg: str) -> None:
        if self._in_headers and self._too_large():
            excess = f"more than {HEADERS} headers, or {HEADER_BYTES >> 10} KiB of them"
            self._answer(BadRequest(f"the request has {excess}"), 431)
        else:
            self._answer(BadRequest(msg), 400)

    def _too_large(self) -> bool:
        return self._count > HEADERS or self._bytes > HEADER_BYTES

    def _answer(self, error: TpujobError, status: int) -> None:
        body = json.dumps(error.as_json()).encode()
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: application/json\r\ncache-control: no-store\r\nconnection: close\r\n"
            + b"x-content-type-options: nosniff\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()

    def _wait_for_headers(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._all.headers_s, self.drop)

    def _headers_are_there(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _TooLarge(Exception):
    """Stops the parser of httptools."""


def config_of(app: object, connections: Connections) -> uvicorn.Config:
    """Return how every backend serves HTTP. No header of a proxy is trusted, and there are no web sockets."""
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]
        http=connections.protocol,  # pyright: ignore[reportArgumentType]
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=LAST_ANSWERS,
    )
