"""Dangers of the SQLite store alone: its file, the folder around it, and the disk below."""

import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.stores import a_job, an_event
from tpujob.adapters.sqlite import SqliteStore
from tpujob.adapters.sqlite.file import SqliteFile
from tpujob.errors import StoreError


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


def edit(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement, values)
    db.close()


def test_the_database_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "state" / "jobs.db")
        store.create(a_job(), an_event())
    finally:
        os.umask(before)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert modes(tmp_path / "state") == {0o600}


def test_many_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)

    def open_and_create(_: int) -> str:
        barrier.wait()
        return SqliteStore(tmp_path / "jobs.db").create(a_job(), an_event()).id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(open_and_create, range(8)))) == 8


def test_a_store_works_on_after_it_was_closed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    job = store.create(a_job(), an_event())
    store.close()
    assert store.get(job.id) == job
    assert SqliteStore(tmp_path / "jobs.db").get(job.id) == job


@pytest.mark.parametrize("content", [b"#!/bin/sh\n" * 500, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "jobs.db"
    path.write_bytes(content)
    with pytest.raises(StoreError) as raised:
        SqliteStore(path)
    assert str(path) in raised.value.message
    assert "put a backup of that file back" in raised.value.hint
    assert path.read_bytes() == content


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    edit(path, "CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(StoreError, match="another program's database"):
        SqliteStore(path)


def test_tables_of_another_version_are_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    SqliteStore(path).close()
    edit(path, "PRAGMA user_version = 7")
    before = path.read_bytes()
    with pytest.raises(
        StoreError, match="have version 7, and this tpujob reads version 1"
    ) as raised:
        SqliteStore(path)
    assert "use the tpujob that wrote it" in raised.value.hint
    assert path.read_bytes() == before


def test_several_processes_may_create_the_file_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: SqliteStore(tmp_path / "jobs.db"), range(4)))
    assert len({store.identity() for store in stores}) == 1


def test_tables_that_cannot_be_created_leave_the_file_empty(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with pytest.raises(StoreError):
        SqliteFile(path, "CREATE TABLE half (a); CREATE TABLE half (a)", 1)
    assert SqliteStore(path).list() == []


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(
        StoreError, match=r"cannot be used: (Not a directory|File exists)"
    ) as raised:
        SqliteStore(tmp_path / "state" / "jobs.db")
    assert "TPUJOB_STATE" in raised.value.hint


FILL = """
import os, resource, sys
from pathlib import Path
from tests.support.stores import a_job, an_event
from tpujob.adapters.sqlite import SqliteStore
from tpujob.errors import StoreError
path = Path(sys.argv[1])
store = SqliteStore(path)
limit = 600_000  # of every file that is written here: a small disk
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    while True:
        print(store.create(a_job(message="x" * 10_000), an_event()).id, flush=True)
except StoreError as error:
    print(error.message, error.hint, sep="\\n")
print(len(store.list()))
"""


def test_a_full_disk_is_reported_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    program = [sys.executable, "-c", FILL, str(path)]
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    *ids, message, hint, listed = done.stdout.splitlines()
    assert len(ids) > 5, "it failed before the disk was full"
    assert str(path) in message
    assert "disk" in hint
    assert "no stored job is lost" in hint
    assert int(listed) == len(ids), "the store still reads while it cannot write"
    store = SqliteStore(path)
    assert [job.id for job in reversed(store.list())] == ids
    job = store.get(ids[0])
    again = store.commit(
        replace(job, message="room again"), None, expected_version=1, op_id="x", lease=None
    )
    assert again.version == 2


def test_a_document_is_read_again_only_when_its_version_is_new(tmp_path: Path) -> None:
    """The documents of 10,000 jobs are 30 MB, and they are asked for every 30 s."""
    store = SqliteStore(tmp_path / "jobs.db")
    ids = [store.create(a_job(wake=1.0), an_event()).id for _ in range(3)]
    seen = [store.peek(job_id) for job_id in ids]
    edit(tmp_path / "jobs.db", "UPDATE jobs SET document = 'not read'")
    assert store.due(2.0) == ids
    for jobs in (store.list(live=True), store.walk()):
        assert all(new is old for new, old in zip(jobs, seen[::-1], strict=True))
    assert store.damaged() == []
    edit(tmp_path / "jobs.db", "UPDATE jobs SET version = version + 1")
    assert [job_id for job_id, _ in store.damaged()] == ids


def test_a_lease_costs_no_sync_of_the_disk_and_what_is_written_later_does(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "x.db", "CREATE TABLE things (name TEXT)", 1)
    with file.writing(durable=False) as db:
        assert db.execute(SYNCHRONOUS).fetchone() == (1,), "1 is NORMAL"
    with pytest.raises(StoreError), file.writing(durable=False):
        raise StoreError("no")
    with file.writing() as db:
        assert db.execute(SYNCHRONOUS).fetchone() == (2,), "2 is FULL"
    file.close()


SYNCHRONOUS = "PRAGMA synchronous"


def test_a_file_that_is_lost_while_it_is_in_use_is_no_empty_store(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    for loss in (
        lambda: path.unlink(),
        lambda: path.replace(tmp_path / "elsewhere.db"),
        lambda: os.truncate(path, 0),
        lambda: SqliteStore(tmp_path / "new.db").close() or (tmp_path / "new.db").replace(path),
    ):
        store = SqliteStore(path)
        store.create(a_job(), an_event())
        loss()
        for call in (lambda: store.list(live=True), store.identity, store.newest):  # noqa: B023
            with pytest.raises(StoreError) as raised:
                call()
            assert "put" in raised.value.hint
        store.close()
        for file in tmp_path.iterdir():
            file.unlink()
