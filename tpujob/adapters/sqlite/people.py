"""Members, suspects and the outbox, in the SQLite file of the store."""

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from sqlite3 import Connection
from typing import Any

from tpujob.adapters.sqlite.file import SqliteFile
from tpujob.domain.access import Role
from tpujob.domain.codec import message_from_text, to_text
from tpujob.domain.failures import host_reputation
from tpujob.domain.members import Member
from tpujob.domain.model import Suspect
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
                row = (name, changed.role, changed.id)
                db.execute("INSERT OR REPLACE INTO members VALUES (?, ?, ?)", row)
            return changed


def _find_member(db: Connection, column: str, value: str) -> Member | None:
    row = db.execute(f"{_SELECT_MEMBERS} WHERE {column} = ?", (value,)).fetchone()
    return _parse_member(*row) if row else None


def _parse_member(name: str, role: str, id: str) -> Member:
    return Member(name, Role(role), id)


# Reputation -----------------------------------------------------------------------------------------------------------


_SUSPECT_COLUMNS = "physical, zone, score, updated_at, pinned, reasons, owners"


class SqliteReputation:
    """Implements `ports.Reputation`. Raises as the store does."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

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
        with self._file.writing() as db:
            if db.execute("INSERT OR IGNORE INTO accusations VALUES (?)", (op_id,)).rowcount:
                for physical in dict.fromkeys(physicals):
                    suspect = _find_suspect(db, physical) or Suspect(physical, zone, 0.0, at)
                    suspect = replace(suspect, zone=zone or suspect.zone)
                    _put_suspect(db, host_reputation.accused(suspect, weight, reason, at, owner))

    def suspects(self) -> list[Suspect]:
        with self._file.reading() as db:
            rows = db.execute(f"SELECT {_SUSPECT_COLUMNS} FROM suspects").fetchall()  # noqa: S608, ours
        return host_reputation.worst_first(map(_parse_suspect, rows))

    def put(self, suspect: Suspect) -> None:
        with self._file.writing() as db:
            _put_suspect(db, suspect)

    def remove(self, physical: str) -> None:
        with self._file.writing() as db:
            db.execute("DELETE FROM suspects WHERE physical = ?", (physical,))


def _find_suspect(db: Connection, physical: str) -> Suspect | None:
    query = f"SELECT {_SUSPECT_COLUMNS} FROM suspects WHERE physical = ?"  # noqa: S608, ours
    row = db.execute(query, (physical,)).fetchone()
    return _parse_suspect(row) if row else None


def _put_suspect(db: Connection, suspect: Suspect) -> None:
    *values, reasons, owners = astuple(suspect)  # in the order of _SUSPECT_COLUMNS
    row = (*values, json.dumps(reasons), json.dumps(owners))
    db.execute("INSERT OR REPLACE INTO suspects VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _parse_suspect(row: tuple[Any, ...]) -> Suspect:
    physical, zone, score, updated_at, pinned, reasons, owners = row
    parsed = (tuple(json.loads(reasons)), json.loads(owners))
    return Suspect(physical, zone, score, updated_at, pinned, *parsed)


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
