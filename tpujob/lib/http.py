"""Outgoing HTTP: a port of one method, for all requests that no vendor's library sends.

Two adapters: `plain_http.py` is on the standard library, for Unix sockets, for addresses that the caller chose, and for
commands, whose start requests would more than double; `adapters/session_http.py` is on requests, and uses the proxy of
the environment. Redirects, signatures, retries and the meaning of a status are for callers. The agent, which imports
neither, has `agent/http_client.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from email.message import Message
from types import MappingProxyType
from typing import IO, NamedTuple, Protocol


class HttpRequest(NamedTuple):
    method: str
    url: str
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes | IO[bytes] | None = None  #: of a file all, whatever its position
    timeout: float = 60.0  #: seconds without a byte after which the request fails
    once: bool = False  #: others may be sent again when an idle connection turns out to be closed


class HttpResponse(Protocol):
    """A response of any status, with its body still to be read. The caller closes it."""

    status: int
    headers: Message

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, as they were sent, and fewer at the end only; by default all. Raises OSError,
        also when the body ends before its announced length."""
        ...

    def close(self) -> None: ...


class Http(Protocol):
    """Sends requests. Thread-safe."""

    def send(self, request: HttpRequest) -> HttpResponse:
        """Return the response as soon as its headers are there. Raises TimeoutError, ssl.SSLError for a certificate
        that this machine does not trust, and other OSErrors."""
        ...

    def close(self) -> None:
        """Close the idle connections. A later request opens another."""
        ...


class HttpReply(NamedTuple):
    status: int
    headers: Message
    body: bytes


def fetch(http: Http, request: HttpRequest, limit: int = -1) -> HttpReply:
    """Send a request; return the reply with its body, or the first `limit` bytes of it. Raises as `Http` does."""
    with contextlib.closing(http.send(request)) as response:
        return HttpReply(response.status, response.headers, response.read(limit))
