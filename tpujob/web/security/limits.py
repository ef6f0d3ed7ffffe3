"""Limits for each caller and for all callers together: requests per second and at once, bytes being received, long
polls and live pages. One ASGI layer inside that of `middleware.py`, which limits the bytes and the seconds of a body.
Connections and sizes of headers are limited in `connections.py`.

A caller is the principal of the request; where there is none, the address that it comes from.
"""

import math
import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from tpujob.errors import Busy
from tpujob.lib.lru import LruDict
from tpujob.web import errors

#: The only ones of a backend that answer anybody. No rate: a refused probe would end the process.
OPEN_PATHS = frozenset({"/health", "/healthz"})
FOLLOW, LIVE = "/v1/follow", "/live"  #: of a long poll, and of the stream of a live page
JSON_LIMIT = 1 << 20  #: bytes of a body
BUNDLE_LIMIT = 100 << 20
JSON_S = 30.0  #: seconds for a body
BUNDLE_S = 600.0


@dataclass(frozen=True, slots=True)
class Rate:
    per_second: float
    burst: int  #: at once, after a pause


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one backend process."""

    reads: Rate = Rate(50, 200)
    changes: Rate = Rate(10, 50)
    at_once: int = 16  #: requests of one caller; long polls and live pages are counted apart
    #: Long polls of one caller, and of all. The pool has 40 threads, the others stay for short calls.
    streams_each: int = 5
    streams: int = 16
    #: Live pages of one caller, and of all. They take no thread; each takes one of the connections.
    lives_each: int = 24
    lives: int = 300
    #: bytes of bodies that are being received or worked on, of all callers together: two of the largest bundles
    in_flight: int = 2 * BUNDLE_LIMIT + (32 << 20)


def body_limits(method: str, path: str) -> tuple[int, float]:
    """Return how many bytes the body of such a request may have, and how many seconds it may take."""
    is_bundle = method == "PUT" and path.startswith("/v1/bundles/")
    return (BUNDLE_LIMIT, BUNDLE_S) if is_bundle else (JSON_LIMIT, JSON_S)


class Buckets:
    """Token buckets by key: each holds `burst` tokens and regains `per_second`. Beyond 10,000 keys, the least recently
    used are forgotten."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._left: LruDict[Hashable, tuple[float, float]] = LruDict(10_000)  # tokens, and when

    def wait(self, key: Hashable, now: float) -> float:
        """Take a token and return 0, or take none and return the seconds until there is one."""
        tokens, at = self._left.pop(key, (float(self.rate.burst), now))
        tokens = min(tokens + (now - at) * self.rate.per_second, self.rate.burst)
        missing = 1 - tokens
        self._left[key] = (tokens - 1 if missing <= 0 else tokens, now)
        return max(missing, 0.0) / self.rate.per_second


def caller_of(scope: Scope) -> Hashable:
    principal = scope.get("state", {}).get("principal")
    return principal.id if principal is not None else (scope.get("client") or ("",))[0]


class Limiter:
    """Answers 429 with `Retry-After` to requests beyond the limits, before their body is read. A long poll beyond its
    limit is let in, with `seat` False in the request's state."""

    def __init__(self, app: ASGIApp, limits: Limits | None = None) -> None:
        self.app = app
        self._limits = in_force = limits or Limits()
        self._buckets = {"read": Buckets(in_force.reads), "write": Buckets(in_force.changes)}
        self._at_once = Counter[Hashable]()
        self._streams = Counter[Hashable]()
        self._lives = Counter[Hashable]()
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        caller, size, path = caller_of(scope), _size(scope), scope["path"]
        refusal = self._refusal(scope, caller, size)
        if refusal:
            again_s = math.ceil(refusal.retry_after)
            await errors.answer(scope, refusal, again_s=again_s)(scope, receive, send)
            return
        count, by = self._lives if path == LIVE else self._at_once, 1
        if path == FOLLOW:
            count, by = self._streams, int(self._has_seat(caller))
            scope["state"] = {**scope.get("state", {}), "seat": bool(by)}
        self._in_flight += size
        count[caller] += by
        try:
            await self.app(scope, receive, send)
        finally:
            self._in_flight -= size
            count[caller] -= by
            if not count[caller]:
                del count[caller]

    def _refusal(self, scope: Scope, caller: Hashable, size: int) -> Busy | None:
        limits, path = self._limits, scope["path"]
        word = "read" if scope["method"] in ("GET", "HEAD") else "write"
        buckets = self._buckets[word]
        if wait := buckets.wait(caller, time.monotonic()):
            text = f"more than {buckets.rate.per_second:g} {word} requests in a second"
            return Busy(text, retry_after=wait)
        if path == LIVE:
            if self._lives[caller] >= limits.lives_each:
                return Busy(f"more than {limits.lives_each} live pages at once", retry_after=10)
            if self._lives.total() >= limits.lives:
                text = "as many live pages are open as the backend keeps up to date"
                return Busy(text, retry_after=10)
        elif path != FOLLOW and self._at_once[caller] >= limits.at_once:
            return Busy(f"more than {limits.at_once} requests at once", retry_after=1)
        if self._in_flight + size > limits.in_flight:
            return Busy("the backend is receiving as much as it can", retry_after=2)
        return None

    def _has_seat(self, caller: Hashable) -> bool:
        mine, limits = self._streams, self._limits
        return mine[caller] < limits.streams_each and mine.total() < limits.streams


def _size(scope: Scope) -> int:
    """Return the size of the request's body in bytes as announced, else the limit."""
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return body_limits(scope["method"], scope["path"])[0]
    length = headers.get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0
