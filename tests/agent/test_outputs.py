"""Folders of a program that writes plain files outlive its host."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.agent_host import JOB, Host, until
from tpujob.agent import ending
from tpujob.agent.base import take_lock
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.setup import steps
from tpujob.agent.ship import outputs as module
from tpujob.agent.ship.outputs import Outputs
from tpujob.agent.storage import Storage, StorageError
from tpujob.protocol import paths

KEPT = paths.outputs_folder(f"jobs/{JOB}", 0)

#: writes a checkpoint file for each step, tells of it, keeps the newest two, and resumes from the newest
TRAINER = """
import json, os, pathlib, sys, time, signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
folder = pathlib.Path("ckpt"); folder.mkdir(exist_ok=True)
events = open(os.environ["TPUJOB_OUT"] + "/events.jsonl", "a", buffering=1)
tell = lambda kind, **more: events.write(json.dumps({"t": 0, "kind": kind, **more}) + "\\n")
found = sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit())
start = found[-1] if found else 0
print("from", start, (folder / "latest").read_text() if found else "", flush=True)
for step in range(start + 1, start + 4):
    (folder / str(step)).write_text("weights of %d" % step)
    if step > 2: (folder / str(step - 2)).unlink()
    if (folder / "latest").is_symlink(): (folder / "latest").unlink()
    (folder / "latest").symlink_to(str(step))
    tell("step", step=step, steps=6); tell("checkpoint", step=step)
if start == 0: time.sleep(60)
"""


def names(host: Host) -> dict[str, bytes]:
    found = (str(o["name"]) for o in host.bucket.list(KEPT))
    return {name.removeprefix(KEPT + "/"): host.bucket.read(name) for name in found}


def test_checkpoints_in_plain_files_are_there_again_after_the_host_is_lost(host: Host) -> None:
    host.start(["python3", "-c", TRAINER], outputs=["ckpt"])
    until(lambda: host.bucket.report().get("checkpoint") == 3, "the checkpoint that the bucket has")
    assert names(host) == {"ckpt/2": b"weights of 2", "ckpt/3": b"weights of 3", "ckpt/latest": b""}
    host.agent("stop", "--grace", 5)
    host.ended()
    for path in sorted((host.home / ".tpujob").rglob("ckpt/*")):
        path.unlink()  # as on another host
    report = host.run(["python3", "-c", TRAINER], outputs=["ckpt"], attempt=2)
    assert (report["exit_code"], report["checkpoint"]) == (0, 6)
    assert "from 3 weights of 3" in host.bucket.log(2)
    assert sorted(names(host)) == ["ckpt/5", "ckpt/6", "ckpt/latest"]


class Kept:
    """One host's outputs, with a storage whose answers a test can change."""

    def __init__(self, tmp_path: Path) -> None:
        self.work = tmp_path / "work"
        self.storage = Storage(MetadataClient())
        self.said: list[str] = []
        self.outputs = self.again()

    def again(self) -> Outputs:
        where = "gs://shed/kept"
        made = Outputs(self.storage, str(self.work), ["out"], where, self.said.append)
        made.restore()
        return made

    def write(self, name: str, text: str, age: float = 10) -> None:
        path = self.work / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (time.time() - age,) * 2)


@pytest.fixture
def kept(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", host.bucket.url)
    monkeypatch.setattr(module, "RETRY", 0.05)
    return Kept(tmp_path)


def test_files_go_up_in_the_order_in_which_they_were_written(kept: Kept) -> None:
    for age, name in ((10, "z"), (9, "b/deep"), (8, "a")):
        kept.write(name, name, age)
    put, order = kept.storage.put_file, list[str]()

    def noted(path: str, file: str, md5: str) -> None:
        order.append(path.rpartition("/")[2])
        put(path, file, md5)

    kept.storage.put_file = noted
    assert kept.outputs.finish(1) == ""
    assert order == ["z", "deep", "a"]
    assert kept.again().finish(1) == ""
    assert order == ["z", "deep", "a"], "what the bucket has is not sent again"


def test_a_file_that_changes_before_its_turn_waits_for_those_that_were_written_before(
    kept: Kept,
) -> None:
    kept.write("1", "weights", age=10)
    kept.write("latest", "1", age=9)
    put, order = kept.storage.put_file, list[str]()

    def noted(path: str, file: str, md5: str) -> None:
        order.append(path.rpartition("/")[2])
        put(path, file, md5)
        if order == ["1"]:
            kept.write("2", "weights", age=8)
            kept.write("latest", "2", age=7)

    kept.storage.put_file = noted
    kept.outputs._keep(0)
    assert order == ["1"], "else the bucket would name a checkpoint that it does not have"
    assert kept.outputs.finish(1) == ""
    assert order == ["1", "2", "latest"]


def test_a_file_that_changes_while_it_is_sent_is_sent_again(kept: Kept) -> None:
    kept.write("a", "half")
    put = kept.storage.put_file

    def changing(path: str, file: str, md5: str) -> None:
        kept.storage.put_file = put
        kept.write("a", "whole and longer", age=1)
        put(path, file, md5)

    kept.storage.put_file = changing
    assert kept.outputs.told(7) is None
    kept.outputs._keep(0)
    assert kept.outputs.checkpoint is None, "the checkpoint is not whole in the bucket"
    assert kept.outputs.finish(1) == ""
    assert kept.outputs.checkpoint == 7
    found = list[bytes]()
    kept.storage.read("gs://shed/kept/out/a", found.append)
    assert found == [b"whole and longer"]


def test_what_cannot_be_kept_is_told_once_and_tried_until_it_can(kept: Kept) -> None:
    kept.write("a", "1")
    put, left = kept.storage.put_file, [1, 1]

    def refusing(path: str, file: str, md5: str) -> None:
        if left and left.pop():
            raise StorageError("HTTP 503: busy")
        put(path, file, md5)

    kept.storage.put_file = refusing
    assert kept.outputs.finish(30) == ""
    assert kept.said == ["outputs cannot be kept in the bucket: HTTP 503: busy"]
    kept.write("b", "2")
    left.extend([1] * 999)
    assert "HTTP 503" in kept.outputs.finish(0)


def test_a_checkpoint_that_cannot_be_kept_at_once_is_kept_soon(kept: Kept) -> None:
    kept.write("a", "1")
    put, safe = kept.storage.put_file, threading.Event()

    def refusing(path: str, file: str, md5: str) -> None:
        kept.storage.put_file = put
        raise StorageError("HTTP 503: busy", 503)

    kept.storage.put_file = refusing
    wake: Any = SimpleNamespace(up=safe.set)
    kept.outputs.told(7)
    kept.outputs.follow(wake)
    assert safe.wait(10), "not before the next look for new files, minutes later"
    assert kept.outputs.told(7) == 7
    assert kept.outputs.finish(1) == ""


@pytest.mark.parametrize(
    ("code", "notice", "cause"), [(0, "", "CRASH"), (0, "preempted", None), (1, "", None)]
)
def test_a_success_whose_outputs_cannot_be_kept_is_none(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, code: int, notice: str, cause: str | None
) -> None:
    def refuse(path: str, file: str, md5: str) -> None:
        raise StorageError("HTTP 403: no", 403)

    kept.write("a", "1")
    kept.storage.put_file = refuse
    monkeypatch.setattr(ending, "OUTPUTS_PATIENCE", 0.0)
    monkeypatch.setattr(ending, "OUTPUTS_DOOMED", 0.0)
    state: dict[str, Any] = {"notice": notice, "error": "", "cause": None}
    wake = SimpleNamespace(wait=time.sleep)
    attempt: Any = SimpleNamespace(
        outputs=kept.outputs, state=state, wake=wake, listen=lambda: None
    )
    ending.keep_outputs(attempt, code)
    assert state["cause"] == cause
    assert ("HTTP 403" in state["error"]) is (cause is not None)


def test_the_next_attempt_waits_while_an_earlier_one_keeps_its_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = str(tmp_path / "host.lock")
    monkeypatch.setattr(steps, "HOST_LOCK", lock)
    monkeypatch.setattr(steps, "KILL_PATIENCE", 0.1)
    for name in ("stop_others", "end_all", "remove_containers", "unmount_all", "other_attempts"):
        monkeypatch.setattr(steps, name, lambda *_, **__: [])
    held = take_lock(lock, 0)
    assert held is not None
    threading.Timer(0.5, os.close, (held,)).start()
    folder, log = SimpleNamespace(path="own"), SimpleNamespace(note=print)
    attempt: Any = SimpleNamespace(plan={"grace": 0.0}, folder=folder, log=log, host_lock=None)
    steps.take_over_host(attempt)
    os.close(attempt.host_lock)
