"""One SQLite file: opening it, a pool of connections, transactions, and errors that a person can act on."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Generator, Sequence
from pathlib import Path

from tpujob.adapters.calling import Backoff, Deadline, repeated
from tpujob.errors import StoreError, TpujobError, Transient

APPLICATION = 0x74706A62  #: `tpjb` in the header; another program's database is left alone
BUSY = 10.0  #: seconds to wait for another writer; a transaction of ours takes milliseconds
#: KiB of pages that a connection keeps, of a quarter as many as usual: there are dozens, and the system keeps the file
CACHE = 512
_DURABLE = "PRAGMA synchronous = FULL"


class SqliteFile:
    """A pool of connections: each transaction has one for itself while it runs."""

    def __init__(self, path: Path, scripts: Sequence[str]) -> None:
        """`scripts`: each leads from one version of the tables to the next, the first from an empty file. The file's
        header holds its version: the number of scripts that it has been through."""
        self._idle: list[sqlite3.Connection] = []
        self._turn = threading.Lock()
        self.path = path
        self._scripts = scripts
        #: device and inode of the file that was opened first
        self._first: tuple[int, int] | None = None
        with self._explained():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # its companions get its mode
        with self.writing():
            pass  # an unusable file is found here, not in mid-command
        self._first = self._place()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        self.close()

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """One consistent view of the file."""
        with self._transaction("BEGIN") as db:
            yield db

    @contextlib.contextmanager
    def writing(self, *, durable: bool = True) -> Generator[sqlite3.Connection]:
        """The block's changes are all on disk when it ends; none are when it raises. Not `durable`: after a power cut
        they may be missing, unless a later change that is durable was written."""
        # the threads of this process queue up here: SQLite's own way to wait is to sleep and try again
        if not self._turn.acquire(timeout=BUSY):
            raise Transient(f"{self.path} has too much to do", hint="try again")
        try:
            with self._transaction("BEGIN IMMEDIATE", durable=durable) as db:
                yield db
        finally:
            self._turn.release()

    @contextlib.contextmanager
    def _transaction(self, begin: str, *, durable: bool = True) -> Generator[sqlite3.Connection]:
        with self._explained():
            db = self._taken()
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

    def _taken(self) -> sqlite3.Connection:
        if self._first not in (None, self._place()):
            raise self._replaced()
        try:
            return self._idle.pop()
        except IndexError:
            return self._opened()

    def _place(self) -> tuple[int, int]:
        """Return the file's identity on disk; none for a file of length 0, as its tables are in no file."""
        found = self.path.stat()
        return (found.st_dev, found.st_ino) if found.st_size else (0, 0)

    def _replaced(self) -> StoreError:
        return StoreError(
            f"{self.path} was emptied, or another file was put in its place, while tpujob used it",
            hint="run `tpujob down`, put the file back, then run `tpujob up`",
        )

    def _opened(self) -> sqlite3.Connection:
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
        # FULL: an intent must be on disk before its effect. Without it a power cut could leave a slice that no record
        # names, and that costs money. Commits are too few for a sync of a few milliseconds to matter.
        db.execute(_DURABLE)
        db.execute(f"PRAGMA cache_size = -{CACHE}")
        current = (APPLICATION, len(self._scripts))
        if self._header(db) == current:
            return
        if self._first is not None and self._header(db) == (0, 0):
            raise self._replaced()
        self._to_wal(db)
        db.execute("BEGIN IMMEDIATE")
        header = self._header(db)  # again: another process may have been faster
        if header != current:
            self._bring_up_to_date(db, *header)
        db.execute("COMMIT")

    def _bring_up_to_date(self, db: sqlite3.Connection, application: int, version: int) -> None:
        """Either brings all tables up to date or raises and changes nothing."""
        empty = not db.execute("SELECT 1 FROM sqlite_master").fetchone()
        if application != APPLICATION and not (application == 0 and empty):
            raise StoreError(
                f"{self.path} is another program's database",
                hint="set TPUJOB_STATE to another folder",
            )
        if version > len(self._scripts):
            raise StoreError(
                f"{self.path} was written by a newer tpujob (its tables have version {version}, this one knows "
                f"{len(self._scripts)})",
                hint="upgrade tpujob, or set TPUJOB_STATE to another folder",
            )
        for script in self._scripts[version:]:
            for statement in script.split(";"):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {len(self._scripts)}")

    @staticmethod
    def _header(db: sqlite3.Connection) -> tuple[int, int]:
        application: int = db.execute("PRAGMA application_id").fetchone()[0]
        return application, db.execute("PRAGMA user_version").fetchone()[0]

    def _to_wal(self, db: sqlite3.Connection) -> None:
        """Let readers and one writer work at once; the setting stays in the file. SQLite does not wait for locks in
        this statement, so it is repeated here."""

        def once(_left: float, _failures: int) -> None:
            with self._explained():
                db.execute("PRAGMA journal_mode = WAL")

        repeated(once, Deadline(BUSY), Backoff(first=0.01, longest=0.01))

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
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
