"""Sends HTTP requests with the standard library, without a proxy: implements `Http`."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import weakref
from collections.abc import Callable, Generator
from email.message import Message
from urllib.parse import urlsplit

from tpujob.lib.http import HttpRequest

CHUNK = 65_536  #: bytes that one `read_some` returns, at most
IDLE = 8  #: connections that stay open for later requests


def connection_to(url: str) -> http.client.HTTPConnection:
    """Return a connection to a URL's host, which opens at its first request."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, check: Callable[[socket.socket], None] | None = None) -> None:
        """`check`: called with the open socket, before anything is sent; its errors pass."""
        super().__init__("localhost")
        self._path, self._check = path, check

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        if self._check:
            self._check(self.sock)


class PlainHttp:
    """Implements `Http` for one server. A forked process opens its own connections."""

    def __init__(self, connect: Callable[[], http.client.HTTPConnection]) -> None:
        """`connect`: returns a new connection to the server, whatever the URL of a request; its errors pass."""
        self._connect = connect
        self._idle: list[http.client.HTTPConnection] = []
        self._pid = os.getpid()  #: of the process whose connections these are
        # not at exit, when a thread that still reads would report that nothing answers
        weakref.finalize(self, _close_all, self._idle).atexit = False

    def send(self, request: HttpRequest) -> PlainResponse:
        if self._pid != os.getpid():  # forked: a response here would be taken from the parent
            self._pid = os.getpid()
            self.close()
        while True:
            idle = None
            with contextlib.suppress(IndexError):
                idle = None if request.once else self._idle.pop()
            try:
                return self._exchange(idle or self._connect(), request)
            except ConnectionError:
                if idle is None:
                    raise

    def close(self) -> None:
        _close_all(self._idle)

    def _exchange(
        self, connection: http.client.HTTPConnection, request: HttpRequest
    ) -> PlainResponse:
        connection.timeout = request.timeout
        if connection.sock is not None:
            connection.sock.settimeout(request.timeout)
        url, headers, body = urlsplit(request.url), dict(request.headers), request.body
        target = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
        if body is not None and not isinstance(body, bytes):
            headers["Content-Length"] = str(body.seek(0, os.SEEK_END))
            body.seek(0)
        try:
            with _as_os_error():
                try:
                    connection.request(request.method, target, body, headers)
                except (BrokenPipeError, ConnectionResetError):
                    if connection.sock is None:
                        raise
                    # otherwise the server may have refused the body unread, and sent its reply
                sock = connection.sock  # the connection drops it if this response is the last one
                return PlainResponse(connection.getresponse(), connection, sock, self._release)
        except BaseException:
            connection.close()  # an unread reply would be taken for the next one
            raise

    def _release(self, connection: http.client.HTTPConnection) -> None:
        own = self._pid == os.getpid()
        if connection.sock is not None and own and len(self._idle) < IDLE:
            self._idle.append(connection)
        else:
            connection.close()


class PlainResponse:
    """Implements `HttpResponse`, and lets other threads end it."""

    def __init__(
        self,
        raw: http.client.HTTPResponse,
        connection: http.client.HTTPConnection,
        sock: socket.socket | None,
        release: Callable[[http.client.HTTPConnection], None],
    ) -> None:
        """`release`: called at the end with the connection, which may be reused."""
        self._raw, self._connection, self._sock, self._release = raw, connection, sock, release
        self._left = raw.length  #: bytes of the body to come; None: not announced
        self._closed = False
        self.status: int = raw.status
        self.headers: Message = raw.headers

    def read(self, size: int = -1) -> bytes:
        with _as_os_error():
            return self._counted(self._raw.read(None if size < 0 else size))

    def read_some(self) -> bytes:
        """Return the next bytes as soon as any arrive; empty at the end. Raises as `read` does."""
        with _as_os_error():
            # before Python 3.11.8, `read1` waits for more bytes than are announced
            return b"" if self._left == 0 else self._counted(self._raw.read1(CHUNK))

    def cut(self) -> None:
        """End a read in another thread."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._raw.isclosed():  # unread bytes would be taken for the next response
            self.cut()  # another thread may still read
            self._connection.close()
        self._raw.close()
        self._release(self._connection)

    def _counted(self, data: bytes) -> bytes:
        if self._left is not None:
            if self._left and not data:
                raise ConnectionError("the body ended early")
            self._left -= len(data)
        return data


@contextlib.contextmanager
def _as_os_error() -> Generator[None]:
    try:
        yield
    except http.client.HTTPException as error:
        if isinstance(error, OSError):
            raise
        raise ConnectionError(str(error) or type(error).__name__) from error


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()
