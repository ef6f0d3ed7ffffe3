"""The port `Members` on the SQLite file of the store."""

from collections.abc import Callable
from sqlite3 import Connection

from tpujob.adapters.sqlite.file import SqliteFile
from tpujob.domain.access import Role
from tpujob.domain.members import Member

_SELECT = "SELECT name, role, id FROM members"


class SqliteMembers:
    """Implements `ports.Members`. Raises as the store does."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def find(self, name: str) -> Member | None:
        with self._file.reading() as db:
            return _one(db, "name", name)

    def with_id(self, id: str) -> Member | None:
        with self._file.reading() as db:
            return _one(db, "id", id) if id else None

    def all(self) -> list[Member]:
        with self._file.reading() as db:
            return [_member(*row) for row in db.execute(f"{_SELECT} ORDER BY name")]

    def change(self, name: str, plan: Callable[[Member | None], Member | None]) -> Member | None:
        with self._file.writing() as db:
            changed = plan(_one(db, "name", name))
            if changed is None:
                db.execute("DELETE FROM members WHERE name = ?", (name,))
            else:
                row = (name, changed.role, changed.id)
                db.execute("INSERT OR REPLACE INTO members VALUES (?, ?, ?)", row)
            return changed


def _one(db: Connection, column: str, value: str) -> Member | None:
    row = db.execute(f"{_SELECT} WHERE {column} = ?", (value,)).fetchone()
    return _member(*row) if row else None


def _member(name: str, role: str, id: str) -> Member:
    return Member(name, Role(role), id)
