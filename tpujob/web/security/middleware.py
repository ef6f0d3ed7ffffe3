"""The outermost layer of the HTTP API: checks a request's host name, sender and size, and sets the answer's headers.

One ASGI layer around the whole app, so that a new route is closed until it is opened here. Knows nothing of jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import Collection, Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tpujob.engine import Counters
from tpujob.errors import BadRequest, Forbidden, TpujobError
from tpujob.lib import log_context
from tpujob.web import errors
from tpujob.web.security.authenticator import Authenticator
from tpujob.web.security.browser import loggable, within_session
from tpujob.web.security.connections import LOOPBACK, PEER
from tpujob.web.security.limits import OPEN_PATHS, body_limits

log = logging.getLogger(__name__)

#: the one `cache-control` that an answer may have beside `no-store`: of a file whose address changes with its content
FOR_GOOD = "private, max-age=31536000, immutable"
#: that are counted by their name
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"})
#: a `Host` header: a name or an address, and perhaps a port
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?")
#: how much of a refused body is still read, and for how many seconds: a client that is still sending would otherwise
#: see a closed connection instead of the reason
DRAIN_LIMIT = 8 << 20
DRAIN_SECONDS = 5.0


class SecurityMiddleware:
    """Lets a request in when its Host is one of ours (against DNS rebinding), the authenticator recognises the caller,
    and its body is not too large; the app finds the principal in the state of the request. Answers in the API's error
    form otherwise, and when the app raises. An open path needs neither of the first two."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        hosts: Iterable[str] = LOOPBACK,
        counters: Counters | None = None,
        open_paths: Collection[str] = OPEN_PATHS,
    ) -> None:
        """`counters`: of requests. `open_paths`: those that answer anybody, but not where the kernel is asked who
        connects."""
        self._counters = counters or Counters()
        self.app = app
        self._authenticator, self._open = authenticator, open_paths
        self._hosts = {h.lower() for h in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = within_session(scope)
        headers = Headers(scope=scope)
        exchange = _Exchange(scope, receive, send, self._counters)
        with log_context.about(request=exchange.id):
            await self._answer(exchange, scope, headers)

    async def _answer(self, exchange: _Exchange, scope: Scope, headers: Headers) -> None:
        path = scope["path"]
        is_open = path in self._open and PEER not in scope.get("state", {})
        # a probe asks by an address, or by a name of the platform's
        if not is_open and _host(headers) not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            error = "this backend does not answer under that host name"
            await exchange.refuse(BadRequest(error, hint=f"It answers under: {names}."))
            return
        if _foreign(headers) and not _follows_a_link(scope, headers):
            await exchange.refuse(Forbidden("this backend takes no request of another site's page"))
            return
        if not is_open:
            try:
                principal = await self._authenticator.principal(scope, headers)
            except TpujobError as error:
                request = ascii(f"{scope['method']} {loggable(path)}"[:200])
                reason = ascii(error.message[:200])
                log.warning("%s: refused: %s: %s", exchange.id, request, reason)
                await exchange.refuse(error, headers={"www-authenticate": 'Bearer realm="tpujob"'})
                return
            scope["state"] = {**scope.get("state", {}), "principal": principal}
        if exchange.announced_too_much(headers):
            await exchange.refuse(*exchange.too_large)
        else:
            await exchange.run(self.app, scope)


class _Exchange:
    """One request and its answer: counts what comes in, marks what goes out. A body that is too large, or does not
    come in time, ends for the app as if the connection did; the client is answered with the reason."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, counters: Counters) -> None:
        self.id, self._counters = secrets.token_hex(8), counters
        self._scope, self._receive, self._send = scope, receive, send
        self._limit, self._seconds = body_limits(scope["method"], scope["path"])
        self.too_large = BadRequest(f"the request is larger than {self._limit >> 20} MiB"), 413
        self._late = BadRequest(f"the request was not sent within {self._seconds:g} s"), 408
        self._received = 0
        self._more = True  #: of the body, as far as is known
        self._started = False
        self._cut: tuple[BadRequest, int] | None = None  #: why the app gets no more of the body

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            await app(scope, self.receive, self.send)
        except Exception:
            if not self._cut:
                request = f"{scope['method']} {loggable(scope['path'])}"
                log.exception("%s: %s failed", self.id, ascii(request[:200]))
                if self._started:
                    raise
                text = f"the backend failed at this request ({self.id})"
                hint = "its log says more under that number"
                await self.refuse(TpujobError(text, hint=hint))
                return
        if self._cut and not self._started:
            await self.refuse(*self._cut)

    def announced_too_much(self, headers: Headers) -> bool:
        length = headers.get("content-length", "0")
        return length.isdecimal() and int(length) > self._limit

    async def receive(self) -> Message:
        if not self._cut:
            try:
                async with asyncio.timeout_at(self._deadline if self._more else None):
                    message = await self._read()
                if self._received <= self._limit:
                    return message
                self._cut = self.too_large
            except TimeoutError:
                self._cut, self._more = self._late, False  # the rest is not waited for
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._cut and not self._started:
            return  # the app answers to a cut body; the real reason is sent instead
        if message["type"] == "http.response.start":
            self._started = True
            self._count(message["status"])
            self._mark(MutableHeaders(scope=message))
        await self._send(message)

    def _count(self, status: int) -> None:
        """Count the request under its path's template: a path may be anything, and there are few templates."""
        method = self._scope["method"]
        route = getattr(self._scope.get("route"), "path", "")
        method_label = method if method in _METHODS else "other"
        self._counters.requests.labels(method_label, route, str(status)).inc()

    def _mark(self, headers: MutableHeaders) -> None:
        if headers.get("cache-control") != FOR_GOOD:
            headers["cache-control"] = "no-store"
        headers["x-content-type-options"] = "nosniff"
        headers["x-frame-options"] = "DENY"
        headers.setdefault("referrer-policy", "no-referrer")
        headers["x-request-id"] = self.id
        headers.setdefault("content-security-policy", "default-src 'none'; frame-ancestors 'none'")

    async def refuse(
        self, error: TpujobError, status: int = 0, headers: dict[str, str] | None = None
    ) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._drain(), DRAIN_SECONDS)
        answer = errors.answer(self._scope, error, status)
        # what is left of the body is not read, so this connection cannot serve another request
        answer.headers.update({"connection": "close"} | (headers or {}))
        self._mark(answer.headers)
        self._started = True
        self._count(answer.status_code)
        await answer(self._scope, self._receive, self._send)

    async def _drain(self) -> None:
        while self._more and self._received < self._limit + DRAIN_LIMIT:
            await self._read()

    async def _read(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self._more = bool(message.get("more_body", False))
        return message


def _foreign(headers: Headers) -> bool:
    """Return whether a page of another origin sent the request, such as a page at another port of this machine."""
    origins, site = headers.getlist("origin"), headers.get("sec-fetch-site", "none")
    own = headers.get("host", "").strip().lower()
    return site not in ("same-origin", "none") or any(
        origin.lower() not in (f"http://{own}", f"https://{own}") for origin in origins
    )


def _follows_a_link(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser follows a link from another site, such as a chat or a sign-in, to a page of ours. The
    page is shown outside a frame, and changes nothing."""
    return (
        scope["method"] == "GET"
        and not scope["path"].startswith("/v1/")
        and headers.getlist("sec-fetch-mode") == ["navigate"]
        and headers.getlist("sec-fetch-dest") == ["document"]
        and "origin" not in headers
    )


def _host(headers: Headers) -> str:
    """Return the host that the request names, without its port; empty unless it names exactly one."""
    named = headers.getlist("host")
    match = _HOST.fullmatch(named[0].strip().lower()) if len(named) == 1 else None
    return (match[1] or match[2]) if match else ""
