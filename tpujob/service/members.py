"""The members of a backend in its store: identification of callers, and changes of the list by admins."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tpujob.api import CallerView, MemberView
from tpujob.domain import members as rules
from tpujob.domain.access import Principal, Role
from tpujob.domain.members import Member
from tpujob.domain.model import Job
from tpujob.domain.text import many
from tpujob.errors import BadRequest, NotFound, Refused, Transient
from tpujob.ports import Members, Secrets, Store

log = logging.getLogger(__name__)


def _no_doubt(name: str) -> str:
    del name
    return ""


@dataclass(frozen=True, slots=True)
class Entrance:
    """How people reach a backend."""

    own: str = ""  #: the user who runs it, and is on no list
    #: returns why nobody can come under that name; empty: somebody can
    doubt: Callable[[str], str] = _no_doubt
    file: str = ""  #: the file that each start makes the list from; empty: none


class Membership:
    """Each call reads the store, so that a removed member is refused at the next request."""

    def __init__(
        self,
        members: Members,
        store: Store,
        secrets: Secrets,
        named: Mapping[str, Sequence[str]] = {},
    ) -> None:
        """`named`: the settings that name a user, by user."""
        self._members, self._store, self._secrets = members, store, secrets
        self._named, self._entrance = named, Entrance()

    def open(self, entrance: Entrance) -> None:
        """Set how people reach the backend, and log the names in settings that are no member's."""
        self._entrance = entrance
        for view in self._strangers():
            settings = ", ".join(view.get("named", ()))
            log.warning("%s is no member, but is named in %s", ascii(view["name"]), settings)

    def recognise(self, id: str, name: str) -> Principal:
        """Return the member who came as that verified principal, under the name in the list. The first principal under
        a name keeps it. Raises Forbidden for anybody else."""
        name = rules.folded(name)
        member = self._members.find(name)
        if member and member.id == id and member.role:
            return member.principal
        known = self._members.with_id(id)  # under an older address
        if known and known.role:
            return known.principal
        pinned = rules.pinned(member, id, name)
        stored = self._members.change(name, lambda now: rules.pinned(now, id, name))
        if known and known.name != name:  # who had left came back under another address
            self._members.change(known.name, lambda now: now if now and now.role else None)
        log.info("%s is now %s", ascii(name), ascii(id))
        return (stored or pinned).principal

    def whoami(self, caller: Principal) -> CallerView:
        return CallerView(id=caller.id, name=caller.name, role=caller.role or "")

    def members(self) -> list[MemberView]:
        all_members = self._members.all()
        views = [_view(member) for member in all_members if member.role]
        left = self._left([member for member in all_members if not member.role])
        return [*views, *(v for v in left if _owns(v)), *self._strangers()]

    def give_role(self, caller: Principal, name: str, role: str) -> MemberView:
        """Give that name that role. Raises BadRequest for an invalid one, or when the caller would lose their admin
        role."""
        name, new_role = rules.name_of(name), rules.role_of(role)
        if self._is(caller, name) and new_role is not Role.ADMIN:
            raise BadRequest("this is your own role", hint="Another admin can change it.")
        return self._give(caller, name, new_role)

    def leaving(self, caller: Principal, name: str) -> Member:
        """Return the member of that name, or who has left. Raises NotFound, BadRequest as `give_role` does."""
        name = rules.name_of(name)
        member = self._members.find(name)
        if member is None:
            raise NotFound(f"{name} is not a member", hint="`tpujob members` lists them.")
        if self._is(caller, name):
            raise BadRequest("this is you", hint="Another admin can remove you.")
        return member

    def heir(self, caller: Principal, leaving: Member, name: str) -> Principal:
        """Return the member of that name who can own the jobs of another one. Raises NotFound, BadRequest."""
        name = rules.name_of(name)
        member = self._members.find(name)
        heir = caller if name == caller.name else member and member.principal
        if heir is None or heir.role is None:
            raise NotFound(f"{name} is not a member", hint="`tpujob members` lists them.")
        if name == leaving.name:
            raise BadRequest(f"{name} cannot take over their own jobs")
        if not heir.id or not heir.at_least(Role.SUBMITTER):
            why = "is a viewer" if heir.id else "has not signed in yet"
            raise BadRequest(f"{name} {why}, and can own no jobs")
        return heir

    def remove(self, caller: Principal, member: Member) -> None:
        """Refuse the member from now on. What is theirs stays on record."""
        self._remove(caller, member.name)

    def settle(self, member: Member) -> MemberView:
        """Return what a member who has left still owns. One who owns nothing is removed from the list, so that another
        person can come under the name."""
        (view,) = self._left([replace(member, role=None)])
        if not _owns(view):
            self._members.change(member.name, lambda now: now if now and now.role else None)
        view["warnings"] = [*view.get("warnings", ()), *self._warnings(member.name, doubt=False)]
        return view

    def apply(self, by: Principal, target: Mapping[str, Role]) -> None:
        """Make these the only members. Those who stay keep what they had."""
        now = {member.name: member.role or "" for member in self._members.all()}
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
        view = _view(stored)
        view["warnings"] = self._warnings(name)
        return view

    def _remove(self, by: Principal, name: str) -> None:
        self._members.change(name, lambda now: replace(now, role=None) if now and now.id else None)
        log.info("%s removed member %s", ascii(by.name), ascii(name))

    def _is(self, caller: Principal, name: str) -> bool:
        member = self._members.find(name)
        return member is not None and member.id == caller.id

    def _warnings(self, name: str, *, doubt: bool = True) -> list[str]:
        entrance = self._entrance
        doubts = [entrance.doubt(name)] if doubt else []
        if entrance.file:
            doubts.append(f"the next start takes the list from {entrance.file}: change it, too")
        return [text for text in doubts if text]

    def _left(self, members: Sequence[Member]) -> list[MemberView]:
        """Return what former members own, or may. Reads all jobs once, and none where nobody has left."""
        if not any(member.id for member in members):
            return [self._left_view(member, 0, []) for member in members]
        # before the list: a record that is repaired in between is in both
        unread, jobs = len(self._store.damaged()), self._store.list()
        return [self._left_view(member, unread, jobs) for member in members]

    def _left_view(self, member: Member, unread: int, every_job: Sequence[Job]) -> MemberView:
        jobs = [job for job in every_job if member.id and job.owner == member.id]
        unread = unread if member.id else 0
        view = _view(member)
        view["jobs"] = len(jobs)
        view["active"] = sum(not job.state.final for job in jobs)
        doubts: list[str] = []
        if unread:
            view["unread"] = unread
            doubts = [
                f"{many(unread, 'record')} cannot be read, and may be theirs: repeat this later"
            ]
        try:
            view["secrets"] = len(self._secrets.list(member.id)) if member.id else 0
        except (Refused, Transient) as error:
            doubts.append(f"it is unknown whether they have secrets: {error.message}")
        if doubts:
            view["warnings"] = doubts
        return view

    def _strangers(self) -> list[MemberView]:
        known = {member.name for member in self._members.all() if member.role}
        known.add(self._entrance.own)
        return [
            MemberView(name=name, role="", id="", named=[*where])
            for name, where in sorted(self._named.items())
            if name not in known
        ]


def _view(member: Member) -> MemberView:
    return MemberView(name=member.name, role=member.role or "", id=member.id)


def _owns(left: MemberView) -> bool:
    """Return whether a former member owns something, or may: what cannot be listed may be there."""
    return bool(left.get("jobs") or left.get("unread") or left.get("secrets", left["id"]))
