"""`tpujob data gc`: it lists unfinished downloads of ended syncs, removes them on demand, and nothing else."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.contract.data.rig import Rig, files_in
from tests.contract.emulator.storage_rig import ask
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.cli.app import run
from tpujob.data.keys import exclusive_lock
from tpujob.data.objects import ObjectContent, ObjectFacts
from tpujob.data.sync import checksum_cache
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.errors import IllegalInState


class Killed(Exception):
    """The end of the process."""


def leave_behind(rig: Rig) -> None:
    """Leave the unfinished file of a download that was killed."""

    class Dying(JsonObjects):
        @contextmanager
        def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:
            def chunks() -> Generator[bytes]:
                yield b"y" * 100
                raise Killed

            del bucket, facts, start
            yield ObjectContent(chunks())

    rig.put("other/file", b"y" * 5000)
    with pytest.raises(Killed):
        rig.sync(f"gs://{rig.bucket}/other", rig.folder / "back", Dying(rig.url, patience=5))


def test_what_is_left_behind_is_found_and_removed_and_nothing_else(rig: Rig) -> None:
    leave_behind(rig)
    (rig.folder / "back" / "mine").write_bytes(b"mine")
    (folder,) = folders = checksum_cache.find_incomplete(rig.cache)
    assert (folder.path, folder.files, folder.size) == (f"{rig.folder}/back/.tpujob-parts", 1, 100)
    with (
        exclusive_lock(rig.folder / "back" / ".tpujob-parts" / "lock", ""),
        pytest.raises(IllegalInState),
    ):
        checksum_cache.remove_incomplete(rig.cache, folders)
    checksum_cache.remove_incomplete(rig.cache, folders)
    assert checksum_cache.find_incomplete(rig.cache) == []
    assert files_in(rig.folder / "back") == {"mine": b"mine"}
    assert rig.sync(f"gs://{rig.bucket}/other", rig.folder / "back").copied == 1


def test_the_next_sync_removes_what_an_ended_one_left(rig: Rig) -> None:
    leave_behind(rig)
    assert rig.sync(f"gs://{rig.bucket}/other", rig.folder / "back").copied == 1
    assert checksum_cache.find_incomplete(rig.cache) == []
    assert files_in(rig.folder / "back") == {"file": b"y" * 5000}


def test_a_completed_download_is_not_counted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_behind(rig)
    listed = SimpleNamespace(walk=lambda path: [(path, [], ["gone"])], lstat=os.lstat, path=os.path)
    monkeypatch.setattr(checksum_cache, "os", listed)
    assert checksum_cache.find_incomplete(rig.cache) == []


@pytest.fixture
def shell(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", rig.url)
    monkeypatch.setenv("TPUJOB_STATE", str(rig.folder / "state"))
    monkeypatch.delenv("TPUJOB_CONTEXT", raising=False)
    rig.cache.close()
    rig.cache = ChecksumCache(rig.folder / "state" / "data")
    return rig


def test_the_command_lists_then_removes(shell: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    leave_behind(shell)
    shell.cache.close()
    assert run(["data", "gc"]) == 0
    output = capsys.readouterr().out
    assert ".tpujob-parts: 1 file, 100 B" in output
    assert "tpujob data gc --delete" in output
    assert run(["data", "gc", "--delete", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["removed"], len(record["folders"])) == (True, 1)
    assert run(["data", "gc", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folders"] == []
    shell.cache = ChecksumCache(shell.folder / "ledger")  # for the rig's own end


def test_a_bucket_takes_one_more_rule(shell: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"action": {"type": "Delete"}, "condition": {"age": 30, "matchesSuffix": [".log"]}}
    path = f"/storage/v1/b/{shell.bucket}"
    patch = json.dumps({"lifecycle": {"rule": [own]}}).encode()
    assert ask(shell.url, "PATCH", path, patch)[0] == 200
    place = f"gs://{shell.bucket}"
    assert run(["data", "gc", place]) == 0
    output = capsys.readouterr().out
    assert "kept for 7 days (soft delete) and billed" in output
    assert f"tpujob data gc --rule 7 {place}" in output
    for _ in range(2):
        assert run(["data", "gc", place, "--rule", "7"]) == 0
        assert "ended after 7 days" in capsys.readouterr().out
    rules = json.loads(ask(shell.url, "GET", path)[2])["lifecycle"]["rule"]
    stale = {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 7}}
    assert rules == [own, stale], "once, and the other rule stays"


def test_what_is_no_bucket_is_refused(shell: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "gc", "gs://bucket/prefix"]) == 2
    assert run(["data", "gc", "folder"]) == 2
    assert run(["data", "gc", "--rule", "7"]) == 2
    assert run(["data", "gc", "gs://no-such-bucket"]) == 3
    assert "bucket does not exist" in capsys.readouterr().err
