"""How a backend process serves, wherever it runs: its sockets with a door each, its server, and its end."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.domain.access import Principal
from tpujob.web.api import create_app
from tpujob.web.auth.authenticator import Authenticator
from tpujob.web.middleware.connections import Connections, config_of, most_connections
from tpujob.wiring.backend import Backend

#: objects that are made and not freed until the garbage collector runs: a plan of 10,000 jobs makes 40,000
COLLECTED = 100_000


class SocketListener(NamedTuple):
    """A listening socket, and the authenticator of its requests."""

    socket: socket.socket
    door: Authenticator
    loopback: bool = False  #: a port at which the kernel is asked who connects


class Work(Protocol):
    """What a backend does by itself."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Returns when what was begun is done."""
        ...


class Doors:
    """A door for each listening socket: the one that a connection came in by is asked, and no other."""

    def __init__(self, listeners: Sequence[SocketListener]) -> None:
        self._doors = {_place(each.socket.getsockname()): each.door for each in listeners}

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        return await self._doors[_place(scope["server"])].principal(scope, headers)


def serve(
    listeners: Sequence[SocketListener],
    make_app: Callable[[Authenticator, Callable[[], bool]], FastAPI],
    work: Work,
    *,
    started: Callable[[], None] = lambda: None,
    with_loop: bool = True,
    headers: Sequence[tuple[str, str]] = (),
) -> None:
    """Serve on those sockets until SIGTERM; then finish the running ticks and return; `work` goes on meanwhile.
    `make_app` gets the door and a function that tells whether the server is stopping; `started` is called when
    connections are accepted. `headers`: of every answer."""
    app = make_app(Doors(listeners), lambda: server.should_exit)
    ports = {each.socket.getsockname()[1] for each in listeners if each.loopback}
    config = config_of(app, Connections(most_connections(), ports=ports))
    config.headers = list(headers)
    server = uvicorn.Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn raises again what has ended it: nothing below would be done if that killed the process
        signal.signal(number, server.handle_exit)
    if with_loop:
        work.start()
    started()
    try:
        server.run(sockets=[each.socket for each in listeners])
    finally:
        work.stop()


def serve_backend(
    listeners: Sequence[SocketListener],
    parts: Backend,
    *,
    started: Callable[[], None] = lambda: None,
    with_loop: bool = True,
    headers: Sequence[tuple[str, str]] = (),
    **options: Any,
) -> None:
    """As `serve`, with the app of that backend. `options`: those of `create_app`."""
    gc.set_threshold(COLLECTED)

    def make_app(door: Authenticator, stopping: Callable[[], bool]) -> FastAPI:
        api, changes = parts.api, parts.changes
        own = {"changes": changes, "stopping": stopping, "itself": api.itself}
        return create_app(api.acting_for, door, **own, **options)

    serve(listeners, make_app, parts, started=started, with_loop=with_loop, headers=headers)


def _place(name: Any) -> str | int:
    """What tells the listening sockets of a process apart, from a socket's name or a scope's `server`: path or port."""
    if isinstance(name, str):
        return name
    return name[0] if name[1] is None else name[1]
