"""The users that call the API in tests: the owner of the stack, and others of each role."""

import hmac

from starlette.datastructures import Headers
from starlette.types import Scope

from tpujob.domain.access import Principal, Role
from tpujob.errors import Unauthorized
from tpujob.web.security.authenticator import bearer


def caller(name: str, role: Role | None = Role.SUBMITTER) -> Principal:
    """Return a principal of that name, with an id that no other name has."""
    return Principal(f"test:{name}", name, role)


ADA = caller("ada", Role.ADMIN)


class TokenDoor:
    """A minimal authenticator: a request with this token is from that principal."""

    def __init__(self, token: str, principal: Principal) -> None:
        self._token, self._who = token.encode(), principal

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        if not hmac.compare_digest(bearer(headers).encode(), self._token):
            raise Unauthorized("the token is missing or wrong", hint="show the right one")
        return self._who


class NamedDoor:
    """An authenticator for tests of pages, where a browser has no token: the header `x-test-name` names the principal;
    without the header it is the first one."""

    def __init__(self, *people: Principal) -> None:
        self._people = {person.name: person for person in people}
        self._first = people[0]

    def forget(self, name: str) -> None:
        del self._people[name]

    async def principal(self, scope: Scope, headers: Headers) -> Principal:
        name = headers.get("x-test-name", self._first.name)
        if name not in self._people:
            raise Unauthorized("nobody is signed in", hint="`tpujob open` opens the page")
        return self._people[name]
