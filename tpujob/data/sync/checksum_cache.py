"""A cache of facts about local files: checksums, sources of downloads, and folders with unfinished downloads.

The cache is a database of SQLite in WAL mode, which threads and processes share. It may be deleted: files are then read
again.
"""

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.data.keys import PARTS_FOLDER, exclusive_lock
from tpujob.data.objects import LocalFile

_TABLES = """
CREATE TABLE IF NOT EXISTS hashes (
    path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER, crc32c INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS origins (
    path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, inode INTEGER, origin TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS folders (path TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_SAME = "path = ? AND size = ? AND mtime_ns = ? AND ctime_ns = ? AND inode = ?"
#: nanoseconds without a write before a checksum is kept: writes in one tick of the file system's clock give a file the
#: same identity
_REST = 50_000_000


class ChecksumCache:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            folder / "ledger.db", isolation_level=None, check_same_thread=False, timeout=30
        )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def checksum(self, file: LocalFile) -> int | None:
        """Return the CRC32C of the file's present content, or None if it is not cached."""
        return self._value(f"SELECT crc32c FROM hashes WHERE {_SAME}", file)  # noqa: S608, ours

    def keep_checksum(self, file: LocalFile, crc32c: int) -> None:
        if time.time_ns() - max(file.ctime_ns, file.mtime_ns) < _REST:
            return
        row = (file.path, *file.identity, crc32c)
        self._write("REPLACE INTO hashes VALUES (?, ?, ?, ?, ?, ?)", row)

    def origin(self, file: LocalFile) -> str:
        """Return the source of the file's present content, kept for sources without a checksum; empty: unknown."""
        return self._value(f"SELECT origin FROM origins WHERE {_SAME}", file) or ""  # noqa: S608

    def keep_origin(self, file: LocalFile, origin: str) -> None:
        row = (file.path, *file.identity, origin)
        self._write("REPLACE INTO origins VALUES (?, ?, ?, ?, ?, ?)", row)

    # Folders with unfinished downloads

    def keep_folder(self, path: str) -> None:
        self._write("REPLACE INTO folders VALUES (?)", (path,))

    def forget_folder(self, path: str) -> None:
        self._write("DELETE FROM folders WHERE path = ?", (path,))

    def folders(self) -> list[str]:
        with self._lock:
            return [row[0] for row in self._db.execute("SELECT path FROM folders ORDER BY path")]

    # Database

    def _value(self, sql: str, file: LocalFile) -> Any:
        with self._lock:
            row = self._db.execute(sql, (file.path, *file.identity)).fetchone()
        return row[0] if row else None

    def _write(self, sql: str, values: Sequence[object]) -> None:
        with self._lock:
            self._db.execute(sql, values)


# Unfinished downloads -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartsFolder:
    """The unfinished downloads to one folder."""

    path: str
    files: int
    size: int  #: bytes


def find_incomplete(cache: ChecksumCache) -> list[PartsFolder]:
    """Return the folders with unfinished downloads of syncs on this machine. Calls no storage."""
    folders = [_measure(path) for path in cache.folders() if Path(path).is_dir()]
    return [folder for folder in folders if folder.files]


def remove_incomplete(cache: ChecksumCache, folders: Sequence[PartsFolder]) -> None:
    """Delete unfinished downloads. Safe to repeat. Raises OSError, and IllegalInState while a sync writes there."""
    for folder in folders:
        path = Path(folder.path)
        assert path.name == PARTS_FOLDER
        with exclusive_lock(path / "lock", f"another `tpujob data sync` writes to {path.parent}"):
            shutil.rmtree(path)
        cache.forget_folder(folder.path)


def _measure(path: str) -> PartsFolder:
    files = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # a running sync has completed it
                length = os.lstat(os.path.join(folder, name)).st_size
                files += length > 0  # the lock is empty
                size += length
    return PartsFolder(path, files, size)
