"""The store of jobs and events on one SQLite file, for a laptop. Holds no rules beyond the port's own.

Any number of threads and processes may use one file at once. Each transaction is a few statements and takes the write
lock at its start, so writers queue up instead of failing halfway.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from sqlite3 import Connection

from tpujob.adapters import records
from tpujob.adapters.calling import boot_id, steady
from tpujob.adapters.sqlite.file import SqliteFile
from tpujob.adapters.sqlite.people import SqliteMembers, SqliteOutbox, SqliteReputation
from tpujob.adapters.sqlite.tables import TABLES, VERSION
from tpujob.domain.codec import event_from_text, job_from_text, to_text
from tpujob.domain.events import Event
from tpujob.domain.model import Job
from tpujob.ports import EventKey, Lease, Write

#: id, version and document; or the job, if it is in the cache
_Row = tuple[str, int, str] | Job


class SqliteStore:
    """Implements `ports.Store`. Every call may also raise StoreError (the file cannot be used; the hint says what to
    do) or Transient (another process kept the file locked for too long)."""

    KIND = "sqlite"
    walk_page = records.WALK_PAGE
    TABLES = VERSION  #: version of the tables

    def __init__(self, path: Path, *, steady: Callable[[], float] = steady) -> None:
        """Create the file and its folder if needed, readable by their owner alone. Raises StoreError, Transient."""
        self._steady, self._boot = steady, boot_id()
        self._file = SqliteFile(path, TABLES, VERSION)
        self.reputation = SqliteReputation(self._file)
        self.members = SqliteMembers(self._file)
        self.outbox = SqliteOutbox(self._file)
        self._identity = ""  #: as first read
        self._decoded = records.Decoded()
        self._reader = records.RecordReader[_Row](self._job, _id_of)

    def close(self) -> None:
        self._file.close()

    def identity(self) -> str:
        with self._file.reading() as db:
            self._identity = records.check_identity(self._identity, _read_identity(db))
        return self._identity

    # Jobs ------------------------------------------------------------------------------------------------------------

    def create(self, job: Job, event: Event, *, idempotency_key: str = "") -> Job:
        return self.create_many([(job, event)], key=idempotency_key)[0]

    def find_created(self, key: str) -> Job | None:
        with self._file.reading() as db:
            query = "SELECT id, version, document FROM keys JOIN jobs ON id = job_id WHERE key = ?"
            row = db.execute(query, (key,)).fetchone()
        return self._decode(*row) if row else None

    def create_many(self, jobs: Sequence[tuple[Job, Event]], *, key: str) -> builtins.list[Job]:
        stored: builtins.list[Job] = []
        with self._file.writing() as db:
            records.check_identity(self._identity, _read_identity(db))
            # the first job has the key itself, the others the key with `#` and their number
            if key and (rows := db.execute(_KEYED, (key, f"{key}#", f"{key}$")).fetchall()):
                return [self._decode(*row) for row in rows]
            for place, (job, event) in enumerate(jobs):
                number = db.execute("INSERT INTO jobs DEFAULT VALUES").lastrowid
                stored.append(replace(job, id=f"{number:06d}", version=1))
                _write(db, stored[-1], event)
                if key:
                    row = (f"{key}#{place}" if place else key, stored[-1].id)
                    db.execute("INSERT INTO keys VALUES (?, ?)", row)
        return stored

    def get(self, job_id: str) -> Job:
        with self._file.reading() as db:
            row = _row(db, job_id)
        return self._decode(job_id, *row)

    def peek(self, job_id: str) -> Job:
        """Return the job, as `get` does: unchanged records are in the cache."""
        return self.get(job_id)

    def list(self, *, name: str = "", live: bool | None = None) -> list[Job]:
        filters = {"name = ?": name or None, "live = ?": live}
        used = {clause: value for clause, value in filters.items() if value is not None}
        where = f"WHERE {' AND '.join(used)}" if used else ""
        rows = self._rows(f"{where} ORDER BY number DESC", *used.values())
        return self._reader.readable(rows)

    def walk(self) -> Iterator[Job]:
        """Yield every job, newest first. Caches no ended job."""
        before = 1 << 62
        clause = "WHERE number < ? ORDER BY number DESC LIMIT ?"
        while rows := self._rows(clause, before, self.walk_page):
            yield from self._reader.readable(rows, partial(self._job, cache_ended=False))
            before = int(_id_of(rows[-1]))

    def commit(
        self,
        job: Job,
        event: Event | None,
        *,
        expected_version: int,
        op_id: str,
        lease: Lease | None,
    ) -> Job:
        with self._file.writing() as db:
            stored = self._commit(db, job, event, expected_version, op_id, lease)
        self._decoded.keep(stored)
        return stored

    def commit_both(self, first: Write, second: Write) -> tuple[Job, Job]:
        with self._file.writing() as db:
            stored = [
                self._commit(db, w.job, w.event, w.expected_version, w.op_id, w.lease)
                for w in (first, second)
            ]
        for job in stored:
            self._decoded.keep(job)
        return stored[0], stored[1]

    def _commit(
        self,
        db: Connection,
        job: Job,
        event: Event | None,
        expected_version: int,
        op_id: str,
        lease: Lease | None,
    ) -> Job:
        replayed = db.execute(
            "SELECT version, document FROM ops WHERE job_id = ? AND op_id = ?", (job.id, op_id)
        ).fetchone()
        if replayed:
            return self._decode(job.id, *replayed)
        version, _ = _row(db, job.id)
        _check_lease(db, job.id, lease)
        if version != expected_version:
            raise records.moved_on(job.id, version, expected_version)
        stored = replace(job, version=version + 1)
        _write(db, stored, event, op_id)
        return stored

    def events(self, job_id: str, *, after: int = 0) -> list[Event]:
        with self._file.reading() as db:
            _row(db, job_id)
            query = "SELECT document FROM events WHERE job_id = ? AND seq > ? ORDER BY seq"
            rows = db.execute(query, (job_id, after)).fetchall()
        return [event_from_text(job_id, text) for (text,) in rows]

    def recent(self, *, before: EventKey | None = None, limit: int) -> list[tuple[str, Event]]:
        query = (
            "SELECT job_id, document FROM events WHERE at IS NOT NULL AND (at, job_id, seq) < (?, ?, ?) "
            "ORDER BY at DESC, job_id DESC, seq DESC LIMIT ?"
        )
        with self._file.reading() as db:
            rows = db.execute(query, (*(before or (math.inf, "", 0)), limit)).fetchall()
        return [(job_id, event_from_text(job_id, text)) for job_id, text in rows]

    def remove(self, job_id: str, *, lease: Lease | None, keep: Job | None = None) -> None:
        with self._file.writing() as db:
            _check_lease(db, job_id, lease)
            if db.execute("DELETE FROM jobs WHERE id = ?", (job_id,)).rowcount:
                for table in ("events", "ops", "keys", "leases"):
                    db.execute(f"DELETE FROM {table} WHERE job_id = ?", (job_id,))  # noqa: S608, ours
                if keep:
                    row = (job_id, to_text(keep))
                    db.execute("INSERT OR REPLACE INTO removed VALUES (?, ?)", row)
                _note_change(db, job_id)
        self._decoded.drop(job_id)

    def removed(self) -> builtins.list[Job]:
        with self._file.reading() as db:
            rows = db.execute("SELECT job_id, 0, document FROM removed ORDER BY job_id").fetchall()
        return self._reader.readable(rows, records.kept_job)

    def damaged(self) -> list[tuple[str, str]]:
        return self._reader.sift(self._rows("ORDER BY number"))[1]

    def zones(self) -> list[str]:
        with self._file.reading() as db:
            return [zone for (zone,) in db.execute("SELECT zone FROM zones ORDER BY zone")]

    # Leases ----------------------------------------------------------------------------------------------------------

    def lease(self, job_id: str, owner: str, *, ttl: float) -> Lease | None:
        """Return a lease, as the port says: all who open the file are on one machine, with one clock since its boot,
        and an earlier boot's holders are gone. The write is not durable: a power cut ends the holder, too, and a commit
        under the lease makes it durable."""
        with self._file.writing(durable=False) as db:
            if not db.execute("SELECT 1 FROM jobs WHERE id = ?", (job_id,)).fetchone():
                return None
            query = "SELECT owner, token, ttl, taken, boot FROM leases WHERE job_id = ?"
            found = db.execute(query, (job_id,)).fetchone() or ("", 0, 0.0, 0.0, "")
            holder, token, length, taken, boot = found
            now = self._steady()
            if holder != owner and boot == self._boot and 0 <= now - taken < length:
                return None
            lease = Lease(job_id, owner, token + 1, ttl)
            row = (job_id, owner, lease.token, ttl, now, self._boot)
            db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)", row)
        return lease

    def release(self, lease: Lease) -> None:
        with self._file.writing(durable=False) as db:  # the row stays, so that tokens keep growing
            query = "UPDATE leases SET ttl = 0 WHERE job_id = ? AND token = ?"
            db.execute(query, (lease.job_id, lease.token))

    # When to look ----------------------------------------------------------------------------------------------------

    def due(self, now: float) -> list[str]:
        rows = self._rows("WHERE wake <= ? ORDER BY wake", now)
        return [job.id for job in self._reader.readable(rows)]

    def newest(self) -> int:
        with self._file.reading() as db:
            return _newest_change(db)

    def changes(self, after: int) -> tuple[int, list[str]]:
        with self._file.reading() as db:
            query = "SELECT number, job_id FROM changes WHERE number > ? ORDER BY number"
            rows = db.execute(query, (after,)).fetchall()
            newest = rows[-1][0] if rows else _newest_change(db)
        return newest, [job_id for _, job_id in rows]

    # Decoding --------------------------------------------------------------------------------------------------------

    def _rows(self, clause: str, *parameters: object) -> builtins.list[_Row]:
        """Return the jobs that an SQL clause selects. Reads only the documents of jobs that are not in the cache: all
        documents at once would take most of this process's memory."""
        with self._file.reading() as db:
            query = f"SELECT id, version FROM jobs {clause}"  # noqa: S608, ours
            return [
                self._cached(job_id, version) or (job_id, *_row(db, job_id))
                for job_id, version in db.execute(query, parameters).fetchall()
            ]

    def _cached(self, job_id: str, version: int) -> Job | None:
        job = self._decoded.get(job_id)
        return job if job and job.version == version else None

    def _job(self, row: _Row, *, cache_ended: bool = True) -> Job:
        return row if isinstance(row, Job) else self._decode(*row, cache_ended=cache_ended)

    def _decode(self, job_id: str, version: int, text: str, *, cache_ended: bool = True) -> Job:
        """Return the job of a record. Decoding takes longer than reading: call outside transactions where possible."""
        if cached := self._cached(job_id, version):
            return cached
        job = job_from_text(job_id, text)
        if cache_ended or not job.state.final:
            self._decoded.keep(job)
        return job


def _id_of(row: _Row) -> str:
    return row.id if isinstance(row, Job) else row[0]


#: the jobs of an idempotency key
_KEYED = (
    "SELECT id, version, document FROM keys JOIN jobs ON id = job_id "
    "WHERE key = ? OR (key >= ? AND key < ?) ORDER BY number"
)

# Steps of a transaction ----------------------------------------------------------------------------------------------


def _read_identity(db: Connection) -> str:
    row = db.execute("SELECT id FROM store").fetchone()
    return row[0] if row else ""


def _row(db: Connection, job_id: str) -> tuple[int, str]:
    """Return version and document of a job. Raises NotFound."""
    row = db.execute("SELECT version, document FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None:
        raise records.missing(job_id)
    return row


def _check_lease(db: Connection, job_id: str, lease: Lease | None) -> None:
    """Raise Fenced when the job has a newer lease."""
    if lease is None:
        return
    row = db.execute("SELECT owner, token FROM leases WHERE job_id = ?", (job_id,)).fetchone()
    if row and row[1] != lease.token:
        raise records.fenced(job_id, row[0])


def _write(db: Connection, job: Job, event: Event | None, op_id: str = "") -> None:
    text = to_text(job)
    values = (job.user, job.name, not job.state.final, records.wake_time(job), job.version, text)
    db.execute(
        "UPDATE jobs SET id = ?, user = ?, name = ?, live = ?, wake = ?, version = ?, document = ? "
        "WHERE number = ?",
        (job.id, *values, int(job.id)),
    )
    if event:
        document = records.event_text(event, job.version)
        row = (job.id, job.version, document, event.at)
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", row)
    if op_id:
        db.execute("INSERT INTO ops VALUES (?, ?, ?, ?)", (job.id, job.version, op_id, text))
        expired = job.version - records.REMEMBERED_OPS
        db.execute("DELETE FROM ops WHERE job_id = ? AND version <= ?", (job.id, expired))
    db.executemany("INSERT OR IGNORE INTO zones VALUES (?)", {(s.zone,) for s in job.slices})
    _note_change(db, job.id)


def _note_change(db: Connection, job_id: str) -> None:
    db.execute("INSERT OR REPLACE INTO changes VALUES (?, ?)", (job_id, _newest_change(db) + 1))


def _newest_change(db: Connection) -> int:
    return db.execute("SELECT coalesce(max(number), 0) FROM changes").fetchone()[0]
