"""Who may use a backend: the list of its members, and how a caller is found on it. Pure.

What each role may do is in `access.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tpujob.domain.access import Principal, Role
from tpujob.errors import BadRequest, Forbidden

#: a login or an e-mail address, in small letters
_NAME = re.compile(r"[a-z0-9_][a-z0-9._+-]{0,63}(@[a-z0-9-]+(\.[a-z0-9-]+)+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Member:
    name: str  #: a login or an e-mail address
    role: Role
    #: of the principal who first signed in under this name; empty: there was none yet
    id: str = ""

    @property
    def principal(self) -> Principal:
        return Principal(self.id, self.name, self.role)


def name_of(given: str) -> str:
    """Return a name as the list has it. Raises BadRequest for an invalid one."""
    name = given.strip().lower()
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"{given[:80]!r} is not the name of a member",
            hint="It is a login or an e-mail address.",
        )
    return name


def role_of(given: str) -> Role:
    """Raises BadRequest for a role that there is not."""
    try:
        return Role(given)
    except ValueError:
        roles = ", ".join(Role)
        raise BadRequest(f"{given[:80]!r} is not a role", hint=f"It can be {roles}.") from None


def pinned(member: Member | None, id: str, name: str) -> Member:
    """Return the member of that name, with the principal's id. The first id that comes under a name is kept: raise
    Forbidden for another one, and for a name that is no member's."""
    if member is None:
        raise Forbidden(
            f"{name} is not a member", hint="An admin adds members: `tpujob members add NAME ROLE`."
        )
    if member.id not in ("", id):
        raise Forbidden(
            f"{name} is a member, but had another id when last seen",
            hint=f"An admin removes and adds the name again: `tpujob members remove {name}`.",
        )
    return replace(member, id=id)


def differences(
    now: Mapping[str, str], wanted: Mapping[str, Role]
) -> tuple[dict[str, Role], list[str]]:
    """Return what makes the one list the other: the roles to give, and the names to remove."""
    give = {name: role for name, role in wanted.items() if now.get(name) != role}
    return give, sorted(now.keys() - wanted.keys())
