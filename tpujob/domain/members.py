"""Members of a backend: their names and roles, and how a caller is identified as one of them. Pure.

The rights of each role are in `access.py`.
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
    role: Role | None  #: None: has left, and what is theirs is kept for an admin to hand over
    #: of the principal who first signed in under this name; empty: no sign-in yet
    id: str = ""

    @property
    def principal(self) -> Principal:
        return Principal(self.id, self.name, self.role)


def folded(text: str) -> str:
    """Return the form of a name in which names are kept and compared: in small letters. No other character is folded
    into one of ASCII."""
    name = text.strip()
    return name.lower() if name.isascii() else name


def name_of(text: str) -> str:
    """Return the normalised name of a member. Raise BadRequest for an invalid one."""
    name = folded(text)
    if not _NAME.fullmatch(name):
        raise BadRequest(
            f"{text[:80]!r} is not the name of a member", hint="It is a login or an e-mail address."
        )
    return name


def role_of(text: str) -> Role:
    """Return the role of that name. Raise BadRequest for an unknown one."""
    try:
        return Role(text)
    except ValueError:
        roles = ", ".join(Role)
        raise BadRequest(f"{text[:80]!r} is not a role", hint=f"It can be {roles}.") from None


def pinned(member: Member | None, id: str, name: str) -> Member:
    """Return the member with the principal's id. The first id that signs in under a name stays: raise Forbidden for
    another id, and for a name that is not a member's."""
    if member is None or member.role is None:
        raise Forbidden(
            f"{name} is not a member", hint="An admin adds members: `tpujob members add NAME ROLE`."
        )
    if member.id not in ("", id):
        raise Forbidden(
            f"{name} is a member, but had another id when last seen",
            hint="If this is another person, an admin gives what the first one owned to a member, and adds the name "
            f"again: `tpujob members remove {name} --to NAME`.",
        )
    return replace(member, id=id)


def differences(
    now: Mapping[str, str], target: Mapping[str, Role]
) -> tuple[dict[str, Role], list[str]]:
    """Return the changes that turn the list `now` into `target`: roles to give, and names to remove. An empty role: has
    left."""
    give = {name: role for name, role in target.items() if now.get(name) != role}
    return give, sorted(name for name, role in now.items() if role and name not in target)
