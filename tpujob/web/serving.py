"""How a backend process serves, wherever it runs: its sockets, each with its authenticator, its server, and its end."""

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
    loopback: bool = False  #: a port at which the kernel is asked who connects


class SocketAuthenticators:
    """Asks the authenticator of the listening socket at which a connection came in, and no other."""

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
    """Serve that backend on those sockets until SIGTERM; then finish the running ticks and return. `started` is called
    when connections are accepted. `headers`: of every answer. `options`: those of `create_app`."""
    gc.set_threshold(COLLECTED)
    app = create_app(
        parts.api.acting_for,
        SocketAuthenticators(listeners),
        changes=parts.changes,
        stopping=lambda: server.should_exit,
        itself=parts.api.itself,
        **options,
    )
    ports = {each.socket.getsockname()[1] for each in listeners if each.loopback}
    config = config_of(app, Connections(most_connections(), ports=ports))
    config.headers = list(headers)
    server = uvicorn.Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises again what has ended it: nothing below would be done if that killed the process
        signal.signal(number, server.handle_exit)
    for each in listeners:
        if each.socket.family != socket.AF_UNIX:
            # asyncio sets it only on a socket that names its protocol; without it an answer may wait for 40 ms
            each.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if with_loop:
        parts.start()
    started()
    try:
        server.run(sockets=[each.socket for each in listeners])
    finally:
        parts.stop()


def _place(name: Any) -> str | int:
    """What tells the listening sockets of a process apart, from a socket's name or a scope's `server`: path or port."""
    if isinstance(name, str):
        return name
    return name[0] if name[1] is None else name[1]
