"""The ports `Members` and `Reputation` on Firestore, in the database of the store."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tpujob.adapters.firestore import records
from tpujob.adapters.firestore.calls import Docs, Firestore
from tpujob.adapters.firestore.records import Found, Put, Remove
from tpujob.domain.access import Role
from tpujob.domain.failures import host_reputation
from tpujob.domain.members import Member
from tpujob.domain.model import Suspect


class FirestoreMembers:
    """Implements `ports.Members`. Raises as the store does."""

    def __init__(self, firestore: Firestore) -> None:
        self._db = firestore

    def find(self, name: str) -> Member | None:
        path = _path(name)
        return _member(self._db.change(f"find {name}", [path], lambda docs: (docs[path], [])))

    def with_id(self, id: str) -> Member | None:
        found = self._db.select("find a member", "members", where=[("id", "==", id)]) if id else []
        return _member(found[0]) if found else None

    def all(self) -> list[Member]:
        found = map(_member, self._db.select("list the members", "members"))
        return sorted(filter(None, found), key=lambda member: member.name)

    def change(self, name: str, plan: Callable[[Member | None], Member | None]) -> Member | None:
        path = _path(name)

        def write(docs: Docs) -> tuple[Member | None, list[Put | Remove]]:
            new = plan(_member(docs[path]))
            if new is None:
                return None, [Remove(path)]
            return new, [Put(path, {"name": name, "role": new.role, "id": new.id})]

        return self._db.change(f"change member {name}", [path], write)


def _path(name: str) -> str:
    return f"members/{records.digest(name)}"


def _member(doc: Found | None) -> Member | None:
    if doc is None:
        return None
    name, role, id = (records.field(doc, each, str) for each in ("name", "role", "id"))
    return Member(name, Role(role), id)


# Reputation -----------------------------------------------------------------------------------------------------------


class FirestoreReputation:
    """Implements `ports.Reputation`. Raises as the store does."""

    def __init__(self, firestore: Firestore) -> None:
        self._db = firestore

    def accuse(
        self,
        physicals: Sequence[str],
        *,
        zone: str,
        weight: float,
        reason: str,
        op_id: str,
        at: float,
        owner: str,
    ) -> None:
        made = f"accusations/{records.digest(op_id)}"
        accused = {_suspect_path(physical): physical for physical in physicals}

        def plan(docs: Docs) -> tuple[None, list[Put | Remove]]:
            if docs[made]:
                return None, []
            puts: list[Put | Remove] = [Put(made, {"op": op_id})]
            for path, physical in accused.items():
                doc = docs[path]
                known = records.suspect(doc) if doc else Suspect(physical, zone, 0.0, at)
                known = replace(known, zone=zone or known.zone)
                more = host_reputation.accused(known, weight, reason, at, owner)
                puts.append(Put(path, records.suspect_fields(more)))
            return None, puts

        self._db.change(f"accuse {', '.join(physicals)}", [made, *accused], plan)

    def suspects(self) -> list[Suspect]:
        docs = self._db.select("list the suspects", "suspects")
        return host_reputation.worst_first(map(records.suspect, docs))

    def put(self, suspect: Suspect) -> None:
        put = Put(_suspect_path(suspect.physical), records.suspect_fields(suspect))
        self._db.change(f"pin {suspect.physical}", [], lambda _: (None, [put]))

    def remove(self, physical: str) -> None:
        self._db.remove(f"forget {physical}", [_suspect_path(physical)])


def _suspect_path(physical: str) -> str:
    return f"suspects/{records.digest(physical)}"
