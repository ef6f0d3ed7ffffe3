"""Who is asking: a door recognises a request's principal, by what it can verify itself and by nothing else.

What a principal may do is in `domain/access.py`.
"""

from __future__ import annotations

import hmac
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.domain.access import SCHEDULER, Principal
from tpujob.errors import Unauthorized
from tpujob.web.scheduler import TICK_PATH, Scheduler


class Door(Protocol):
    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        """Whoever sent this request. Raises Unauthorized when nobody knows; Forbidden when they are known and have
        nothing to do here."""
        ...


def bearer(headers: Headers) -> str:
    """What the one `Authorization: Bearer` header has. Raises Unauthorized unless there is exactly one."""
    given = headers.getlist("authorization")
    scheme, _, value = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not value.strip():
        raise Unauthorized("the request has no token", hint="Authorization: Bearer TOKEN")
    return value.strip()


class TokenDoor:
    """Whoever shows the one token is that principal; the scheduler is recognised by its own."""

    def __init__(self, token: str, who: Principal, scheduler: Scheduler | None = None) -> None:
        if not token:
            raise ValueError("a backend without a token would be open to everybody on this machine")
        self._token, self._who, self._scheduler = token.encode(), who, scheduler

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        given = bearer(headers)
        if self._scheduler and scope["path"] == TICK_PATH and self._scheduler.sent(given):
            return SCHEDULER
        if not hmac.compare_digest(given.encode(), self._token):
            raise Unauthorized(
                "the token is missing or wrong", hint="the backend's token file holds the right one"
            )
        return self._who
