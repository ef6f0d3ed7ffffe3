"""How a backend process serves, wherever it runs: its log, its server, and its end."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from tpujob.engine import Loop
from tpujob.web.connections import Connections, most_connections

#: seconds that running requests get when the process is told to end; Cloud Run kills it after ten
LAST_ANSWERS = 5


def log_to_stderr() -> None:
    """Log to standard error, without the lines that libraries write about every call."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for noisy in ("paramiko", "google", "uvicorn.access", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def serve(
    place: socket.socket,
    make_app: Callable[[Callable[[], bool]], FastAPI],
    loop: Loop,
    *,
    started: Callable[[], None] = lambda: None,
    with_loop: bool = True,
) -> None:
    """Serve on that socket until SIGTERM; then finish the running ticks and return. `make_app` gets a function that
    tells whether the server is stopping; `started` is called when connections are accepted."""
    app = make_app(lambda: server.should_exit)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        http=Connections(most_connections()).protocol,  # type: ignore[arg-type]
        lifespan="off",
        timeout_graceful_shutdown=LAST_ANSWERS,
    )
    server = uvicorn.Server(config)
    if with_loop:
        loop.start()
    started()
    try:
        server.run(sockets=[place])
    finally:
        loop.stop()
