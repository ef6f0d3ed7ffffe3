"""The page of a context whose backend is elsewhere, at a port of this machine: `python -m tpujob.web.opened`.

It ends when its standard input does, or with Ctrl-C. `tpujob open` starts it, and reads its first line: a JSON object
with `page`, its address, and `code`, a one-time code if a browser needs one.
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading

import uvicorn
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from tpujob.config import settings as settings_module
from tpujob.config.settings import Settings, prepare
from tpujob.domain.access import Principal
from tpujob.errors import TpujobError
from tpujob.lib import unix_sockets
from tpujob.web import page_door
from tpujob.web.connections import Connections, most_connections
from tpujob.web.guard import Guard
from tpujob.web.opened.passing import Passing, Relay
from tpujob.web.page_door import PageDoor, Sessions
from tpujob.web.serving import config_of
from tpujob.wiring import client


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tpujob.web.opened", description=__doc__)
    parser.add_argument("--context", required=True)
    parser.add_argument("--code", action="store_true", help="give a code also if none is needed")
    options = parser.parse_args()
    settings = settings_module.load(context=options.context)
    try:
        _serve(settings, with_code=options.code)
    except TpujobError as error:  # the command that started this process shows it
        sys.exit(f"{error.message}\n{error.hint}".strip())


def _serve(settings: Settings, *, with_code: bool) -> None:
    prepare(settings)
    logging.basicConfig(filename=settings.log_file("page"), level=logging.WARNING)
    relay = client.proxy_client(settings)
    place, address = page_door.page_at(settings)
    kernel_says, sessions = unix_sockets.tells_peers(), Sessions()
    app = opened(relay, settings.user, sessions, kernel_says=kernel_says)
    known = Connections(most_connections(), ports={place.getsockname()[1]})
    config = config_of(app, known)
    config.timeout_graceful_shutdown = 1  # nothing is lost with a stream of a tab
    server = uvicorn.Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)  # uvicorn raises again what has ended it
    threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    code = sessions.code() if with_code or not kernel_says else ""
    print(json.dumps({"page": address, "code": code}), flush=True)
    try:
        server.run(sockets=[place])
    finally:
        relay.close()


def opened(relay: Relay, user: str, sessions: Sessions, *, kernel_says: bool) -> ASGIApp:
    """The page of the backend at the other end of `relay`, for this process's user alone."""
    door = PageDoor(Principal(f"uid:{os.geteuid()}", user), sessions, kernel_says=kernel_says)
    entry = Route(page_door.ENTER + "{code}", page_door.entry(sessions))
    return Guard(
        Router([entry], default=Passing(relay), redirect_slashes=False),
        door=door,
        open_paths=(),  # what goes through goes with the caller's token
    )


def _end_with_input(server: uvicorn.Server) -> None:
    while os.read(0, 4096):
        pass
    server.should_exit = True


if __name__ == "__main__":
    main()
