"""Recognises the user at the other end of a unix socket by what the kernel says, never by what the request says."""

import os
import pwd

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.domain.access import Principal
from tpujob.errors import Forbidden, Unauthorized
from tpujob.web.auth.authenticator import AGAIN, Recognise
from tpujob.web.middleware.connections import PEER


class PeerAuthenticator:
    """The user whose process this is comes in as `own`; others as `recognise` says, or not at all without it."""

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
        again = AGAIN in scope["state"]
        return await run_in_threadpool(self._member, uid, self._recognise, again)

    def _member(self, uid: int, recognise: Recognise, again: bool) -> Principal:
        """May ask other machines: one for the account's name, one for the list of members."""
        try:
            return recognise(f"uid:{uid}", login_name(uid), again=again)
        except Forbidden as error:
            error.hint = f"{error.hint} {self._own.name} runs this backend.".lstrip()
            raise


def login_name(uid: int) -> str:
    """The account's name. Raises Forbidden for a uid without an account: nobody could put it on a list."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise Forbidden(f"the uid {uid} has no account on this machine") from None
