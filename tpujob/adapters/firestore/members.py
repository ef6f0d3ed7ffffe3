"""The port `Members` on Firestore, in the database of the store."""

from collections.abc import Callable

from tpujob.adapters.firestore import records
from tpujob.adapters.firestore.calls import Docs, Firestore
from tpujob.adapters.firestore.records import Found, Put, Remove
from tpujob.domain.access import Role
from tpujob.domain.members import Member


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
