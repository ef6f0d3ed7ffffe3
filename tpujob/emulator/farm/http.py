"""A small HTTP/1.1 server for asyncio: one request a connection, bounded sizes. The metadata servers and the control
API of the farm stand on it; a metadata server per host is too many for a web framework.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

MAX_HEAD = 64 * 1024
MAX_BODY = 4 * 1024 * 1024
READ_TIMEOUT = 15.0  #: for a whole request to arrive; an answer may take as long as it likes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  #: decoded, without the query
    query: Mapping[str, str]
    headers: Mapping[str, str]  #: names in lower case
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def json_response(value: Any, status: int = 200) -> Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return Response(status, body, {"Content-Type": "application/json"})


Handler = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """Answers on one address until it is closed."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()

    async def start(self, address: str, port: int = 0) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._serve, address, port, limit=MAX_HEAD)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and drop every open connection, answered or not."""
        if self._server is not None:
            self._server.close()
        open_now = [t for t in self._connections if t is not asyncio.current_task()]
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            writer.write(_encode(await self._answer(reader)))
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()  # the peer went away, or this machine was switched off
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> Response:
        try:
            request = await asyncio.wait_for(_read(reader), READ_TIMEOUT)
        except (ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
            return Response(400, f"bad request: {error}\n".encode())
        except asyncio.LimitOverrunError:
            return Response(431)
        try:
            return await self._handler(request)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return Response(500, b"internal error\n")


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _version = start.split(" ")
    pairs = [line.partition(":") for line in lines]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    if not 0 <= length <= MAX_BODY:
        raise ValueError(f"a body of {length} bytes")
    body = await reader.readexactly(length)
    url = urlsplit(target)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    return Request(method, unquote(url.path), query, headers, body)


def _encode(response: Response) -> bytes:
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        **response.headers,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
    }
    reason = HTTPStatus(response.status).phrase
    lines = [f"HTTP/1.1 {response.status} {reason}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + response.body
