"""`tpujob data gc`: it lists what ended copies have left, and removes it when told to, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data.rig import Rig, files_in
from tests.emulator.storage_rig import ask
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.cli.app import run
from tpujob.data import leftovers
from tpujob.data.objects import ObjectFacts
from tpujob.data.sync import upload
from tpujob.data.sync.ledger import Ledger
from tpujob.errors import IllegalInState, NotFound

MIB = 1 << 20


class Killed(Exception):
    """In place of the end of the process."""


class DyingUp(JsonObjects):
    def send(self, *given: object) -> int | ObjectFacts:
        raise Killed


class DyingDown(JsonObjects):
    def get(self, bucket: str, facts: ObjectFacts, start: int, take: object) -> None:
        def some(data: bytes) -> None:
            take(data[:100])  # pyright: ignore[reportCallIssue]
            raise Killed

        super().get(bucket, facts, start, some)


def leave_behind(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload and a download that were killed."""
    monkeypatch.setattr(upload, "SMALL", MIB)
    rig.write({"large": b"x" * (2 * MIB)})
    rig.put("other/file", b"y" * 5000)
    with pytest.raises(Killed):
        rig.sync(objects=DyingUp(rig.url, patience=5))
    with pytest.raises(Killed):
        rig.sync(f"gs://{rig.bucket}/other", rig.folder / "back", DyingDown(rig.url, patience=5))


def test_what_is_left_behind_is_found_and_removed_and_nothing_else(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_behind(rig, monkeypatch)
    stages = rig.folder / "stage"
    (stages / "abc").mkdir(parents=True)
    (stages / "abc" / "shard").write_bytes(b"z" * 10)
    (rig.folder / "back" / "mine").write_bytes(b"mine")
    found = leftovers.find(rig.ledger, stages)
    assert [one.target for one in found.uploads] == [f"gs://{rig.bucket}/data/large"]
    folders = {Path(one.path).name: (one.files, one.size) for one in found.folders}
    assert folders == {".tpujob-parts": (1, 100), "abc": (1, 10)}
    leftovers.remove(rig.ledger, rig.objects, found)
    leftovers.remove(rig.ledger, rig.objects, leftovers.find(rig.ledger, stages))  # safe to repeat
    empty = leftovers.find(rig.ledger, stages)
    assert (empty.uploads, empty.folders, empty.tokens) == ([], [], 0)
    with pytest.raises(NotFound):
        rig.objects.offset(found.uploads[0].session, 2 * MIB)
    assert files_in(rig.folder / "back") == {"mine": b"mine"}
    assert rig.sync().copied == 1, "what was removed is copied anew"
    assert rig.sync(f"gs://{rig.bucket}/other", rig.folder / "back").copied == 1


def test_nothing_is_removed_while_another_process_copies(rig: Rig) -> None:
    other = Ledger(rig.folder / "ledger")
    with pytest.raises(IllegalInState, match="copies on this machine"), rig.ledger.unused():
        raise AssertionError
    other.close()
    with rig.ledger.unused(), pytest.raises(IllegalInState, match="cleans up"):
        Ledger(rig.folder / "ledger")
    Ledger(rig.folder / "ledger").close()


@pytest.fixture
def shell(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", rig.url)
    monkeypatch.setenv("TPUJOB_STATE", str(rig.folder / "state"))
    monkeypatch.delenv("TPUJOB_CONTEXT", raising=False)
    rig.ledger.close()
    rig.ledger = Ledger(rig.folder / "state" / "data")
    return rig


def test_the_command_lists_then_removes(
    shell: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_behind(shell, monkeypatch)
    shell.ledger.close()
    assert run(["data", "gc"]) == 0
    said = capsys.readouterr().out
    assert "Uploads that were begun and not ended: 1" in said
    assert f"gs://{shell.bucket}/data/large: begun" in said
    assert ".tpujob-parts: 1 file, 100 B" in said
    assert "tpujob data gc --delete" in said
    assert run(["data", "gc", "--delete", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["removed"], len(record["uploads"]), len(record["folders"])) == (True, 1, 1)
    assert run(["data", "gc", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["uploads"], record["folders"], record["tokens"]) == ([], [], 0)
    shell.ledger = Ledger(shell.folder / "ledger")  # for the rig's own end


def test_a_bucket_says_what_it_keeps_and_takes_the_rule_beside_others(
    shell: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"action": {"type": "Delete"}, "condition": {"age": 30, "matchesSuffix": [".log"]}}
    path = f"/storage/v1/b/{shell.bucket}"
    patch = json.dumps({"lifecycle": {"rule": [own]}}).encode()
    assert ask(shell.url, "PATCH", path, patch)[0] == 200
    place = f"gs://{shell.bucket}"
    assert run(["data", "gc", place]) == 0
    said = capsys.readouterr().out
    assert "kept for 7 days (soft delete) and billed" in said
    assert f"tpujob data gc --rule 7 {place}" in said
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
