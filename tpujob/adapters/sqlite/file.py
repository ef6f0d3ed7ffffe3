"""One SQLite file: a pool of connections, transactions, and errors that a person can act on."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Generator
from pathlib import Path

from tpujob.adapters.calling import repeated
from tpujob.errors import StoreError, TpujobError, Transient
from tpujob.lib.tries import Backoff, Deadline

APPLICATION = 0x74706A62  #: `tpjb` in the file's header; other databases are refused
BUSY = 10.0  #: seconds to wait for another writer; a transaction of ours takes milliseconds
#: KiB of pages that a connection caches: a quarter of the default, as there are dozens and the system caches the file
CACHE = 512
_DURABLE = "PRAGMA synchronous = FULL"


class SqliteFile:
    """A pool of connections to one file; each transaction has a connection to itself."""

    def __init__(self, path: Path, tables: str, version: int) -> None:
        """Create the file and its tables if needed. `tables`: the script that creates them; `version`: its version,
        which the file's header holds. Raises StoreError for a file with tables of another version."""
        self._idle: list[sqlite3.Connection] = []
        self._write_lock = threading.Lock()
        self.path = path
        self._tables, self._version = tables, version
        #: device and inode of the file when it was first opened
        self._opened_file: tuple[int, int] | None = None
        with self._translated():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # the WAL gets the same mode
        with self.writing():
            pass  # report an unusable file now, not in mid-command
        self._opened_file = self._file_id()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        self.close()

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Open a transaction that reads one consistent state of the file."""
        with self._transaction("BEGIN") as db:
            yield db

    @contextlib.contextmanager
    def writing(self, *, durable: bool = True) -> Generator[sqlite3.Connection]:
        """Open a transaction that writes: all its changes are on disk afterwards, or none if the block raises. If not
        `durable`, a power cut may lose the changes, unless a later durable transaction was committed."""
        # threads of this process queue up on the lock, because SQLite itself waits by sleeping
        if not self._write_lock.acquire(timeout=BUSY):
            raise Transient(f"{self.path} has too much to do", hint="try again")
        try:
            with self._transaction("BEGIN IMMEDIATE", durable=durable) as db:
                yield db
        finally:
            self._write_lock.release()

    @contextlib.contextmanager
    def _transaction(self, begin: str, *, durable: bool = True) -> Generator[sqlite3.Connection]:
        with self._translated():
            db = self._take_connection()
            try:
                if not durable:
                    db.execute("PRAGMA synchronous = NORMAL")
                db.execute(begin)
                yield db
                db.execute("COMMIT")
                if not durable:
                    db.execute(_DURABLE)
            except TpujobError:
                db.execute("ROLLBACK")
                db.execute(_DURABLE)
                self._idle.append(db)
                raise
            except BaseException:
                db.close()  # rolls back; the connection may be broken
                raise
            self._idle.append(db)

    def _take_connection(self) -> sqlite3.Connection:
        if self._opened_file not in (None, self._file_id()):
            raise self._replaced_error()
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _file_id(self) -> tuple[int, int]:
        """Return the device and inode of the file; (0, 0) for an empty file, which has lost its tables."""
        status = self.path.stat()
        return (status.st_dev, status.st_ino) if status.st_size else (0, 0)

    def _replaced_error(self) -> StoreError:
        return StoreError(
            f"{self.path} was emptied, or another file was put in its place, while tpujob used it",
            hint="run `tpujob down`, put the file back, then run `tpujob up`",
        )

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, timeout=BUSY, isolation_level=None, check_same_thread=False, uri=False
        )
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        # FULL: an intent must be on disk before its effect. Otherwise a power cut could leave a slice that costs money
        # and is in no record. Commits are too few for a sync of a few milliseconds to matter.
        db.execute(_DURABLE)
        db.execute(f"PRAGMA cache_size = -{CACHE}")
        current = (APPLICATION, self._version)
        if self._header(db) == current:
            return
        if self._opened_file is not None and self._header(db) == (0, 0):
            raise self._replaced_error()
        self._enable_wal(db)
        db.execute("BEGIN IMMEDIATE")
        header = self._header(db)  # again: another process may have created the tables
        if header != current:
            self._create_tables(db, *header)
        db.execute("COMMIT")

    def _create_tables(self, db: sqlite3.Connection, application: int, version: int) -> None:
        """Create the tables. Raises StoreError for a file that has tables already, and changes nothing."""
        empty = not db.execute("SELECT 1 FROM sqlite_master").fetchone()
        if application != APPLICATION and not (application == 0 and empty):
            raise StoreError(
                f"{self.path} is another program's database",
                hint="set TPUJOB_STATE to another folder",
            )
        if version:
            raise StoreError(
                f"the tables of {self.path} have version {version}, and this tpujob reads version {self._version}",
                hint="use the tpujob that wrote it, or set TPUJOB_STATE to another folder",
            )
        for statement in self._tables.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {self._version}")

    @staticmethod
    def _header(db: sqlite3.Connection) -> tuple[int, int]:
        """Return the application id and the version of the tables."""
        application: int = db.execute("PRAGMA application_id").fetchone()[0]
        return application, db.execute("PRAGMA user_version").fetchone()[0]

    def _enable_wal(self, db: sqlite3.Connection) -> None:
        """Let readers and one writer work at once; the setting stays in the file. SQLite does not wait for locks in
        this statement, so it is retried here."""

        def set_mode(_left: float, _failures: int) -> None:
            with self._translated():
                db.execute("PRAGMA journal_mode = WAL")

        repeated(set_mode, Deadline(BUSY), Backoff(first=0.01, longest=0.01))

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        """Translate the errors of SQLite and of the system to ours."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> StoreError | Transient:
        message = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if "locked" in message:
            return Transient(f"another process keeps {self.path} locked", hint="try again")
        hint = next((hint for words, hint in _HINTS.items() if words in message.lower()), "")
        return StoreError(f"the state in {self.path} cannot be used: {message}", hint=hint)


_WRITABLE = "tpujob must be able to write there; or set TPUJOB_STATE to a folder where it can"
_PUT_BACK = (
    "run `tpujob down`, put a backup of that file back, then run `tpujob up`; without the file tpujob does not know "
    "its jobs, their history and the slices that still run"
)
#: by words of the error's text
_HINTS = {
    "full": "free some space on that disk; no stored job is lost",
    "no space": "free some space on that disk; no stored job is lost",
    "disk i/o error": "check whether the disk is full or over its quota; no stored job is lost",
    "not a database": _PUT_BACK,
    "malformed": _PUT_BACK,
    "readonly": _WRITABLE,
    "read-only": _WRITABLE,
    "unable to open": _WRITABLE,
    "permission denied": _WRITABLE,
    "not a directory": _WRITABLE,
    "file exists": _WRITABLE,
    "no such file": _PUT_BACK,
    "no such table": _PUT_BACK,
}
