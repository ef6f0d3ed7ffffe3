"""The port `Outbox` on the SQLite file of the store."""

from collections.abc import Sequence
from dataclasses import replace
from sqlite3 import Connection

from tpujob.adapters.records import no_message
from tpujob.adapters.sqlite.file import SqliteFile
from tpujob.domain.codec import channel_from_text, message_from_text, note_from_text, to_text
from tpujob.domain.notify.model import KEPT, Channel, Message, Note, Progress

_NAME = "notes"
_KEEP = "INSERT OR IGNORE INTO notes VALUES (?, ?, 1, ?, ?, ?)"
_MOVE = (
    "INSERT INTO progress VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET change = max(change, excluded.change)"
)


class SqliteOutbox:
    """Implements `ports.Outbox`. Raises as the store does."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    # Notes -----------------------------------------------------------------------------------------------------------

    def progress(self) -> Progress | None:
        query = "SELECT change, since FROM progress WHERE name = ?"
        with self._file.reading() as db:
            row = db.execute(query, (_NAME,)).fetchone()
        return Progress(*row) if row else None

    def note(self, notes: Sequence[tuple[str, Note]], progress: Progress | None = None) -> None:
        rows = [(name, n.key, n.at, n.at + KEPT, to_text(n)) for name, n in notes]
        with self._file.writing() as db:
            db.executemany(_KEEP, rows)
            if progress is not None:
                db.execute(_MOVE, (_NAME, progress.change, progress.since))

    def open(self, channel: str, limit: int) -> list[Note]:
        query = "SELECT document FROM notes WHERE channel = ? AND open ORDER BY at LIMIT ?"
        with self._file.reading() as db:
            rows = db.execute(query, (channel, limit)).fetchall()
        return [note_from_text(text) for (text,) in rows]

    def close(self, channel: str, keys: Sequence[str]) -> None:
        with self._file.writing() as db:
            closed = "UPDATE notes SET open = 0 WHERE channel = ? AND key = ?"
            db.executemany(closed, [(channel, key) for key in keys])

    # Channels --------------------------------------------------------------------------------------------------------

    def channel(self, name: str) -> Channel:
        with self._file.reading() as db:
            row = db.execute("SELECT document FROM channels WHERE name = ?", (name,)).fetchone()
        return channel_from_text(row[0]) if row else Channel(name)

    def write(self, channel: Channel, message: Message | None = None) -> Channel | None:
        stored = replace(channel, version=channel.version + 1)
        with self._file.writing() as db:
            query = "SELECT version FROM channels WHERE name = ?"
            now = (db.execute(query, (channel.name,)).fetchone() or (0,))[0]
            if now != channel.version:
                return None
            row = (channel.name, stored.version, to_text(stored))
            db.execute("INSERT OR REPLACE INTO channels VALUES (?, ?, ?)", row)
            if message:
                _put(db, message)
        return stored

    # Messages --------------------------------------------------------------------------------------------------------

    def message(self, id: str) -> Message:
        with self._file.reading() as db:
            row = db.execute("SELECT document FROM messages WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise no_message(id)
        return message_from_text(row[0])

    def update(self, message: Message) -> Message | None:
        stored = replace(message, version=message.version + 1)
        with self._file.writing() as db:
            query = "SELECT version FROM messages WHERE id = ?"
            row = db.execute(query, (message.id,)).fetchone()
            if row is None or row[0] != message.version:
                return None
            _put(db, stored)
        return stored

    def due(self, now: float, limit: int) -> list[Message]:
        query = "SELECT document FROM messages WHERE due <= ? ORDER BY due LIMIT ?"
        with self._file.reading() as db:
            rows = db.execute(query, (now, limit)).fetchall()
        return [message_from_text(text) for (text,) in rows]

    def messages(self, *, channel: str = "", before: str = "", limit: int) -> list[Message]:
        wanted = {"channel = ?": channel, "id < ?": before}
        given = {clause: value for clause, value in wanted.items() if value}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        query = f"SELECT document FROM messages {where} ORDER BY id DESC LIMIT ?"  # noqa: S608, ours
        with self._file.reading() as db:
            rows = db.execute(query, (*given.values(), limit)).fetchall()
        return [message_from_text(text) for (text,) in rows]

    def forget(self, now: float, limit: int) -> int:
        old = {
            "notes": "(channel, key) IN (SELECT channel, key FROM notes WHERE until <= ? LIMIT ?)",
            "messages": "id IN (SELECT id FROM messages WHERE until <= ? LIMIT ?)",
        }
        with self._file.writing() as db:
            removed = [
                db.execute(f"DELETE FROM {table} WHERE {which}", (now, limit)).rowcount  # noqa: S608, ours
                for table, which in old.items()
            ]
        return sum(removed)


def _put(db: Connection, message: Message) -> None:
    row = (message.id, message.channel, message.version, message.due, message.until)
    db.execute(
        "INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?)", (*row, to_text(message))
    )
