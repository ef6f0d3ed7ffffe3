"""Data is on the host before the program starts: once for each host, verified, without objects that cannot be files."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.agent_host import Bucket, Host
from tpujob.agent.base import Failure
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.setup import staging
from tpujob.agent.setup.staging import Staging
from tpujob.agent.storage import Storage, StorageError
from tpujob.protocol import StageOrder


class SmallStaging(Staging):
    """In parts of 1000 bytes, and with little patience."""

    part, patience = 1000, 1.0


class Shelf:
    """One data set in the emulated storage, and its folder on a host."""

    def __init__(self, tmp_path: Path, bucket: Bucket) -> None:
        self.bucket, self.folder = bucket, tmp_path / "data" / "set"
        self.storage, self.notes = Storage(MetadataClient()), list[str]()
        self.threads, self.spare = Staging.threads, Staging.spare

    def stage(self, **changes: Any) -> None:
        for name, change in changes.items():
            setattr(self.storage, name, change)
        self.copy("gs://shed/set")

    def copy(self, source: str) -> None:
        order: StageOrder = {"name": "set", "source": source, "to": str(self.folder)}
        staging = SmallStaging(order, self.storage, self.notes.append)
        staging.threads, staging.spare = self.threads, self.spare
        staging.run()

    def files(self) -> dict[str, bytes]:
        paths = (p for p in self.folder.rglob("*") if p.is_file())
        return {str(p.relative_to(self.folder)): p.read_bytes() for p in paths}


@pytest.fixture
def shelf(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", host.bucket.url)
    host.bucket.put("set/a.bin", b"a" * 2500)
    host.bucket.put("set/deep/er/b.txt", b"b")
    host.bucket.put("set/empty", b"")
    host.bucket.put("settled/other", b"no part of it")
    return Shelf(tmp_path, host.bucket)


WHOLE = {"a.bin": b"a" * 2500, "deep/er/b.txt": b"b", "empty": b""}


def test_a_folder_becomes_what_the_bucket_has_and_only_changes_are_fetched(shelf: Shelf) -> None:
    shelf.stage()
    assert shelf.files() == WHOLE
    assert "2.4 KiB in 3 files came to" in shelf.notes[-1]
    shelf.bucket.put("set/deep/er/b.txt", b"new")
    (shelf.folder / "stray").write_text("of an earlier version")
    read, requested = shelf.storage.read, list[str]()

    def counted(path: str, *rest: Any) -> None:
        requested.append(path)
        read(path, *rest)

    shelf.stage(read=counted)
    assert requested == ["gs://shed/set/deep/er/b.txt"]
    assert shelf.files() == WHOLE | {"deep/er/b.txt": b"new"}
    (shelf.folder / "a.bin").write_bytes(b"x" * 2500)
    shelf.stage()
    assert shelf.files()["a.bin"] == b"a" * 2500, "a file that has changed is fetched again"


def test_bytes_that_came_wrong_are_fetched_again_and_never_get_a_name(shelf: Shelf) -> None:
    read, flips = shelf.storage.read, [1]

    def flipping(path: str, take: Any, *rest: Any) -> None:
        wrong = path.endswith("a.bin") and flips and flips.pop()
        read(path, (lambda piece: take(b"X" + piece[1:])) if wrong else take, *rest)

    shelf.stage(read=flipping)
    assert shelf.files() == WHOLE
    flips.extend([1] * 99)
    (shelf.folder / "a.bin").unlink()
    with pytest.raises(Failure, match=r"a\.bin came with other bytes than are stored"):
        shelf.stage()
    assert "a.bin" not in shelf.files()


def test_one_missing_file_ends_the_others(shelf: Shelf) -> None:
    shelf.threads = 2
    for number in range(20):
        shelf.bucket.put(f"set/more/{number}", b"m")
    requested = list[str]()

    def slow(path: str, take: Any, *_: Any) -> None:
        requested.append(path)
        if path.endswith("b.txt"):
            raise StorageError("HTTP 403: no", 403)
        for _ in range(500):
            take(b"")
            time.sleep(0.01)

    with pytest.raises(Failure, match="HTTP 403"):
        shelf.stage(read=slow)
    assert len(requested) == len({*requested}) <= 3, "no repeats, and waiting ones are dropped"


def test_objects_that_cannot_be_files_are_left_out_and_noted(shelf: Shelf) -> None:
    for name in ("set/x/../../out", "set/a//b", "set/empty/below", "set/folder/"):
        shelf.bucket.put(name, b"" if name.endswith("/") else b"1")
    shelf.stage()
    assert shelf.files() == WHOLE
    assert not (shelf.folder.parent / "out").exists()
    assert "3 names that no file can have: 'a//b', 'x/../../out', 'empty/below'" in shelf.notes[0]


def test_a_disk_need_not_hold_two_versions(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(_: object) -> SimpleNamespace:
        return SimpleNamespace(free=3000 - sum(map(len, shelf.files().values())))

    shelf.spare = 2**60
    with pytest.raises(Failure, match=r"needs 2\.4 KiB more on this host, where .* has 0 B free"):
        shelf.stage()
    assert shelf.files() == {}
    shelf.spare = 0
    monkeypatch.setattr(staging.shutil, "disk_usage", usage)
    shelf.stage()
    shelf.bucket.put("set/a.bin", b"n" * 2500)
    shelf.stage()
    assert shelf.files() == WHOLE | {"a.bin": b"n" * 2500}
    shelf.spare = 2**60
    shelf.stage()
    assert len(shelf.files()) == 3


def test_an_empty_source_is_an_error_and_an_object_that_is_replaced_is_not(shelf: Shelf) -> None:
    read, once = shelf.storage.read, [1]

    def replacing(path: str, *rest: Any) -> None:
        if once and once.pop():
            shelf.bucket.put("set/a.bin", b"c" * 2500)
            raise StorageError("HTTP 404: no such generation", 404)
        read(path, *rest)

    shelf.stage(read=replacing)
    assert shelf.files()["a.bin"] == b"c" * 2500
    with pytest.raises(Failure, match="nothing below gs://shed/no/"):
        shelf.copy("gs://shed/no")
    with pytest.raises(Failure, match="gs://absent/no/ cannot be copied to this host: HTTP 404"):
        shelf.copy("gs://absent/no")


def test_the_program_gets_the_folder_in_a_variable(host: Host) -> None:
    host.bucket.put("set/name.txt", b"of the data")
    order = {"name": "set", "source": "gs://shed/set", "to": "~/.tpujob/data/set"}
    folders = dict.fromkeys(("TPUJOB_DATA", "TPUJOB_DATA_SET"), order["to"])
    program = "cat $TPUJOB_DATA/name.txt; echo; echo $TPUJOB_DATA_SET"
    assert host.run(program, stage=[order], folders=folders)["exit_code"] == 0
    assert host.bucket.log()[-2:] == ["of the data", f"{host.home}/.tpujob/data/set"]
    assert json.loads((host.home / ".tpujob/data/.set.staged").read_text())[0].endswith("name.txt")
