"""Serves a backend process: its sockets, each with its authenticator, its server, and its shutdown."""

import gc
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import uvicorn
from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.domain.access import Principal
from tpujob.web.api import create_app
from tpujob.web.security.authenticator import Authenticator
from tpujob.web.security.connections import Connections, config_of, most_connections
from tpujob.wiring.backend import Backend

#: objects that are made and not freed until the garbage collector runs: a plan of 10,000 jobs makes 40,000
COLLECTED = 100_000


class SocketListener(NamedTuple):
    """A listening socket, and the authenticator of its requests."""

    socket: socket.socket
    authenticator: Authenticator
    loopback: bool = False  #: the kernel is asked for the uid of the other end


class SocketAuthenticators:
    """Calls the authenticator of the listening socket that accepted the connection, and no other."""

    def __init__(self, listeners: Sequence[SocketListener]) -> None:
        self._by_place = {_place(x.socket.getsockname()): x.authenticator for x in listeners}

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        return await self._by_place[_place(scope["server"])].principal(scope, headers)


def serve(
    listeners: Sequence[SocketListener],
    parts: Backend,
    *,
    started: Callable[[], None] = lambda: None,
    with_loop: bool = True,
    headers: Sequence[tuple[str, str]] = (),
    **options: Any,
) -> None:
    """Serve the backend on these sockets until SIGTERM; then finish the running ticks and return. `started` is called
    once connections are accepted. `headers` are added to every answer. `options` are passed to `create_app`."""
    gc.set_threshold(COLLECTED)
    app = create_app(
        parts.api.acting_for,
        SocketAuthenticators(listeners),
        changes=parts.changes,
        stopping=lambda: server.should_exit,
        status=parts.api.parts.status,
        **options,
    )
    ports = {listener.socket.getsockname()[1] for listener in listeners if listener.loopback}
    config = config_of(app, Connections(most_connections(), ports=ports))
    config.headers = list(headers)
    server = uvicorn.Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises again what has ended it: nothing below would be done if that killed the process
        signal.signal(number, server.handle_exit)
    for listener in listeners:
        if listener.socket.family != socket.AF_UNIX:
            # asyncio sets it only on a socket that names its protocol; without it an answer may wait for 40 ms
            listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if with_loop:
        parts.start()
    started()
    try:
        server.run(sockets=[listener.socket for listener in listeners])
    finally:
        parts.stop()


def _place(name: Any) -> str | int:
    """Return the path or port that identifies a listening socket, from its name or a scope's `server`."""
    if isinstance(name, str):
        return name
    return name[0] if name[1] is None else name[1]
