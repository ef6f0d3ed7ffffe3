"""The members of a backend in its store: identification of callers, and changes of the list by admins."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from tpujob.api import MemberView
from tpujob.domain import members as rules
from tpujob.domain.access import Principal, Role
from tpujob.domain.members import Member
from tpujob.errors import BadRequest, NotFound
from tpujob.ports import Members

log = logging.getLogger(__name__)


class Membership:
    """Each call reads the store, so that a removed member is refused at the next request."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def recognise(self, id: str, name: str) -> Principal:
        """Return the member who came as that verified principal, under the name in the list. The first principal under
        a name keeps it. Raises Forbidden for anybody else."""
        name = rules.folded(name)
        member = self._members.find(name)
        if member and member.id == id:
            return member.principal
        if renamed := self._members.with_id(id):  # under an older address
            return renamed.principal
        pinned = rules.pinned(member, id, name)
        stored = self._members.change(name, lambda now: rules.pinned(now, id, name))
        log.info("%s is now %s", ascii(name), ascii(id))
        return (stored or pinned).principal

    def members(self) -> list[MemberView]:
        return [_view(member) for member in self._members.all()]

    def give_role(self, caller: Principal, name: str, role: str) -> MemberView:
        """Give that name that role. Raises BadRequest for an invalid one, or when the caller would lose their admin
        role."""
        name, new_role = rules.name_of(name), rules.role_of(role)
        if self._is(caller, name) and new_role is not Role.ADMIN:
            raise BadRequest("this is your own role", hint="Another admin can change it.")
        return self._give(caller, name, new_role)

    def remove_member(self, caller: Principal, name: str) -> None:
        """Remove that name from the members. Their jobs continue; an admin may stop them. Raises NotFound, BadRequest
        as `give_role` does."""
        name = rules.name_of(name)
        if self._members.find(name) is None:
            raise NotFound(f"{name} is not a member", hint="`tpujob members` lists them.")
        if self._is(caller, name):
            raise BadRequest("this is you", hint="Another admin can remove you.")
        self._remove(caller, name)

    def apply(self, by: Principal, target: Mapping[str, Role]) -> None:
        """Make these the only members. Those who stay keep what they had."""
        now = {member.name: member.role for member in self._members.all()}
        give, remove = rules.differences(now, target)
        for name in remove:
            self._remove(by, name)
        for name, role in give.items():
            self._give(by, name, role)

    def _give(self, by: Principal, name: str, role: Role) -> MemberView:
        def given(now: Member | None) -> Member:
            return replace(now, role=role) if now else Member(name, role)

        stored = self._members.change(name, given)
        assert stored is not None
        log.info("%s gave %s the role %s", ascii(by.name), ascii(name), role)
        return _view(stored)

    def _remove(self, by: Principal, name: str) -> None:
        self._members.change(name, lambda _: None)
        log.info("%s removed member %s", ascii(by.name), ascii(name))

    def _is(self, caller: Principal, name: str) -> bool:
        member = self._members.find(name)
        return member is not None and member.id == caller.id


def _view(member: Member) -> MemberView:
    return MemberView(name=member.name, role=member.role, id=member.id)
