"""Authenticators recognise the principal of a request by facts that this process verifies itself.

What a principal may do is in `domain/access.py`.
"""

import os
import pwd
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.domain.access import Principal
from tpujob.domain.members import folded
from tpujob.errors import Forbidden, Unauthorized
from tpujob.web.security.connections import PEER

TICK_PATH = "/v1/tick"  #: all that Cloud Scheduler may ask for
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})  #: methods that change nothing


#: makes a principal of a verified id and name. Raises Forbidden for a user who is not on the list.
Recognise = Callable[[str, str], Principal]


class Authenticator(Protocol):
    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        """Return who sent this request. Raises Unauthorized when that is unknown, Forbidden when they may not use this
        backend."""
        ...


def bearer(headers: Headers) -> str:
    """Return the token of the one `Authorization: Bearer` header. Raises Unauthorized unless there is exactly one."""
    values = headers.getlist("authorization")
    scheme, _, value = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not value.strip():
        raise Unauthorized("the request has no token", hint="Authorization: Bearer TOKEN")
    return value.strip()


def check_same_origin(scope: Scope, headers: Headers, scheme: str) -> None:
    """Raise Forbidden for a change that a page of another origin requests. Needed where a browser is recognised by what
    goes with any request, such as IAP's cookie. Browsers send `Sec-Fetch-Site`, older ones and programs `Origin`."""
    if scope["method"] in SAFE:
        return
    site, origins = headers.getlist("sec-fetch-site"), headers.getlist("origin")
    if site:
        same = site == ["same-origin"]
    else:
        host = headers.get("host", "").lower()
        same = len(origins) == 1 and urlsplit(origins[0].lower())[:2] == (scheme, host)
    if not same:
        raise Forbidden("a page of another origin asks for this change")


# Unix sockets --------------------------------------------------------------------------------------------------------


class PeerAuthenticator:
    """Accepts this process's user as `own`, and the users that `recognise` returns; no other user without
    `recognise`."""

    def __init__(self, own: Principal, recognise: Recognise | None = None) -> None:
        self._own, self._recognise = own, recognise

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        del headers  # nothing that a client says of itself counts
        uid = scope.get("state", {}).get(PEER)
        if uid is None:
            raise Unauthorized("the kernel does not say who sent this request")
        if uid == os.geteuid():
            return self._own
        if self._recognise is None:
            raise Forbidden(
                f"this backend works for {self._own.name} alone", hint="`tpujob up` starts your own"
            )
        return await run_in_threadpool(self._member, uid, self._recognise)

    def _member(self, uid: int, recognise: Recognise) -> Principal:
        """Return the member with that uid. May call other machines for the account's name and the list of members."""
        try:
            name = login_name(uid)
            return recognise(f"uid:{uid}:{folded(name)}", name)
        except Forbidden as error:
            error.hint = f"{error.hint} {self._own.name} runs this backend.".lstrip()
            raise


def login_name(uid: int) -> str:
    """Return the account's name. Raises Forbidden for a uid without an account, which no list can name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise Forbidden(f"the uid {uid} has no account on this machine") from None
