"""Who is asking: an authenticator recognises a request's principal, by what it can verify itself alone.

What a principal may do is in `domain/access.py`.
"""

from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.domain.access import Principal
from tpujob.errors import Forbidden, Unauthorized

TICK_PATH = "/v1/tick"  #: all that Cloud Scheduler may ask for
AGAIN = "again"  #: in the state of a request: who sent it was recognised before, and is looked up once more
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})  #: methods that change nothing


class Recognise(Protocol):
    """A verified id and name become a principal."""

    def __call__(self, id: str, name: str, *, again: bool = False) -> Principal:
        """Raises Forbidden for whoever is not on the list. `again`: a list that was read some seconds ago will do."""
        ...


class Authenticator(Protocol):
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


def check_same_origin(scope: Scope, headers: Headers, scheme: str) -> None:
    """Raises Forbidden for a change that a page of another origin asks for; for those that recognise a browser by what
    goes with any request, such as a cookie of IAP. Browsers say `Sec-Fetch-Site`, older ones and programs `Origin`."""
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
