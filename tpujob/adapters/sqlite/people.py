"""Members, suspects and the outbox, in the SQLite file of the store."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from sqlite3 import Connection

from tpujob.adapters.sqlite.file import SqliteFile
from tpujob.domain.access import Role
from tpujob.domain.codec import message_from_text, suspect_from_text, to_text
from tpujob.domain.failures import host_reputation
from tpujob.domain.members import Member
from tpujob.domain.model import Accusation, Suspect
from tpujob.domain.notifications.model import Message, ReadPosition

_SELECT_MEMBERS = "SELECT name, role, id FROM members"


class SqliteMembers:
    """Implements `ports.Members`. Raises as the store does."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def find(self, name: str) -> Member | None:
        with self._file.reading() as db:
            return _find_member(db, "name", name)

    def with_id(self, id: str) -> Member | None:
        with self._file.reading() as db:
            return _find_member(db, "id", id) if id else None

    def all(self) -> list[Member]:
        with self._file.reading() as db:
            return [_parse_member(*row) for row in db.execute(f"{_SELECT_MEMBERS} ORDER BY name")]

    def change(self, name: str, plan: Callable[[Member | None], Member | None]) -> Member | None:
        with self._file.writing() as db:
            changed = plan(_find_member(db, "name", name))
            if changed is None:
                db.execute("DELETE FROM members WHERE name = ?", (name,))
            else:
                row = (name, changed.role or "", changed.id)
                db.execute("INSERT OR REPLACE INTO members VALUES (?, ?, ?)", row)
            return changed


def _find_member(db: Connection, column: str, value: str) -> Member | None:
    row = db.execute(f"{_SELECT_MEMBERS} WHERE {column} = ?", (value,)).fetchone()
    return _parse_member(*row) if row else None


def _parse_member(name: str, role: str, id: str) -> Member:
    return Member(name, Role(role) if role else None, id)


# Reputation -----------------------------------------------------------------------------------------------------------


class SqliteReputation:
    """Implements `ports.Reputation`. Raises as the store does."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def accuse(self, physicals: Sequence[str], accusation: Accusation) -> None:
        known = "INSERT OR IGNORE INTO accusations VALUES (?)"
        with self._file.writing() as db:
            if db.execute(known, (accusation.op_id,)).rowcount:
                for physical in physicals:
                    suspect = _find_suspect(db, physical)
                    suspect = suspect or Suspect(physical, accusation.zone, accusation.at)
                    _put_suspect(db, host_reputation.accused(suspect, accusation))

    def suspects(self) -> list[Suspect]:
        with self._file.reading() as db:
            rows = db.execute("SELECT document FROM suspects").fetchall()
        return host_reputation.worst_first(suspect_from_text(text) for (text,) in rows)

    def put(self, suspect: Suspect) -> None:
        with self._file.writing() as db:
            _put_suspect(db, suspect)

    def remove(self, physical: str) -> None:
        with self._file.writing() as db:
            db.execute("DELETE FROM suspects WHERE physical = ?", (physical,))


def _find_suspect(db: Connection, physical: str) -> Suspect | None:
    query = "SELECT document FROM suspects WHERE physical = ?"
    row = db.execute(query, (physical,)).fetchone()
    return suspect_from_text(row[0]) if row else None


def _put_suspect(db: Connection, suspect: Suspect) -> None:
    row = (suspect.physical, to_text(suspect))
    db.execute("INSERT OR REPLACE INTO suspects VALUES (?, ?)", row)


# Outbox --------------------------------------------------------------------------------------------------------------


_POSITION = "notes"
_ADVANCE = (
    "INSERT INTO progress VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET change = max(change, excluded.change)"
)


class SqliteOutbox:
    """Implements `ports.Outbox`. Raises as the store does."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def position(self) -> ReadPosition | None:
        query = "SELECT change, since FROM progress WHERE name = ?"
        with self._file.reading() as db:
            row = db.execute(query, (_POSITION,)).fetchone()
        return ReadPosition(*row) if row else None

    def add(self, messages: Sequence[Message], position: ReadPosition | None = None) -> None:
        insert = "INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?, ?)"
        with self._file.writing() as db:
            db.executemany(insert, map(_row, messages))
            if position is not None:
                db.execute(_ADVANCE, (_POSITION, position.change, position.since))

    def due(self, now: float, limit: int) -> list[Message]:
        return self._select("WHERE due <= ? ORDER BY due", now, limit)

    def update(self, messages: Sequence[Message]) -> list[Message] | None:
        stored = [replace(message, version=message.version + 1) for message in messages]
        newest = "SELECT version FROM messages WHERE id = ?"
        with self._file.writing() as db:
            for message in messages:
                if db.execute(newest, (message.id,)).fetchone() != (message.version,):
                    return None
            db.executemany("REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?)", map(_row, stored))
        return stored

    def messages(self, *, channel: str = "", limit: int) -> list[Message]:
        if channel:
            return self._select("WHERE channel = ? ORDER BY until DESC", channel, limit)
        return self._select("ORDER BY until DESC", limit)

    def forget(self, now: float, limit: int) -> None:
        old = "SELECT id FROM messages WHERE until <= ? LIMIT ?"
        with self._file.writing() as db:
            db.execute(f"DELETE FROM messages WHERE id IN ({old})", (now, limit))  # noqa: S608, ours

    def _select(self, clause: str, *parameters: str | float) -> list[Message]:
        query = f"SELECT document FROM messages {clause} LIMIT ?"  # noqa: S608, ours
        with self._file.reading() as db:
            rows = db.execute(query, parameters).fetchall()
        return [message_from_text(text) for (text,) in rows]


def _row(message: Message) -> tuple[str, str, int, float | None, float, str]:
    text = to_text(message)
    return message.id, message.channel, message.version, message.due, message.until, text
