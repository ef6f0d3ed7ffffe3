"""Sends HTTP requests with the standard library: implements `Http`, without a proxy."""

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
IDLE = 8  #: connections to a server that stay open for later requests

_Origin = tuple[str, str]  #: scheme and host of a URL
_Idle = dict[_Origin, list[http.client.HTTPConnection]]


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
    """Implements `Http`. A forked process opens its own connections."""

    def __init__(
        self, connect: Callable[[str], http.client.HTTPConnection] = connection_to
    ) -> None:
        """`connect`: returns a connection for a URL; see `connection_to`."""
        self._connect = connect
        self._idle: _Idle = {}
        self._busy = set[PlainResponse]()
        self._pid = os.getpid()  #: of the process whose connections these are
        # not at exit, when a thread that still reads would report that nothing answers
        weakref.finalize(self, _close_all, self._idle).atexit = False

    def send(self, request: HttpRequest) -> PlainResponse:
        """Also raises the errors of `connect`, and ValueError for a header that cannot be sent."""
        if self._pid != os.getpid():  # forked: an answer here would be taken from the parent
            self._pid = os.getpid()
            self._busy.clear()
            self.close()
        parts = urlsplit(request.url)
        origin = parts.scheme, parts.netloc
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        while True:
            idle = None if request.once else self._take_idle(origin)
            try:
                return self._exchange(
                    origin, idle or self._connect(request.url), target, request.sized()
                )
            except ConnectionError:
                if idle is None:
                    raise

    def close(self) -> None:
        _close_all(self._idle)

    def cut(self) -> None:
        """Close every connection: threads that wait for the rest of a body see its end."""
        self.close()
        for response in self._busy.copy():
            response.cut()

    def _take_idle(self, origin: _Origin) -> http.client.HTTPConnection | None:
        with contextlib.suppress(LookupError):
            return self._idle[origin].pop()

    def _exchange(
        self,
        origin: _Origin,
        connection: http.client.HTTPConnection,
        target: str,
        request: HttpRequest,
    ) -> PlainResponse:
        connection.timeout = request.timeout
        if connection.sock is not None:
            connection.sock.settimeout(request.timeout)
        try:
            with _as_os_error():
                try:
                    connection.request(request.method, target, request.body, dict(request.headers))
                except (BrokenPipeError, ConnectionResetError):
                    if connection.sock is None:
                        raise
                    # otherwise the server may have refused the body unread, and sent its reply
                sock = connection.sock  # the connection drops it if this response is the last one
                raw = connection.getresponse()
        except BaseException:
            connection.close()  # an unread reply would be taken for the next one
            raise
        response = PlainResponse(connection, sock, raw, lambda it: self._release(origin, it))
        self._busy.add(response)
        return response

    def _release(self, origin: _Origin, response: PlainResponse) -> None:
        self._busy.discard(response)
        connection, own = response.connection, self._pid == os.getpid()
        idle = self._idle.setdefault(origin, [])
        if connection.sock is not None and own and len(idle) < IDLE:
            idle.append(connection)
        else:
            connection.close()


class PlainResponse:
    """Implements `HttpResponse`, and lets other threads end it."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        sock: socket.socket | None,
        raw: http.client.HTTPResponse,
        release: Callable[[PlainResponse], None],
    ) -> None:
        """`release`: called at the end, when the connection may be reused."""
        self.connection = connection
        self._sock, self._raw = sock, raw
        self._left = raw.length  #: bytes of the body to come; None: not announced
        self._release: Callable[[PlainResponse], None] | None = release

    @property
    def status(self) -> int:
        return self._raw.status

    @property
    def headers(self) -> Message:
        return self._raw.headers

    def read(self, size: int = -1) -> bytes:
        with _as_os_error():
            return self._counted(self._raw.read(None if size < 0 else size))

    def read_some(self) -> bytes:
        """Return the next bytes as soon as any arrive; empty at the end. Raises as `read` does."""
        with (
            _as_os_error()
        ):  # before Python 3.11.8, `read1` waits for more bytes than are announced
            return b"" if self._left == 0 else self._counted(self._raw.read1(CHUNK))

    def cut(self) -> None:
        """End a read in another thread."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        release, self._release = self._release, None
        if release is None:
            return
        if not self._raw.isclosed():  # unread bytes would be taken for the next response
            self.cut()  # another thread may still read
            self.connection.close()
        self._raw.close()
        release(self)

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


def _close_all(idle: _Idle) -> None:
    for connections in list(idle.values()):
        while connections:
            connections.pop().close()
