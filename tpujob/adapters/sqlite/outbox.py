"""The port `Outbox` on the SQLite file of the store."""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.adapters.sqlite.file import SqliteFile
from tpujob.domain.codec import message_from_text, to_text
from tpujob.domain.notifications.model import Message, ReadPosition

_NAME = "notes"
_MOVE = (
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
            row = db.execute(query, (_NAME,)).fetchone()
        return ReadPosition(*row) if row else None

    def add(self, messages: Sequence[Message], position: ReadPosition | None = None) -> None:
        insert = "INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?, ?, ?)"
        with self._file.writing() as db:
            db.executemany(insert, map(_row, messages))
            if position is not None:
                db.execute(_MOVE, (_NAME, position.change, position.since))

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

    def _select(self, which: str, *given: str | float) -> list[Message]:
        query = f"SELECT document FROM messages {which} LIMIT ?"  # noqa: S608, ours
        with self._file.reading() as db:
            rows = db.execute(query, given).fetchall()
        return [message_from_text(text) for (text,) in rows]


def _row(message: Message) -> tuple[str, str, int, float | None, float, str]:
    what = (message.id, message.channel, message.version, message.due, message.until)
    return *what, to_text(message)
