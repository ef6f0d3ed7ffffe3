"""What outlives a killed sync: checksums of local files, and the sessions of large uploads. SQLite, in WAL mode.

Everything in it can be lost without harm: files are read again, and an upload begins anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

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
"""
#: seconds; a session lives for a week (documented), less a margin for the upload itself
_SESSION_AGE = 6 * 86400.0
#: nanoseconds that a file must be at rest before its checksum is kept: a write in the same tick of the file system's
#: clock as the last one changes nothing of the identity
_REST = 50_000_000
_BATCH = 1000


class Ledger:
    """Threads share it; so do processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
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

    @contextmanager
    def alone(self, source: str, target: str) -> Generator[None]:
        """Raises IllegalInState while another process copies the same to the same."""
        name = hashlib.sha256(f"{source}\0{target}".encode()).hexdigest()[:32]
        with (self._folder / f"{name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise IllegalInState(
                    f"another `tpujob data sync` copies {source} to {target}",
                    hint="wait for it, or end it; nothing was copied here",
                ) from None
            yield

    def checksum(self, file: LocalFile) -> int | None:
        """The CRC32C of the file as it is now, where it was read before."""
        with self._lock:
            row = self._db.execute(
                "SELECT crc32c FROM hashes WHERE path = ? AND size = ? AND mtime_ns = ? AND ctime_ns = ? AND inode = ?",
                (file.path, *file.identity),
            ).fetchone()
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
        with self._lock:
            row = self._db.execute(
                "SELECT session, size, mtime_ns, ctime_ns, inode, generation, begun FROM uploads"
                " WHERE path = ? AND target = ?",
                (file.path, target),
            ).fetchone()
        if not row:
            return "", False
        session, *identity, begun = row
        fits = tuple(identity) == (*file.identity, generation)
        return session, fits and time.time() - begun < _SESSION_AGE

    def keep_session(self, file: LocalFile, target: str, generation: int, session: str) -> None:
        row = (file.path, target, *file.identity, generation, session, time.time())
        with self._lock:
            self._db.execute("REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def forget_session(self, file: LocalFile, target: str) -> None:
        with self._lock:
            self._db.execute(
                "DELETE FROM uploads WHERE path = ? AND target = ?", (file.path, target)
            )

    def sessions(self) -> int:
        """How many uploads were begun and not ended."""
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM uploads").fetchone()[0])

    def _flush(self) -> None:
        if self._new:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("REPLACE INTO hashes VALUES (?, ?, ?, ?, ?, ?)", self._new)
            self._db.execute("COMMIT")
            self._new.clear()
