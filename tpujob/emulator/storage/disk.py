"""Buckets and objects on disk: each object is a file, named by its generation, with a record in SQLite.

A file is written under a temporary name and renamed together with the write of its record. Files never change, so a
running download continues with its version. All calls come from one thread, so a precondition and its write are one
step.
"""

import base64
import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from google_crc32c import extend as _extend  # pyright: ignore[reportUnknownVariableType]

from tpujob.domain.text import rfc3339
from tpujob.emulator.storage import listing
from tpujob.emulator.storage.listing import Listing, Page
from tpujob.emulator.storage.model import EmulatedObject, Json, Preconditions, no_object
from tpujob.errors import TpujobError

_COPY_CHUNK = 4 << 20


class Incoming:
    """An upload in progress: a temporary file with its length and checksums so far. A write opens a closed file."""

    def __init__(self, folder: Path, *, md5: bool = True) -> None:
        self.path = folder / uuid.uuid4().hex
        self.size = 0
        self._crc = 0
        # By far the slowest step; left out for objects that have no MD5 in the cloud either.
        self._md5 = hashlib.md5(usedforsecurity=False) if md5 else None
        self._file = self.path.open("xb")

    def write(self, chunk: bytes) -> None:
        if self._file.closed:
            self._file = self.path.open("r+b")
            self._file.seek(0, os.SEEK_END)
        self._file.write(chunk)
        self.size += len(chunk)
        self._crc = int(_extend(self._crc, chunk))  # pyright: ignore[reportUnknownArgumentType]
        if self._md5:
            self._md5.update(chunk)

    def append(self, sources: Iterable[BinaryIO]) -> None:
        """Add whole files, and close them. May run in another thread."""
        for source in sources:
            with source:
                while chunk := source.read(_COPY_CHUNK):
                    self.write(chunk)

    @property
    def crc32c(self) -> str:
        return base64.b64encode(self._crc.to_bytes(4, "big")).decode()

    @property
    def md5(self) -> str:
        """The MD5 in base64; empty when left out."""
        return base64.b64encode(self._md5.digest()).decode() if self._md5 else ""

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Remove the file, unless it became an object. Safe to repeat."""
        with suppress(OSError):  # closing flushes, which fails on a full disk
            self._file.close()
        self.path.unlink(missing_ok=True)


_SCHEMA = """
CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY, resource TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    bucket TEXT NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL, metageneration INTEGER NOT NULL,
    live INTEGER NOT NULL, size INTEGER NOT NULL, crc32c TEXT NOT NULL, md5 TEXT NOT NULL,
    components INTEGER NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, file TEXT NOT NULL,
    fields TEXT NOT NULL, PRIMARY KEY (bucket, name, generation)) WITHOUT ROWID;
"""  # the columns are the fields of `EmulatedObject`, in their order
_NAMES = tuple(EmulatedObject.__dataclass_fields__)
_SELECT = f"SELECT {', '.join(_NAMES)} FROM objects WHERE bucket = ?"  # noqa: S608, names of our own
_INSERT = f"INSERT INTO objects VALUES ({', '.join('?' * len(_NAMES))})"  # noqa: S608, our own names
_KEY = "WHERE bucket = ? AND name = ? AND generation = ?"


class ObjectStore:
    """The buckets and objects below one folder; a lock keeps other servers out."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            text = f"another emulated Cloud Storage uses {folder}"
            raise TpujobError(text, hint="stop it first: tpujob down") from error
        self._objects = folder / "objects"
        self._uploads = folder / "uploads"
        # Remove uploads that the last server did not finish.
        shutil.rmtree(self._uploads, ignore_errors=True)
        for subfolder in (self._objects, self._uploads):
            subfolder.mkdir(exist_ok=True)
        self._db = sqlite3.connect(
            folder / "index.db", isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        (newest,) = self._db.execute("SELECT max(generation) FROM objects").fetchone()
        self._generation: int = newest or 0
        self._remove_strays()

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    # buckets

    def buckets(self) -> list[Json]:
        rows = self._db.execute("SELECT resource FROM buckets ORDER BY name")
        return [json.loads(resource) for (resource,) in rows]

    def bucket(self, name: str) -> Json | None:
        row = self._db.execute("SELECT resource FROM buckets WHERE name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else None

    def put_bucket(self, resource: Mapping[str, Json]) -> None:
        row = (resource["name"], json.dumps(resource))
        self._db.execute("REPLACE INTO buckets VALUES (?, ?)", row)

    def delete_bucket(self, name: str) -> bool:
        """Delete an empty bucket and return True; leave any other and return False."""
        if self._db.execute("SELECT 1 FROM objects WHERE bucket = ? LIMIT 1", (name,)).fetchone():
            return False
        self._db.execute("DELETE FROM buckets WHERE name = ?", (name,))
        return True

    # objects

    def get(self, bucket: str, name: str, generation: int | None = None) -> EmulatedObject | None:
        """Return an object: the live generation, or the one of that number. None: absent."""
        which = "live" if generation is None else "generation = ?"
        values = (bucket, name) if generation is None else (bucket, name, generation)
        row = self._db.execute(f"{_SELECT} AND name = ? AND {which}", values).fetchone()
        return _from_row(row) if row else None

    def open(self, stored: EmulatedObject) -> BinaryIO:
        return (self._objects / stored.file).open("rb")

    def incoming(self, *, md5: bool = True) -> Incoming:
        return Incoming(self._uploads, md5=md5)

    def commit(
        self,
        bucket: str,
        name: str,
        incoming: Incoming,
        fields: Mapping[str, Json],
        conditions: Preconditions,
        *,
        components: int = 0,
    ) -> EmulatedObject:
        """Make the upload, which ends here, the live generation of an object. Raise 412, without a change."""
        now = timestamp()
        try:
            conditions.check(self.get(bucket, name))
            incoming.close()
            stored = EmulatedObject(
                bucket=bucket,
                name=name,
                generation=(generation := self._next_generation()),
                metageneration=1,
                live=True,
                size=incoming.size,
                crc32c=incoming.crc32c,
                md5=incoming.md5,
                components=components,
                created=now,
                updated=now,
                file=str(generation),
                fields=fields,
            )
            return self._insert(stored, incoming.path)
        finally:
            incoming.discard()

    def copy(
        self,
        source: EmulatedObject,
        bucket: str,
        name: str,
        fields: Mapping[str, Json],
        conditions: Preconditions,
    ) -> EmulatedObject:
        """Make another object that shares the bytes on disk. Raise 412."""
        conditions.check(self.get(bucket, name))
        now, generation = timestamp(), self._next_generation()
        twin = self._uploads / uuid.uuid4().hex
        os.link(self._objects / source.file, twin)
        stored = replace(
            source,
            bucket=bucket,
            name=name,
            generation=generation,
            metageneration=1,
            live=True,
            created=now,
            updated=now,
            file=str(generation),
            fields=fields,
        )
        return self._insert(stored, twin)

    def update(self, stored: EmulatedObject, fields: Mapping[str, Json]) -> EmulatedObject:
        new = replace(
            stored, metageneration=stored.metageneration + 1, updated=timestamp(), fields=fields
        )
        self._db.execute(
            f"UPDATE objects SET metageneration = ?, updated = ?, fields = ? {_KEY}",  # noqa: S608, ours
            (new.metageneration, new.updated, json.dumps(fields), *_key(stored)),
        )
        return new

    def delete(
        self, bucket: str, name: str, conditions: Preconditions, generation: int | None = None
    ) -> None:
        """Delete the live generation; or the one of that number, for good. Raise 404, 412."""
        current = self.get(bucket, name, generation)
        if current is None:
            raise no_object(bucket, name)
        conditions.check(current)
        keep = self._versioned(bucket) and generation is None
        self._retire(current, keep=keep)
        if not keep:
            self._remove_file(current)

    def page(self, bucket: str, request: Listing) -> Page:
        live = "" if request.versions else " AND live"

        def rows(after: tuple[str, int], stop: str, limit: int) -> Iterable[EmulatedObject]:
            sql = f"{_SELECT} AND (name, generation) > (?, ?)" + (" AND name < ?" if stop else "")
            values = (bucket, *after, *([stop] if stop else []), limit)
            matches = self._db.execute(f"{sql}{live} ORDER BY name, generation LIMIT ?", values)
            return map(_from_row, matches.fetchall())

        return listing.page(request, rows)

    # helpers

    def _insert(self, stored: EmulatedObject, temporary: Path) -> EmulatedObject:
        temporary.replace(self._objects / stored.file)
        keep = self._versioned(stored.bucket)
        try:
            self._db.execute("BEGIN IMMEDIATE")
            old = self.get(stored.bucket, stored.name)
            if old:
                self._retire(old, keep=keep)
            self._db.execute(_INSERT, [_cell(stored, column) for column in _NAMES])
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._remove_file(stored)
            raise
        if old and not keep:
            self._remove_file(old)
        return stored

    def _retire(self, stored: EmulatedObject, *, keep: bool) -> None:
        change = "UPDATE objects SET live = 0" if keep else "DELETE FROM objects"
        self._db.execute(f"{change} {_KEY}", _key(stored))

    def _remove_file(self, stored: EmulatedObject) -> None:
        (self._objects / stored.file).unlink(missing_ok=True)

    def _versioned(self, bucket: str) -> bool:
        resource: dict[str, Json] = self.bucket(bucket) or {}
        versioning: Json = resource.get("versioning")
        return isinstance(versioning, dict) and versioning.get("enabled") is True  # pyright: ignore[reportUnknownMemberType]

    def _next_generation(self) -> int:
        """Return microseconds, as in the cloud; later than every earlier generation even if the clock goes back."""
        self._generation = max(self._generation + 1, time.time_ns() // 1000)
        return self._generation

    def _remove_strays(self) -> None:
        """Remove files without a record: the last server ended between the two writes."""
        recorded = {file for (file,) in self._db.execute("SELECT file FROM objects")}
        for folder, _, names in os.walk(self._objects):
            for name in names:
                path = Path(folder, name)
                if str(path.relative_to(self._objects)) not in recorded:
                    path.unlink()


def timestamp() -> str:
    """Return the time as the API writes it (RFC 3339)."""
    return rfc3339(time.time())


def _key(stored: EmulatedObject) -> tuple[str, str, int]:
    return stored.bucket, stored.name, stored.generation


def _cell(stored: EmulatedObject, column: str) -> Any:
    value = getattr(stored, column)
    return json.dumps(value) if column == "fields" else value


def _from_row(row: Sequence[Any]) -> EmulatedObject:
    values = dict(zip(_NAMES, row, strict=True))
    values.update(live=bool(values["live"]), fields=json.loads(values["fields"]))
    return EmulatedObject(**values)
