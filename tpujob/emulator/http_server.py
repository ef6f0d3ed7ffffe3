"""HTTP/1.1 over asyncio: bytes become a `Request`, a `Response` becomes bytes.

Who connects is asked once for each connection; other users of the machine are refused.

An upload is read as fast as its handler takes it; a download goes from the file to the socket inside the kernel
(`sendfile`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import deque
from email.utils import formatdate
from pathlib import Path
from typing import Protocol

import httptools

from tpujob.emulator.http_messages import (
    Body,
    Cut,
    FilePart,
    Handler,
    Request,
    Response,
    TooLarge,
    head,
)
from tpujob.lib import unix_sockets

_BODY_HIGH = 1 << 20  # bytes of one body that may wait for its handler
_HEAD_LIMIT = 64 * 1024  # bytes of request line and headers
_QUEUE_LIMIT = 16  # pipelined requests of one connection that may wait
_WRITE_AT_ONCE = 64 * 1024  # a file part up to this size shares a packet with its headers
_BACKLOG = 1024
_STRANGER = b"only programs of the user who runs the emulator are served\n"

_log = logging.getLogger(__name__)


class HttpThread:
    """Serves from a thread with an event loop of its own, from the constructor to `stop`. The constructor raises
    OSError when the port is taken."""

    def __init__(self, handler: Handler, where: int | Path, *, name: str) -> None:
        """`where`: a port of loopback, which `url` is made of, or the path of a Unix socket."""
        self._path = where if isinstance(where, Path) else None
        if isinstance(where, Path):
            self._socket = unix_sockets.listen(where)
            self.url = ""
        else:
            self._socket = socket.create_server(("127.0.0.1", where))
            self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = HttpServer(handler)
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Afterwards nothing listens and every connection is closed. Safe to repeat."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
        if self._path:
            unix_sockets.remove(self._path)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        await self._server.serve(self._socket)
        await self._end.wait()
        await self._server.close()


class HttpServer:
    """Answers on one address; may be started again after `close`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, address: str, port: int = 0) -> int:
        """Listen; returns the port. Raises OSError when it is taken."""
        sock = socket.create_server((address, port))
        await self.serve(sock)
        return int(sock.getsockname()[1])

    async def serve(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        make = lambda: _Connection(self._handler, self._connections)  # noqa: E731
        unix = sock.family == socket.AF_UNIX
        create = loop.create_unix_server if unix else loop.create_server
        self._server = await create(make, sock=sock, backlog=_BACKLOG)

    async def close(self) -> None:
        """Stop listening and drop every connection, answered or not."""
        if self._server is None:
            return
        # Connections that the loop is accepting must be in the set first: `Server.close` would leave them open.
        for sock in self._server.sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
        await _turns()
        self._server.close()
        self._server = None
        for connection in list(self._connections):
            await connection.end()
        await _turns()  # asyncio closes the sockets in these


async def _turns() -> None:
    """Let asyncio finish accepting and closing, which takes a few turns of its loop."""
    for _ in range(5):
        await asyncio.sleep(0)


class _HttpParser(Protocol):
    def feed_data(self, data: bytes) -> None: ...
    def get_method(self) -> bytes: ...
    def should_keep_alive(self) -> bool: ...


class _Connection(asyncio.Protocol):
    """One client's connection. Requests are answered one after the other, in their order."""

    def __init__(self, handler: Handler, open_ones: set[_Connection]) -> None:
        self._handler = handler
        self._open = open_ones
        #: with: keep the connection afterwards
        self._requests: deque[tuple[Request, bool]] = deque()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._target = b""
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._body: Body | None = None  # the body that is arriving
        self._lost = False

    async def end(self) -> None:
        """Close it now, also within a request."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._transport.abort()

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser: _HttpParser = httptools.HttpRequestParser(self)
        self._open.add(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())
        if not unix_sockets.is_own(transport.get_extra_info("socket")):
            self._refuse(403, _STRANGER)

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

    def _refuse(self, status: int, body: bytes = b"") -> None:
        """Answer without reading what comes, and close."""
        headers = {"Connection": "close", "Date": formatdate(usegmt=True)}
        headers["Content-Length"] = str(len(body))
        self._transport.write(head(Response(status, headers)) + body)
        self._transport.close()

    async def _serve(self) -> None:
        while not self._lost:
            self._arrived.clear()
            while self._requests and not self._lost:
                request, keep = self._requests.popleft()
                try:
                    await self._answer(request, keep)
                except (Cut, OSError, RuntimeError):
                    # The client is gone. RuntimeError: asyncio raises it for a sendfile on a
                    # transport that is closing.
                    self._transport.abort()
                    return
                if not keep:
                    self._transport.close()
                    return
            self._pause(False)
            await self._arrived.wait()

    async def _answer(self, request: Request, keep: bool) -> None:
        if request.headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        response = await self._handled(request)
        try:
            # Read what the handler left of the body: the next request follows it.
            async for _ in request.body.chunks():
                pass
            await self._send(request, response, keep)
        finally:
            if isinstance(response.body, FilePart):
                response.body.file.close()

    async def _handled(self, request: Request) -> Response:
        try:
            return await self._handler(request)
        except Cut:
            raise
        except TooLarge:
            return Response(413, body=b"the body is too large\n")
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return Response(500, body=b"the emulator failed; see its log\n")

    async def _send(self, request: Request, response: Response, keep: bool) -> None:
        if response.status != 204:  # must not have a Content-Length
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
