"""Who may use this backend, as its store has it: how a caller is recognised, and how an admin changes the list.

Also a user's secrets: set, listed, removed, and asked for by the jobs that name them. No value leaves this way.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from tpujob.api import MemberView, SecretView
from tpujob.domain import members as rules
from tpujob.domain import secrets as secret_rules
from tpujob.domain.access import Principal, Role
from tpujob.domain.members import Member
from tpujob.domain.spec import JobSpec
from tpujob.domain.text import rfc3339
from tpujob.errors import BadRequest, IllegalInState, NotFound
from tpujob.ports import Members, Secrets, Store

log = logging.getLogger(__name__)

#: seconds for which a list of members serves those who were recognised before
RECENT = 10.0


class Membership:
    """Each call reads the store: whoever is removed is a stranger at the next request."""

    def __init__(self, members: Members, clock: Callable[[], float] = time.monotonic) -> None:
        self._members, self._clock = members, clock
        self._reading = threading.Lock()
        self._all: dict[str, Principal] = {}  #: members by their ids, as of `_read_at`
        self._read_at = -RECENT

    def recognise(self, id: str, name: str, *, again: bool = False) -> Principal:
        """The member who came as that verified principal, under the name that the list has. The first who comes under a
        name keeps it. Raises Forbidden for anybody else. `again`: a list that was read `RECENT` seconds ago will do; it
        is read once for all who are asked for."""
        if again and (known := self._recent().get(id)):
            return known
        name = name.strip().lower()
        found = self._members.find(name)
        if found and found.id == id:
            return found.principal
        if known := self._members.with_id(id):  # under an older address
            return known.principal
        pinned = rules.pinned(found, id, name)
        stored = self._members.change(name, lambda now: rules.pinned(now, id, name))
        log.info("%s is now %s", ascii(name), ascii(id))
        return (stored or pinned).principal

    def _recent(self) -> dict[str, Principal]:
        with self._reading:
            if self._clock() - self._read_at >= RECENT:
                every = self._members.all()
                self._all = {one.id: one.principal for one in every if one.id}
                self._read_at = self._clock()
            return self._all

    def list(self) -> list[MemberView]:
        return [_view(member) for member in self._members.all()]

    def give(self, by: Principal, name: str, role: str) -> MemberView:
        """Afterwards that name has that role. Raises BadRequest for what is no name or no role, and for a role of the
        caller's own: nobody shuts themselves out."""
        name, given = rules.name_of(name), rules.role_of(role)
        if self._is(by, name) and given is not Role.ADMIN:
            raise BadRequest("this is your own role", hint="Another admin can change it.")
        return self._give(by, name, given)

    def remove(self, by: Principal, name: str) -> None:
        """Afterwards that name is a stranger's. Their jobs go on; an admin may stop them. Raises NotFound, BadRequest
        as `give` does."""
        name = rules.name_of(name)
        if self._members.find(name) is None:
            raise NotFound(f"{name} is not a member", hint="`tpujob members` lists them.")
        if self._is(by, name):
            raise BadRequest("this is you", hint="Another admin can remove you.")
        self._remove(by, name)

    def apply(self, by: Principal, wanted: Mapping[str, Role]) -> None:
        """Afterwards these are the members, and nobody else; who stays keeps what they had."""
        now = {member.name: member.role for member in self._members.all()}
        give, remove = rules.differences(now, wanted)
        for name in remove:
            self._remove(by, name)
        for name, role in give.items():
            self._give(by, name, role)

    def _give(self, by: Principal, name: str, role: Role) -> MemberView:
        def given(now: Member | None) -> Member:
            return replace(now, role=role) if now else Member(name, role)

        stored = self._members.change(name, given)
        self._read_at = -RECENT
        assert stored is not None
        log.info("%s gave %s the role %s", ascii(by.name), ascii(name), role)
        return _view(stored)

    def _remove(self, by: Principal, name: str) -> None:
        self._members.change(name, lambda _: None)
        self._read_at = -RECENT
        log.info("%s removed member %s", ascii(by.name), ascii(name))

    def _is(self, who: Principal, name: str) -> bool:
        found = self._members.find(name)
        return found is not None and found.id == who.id


def _view(member: Member) -> MemberView:
    return MemberView(name=member.name, role=member.role, id=member.id)


class OwnSecrets:
    """Of whoever calls."""

    def __init__(self, store: Store, secrets: Secrets) -> None:
        self._store, self._secrets = store, secrets

    def list(self, who: Principal) -> list[SecretView]:
        return [
            SecretView(name=one.name, set_at=rfc3339(one.set_at) if one.set_at else None)
            for one in self._secrets.list(who.id)
        ]

    def set(self, who: Principal, name: str, value: str) -> None:
        secret_rules.checked_value(secret_rules.checked_name(name), value)
        self._secrets.put(who.id, name, value)

    def remove(self, who: Principal, name: str) -> None:
        """Raises NotFound; IllegalInState while a job that goes on names it."""
        self._secrets.get(who.id, secret_rules.checked_name(name))
        for job in self._store.list(live=True):
            if job.owner == who.id and name in job.spec.run.secrets:
                raise IllegalInState(
                    f"job {job.id} goes on and names the secret {name}",
                    hint=f"`tpujob secret set {name}` sets another value; `tpujob delete {job.id}` ends the job.",
                )
        self._secrets.remove(who.id, name)

    def check(self, who: Principal, spec: JobSpec) -> None:
        """Raises BadSpec when one that a job of theirs names is not set, or its program could not be told it."""
        values: dict[str, str] = {}
        for name in spec.run.secrets:
            with contextlib.suppress(NotFound):
                values[name] = self._secrets.get(who.id, name)
        secret_rules.check_set(spec.run.secrets, values)
        secret_rules.check_lines(spec.env.docker or "" if spec.env else "", values)
