"""Who is asking: a door recognises a request's principal, by what it can verify itself and by nothing else.

What a principal may do is in `domain/access.py`.
"""

from __future__ import annotations

from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.domain.access import Principal
from tpujob.errors import Unauthorized

TICK_PATH = "/v1/tick"  #: all that Cloud Scheduler may ask for


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
