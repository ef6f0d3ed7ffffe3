"""HTTP/1.1 for the emulated Cloud Storage: bytes become a `Request`, a `Response` becomes bytes.

Knows nothing of objects. Bodies stream both ways with bounded memory: an upload is read as fast as the handler takes
it, a download goes from the file to the socket inside the kernel (`sendfile`).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from email.utils import formatdate
from typing import Protocol

import httptools

from tpujob.emulator.storage.messages import Body, Cut, FilePart, Handler, Request, Response, head

_BODY_HIGH = 1 << 20  # bytes of one body that may wait for its handler
_HEAD_LIMIT = 64 * 1024  # bytes of request line and headers
_QUEUE_LIMIT = 16  # pipelined requests of one connection that may wait
_WRITE_AT_ONCE = 64 * 1024  # a file part up to this size shares a packet with its headers


class Parser(Protocol):
    def feed_data(self, data: bytes) -> None: ...
    def get_method(self) -> bytes: ...
    def should_keep_alive(self) -> bool: ...


class Connection(asyncio.Protocol):
    """One client's connection. Requests are answered one after the other, in their order."""

    def __init__(self, handler: Handler, open_ones: set[Connection]) -> None:
        self._handler = handler
        self._open = open_ones
        self._requests: deque[tuple[Request, bool]] = (
            deque()
        )  # with: keep the connection afterwards
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._target = b""
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._body: Body | None = None  # the one that is arriving
        self._lost = False

    async def end(self) -> None:
        """Close it now, whatever it is at."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._transport.abort()

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser: Parser = httptools.HttpRequestParser(self)
        self._open.add(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._head_size += len(data) if self._body is None else 0
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError):
            self._refuse(400)
            return
        if self._body is None and self._head_size > _HEAD_LIMIT:
            self._refuse(431)
        elif len(self._requests) > _QUEUE_LIMIT or (self._body and self._body.size > _BODY_HIGH):
            self._pause(True)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002, asyncio's signature
        self._lost = True
        self._open.discard(self)
        self._writable.set()
        self._arrived.set()
        if self._body:
            self._body.end(cut=True)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # httptools calls these

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]},{text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        self._head_size = 0
        self._body = Body(wanted=lambda: self._pause(False))
        method = self._parser.get_method().decode("latin-1")
        target = self._target.decode("latin-1")
        request = Request.parse(method, target, self._headers, self._body)
        self._requests.append((request, self._parser.should_keep_alive()))
        self._arrived.set()

    def on_body(self, chunk: bytes) -> None:
        if self._body:
            self._body.feed(chunk)

    def on_message_complete(self) -> None:
        if self._body:
            self._body.end()
            self._body = None

    # own

    def _pause(self, pause: bool) -> None:
        if pause is not self._paused and not self._transport.is_closing():
            self._paused = pause
            (self._transport.pause_reading if pause else self._transport.resume_reading)()

    def _refuse(self, status: int) -> None:
        """An answer to what is no request; nothing that follows on this connection can be understood."""
        headers = {"Content-Length": "0", "Connection": "close", "Date": formatdate(usegmt=True)}
        self._transport.write(head(Response(status, headers)))
        self._transport.close()

    async def _serve(self) -> None:
        while not self._lost:
            while self._requests and not self._lost:
                request, keep = self._requests.popleft()
                try:
                    await self._answer(request, keep)
                except (Cut, OSError, RuntimeError):
                    # The client is gone: nobody is left to answer. RuntimeError is what asyncio
                    # raises for a sendfile on a transport that is closing.
                    self._transport.abort()
                    return
                if not keep:
                    self._transport.close()
                    return
            self._arrived.clear()
            self._pause(False)
            await self._arrived.wait()

    async def _answer(self, request: Request, keep: bool) -> None:
        if request.headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        response = await self._handler(request)
        try:
            # What the handler left of the body has to be taken from the wire before the next request.
            async for _ in request.body.chunks():
                pass
            await self._send(request, response, keep)
        finally:
            if isinstance(response.body, FilePart):
                response.body.file.close()

    async def _send(self, request: Request, response: Response, keep: bool) -> None:
        if response.status != 204:  # which has no body, and must not say so
            response.headers["Content-Length"] = str(response.length)
        response.headers["Date"] = formatdate(usegmt=True)
        response.headers["Connection"] = "keep-alive" if keep else "close"
        start, part = head(response), response.body
        if request.method == "HEAD":
            self._transport.write(start)
        elif isinstance(part, bytes):
            self._transport.write(start + part)
            await self._writable.wait()
        elif part.count <= _WRITE_AT_ONCE:
            part.file.seek(part.start)
            self._transport.write(start + part.file.read(part.count))
        else:
            self._transport.write(start)
            loop = asyncio.get_running_loop()
            await loop.sendfile(self._transport, part.file, part.start, part.count)
            self._paused = False  # sendfile pauses reading on its own, and resumes it


async def serve(sock: socket.socket, handler: Handler) -> tuple[asyncio.Server, set[Connection]]:
    """Answer on a listening socket until the server is closed; the set always holds its open connections."""
    connections: set[Connection] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(handler, connections), sock=sock)
    return server, connections
