"""A proxy at a local port for the page of a deployed or shared backend: `python -m tpujob.web.proxy`.

The proxy sends a browser's requests to the backend as the user who started the process, and streams the answers back.
The token stays in this process, which ends when its standard input closes, or with Ctrl-C. `tpujob open` starts the
proxy and reads its first line: a JSON object with `page`, the address, and `code`, a one-time code if a browser needs
one."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from tpujob.config import settings as settings_module
from tpujob.config.settings import Settings, prepare
from tpujob.domain.access import Principal
from tpujob.errors import BackendGone, TpujobError, Transient
from tpujob.lib import unix_sockets
from tpujob.lib.plain_http import PlainResponse
from tpujob.web import errors
from tpujob.web.security import browser
from tpujob.web.security.browser import BrowserAuthenticator, Sessions
from tpujob.web.security.connections import Connections, config_of, most_connections
from tpujob.web.security.middleware import SecurityMiddleware
from tpujob.wiring import client

MAX_REQUESTS = 64  #: requests at once, of which each stream of a tab is one
AGAIN_S = 5  #: seconds after which a browser looks again for a backend that is down
#: headers of a request that are passed on: none reveals the page's address here, or the user
FORTH = (
    *("accept", "accept-encoding", "accept-language", "content-type", "idempotency-key"),
    *("if-none-match", "x-tpujob-again", "hx-request", "hx-source", "hx-target"),
)
#: headers of an answer that are passed back: none of the connection, no cookie
BACK = (
    *("content-type", "content-length", "content-encoding", "content-disposition"),
    *("content-security-policy", "referrer-policy", "allow", "cache-control", "etag"),
    *("retry-after", "vary"),
)


class Relay(Protocol):
    """The connection to the backend."""

    @property
    def url(self) -> str: ...
    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> PlainResponse: ...


class BackendProxy:
    """An ASGI app that forwards requests to the backend. Each request holds a thread while it is answered."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._threads = ThreadPoolExecutor(MAX_REQUESTS, "page")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read_body(receive)
        if body is None:
            return  # the browser has gone
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._threads, self._ask, scope, body)
        except TpujobError as error:
            passes = isinstance(error, (BackendGone, Transient)) and scope["method"] == "GET"
            reply = errors.answer(scope, error, again_s=AGAIN_S if passes else 0)
            await reply(scope, receive, send)
            return
        watch = asyncio.create_task(_cut_when_gone(receive, answer))
        try:
            await self._pass_back(scope, answer, send)
        except OSError:
            pass  # it was cut off, and so is what the browser gets
        finally:
            watch.cancel()
            answer.close()

    def _ask(self, scope: Scope, body: bytes) -> PlainResponse:
        received = Headers(scope=scope)
        headers = {name: received[name] for name in FORTH if name in received}
        target = scope["raw_path"].decode("ascii")
        if query := scope["query_string"].decode("ascii"):
            target += f"?{query}"
        return self._relay.ask(scope["method"], target, headers, body)

    async def _pass_back(self, scope: Scope, answer: PlainResponse, send: Send) -> None:
        values = {name: answer.headers[name] for name in BACK}
        headers = {name: value for name, value in values.items() if value is not None}
        if (to := answer.headers["location"]) is not None:
            headers["location"] = self._local_target(to, scope["root_path"])
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": raw})
        loop = asyncio.get_running_loop()
        while piece := await loop.run_in_executor(self._threads, answer.read_some):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _local_target(self, to: str, root: str) -> str:
        """Return the target of the backend's redirect as a path of this page; the first page for another site's
        target."""
        try:
            target, backend = urlsplit(to), urlsplit(self._relay.url)
        except ValueError:
            return f"{root}/"
        own = not (target.scheme or target.netloc) or target[:2] == backend[:2]
        if not own or target.path.startswith("//") or "\\" in to:
            return f"{root}/"
        path = target.path + (f"?{target.query}" if target.query else "")
        return root + path if path.startswith("/") else path


async def _read_body(receive: Receive) -> bytes | None:
    """Return the body, whose size the middleware has limited; None: it was cut off."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _cut_when_gone(receive: Receive, answer: PlainResponse) -> None:
    """End the answer's stream at the backend when the browser disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.cut()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tpujob.web.proxy", description=__doc__)
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
    place, address = browser.page_at(settings)
    kernel_says, sessions = unix_sockets.tells_peers(), Sessions()
    app = opened(relay, settings.user, sessions, kernel_says=kernel_says)
    connections = Connections(most_connections(), ports={place.getsockname()[1]})
    config = config_of(app, connections)
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
    """Return the app that shows the page of the backend behind `relay` to this process's user alone."""
    authenticator = BrowserAuthenticator(
        Principal(f"uid:{os.geteuid()}", user), sessions, kernel_says=kernel_says
    )
    entry = Route(browser.ENTER + "{code}", browser.entry(sessions))
    return SecurityMiddleware(
        Router([entry], default=BackendProxy(relay), redirect_slashes=False),
        authenticator=authenticator,
        open_paths=(),  # what goes through goes with the caller's token
    )


def _end_with_input(server: uvicorn.Server) -> None:
    while os.read(0, 4096):
        pass
    server.should_exit = True


if __name__ == "__main__":
    main()
