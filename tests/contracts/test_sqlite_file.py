"""What only the SQLite store can get wrong: its file, the folder around it, and the disk below."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.stores import a_job, an_event
from tpujob.adapters.sqlite import SqliteStore
from tpujob.adapters.sqlite_file import APPLICATION
from tpujob.errors import StoreError

ROOT = Path(__file__).parents[2]


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


def edit(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as db:
        db.execute(statement, values)
    db.close()


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
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
    assert "move that file away" in raised.value.hint
    assert path.read_bytes() == content


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    edit(path, "CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(StoreError, match="another program's database"):
        SqliteStore(path)


def test_the_tables_of_a_newer_version_are_left_alone(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "jobs.db").close()
    edit(tmp_path / "jobs.db", "PRAGMA user_version = 7")
    with pytest.raises(StoreError, match="another version of tpujob") as raised:
        SqliteStore(tmp_path / "jobs.db")
    assert "upgrade" in raised.value.hint


def test_the_file_says_whose_it_is(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "jobs.db").close()
    assert (tmp_path / "jobs.db").read_bytes()[68:72] == APPLICATION.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("{", "record of job 000001 is damaged"),
        ('{"id": "000001", "state": "lost"}', "record of job 000001 is damaged: `state`"),
    ],
)
def test_a_damaged_record_is_named_and_the_others_are_served(
    tmp_path: Path, document: str, said: str
) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path)
    for _ in range(2):
        store.create(a_job(wake=1.0), an_event())
    edit(path, "UPDATE jobs SET document = ?, version = 9 WHERE number = 1", document)
    for each in (store, SqliteStore(path)):
        with pytest.raises(StoreError, match=said):
            each.get("000001")
        assert each.get("000002").id == "000002"
        assert each.due(9) == ["000001", "000002"]
        with pytest.raises(StoreError, match=said):
            each.list()  # a list without it would tell the sweep that nobody claims its slice


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from tpujob.adapters.sqlite import SqliteStore
from tpujob.errors import StoreError
if os.geteuid() == 0:
    os.setuid(65534)  # root may write anywhere
try:
    SqliteStore(Path(sys.argv[1]))
except StoreError as error:
    print(error.message, error.hint, sep="\\n")
"""


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["jobs.db", "new/jobs.db"])
def test_a_folder_that_is_not_writable_is_said_with_what_to_do(tmp_path: Path, name: str) -> None:
    tmp_path.chmod(0o555)
    try:
        said = run(UNPRIVILEGED, str(tmp_path / name))
    finally:
        tmp_path.chmod(0o755)
    assert f"{tmp_path / name} cannot be used: Permission denied" in said
    assert "set TPUJOB_STATE to a folder" in said


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(
        StoreError, match=r"cannot be used: (Not a directory|File exists)"
    ) as raised:
        SqliteStore(tmp_path / "state" / "jobs.db")
    assert "TPUJOB_STATE" in raised.value.hint


FILL = """
import os, resource, sys
from pathlib import Path
from tests.contracts.stores import a_job, an_event
from tpujob.adapters.sqlite import SqliteStore
from tpujob.errors import StoreError
path = Path(sys.argv[1])
store = SqliteStore(path)
limit = 400_000  # of every file that is written here: a small disk
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    while True:
        print(store.create(a_job(message="x" * 10_000), an_event()).id, flush=True)
except StoreError as error:
    print(error.message, error.hint, sep="\\n")
print(len(store.list()))
"""


def test_a_full_disk_is_said_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    *ids, message, hint, listed = run(FILL, str(path)).splitlines()
    assert len(ids) > 5, "it failed before the disk was full"
    assert str(path) in message
    assert "disk" in hint
    assert "nothing that was stored is lost" in hint
    assert int(listed) == len(ids), "the store still reads while it cannot write"
    store = SqliteStore(path)
    assert [job.id for job in reversed(store.list())] == ids
    job = store.get(ids[0])
    again = store.commit(
        replace(job, message="room again"), None, expected_version=1, op_id="x", lease=None
    )
    assert again.version == 2
