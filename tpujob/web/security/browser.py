"""Recognises who opens the page on a port of loopback, which every user of the machine can connect to.

The kernel tells which user connects. Where it does not, as on macOS, the path of each request begins with a
session, `/s/<256 bits>`, for which a one-time code is exchanged. There is no cookie: other ports would get it, too.
"""

import hashlib
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from fastapi import FastAPI, Request
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Scope

from tpujob.config.settings import Settings
from tpujob.domain.access import Principal
from tpujob.errors import BadRequest, Forbidden, TpujobError, Unauthorized
from tpujob.lib import unix_sockets
from tpujob.lib.lru import LruDict
from tpujob.web import errors
from tpujob.web.security.authenticator import check_same_origin
from tpujob.web.security.connections import PEER

log = logging.getLogger(__name__)

CODE_S = 60.0  #: seconds that a code can be used
SESSION_S = 12 * 3600.0  #: seconds without a request after which a session ends
MAX_SESSIONS = (
    100  #: codes, and sessions; one more takes the place of the one that was used longest ago
)
BYTES = 32  #: of a code or a session
ENTER = "/enter/"  #: begins the path with a code
#: one session, not one in another
_WITHIN = re.compile(r"/s/([A-Za-z0-9_-]{43})(?!/s/)(?=/|$)")
#: the path with a code and nothing below it, so that a code opens nothing else
_ENTRY = re.compile(ENTER + r"[^/]+")
#: a visitor with a code, which opens nothing else
_VISITOR = Principal("page:code", "a visitor with a code")


class Sessions:
    """The codes and the sessions of one process. Both are kept as hashes: how long a look-up takes depends on nothing
    that can be guessed piece by piece. Not for use by several threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._codes = LruDict[bytes, float](MAX_SESSIONS)  # when each ends
        self._sessions = LruDict[bytes, float](MAX_SESSIONS)

    def code(self) -> str:
        """Return a new code, which one browser can exchange within `CODE_S`."""
        return self._new(self._codes, CODE_S)

    def enter(self, code: str) -> str:
        """Return the session for a code, which is invalid afterwards. Raises Unauthorized."""
        if self._codes.pop(_hash(code), 0.0) <= self._now():
            raise Unauthorized(
                f"this address was used already, or is older than {CODE_S:.0f} s",
                hint="`tpujob open` opens the page, or prints a new address",
            )
        return self._new(self._sessions, SESSION_S)

    def holds(self, session: str) -> bool:
        """Return whether the session is valid; extend a valid one to `SESSION_S` from now."""
        key = _hash(session)
        if self._sessions.pop(key, 0.0) <= self._now():
            return False
        self._sessions[key] = self._now() + SESSION_S
        return True

    def _new(self, expiries: LruDict[bytes, float], seconds: float) -> str:
        secret = secrets.token_urlsafe(BYTES)
        expiries[_hash(secret)] = self._now() + seconds
        return secret


class BrowserAuthenticator:
    """Accepts only this process's user: by the kernel's uid, or by a session where the kernel reports none."""

    def __init__(self, own: Principal, sessions: Sessions, *, kernel_says: bool) -> None:
        """`kernel_says`: whether the kernel reports the uid at the other end of a loopback connection."""
        self._own, self._sessions, self._kernel_says = own, sessions, kernel_says

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        uid = scope.get("state", {}).get(PEER)
        if uid is None and self._kernel_says:
            raise Unauthorized("the kernel does not say who sent this request")
        if uid not in (None, os.geteuid()):
            raise Forbidden(
                f"this page is {self._own.name}'s alone", hint="`tpujob open` opens your own"
            )
        check_same_origin(scope, headers, "http")
        if _ENTRY.fullmatch(scope["path"]):
            return _VISITOR
        if uid is None and not self._sessions.holds(_session(scope)):
            raise Unauthorized(
                "this address does not open the page, or no longer",
                hint="`tpujob open` in a terminal opens it, or prints a new address",
            )
        return self._own


def within_session(scope: Scope) -> Scope:
    """Return the request with the session moved from its path to its `root_path`, so that no log and no page shows
    it. Links within a page are relative."""
    match = _WITHIN.match(scope["path"])
    if not match:
        return scope
    root, path = match[0], scope["path"][match.end() :] or "/"
    raw: bytes = scope.get("raw_path", b"")
    raw = raw[len(root) :] if raw.startswith(root.encode()) else quote(path).encode()
    return {**scope, "root_path": root, "path": path, "raw_path": raw or b"/"}


def loggable(path: str) -> str:
    """Return a path without the code in it."""
    return ENTER + "..." if path.startswith(ENTER) else path


def add(app: FastAPI, sessions: Sessions) -> None:
    """Add the route that makes codes, and the one at which they are exchanged."""

    @app.post("/v1/page/code", include_in_schema=False)
    async def new_code() -> JSONResponse:
        return JSONResponse({"code": sessions.code()})

    app.add_route(ENTER + "{code}", entry(sessions))
    _ = new_code


def entry(sessions: Sessions) -> Callable[[Request], Awaitable[Response]]:
    """Make the handler that exchanges a code for a session and redirects to the page `to`."""

    async def enter(request: Request) -> Response:
        try:
            to = _own_path(request.query_params.get("to", "/"))
            session = sessions.enter(request.path_params["code"])
        except TpujobError as error:
            return errors.answer(request.scope, error)
        return RedirectResponse(f"/s/{session}{to}", 303)

    return enter


def page_at(settings: Settings) -> tuple[socket.socket, str]:
    """Open a listening socket for the page; return it with its address, the same as last time if it is free."""
    made, taken = unix_sockets.kept_port(settings.page_port)
    address = f"http://127.0.0.1:{made.getsockname()[1]}"
    if taken:
        log.warning("another program has the port %d: the page is at %s now", taken, address)
    return made, address


def _own_path(to: str) -> str:
    odd = not to.startswith("/") or to.startswith("//") or "\\" in to
    if odd or not to.isprintable() or ".." in to:
        raise BadRequest("`to` is not a path of this page", hint="to=/jobs/000042")
    return to


def _session(scope: Scope) -> str:
    root: str = scope.get("root_path", "")
    return root.removeprefix("/s/")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
