"""HTTP/1.1 servers on uvicorn, for functions that answer Starlette's requests with Starlette's responses.

Each new connection is checked once: other users of the machine are refused.
"""

import asyncio
import contextlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any, BinaryIO, cast

import starlette.requests
import uvicorn
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tpujob.lib import unix_sockets

_PIECE = 256 * 1024  #: bytes of a file that are sent at once
_IDLE_S = 600  #: clients keep their connections between calls
_BACKLOG = 1024
_STRANGER = (
    b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n"
    b"only programs of the user who runs the emulator are served\n"
)
_LOOPBACK = re.compile(r"(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?")


class TooLarge(Exception):
    """A body is larger than its handler accepts."""


class Request(starlette.requests.Request):
    @property
    def path(self) -> str:
        """The path, still percent-encoded."""
        return self.scope["raw_path"].decode("latin-1")

    @property
    def base(self) -> str:
        """The server's address, as the client knows it."""
        return f"{self.scope['scheme']}://{self.headers.get('host', 'localhost')}"

    @property
    def is_from_this_machine(self) -> bool:
        """Whether a program of this machine sent the request, and not a web page in a browser. A page reaches loopback
        by a name that resolves to it, or across origins. No browser trusts the certificate for other names."""
        if self.scope["scheme"] == "https":
            return True
        host, site = self.headers.get("host", ""), self.headers.get("sec-fetch-site", "none")
        return bool(_LOOPBACK.fullmatch(host)) and site == "none" and "origin" not in self.headers

    async def read(self, limit: int = 4 << 20) -> bytes:
        """Return the whole body. Raise TooLarge, ClientDisconnect."""
        body = bytearray()
        async for chunk in self.stream():
            body += chunk
            if len(body) > limit:
                raise TooLarge
        return bytes(body)

    async def json_object(self, limit: int = 4 << 20) -> dict[str, Any]:
        """Return the body as a JSON object. An empty body and `null`, which Google's Go library sends, give an empty
        object. Raise ValueError, TooLarge, ClientDisconnect."""
        try:
            value: Any = json.loads(await self.read(limit) or b"{}")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the body is not JSON: {error}") from error
        if not isinstance(value, dict | None):
            raise ValueError("the body must be a JSON object")
        return cast(dict[str, Any], value or {})


class FilePart(Response):
    """A response with `count` bytes of a file, from `start`, which closes the file after sending."""

    def __init__(
        self, file: BinaryIO, start: int, count: int, status: int, headers: Mapping[str, str]
    ) -> None:
        super().__init__(None, status, {**headers, "Content-Length": str(count)})
        self.file, self._start, self._count = file, start, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        start = {"type": "http.response.start", "status": self.status_code}
        with self.file:
            await send({**start, "headers": self.raw_headers})
            self.file.seek(self._start)
            count = 0 if scope["method"] == "HEAD" else self._count
            for at in range(0, count, _PIECE):
                piece = self.file.read(min(_PIECE, count - at))
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})


Handler = Callable[[Request], Awaitable[Response]]


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    body = json.dumps(value, ensure_ascii=False)
    return Response(body, status, headers, "application/json; charset=UTF-8")


class LoopThread:
    """A coroutine in a thread and a loop of its own, from the constructor to `stop`."""

    def __init__(
        self, serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], name: str
    ) -> None:
        """`serve` returns soon after its event is set; what it leaves in the loop is then cancelled."""
        self._serve = serve
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Set the event, and wait for the end of the thread. Safe to repeat."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(self._end))


class HttpThread:
    """A server in its own thread, from the constructor to `stop`. Raise OSError when the port is taken."""

    def __init__(
        self,
        handler: Handler,
        address: int | Path,
        *,
        name: str,
        tls: tuple[Path, ssl.SSLContext] | None = None,
    ) -> None:
        """`address`: a port of loopback, which `url` then names, or the path of a Unix socket. `tls`: the path of one
        more Unix socket, and the context for its connections."""
        self._path = address if isinstance(address, Path) else None
        if isinstance(address, Path):
            self._socket = unix_sockets.listen(address)
            self.url = ""
        else:
            self._socket = socket.create_server(("127.0.0.1", address))
            self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = HttpServer(handler)
        self._tls_server, self._tls = HttpServer(handler), tls
        self._tls_socket = unix_sockets.listen(tls[0]) if tls else None
        self._thread = LoopThread(self._main, name)

    def stop(self) -> None:
        """Stop listening and close every connection. Safe to repeat."""
        self._thread.stop()
        for path in (self._path, self._tls[0] if self._tls else None):
            if path:
                unix_sockets.remove(path)

    async def _main(self, end: asyncio.Event) -> None:
        await self._server.serve(self._socket)
        if self._tls and self._tls_socket:
            await self._tls_server.serve(self._tls_socket, self._tls[1])
        await end.wait()
        await self._server.close()
        await self._tls_server.close()


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

    async def serve(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        loop = asyncio.get_running_loop()
        kind = _TlsConnection if tls else _Connection
        make = lambda: kind(self._config, self._state, {})  # noqa: E731
        unix = sock.family == socket.AF_UNIX
        create = loop.create_unix_server if unix else loop.create_server
        if not unix:
            # asyncio sets it only on a socket that names its protocol; without it a body waits for 40 ms
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = await create(make, sock=sock, backlog=_BACKLOG, ssl=tls)

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

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._state.default_headers[:] = [(b"date", formatdate(usegmt=True).encode())]
        request = Request(scope, receive)
        # the client left or must leave
        with contextlib.suppress(starlette.requests.ClientDisconnect, asyncio.CancelledError):
            try:
                response = await self._handler(request)
            except TooLarge:
                response = Response(b"the body is too large\n", 413)
            is_tls = scope["scheme"] == "https"
            await response(scope, receive, _spelling(send) if is_tls else send)


class _Connection(HttpToolsProtocol):
    """A connection from one client."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if not unix_sockets.is_own(transport.get_extra_info("socket")):
            transport.write(_STRANGER)
            transport.close()


class _TlsConnection(_Connection):
    """A connection from TensorFlow, which sends Transfer-Encoding beside Content-Length: `identity`, which RFC 7230 has
    removed, with an empty body, and `chunked` with the pieces of an upload."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        assert self.parser
        self.parser.set_dangerous_leniencies(lenient_chunked_length=True)

    def data_received(self, data: bytes) -> None:
        if not self.cycle or self.cycle.response_complete:  # a request begins
            head, end, body = data.partition(b"\r\n\r\n")
            data = head.replace(b"\r\nTransfer-Encoding: identity", b"") + end + body
        super().data_received(data)


class _Spelled(bytes):
    """The name of a header that uvicorn, which writes all names in lower case, sends as it is spelled."""

    def lower(self) -> bytes:
        return self


#: names of headers that TensorFlow does not find in another spelling
_SPELLINGS = {name.lower(): _Spelled(name) for name in (b"Location", b"Range")}


def _spelling(send: Send) -> Send:
    async def spelled(message: Message) -> None:
        if "headers" in message:
            pairs = message["headers"]
            message["headers"] = [(_SPELLINGS.get(name, name), value) for name, value in pairs]
        await send(message)

    return spelled


async def _run_loop_briefly() -> None:
    """Let asyncio finish accepting and closing, which takes a few turns of its loop."""
    for _ in range(5):
        await asyncio.sleep(0)
