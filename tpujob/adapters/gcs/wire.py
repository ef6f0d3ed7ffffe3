"""HTTP/1.1 for many small requests: one connection, one request at a time, nothing repeated.

The standard library's client spends more time on the headers of a small answer than this on the whole request. Knows
nothing of what is asked. The proxy of the environment (HTTPS_PROXY, NO_PROXY) carries TLS; without TLS none is used.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httptools

from tpujob.adapters.gcs.proxy import open_tunnel, proxy_for

_RECEIVE = 1 << 20
_REFUSAL_LIMIT = 64 << 20  # bytes of an answer that is kept in memory


class WireError(OSError):
    """No whole answer came; what the server did is unknown."""


@dataclass(slots=True)
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])  #: names in lower case
    body: bytes = b""  #: empty when it was taken piece by piece
    whole: bool = False


class Wire:
    """Belongs to one thread. A failed request closes the connection; the next one opens another."""

    def __init__(self, url: str, timeout: float) -> None:
        place = urlsplit(url)
        self._tls = place.scheme == "https"
        self._host = place.hostname or ""
        self._port = place.port or (443 if self._tls else 80)
        self.netloc = place.netloc
        self._timeout = timeout
        self._socket: socket.socket | None = None

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] = b"",
        *,
        take: Callable[[bytes], object] | None = None,
    ) -> Answer:
        """The answer, whatever its status. The body of a good one goes to `take`, if given. A body in pieces needs its
        Content-Length in `headers`. Raises WireError; what `take` or `body` raises rises as it is."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if isinstance(body, bytes):
            lines.append(f"Content-Length: {len(body)}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        try:
            return self._exchange(head, body, take)
        except _Foreign as foreign:
            self.close()
            raise (foreign.__cause__ or foreign) from None
        except (OSError, httptools.HttpParserError) as error:
            self.close()
            raise WireError(str(error) or type(error).__name__) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None

    def _exchange(
        self, head: bytes, body: bytes | Iterable[bytes], take: Callable[[bytes], object] | None
    ) -> Answer:
        wire = self._socket = self._socket or self._connect()
        incoming = _Incoming(take)
        cut = False
        try:
            if isinstance(body, bytes):
                wire.sendall(head + body)
            else:
                wire.sendall(head)
                for chunk in _own_errors(body):
                    wire.sendall(chunk)
        except (ConnectionError, TimeoutError):
            cut = True  # a server that refuses early may have said why
        while not incoming.answer.whole:
            data = wire.recv(_RECEIVE)
            if not data:
                raise WireError("the connection was cut before the answer was whole")
            incoming.feed(data)
        if cut or not incoming.keeps_open:
            self.close()
        return incoming.answer

    def _connect(self) -> socket.socket:
        proxy = proxy_for(self._host) if self._tls else None
        at = (proxy.host, proxy.port) if proxy else (self._host, self._port)
        made = socket.create_connection(at, timeout=self._timeout)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.ExitStack() as undo:
            undo.callback(made.close)
            if proxy:
                open_tunnel(made, proxy, self._host, self._port)
            if self._tls:
                made = _tls_context().wrap_socket(made, server_hostname=self._host)
            undo.pop_all()
        return made


class _Foreign(Exception):
    """Carries an error of the caller's own code through ours, as its cause."""


def _own_errors(body: Iterable[bytes]) -> Iterable[bytes]:
    try:
        yield from body
    except OSError as error:
        raise _Foreign from error


class _Incoming:
    """One answer, as it arrives. httptools calls its methods."""

    def __init__(self, take: Callable[[bytes], object] | None) -> None:
        self.answer = Answer()
        self.keeps_open = False
        self._take = take
        self._kept: list[bytes] = []
        self._size = 0
        self._foreign: BaseException | None = None
        self._parser: Any = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            if self._foreign:
                raise _Foreign from self._foreign
            raise

    def on_message_begin(self) -> None:
        self.answer.headers.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.answer.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if self._take and self.answer.status in (200, 206):
            try:
                self._take(data)
            except BaseException as error:
                self._foreign = error
                raise
            return
        self._size += len(data)
        if self._size > _REFUSAL_LIMIT:
            raise ValueError("the answer is too large")
        self._kept.append(data)

    def on_message_complete(self) -> None:
        if self.answer.status == 100:
            return
        self.answer.body = b"".join(self._kept)
        self.answer.whole = True
        self.keeps_open = self._parser.should_keep_alive()


def _tls_context() -> ssl.SSLContext:
    global _context
    if _context is None:
        _context = ssl.create_default_context()
    return _context


_context: ssl.SSLContext | None = None
