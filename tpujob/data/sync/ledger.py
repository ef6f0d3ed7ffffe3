"""What outlives a killed sync: checksums of local files, what files were copied from, sessions of large uploads, tokens
of large copies, and the folders with unfinished downloads. SQLite, in WAL mode.

Everything in it can be lost without harm: files are read again, and an upload begins anew.
"""

import fcntl
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.data.local import alone
from tpujob.data.objects import LocalFile
from tpujob.errors import IllegalInState

_TABLES = """
CREATE TABLE IF NOT EXISTS hashes (
    path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER, crc32c INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uploads (
    path BLOB, target TEXT, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER, generation INTEGER,
    session TEXT, begun REAL, PRIMARY KEY (path, target)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS origins (
    path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER, origin TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS relays (
    target TEXT PRIMARY KEY, origin TEXT, generation INTEGER, session TEXT, offset INTEGER, crc32c INTEGER, begun REAL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rewrites (
    target TEXT PRIMARY KEY, origin TEXT, generation INTEGER, token TEXT, begun REAL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS folders (path TEXT PRIMARY KEY) WITHOUT ROWID;
"""
#: seconds; a session or a token lives for a week (documented), less a margin for the copy itself
_SESSION_AGE = 6 * 86400.0
#: nanoseconds that a file must be at rest before its checksum is kept: a write in the same tick of the file system's
#: clock as the last one changes nothing of the identity
_REST = 50_000_000
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class RelayState:
    """How far an upload got whose source is no file: the session, and the CRC32C of its first `offset` bytes."""

    session: str
    offset: int = 0
    crc32c: int = 0


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An upload that was begun and not ended."""

    target: str
    session: str
    begun: float  #: Unix time
    size: int | None  #: bytes of the whole, where known


class Ledger:
    """Threads share it; so do processes."""

    def __init__(self, folder: Path) -> None:
        """Raises IllegalInState while another process cleans up."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._in_use = os.open(folder / "in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._claim(fcntl.LOCK_SH)
        except IllegalInState:
            os.close(self._in_use)
            raise
        self._lock = threading.Lock()
        self._new: list[tuple[object, ...]] = []
        self._db = sqlite3.connect(
            folder / "ledger.db", isolation_level=None, check_same_thread=False, timeout=30
        )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        with self._lock:
            self._flush()
            self._db.close()
        os.close(self._in_use)

    def alone(self, source: str, target: str) -> AbstractContextManager[None]:
        """Raises IllegalInState while another process copies the same to the same."""
        name = hashlib.sha256(f"{source}\0{target}".encode()).hexdigest()[:32]
        return alone(
            self._folder / f"{name}.lock",
            f"another `tpujob data sync` copies {source} to {target}",
            hint="wait for it, or end it; nothing was copied here",
        )

    @contextmanager
    def unused(self) -> Generator[None]:
        """Meanwhile nobody else opens it. Raises IllegalInState while another process, which may copy, has it open."""
        self._claim(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self._claim(fcntl.LOCK_SH)

    def _claim(self, kind: int) -> None:
        try:
            fcntl.flock(self._in_use, kind | fcntl.LOCK_NB)
        except OSError:
            other = "copies" if kind == fcntl.LOCK_EX else "cleans up"
            raise IllegalInState(
                f"another `tpujob data` command {other} on this machine",
                hint="wait for it, or end it",
            ) from None

    def checksum(self, file: LocalFile) -> int | None:
        """The CRC32C of the file as it is now, where it was read before."""
        sql = "SELECT crc32c FROM hashes WHERE path = ? AND size = ? AND mtime_ns = ? AND ctime_ns = ? AND inode = ?"
        row = self._row(sql, (file.path, *file.identity))
        return row[0] if row else None

    def keep_checksum(self, file: LocalFile, crc32c: int) -> None:
        if time.time_ns() - max(file.ctime_ns, file.mtime_ns) < _REST:
            return
        with self._lock:
            self._new.append((file.path, *file.identity, crc32c))
            if len(self._new) >= _BATCH:
                self._flush()

    def session(self, file: LocalFile, target: str, generation: int) -> tuple[str, bool]:
        """The session of an upload that was begun, and whether it can go on: not when the file or the object has
        changed since, nor when the session is old. Empty: there is none."""
        row = self._row(
            "SELECT session, size, mtime_ns, ctime_ns, inode, generation, begun FROM uploads"
            " WHERE path = ? AND target = ?",
            (file.path, target),
        )
        if not row:
            return "", False
        session, *identity, begun = row
        fits = tuple(identity) == (*file.identity, generation)
        return session, fits and time.time() - begun < _SESSION_AGE

    def keep_session(self, file: LocalFile, target: str, generation: int, session: str) -> None:
        row = (file.path, target, *file.identity, generation, session, time.time())
        self._write("REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def forget_session(self, file: LocalFile, target: str) -> None:
        self._write("DELETE FROM uploads WHERE path = ? AND target = ?", (file.path, target))

    # what files were copied from, where the source has no checksum to compare

    def origin(self, file: LocalFile) -> str:
        """Empty: not known, or the file has changed since."""
        sql = "SELECT origin FROM origins WHERE path = ? AND size = ? AND mtime_ns = ? AND ctime_ns = ? AND inode = ?"
        row = self._row(sql, (file.path, *file.identity))
        return row[0] if row else ""

    def keep_origin(self, file: LocalFile, origin: str) -> None:
        self._write(
            "REPLACE INTO origins VALUES (?, ?, ?, ?, ?, ?)", (file.path, *file.identity, origin)
        )

    # uploads whose source is no file; `origin` changes with its content

    def relay(self, origin: str, target: str, generation: int) -> tuple[RelayState | None, bool]:
        """How far one got, and whether it can go on, as `session`."""
        sql = (
            "SELECT session, offset, crc32c, origin, generation, begun FROM relays WHERE target = ?"
        )
        row = self._row(sql, (target,))
        if not row:
            return None, False
        fits = tuple(row[3:5]) == (origin, generation) and time.time() - row[5] < _SESSION_AGE
        return RelayState(*row[:3]), fits

    def keep_relay(self, origin: str, target: str, generation: int, state: RelayState) -> None:
        self._write(
            "INSERT INTO relays VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET origin = excluded.origin,"
            " generation = excluded.generation, offset = excluded.offset, crc32c = excluded.crc32c,"
            " begun = iif(session = excluded.session, begun, excluded.begun), session = excluded.session",
            (target, origin, generation, state.session, state.offset, state.crc32c, time.time()),
        )

    def forget_relay(self, target: str) -> None:
        self._write("DELETE FROM relays WHERE target = ?", (target,))

    # copies within Cloud Storage

    def token(self, origin: str, target: str, generation: int) -> str:
        """Of a copy that was begun under that condition; empty: there is none that can go on."""
        row = self._row(
            "SELECT token, begun FROM rewrites WHERE target = ? AND origin = ? AND generation = ?",
            (target, origin, generation),
        )
        return row[0] if row and time.time() - row[1] < _SESSION_AGE else ""

    def keep_token(self, origin: str, target: str, generation: int, token: str) -> None:
        """The age of a token is that of the first of its copy."""
        self._write(
            "INSERT INTO rewrites VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
            " begun = iif(origin = excluded.origin AND generation = excluded.generation, begun, excluded.begun),"
            " origin = excluded.origin, generation = excluded.generation, token = excluded.token",
            (target, origin, generation, token, time.time()),
        )

    def forget_token(self, target: str) -> None:
        self._write("DELETE FROM rewrites WHERE target = ?", (target,))

    # what is left when a sync was ended

    def sessions(self) -> int:
        """How many uploads were begun and not ended."""
        return len(self.unfinished())

    def unfinished(self) -> list[Unfinished]:
        """Uploads that were begun and not ended, by the name of their target."""
        with self._lock:
            rows = self._db.execute(
                "SELECT target, session, begun, size FROM uploads UNION ALL"
                " SELECT target, session, begun, NULL FROM relays ORDER BY target"
            ).fetchall()
        return [Unfinished(*row) for row in rows]

    def forget_unfinished(self, one: Unfinished) -> None:
        for table in ("uploads", "relays"):
            self._write(f"DELETE FROM {table} WHERE session = ?", (one.session,))  # noqa: S608, ours

    def tokens(self) -> int:
        """How many copies within Cloud Storage were begun and not ended."""
        return int(self._row("SELECT count(*) FROM rewrites", ())[0])

    def forget_tokens(self) -> None:
        self._write("DELETE FROM rewrites", ())

    def keep_folder(self, path: str) -> None:
        """Unfinished downloads may be left in that folder."""
        self._write("REPLACE INTO folders VALUES (?)", (path,))

    def forget_folder(self, path: str) -> None:
        self._write("DELETE FROM folders WHERE path = ?", (path,))

    def folders(self) -> list[str]:
        with self._lock:
            return [row[0] for row in self._db.execute("SELECT path FROM folders ORDER BY path")]

    # own

    def _row(self, sql: str, values: Sequence[object]) -> Any:
        with self._lock:
            return self._db.execute(sql, values).fetchone()

    def _write(self, sql: str, values: Sequence[object]) -> None:
        with self._lock:
            self._db.execute(sql, values)

    def _flush(self) -> None:
        if self._new:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("REPLACE INTO hashes VALUES (?, ?, ?, ?, ?, ?)", self._new)
            self._db.execute("COMMIT")
            self._new.clear()
