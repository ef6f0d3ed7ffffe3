"""The adapters of the Store port, and what their contract suite runs in processes of its own.

`python -m tests.support.stores ADAPTER PLACE DEED ARGUMENT...` opens the store at a place and does one deed.
"""

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import grpc

from tests.support.waiting import LONG
from tpujob.adapters.firestore import Firestore, FirestoreStore
from tpujob.adapters.firestore.calls import Patience
from tpujob.adapters.firestore.records import Put, Remove, Time, microseconds
from tpujob.adapters.sqlite import SqliteStore
from tpujob.adapters.sqlite import store as sqlite_store
from tpujob.adapters.sqlite.file import SqliteFile
from tpujob.domain.events import Event, EventKind
from tpujob.domain.model import DesiredState, Job, State
from tpujob.domain.spec import parse
from tpujob.errors import Conflict
from tpujob.ports import Store


def firestore(place: str, *interceptors: grpc.UnaryUnaryClientInterceptor) -> Firestore:
    """Open a place: `host:port/project`. However slow the emulator is on a busy machine, it is waited for."""
    endpoint, _, project = place.partition("/")
    patience = Patience(seconds=2 * LONG, request=LONG)
    return Firestore(project, endpoint=endpoint, patience=patience, interceptors=interceptors)


#: name of the adapter -> how a store is opened at a place, which two openers of the same place share
ADAPTERS: dict[str, Callable[[str], Store]] = {
    "sqlite": lambda place: SqliteStore(Path(place) / "jobs.db"),
    "firestore": lambda place: FirestoreStore(firestore(place)),
}


def _damage_sqlite(place: str, job_id: str) -> None:
    db = sqlite3.connect(Path(place) / "jobs.db")
    with db:
        change = "UPDATE jobs SET document = '{', version = version + 1 WHERE id = ?"
        db.execute(change, (job_id,))
    db.close()


def _damage_firestore(place: str, job_id: str) -> None:
    db, path = firestore(place), f"jobs/{job_id}"
    document = db.read("damage", path)
    assert document
    version = int(str(document.fields["version"])) + 1
    fields = {**document.fields, "document": "{", "version": version}
    fields.pop("changed")
    db.change("damage", [], lambda _: (None, [Put(path, fields, stamped=True)]))
    db.close()


#: name of the adapter -> how a record is damaged behind its back
DAMAGE: dict[str, Callable[[str, str], None]] = {
    "sqlite": _damage_sqlite,
    "firestore": _damage_firestore,
}


def _empty_sqlite(place: str) -> None:
    db = sqlite3.connect(Path(place) / "jobs.db")
    with db:
        db.execute("DELETE FROM jobs")
        db.execute("UPDATE store SET id = 'another'")
    db.close()


def _empty_firestore(place: str) -> None:
    db, paths = firestore(place), ("counters/store", "counters/jobs", "jobs/000001")
    db.change("empty", [], lambda _: (None, [Remove(path) for path in paths]))
    db.close()


#: name of the adapter -> how a store with one job is emptied behind its back
EMPTY: dict[str, Callable[[str], None]] = {"sqlite": _empty_sqlite, "firestore": _empty_firestore}


def a_job(name: str = "mlp", **fields: object) -> Job:
    job = Job(
        id="",
        name=name,
        user="ana",
        spec=parse({"name": "mlp", "tpu": {"type": "v4-8"}, "run": {"command": "echo ä"}}),
        state=State.QUEUED,
        desired=DesiredState.RUN,
        created_at=1000.0,
        state_since=1000.0,
    )
    return replace(job, **fields)


def an_event(text: str = "created") -> Event:
    return Event(EventKind.CREATED, 1000.0, State.QUEUED, text)


def _age_sqlite(place: str, job_id: str, seconds: float) -> None:
    db = sqlite3.connect(Path(place) / "jobs.db")
    with db:
        db.execute("UPDATE leases SET taken = taken - ? WHERE job_id = ?", (seconds, job_id))
    db.close()


def _age_firestore(place: str, job_id: str, seconds: float) -> None:
    db, path = firestore(place), f"leases/{job_id}"
    held = db.read("age", path)
    assert held
    taken = Time(microseconds(held.fields["changed"]) - int(seconds * 1e6))
    fields: dict[str, Any] = {**held.fields, "changed": taken}
    db.change("age", [], lambda _: (None, [Put(path, fields)]))
    db.close()


#: name of the adapter -> how a lease is made older, by the store's clock
AGE: dict[str, Callable[[str, str, float], None]] = {
    "sqlite": _age_sqlite,
    "firestore": _age_firestore,
}


def count_up(store: Store, job_id: str, writer: str, times: int) -> None:
    """Add one, `times` times, as every writer must: read, change, write, and repeat after a conflict."""
    for n in range(times):
        while True:
            job = store.get(job_id)
            changed = replace(job, retries_used={"count": job.retries_used.get("count", 0) + 1})
            try:
                store.commit(
                    changed,
                    an_event(f"{writer} {n}"),
                    expected_version=job.version,
                    op_id=f"{writer}:{n}",
                    lease=None,
                )
                break
            except Conflict:
                continue


def commit_for_ever(store: Store, job_id: str) -> None:
    """Print each version once it is acknowledged."""
    job = store.get(job_id)
    while True:
        job = store.commit(
            job, an_event(), expected_version=job.version, op_id=f"v{job.version}", lease=None
        )
        print(job.version, flush=True)


def main(adapter: str, place: str, deed: str, *arguments: str) -> None:
    store = ADAPTERS[adapter](place)
    print("ready", flush=True)
    sys.stdin.readline()  # all begin at once
    if deed == "count_up":
        count_up(store, arguments[0], arguments[1], int(arguments[2]))
    else:
        commit_for_ever(store, arguments[0])


class MemoryFile(SqliteFile):
    """The real tables, in memory: one task runs at a time, so one connection serves all."""

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._prepare(db)
        return db


def in_memory(steady: Callable[[], float] = time.monotonic) -> SqliteStore:
    with mock.patch.object(sqlite_store, "SqliteFile", MemoryFile):
        return SqliteStore(Path(os.devnull), steady=steady)


if __name__ == "__main__":
    main(*sys.argv[1:])
