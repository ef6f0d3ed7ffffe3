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
    """The connection ended before the body did."""


class TooLarge(Exception):
    """A body is larger than its handler accepts."""


#: brings the next piece of a body, as ASGI has it
Receive = Callable[[], Awaitable[Mapping[str, Any]]]


class Body:
    """A request's body, as it arrives."""

    def __init__(self, held: bytes = b"", receive: Receive | None = None) -> None:
        """`receive`: brings what follows `held`; None: nothing does."""
        self._held, self._receive = held, receive

    async def chunks(self) -> AsyncIterator[bytes]:
        """Each piece once. Raises Cut when the connection ends first."""
        while self._held or await self._more():
            held, self._held = self._held, b""
            yield held

    async def peek(self, size: int = 8192) -> bytes:
        """The first `size` bytes, or all if there are fewer; `chunks` still yields them. Raises Cut."""
        while len(self._held) < size and await self._more():
            pass
        return self._held

    async def read(self, limit: int = 4 << 20) -> bytes:
        """The whole body. Raises TooLarge, Cut."""
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > limit:
                raise TooLarge
            parts.append(chunk)
        return b"".join(parts)

    async def _more(self) -> bool:
        """Wait for the next piece; False: that was all."""
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
    pairs: tuple[tuple[str, str], ...] = ()  #: the query as it came

    @staticmethod
    def parse(method: str, target: str, headers: dict[str, str], body: Body) -> Request:
        path, _, query = target.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        return Request(method, path, dict(pairs), headers, body, tuple(pairs))

    def all(self, name: str) -> list[str]:
        """Every value of a parameter that may be repeated; `query` has the last one."""
        return [value for key, value in self.pairs if key == name]

    @property
    def base(self) -> str:
        """The server's address as the client knows it."""
        return f"http://{self.headers.get('host', 'localhost')}"

    @property
    def of_this_machine(self) -> bool:
        """Whether a program of this machine asks. A web page in a browser reaches loopback, too: by a name that
        resolves to it, or across origins."""
        host, site = self.headers.get("host", ""), self.headers.get("sec-fetch-site", "none")
        return bool(_LOOPBACK.fullmatch(host)) and site == "none" and "origin" not in self.headers

    async def json_object(self, limit: int = 4 << 20) -> dict[str, Any]:
        """The body; an empty object when there is none, or `null`, which Google's Go library sends. Raises
        ValueError, TooLarge, Cut."""
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
    """`count` bytes from `start`; the file is closed once they are sent."""

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
    """Status line and headers."""
    lines = [f"HTTP/1.1 {response.status} {responses.get(response.status, '-')}"]
    lines += [f"{name}: {printable(value)}" for name, value in response.headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def printable(value: str) -> str:
    """The value of a header, which cannot break out of its line."""
    if value.isascii() and value.isprintable():
        return value
    return "".join(c if " " <= c <= "~" else "?" for c in value)
