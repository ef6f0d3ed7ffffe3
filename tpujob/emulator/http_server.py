"""HTTP/1.1 servers on uvicorn, which parses requests and writes responses.

Each new connection is checked once: other users of the machine are refused. Bodies are sent in pieces, as fast as the
client takes them.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tpujob.emulator.http_messages import (
    Body,
    Cut,
    FilePart,
    Handler,
    Request,
    Response,
    TooLarge,
    head,
    printable,
)
from tpujob.lib import unix_sockets

_PIECE = 256 * 1024  #: bytes of a file that are sent at once
_IDLE_S = 600  #: clients keep their connections between calls
_BACKLOG = 1024
_STRANGER = b"only programs of the user who runs the emulator are served\n"

_log = logging.getLogger(__name__)


class HttpThread:
    """A server in its own thread, from the constructor to `stop`. Raise OSError when the port is taken."""

    def __init__(self, handler: Handler, address: int | Path, *, name: str) -> None:
        """`address`: a port of loopback, which `url` then names, or the path of a Unix socket."""
        self._path = address if isinstance(address, Path) else None
        if isinstance(address, Path):
            self._socket = unix_sockets.listen(address)
            self.url = ""
        else:
            self._socket = socket.create_server(("127.0.0.1", address))
            self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = HttpServer(handler)
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and close every connection. Safe to repeat."""
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
    """A server on one address; `serve` and `start` may follow `close`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._state = ServerState()
        self._config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_S,
        )
        self._server: asyncio.Server | None = None

    async def start(self, address: str, port: int = 0) -> int:
        """Listen; return the port. Raise OSError when the port is taken."""
        sock = socket.create_server((address, port))
        await self.serve(sock)
        return int(sock.getsockname()[1])

    async def serve(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        make = lambda: _Connection(self._config, self._state, {})  # noqa: E731
        unix = sock.family == socket.AF_UNIX
        create = loop.create_unix_server if unix else loop.create_server
        if not unix:
            # asyncio sets it only on a socket that names its protocol; without it a body waits for 40 ms
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = await create(make, sock=sock, backlog=_BACKLOG)

    async def close(self) -> None:
        """Stop listening and drop every connection, answered or not."""
        if self._server is None:
            return
        # `Server.close` leaves connections open that the loop is just accepting: let the loop register them first.
        for sock in self._server.sockets:
            asyncio.get_running_loop().remove_reader(sock.fileno())
        await _run_loop_briefly()
        self._server.close()
        self._server = None
        for connection in self._state.connections:
            connection.transport.abort()
        await _run_loop_briefly()  # asyncio closes the sockets now
        running = [*self._state.tasks]
        for task in running:
            task.cancel()
        await asyncio.gather(*running)

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request; the signature is that of an ASGI application."""
        request = _request(scope, receive)
        with contextlib.suppress(Cut, asyncio.CancelledError):  # the client left or must leave
            response = await self._call_handler(request)
            try:
                # Read the rest of the body: a client may read no response before it has sent all.
                async for _ in request.body.chunks():
                    pass
                await _send(send, response, only_head=request.method == "HEAD")
            finally:
                if isinstance(response.body, FilePart):
                    response.body.file.close()

    async def _call_handler(self, request: Request) -> Response:
        try:
            return await self._handler(request)
        except Cut:
            raise
        except TooLarge:
            return Response(413, body=b"the body is too large\n")
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return Response(500, body=b"the emulator failed; see its log\n")


class _Connection(HttpToolsProtocol):
    """A connection from one client."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if not unix_sockets.is_own(transport.get_extra_info("socket")):
            length = {"Connection": "close", "Content-Length": str(len(_STRANGER))}
            transport.write(head(Response(403, length)) + _STRANGER)
            transport.close()


async def _run_loop_briefly() -> None:
    """Let asyncio finish accepting and closing, which takes a few turns of its loop."""
    for _ in range(5):
        await asyncio.sleep(0)


def _request(scope: Any, receive: Any) -> Request:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]},{text}" if key in headers else text
    target = b"%b?%b" % (scope["raw_path"], scope["query_string"])
    return Request.parse(scope["method"], target.decode("latin-1"), headers, Body(b"", receive))


async def _send(send: Any, response: Response, *, only_head: bool) -> None:
    if response.status != 204:  # must not have a Content-Length
        response.headers["Content-Length"] = str(response.length)
    response.headers["Date"] = formatdate(usegmt=True)
    lines = [(name.encode(), printable(value).encode()) for name, value in response.headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": lines})
    for piece in () if only_head else _pieces(response.body):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _pieces(body: bytes | FilePart) -> Iterator[bytes]:
    if isinstance(body, bytes):
        yield body
        return
    body.file.seek(body.start)
    for at in range(0, body.count, _PIECE):
        yield body.file.read(min(_PIECE, body.count - at))
