"""An HTTP request and an HTTP response, with bodies that stream. No sockets."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http.client import responses
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qsl

_LOOPBACK = re.compile(r"(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?")


class Cut(Exception):
    """The connection ended before the body was complete."""


class TooLarge(Exception):
    """A body is larger than its handler accepts."""


#: receives the next piece of a body, as in ASGI
Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class Body:
    """The body of a request, read as it arrives."""

    def __init__(self, held: bytes = b"", receive: Receive | None = None) -> None:
        """`receive`: gets the pieces after `held`; None: `held` is the whole body."""
        self._held, self._receive = held, receive

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield each piece once. Raise Cut when the connection ends first."""
        while self._held or await self._receive_more():
            held, self._held = self._held, b""
            yield held

    async def peek(self, size: int = 8192) -> bytes:
        """Return the first `size` bytes, or all if there are fewer; `chunks` still yields them. Raise Cut."""
        while len(self._held) < size and await self._receive_more():
            pass
        return self._held

    async def read(self, limit: int = 4 << 20) -> bytes:
        """Return the whole body. Raise TooLarge, Cut."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > limit:
                raise TooLarge
            parts.append(chunk)
        return b"".join(parts)

    async def _receive_more(self) -> bool:
        """Wait for the next piece; return False at the end of the body."""
        if self._receive is None:
            return False
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Cut
        self._held += message["body"]
        if not message["more_body"]:
            self._receive = None
        return True


@dataclass(slots=True)
class Request:
    method: str
    path: str  #: still percent-encoded
    query: dict[str, str]
    headers: dict[str, str]  #: names in lower case
    body: Body
    pairs: tuple[tuple[str, str], ...] = ()  #: the query in its order, with repetitions

    @staticmethod
    def parse(method: str, target: str, headers: dict[str, str], body: Body) -> Request:
        path, _, query = target.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        return Request(method, path, dict(pairs), headers, body, tuple(pairs))

    def all(self, name: str) -> list[str]:
        """Return every value of a parameter that may be repeated; `query` has the last value only."""
        return [value for key, value in self.pairs if key == name]

    @property
    def base(self) -> str:
        """The server's address, as the client knows it."""
        return f"http://{self.headers.get('host', 'localhost')}"

    @property
    def is_from_this_machine(self) -> bool:
        """Whether a program of this machine sent the request, and not a web page in a browser. A page reaches loopback
        by a name that resolves to it, or across origins."""
        host, site = self.headers.get("host", ""), self.headers.get("sec-fetch-site", "none")
        return bool(_LOOPBACK.fullmatch(host)) and site == "none" and "origin" not in self.headers

    async def json_object(self, limit: int = 4 << 20) -> dict[str, Any]:
        """Return the body as a JSON object. An empty body and `null`, which Google's Go library sends, give an empty
        object. Raise ValueError, TooLarge, Cut."""
        try:
            value: Any = json.loads(await self.body.read(limit) or b"{}")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the body is not JSON: {error}") from error
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ValueError("the body must be a JSON object")
        return cast(dict[str, Any], value)


@dataclass(frozen=True, slots=True)
class FilePart:
    """A body of `count` bytes of a file, from `start`. The server closes the file after sending."""

    file: BinaryIO
    start: int
    count: int


@dataclass(slots=True)
class Response:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes | FilePart = b""

    @property
    def length(self) -> int:
        return len(self.body) if isinstance(self.body, bytes) else self.body.count


Handler = Callable[[Request], Awaitable[Response]]


def json_response(value: Any, status: int = 200, **headers: str) -> Response:
    body = json.dumps(value, ensure_ascii=False).encode()
    return Response(status, {"Content-Type": "application/json; charset=UTF-8", **headers}, body)


def head(response: Response) -> bytes:
    """Return the status line and the headers."""
    lines = [f"HTTP/1.1 {response.status} {responses.get(response.status, '-')}"]
    lines += [f"{name}: {printable(value)}" for name, value in response.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def printable(value: str) -> str:
    """Return a header's value without characters that could end its line."""
    if value.isascii() and value.isprintable():
        return value
    return "".join(c if " " <= c <= "~" else "?" for c in value)
