"""Outgoing HTTP: a port of one method, for all requests that no vendor's library sends.

Two adapters: `plain_http.py` is on the standard library, for Unix sockets, for addresses that the caller chose, and for
commands, which urllib3 would slow down by 60 ms; `adapters/pooled_http.py` is on urllib3, and uses the proxy of the
environment. Redirects, signatures, retries and the meaning of a status are for callers. The agent, which imports
neither, has `agent/http_client.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from email.message import Message
from types import MappingProxyType
from typing import IO, NamedTuple, Protocol

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class HttpRequest(NamedTuple):
    method: str
    url: str
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes | IO[bytes] | None = None
    timeout: float = 60.0  #: seconds without a byte after which the request fails
    once: bool = False  #: others may be sent again when an idle connection turns out to be closed

    def sized(self) -> HttpRequest:
        """Return the request with the length of a file, which is read from its beginning."""
        if self.body is None or isinstance(self.body, bytes):
            return self
        length = str(self.body.seek(0, os.SEEK_END))
        self.body.seek(0)
        return self._replace(headers={**self.headers, "Content-Length": length})


class HttpResponse(Protocol):
    """A response of any status, with its body still to be read. The caller closes it."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Message: ...

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
        """Close all idle connections. A later request opens another."""
        ...
