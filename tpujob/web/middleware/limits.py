"""How much one caller may take of the backend, and all of them together: requests in a second and at once, bytes that
are being received, time to send a body, long polls, live pages. One ASGI layer inside the guard; connections and the
sizes of headers are in `connections.py`; the guard counts the bytes of a body.

A caller is the principal of the request; where there is none, the address that it comes from.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tpujob.errors import BadRequest, Busy
from tpujob.lib.lru import LruDict
from tpujob.web.middleware import errors
from tpujob.web.middleware.errors import reply

#: The only ones of a backend that answer anybody. No rate: a refused probe would end the process.
OPEN_PATHS = frozenset({"/health", "/healthz"})
JSON_LIMIT = 1 << 20  #: bytes of a body
BUNDLE_LIMIT = 100 << 20


class RequestKind(Enum):
    READ = "read"
    WRITE = "write"
    UPLOAD = "upload"
    STREAM = "stream"  #: a long poll
    LIVE = "live"  #: the stream of a live page
    DOCS = "docs"


@dataclass(frozen=True, slots=True)
class Rate:
    per_second: float
    burst: int  #: at once, after a pause


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one backend process."""

    rates: Mapping[RequestKind, Rate] = field(
        default_factory=lambda: {
            RequestKind.READ: Rate(50, 200),
            RequestKind.WRITE: Rate(10, 50),
            RequestKind.UPLOAD: Rate(2, 20),
            RequestKind.STREAM: Rate(50, 200),
            RequestKind.LIVE: Rate(10, 60),
            RequestKind.DOCS: Rate(1, 10),
        }
    )
    at_once: int = 16  #: requests of one caller; long polls are counted apart
    #: Long polls of one caller, and of all. The pool has 40 threads, the others stay for short calls.
    streams_each: int = 5
    streams: int = 16
    #: Live pages of one caller, and of all. They take no thread; each takes one of the connections.
    lives_each: int = 24
    lives: int = 300
    #: bytes of bodies that are being received or worked on, of all callers together: two of the largest bundles
    in_flight: int = 2 * BUNDLE_LIMIT + (32 << 20)
    body_s: float = 30.0  #: seconds for a body
    upload_s: float = 600.0  #: and for a bundle's


def body_limit(method: str, path: str) -> int:
    """How many bytes the body of such a request may have."""
    return BUNDLE_LIMIT if method == "PUT" and path.startswith("/v1/bundles/") else JSON_LIMIT


def kind_of(method: str, path: str) -> RequestKind:
    if path == "/openapi.json":
        return RequestKind.DOCS
    if path == "/v1/follow":
        return RequestKind.STREAM
    if path == "/live":
        return RequestKind.LIVE
    if method in ("GET", "HEAD"):
        return RequestKind.READ
    return RequestKind.UPLOAD if body_limit(method, path) == BUNDLE_LIMIT else RequestKind.WRITE


class Buckets:
    """How often each of many keys may do something: `burst` times, and then as often as `per_second` gives tokens back.
    Those that are full, or beyond `most` and longest unused, are forgotten."""

    def __init__(self, rate: Rate, most: int = 10_000) -> None:
        self._rate = rate
        self._left: LruDict[Hashable, tuple[float, float]] = LruDict(most)  # tokens, and when

    def wait(self, key: Hashable, now: float) -> float:
        """Takes a token and returns 0, or takes none and returns the seconds until there is one."""
        tokens, at = self._left.pop(key, (float(self._rate.burst), now))
        tokens = min(tokens + (now - at) * self._rate.per_second, self._rate.burst)
        missing = 1 - tokens
        self._left[key] = (tokens - 1 if missing <= 0 else tokens, now)
        return max(missing, 0.0) / self._rate.per_second


def caller_of(scope: Scope) -> Hashable:
    who = scope.get("state", {}).get("principal")
    return who.id if who is not None else (scope.get("client") or ("",))[0]


class Limiter:
    """Answers 429 with `Retry-After` to what is beyond the limits, before any of its body is read; 408 to a body that
    takes too long. A long poll beyond its limit gets in, and finds no seat in the state of its request."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self._clock = app, clock
        self._limits = limits or Limits()
        self._buckets = {kind: Buckets(rate) for kind, rate in self._limits.rates.items()}
        self._at_once = Counter[Hashable]()
        self._streams = Counter[Hashable]()
        self._lives = Counter[Hashable]()
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        kind, caller = kind_of(scope["method"], scope["path"]), caller_of(scope)
        size = _size(scope)
        refusal = self._refusal(kind, caller, size)
        if refusal:
            again_s = math.ceil(refusal.retry_after)
            await errors.answer(scope, refusal, again_s=again_s)(scope, receive, send)
            return
        self._in_flight += size
        try:
            if kind is RequestKind.STREAM:
                await self._stream(caller, scope, receive, send)
            elif kind is RequestKind.LIVE:
                with _Counted(self._lives, caller):
                    await self.app(scope, receive, send)
            else:
                await self._short(kind, caller, scope, receive, send)
        finally:
            self._in_flight -= size

    def _refusal(self, kind: RequestKind, caller: Hashable, size: int) -> Busy | None:
        wait = self._buckets[kind].wait(caller, self._clock())
        if wait:
            rate = self._limits.rates[kind].per_second
            return Busy(f"more than {rate:g} {kind.value} requests in a second", retry_after=wait)
        if kind is RequestKind.LIVE:
            return self._live_refusal(caller)
        if kind is not RequestKind.STREAM and self._at_once[caller] >= self._limits.at_once:
            return Busy(f"more than {self._limits.at_once} requests at once", retry_after=1)
        if self._in_flight + size > self._limits.in_flight:
            return Busy("the backend is receiving as much as it can", retry_after=2)
        return None

    def _live_refusal(self, caller: Hashable) -> Busy | None:
        most = self._limits
        if self._lives[caller] >= most.lives_each:
            return Busy(f"more than {most.lives_each} live pages at once", retry_after=10)
        if self._lives.total() >= most.lives:
            return Busy(
                "as many live pages are open as the backend keeps up to date", retry_after=10
            )
        return None

    async def _stream(self, caller: Hashable, scope: Scope, receive: Receive, send: Send) -> None:
        mine, limits = self._streams, self._limits
        seat = mine[caller] < limits.streams_each and mine.total() < limits.streams
        scope["state"] = {**scope.get("state", {}), "seat": seat}
        with _Counted(mine, caller, int(seat)):
            await self.app(scope, receive, send)

    async def _short(
        self, kind: RequestKind, caller: Hashable, scope: Scope, receive: Receive, send: Send
    ) -> None:
        seconds = self._limits.upload_s if kind is RequestKind.UPLOAD else self._limits.body_s
        with _Counted(self._at_once, caller):
            await _Body(receive, send, seconds).run(self.app, scope)


class _Counted:
    """Counts a caller while it lasts; forgets those of whom nothing is left."""

    def __init__(self, count: Counter[Hashable], caller: Hashable, by: int = 1) -> None:
        self._count, self._caller, self._by = count, caller, by

    def __enter__(self) -> None:
        self._count[self._caller] += self._by

    def __exit__(self, *_: object) -> None:
        self._count[self._caller] -= self._by
        if not self._count[self._caller]:
            del self._count[self._caller]


class _Body:
    """A request whose body must be there in time."""

    def __init__(self, receive: Receive, send: Send, seconds: float) -> None:
        self._receive, self._send, self._seconds = receive, send, seconds
        self._more, self._late, self._started = True, False, False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        self._deadline = asyncio.get_running_loop().time() + self._seconds
        await app(scope, self._read, self._answer)
        if self._late and not self._started:
            late = BadRequest(f"the request was not sent within {self._seconds:g} s")
            await reply(late, 408)(scope, self._receive, self._send)

    async def _read(self) -> Message:
        if not self._more:
            return await self._receive()  # it waits for the end of the connection
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self._late = True
            return {"type": "http.disconnect"}
        self._more = bool(message.get("more_body", False))
        return message

    async def _answer(self, message: Message) -> None:
        if self._late and not self._started:
            return  # the app answers to a cut body; the reason is sent instead
        self._started = True
        await self._send(message)


def _size(scope: Scope) -> int:
    """How many bytes its body may have: as announced, else as many as it is allowed."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return body_limit(scope["method"], scope["path"])
    length = headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0
