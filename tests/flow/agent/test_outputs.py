"""Folders of a program that writes plain files outlive its host."""

import errno
import hashlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.agent_host import JOB, KEY, Host, until
from tests.support.waiting import LONG
from tpujob.agent import daemon
from tpujob.agent.base import take_lock
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.setup import steps
from tpujob.agent.storage import LINK, Storage, StorageError
from tpujob.agent.upload import outputs as module
from tpujob.agent.upload.output_list import Content, OutputList
from tpujob.agent.upload.outputs import Outputs, UnsignedOutputs
from tpujob.protocol import paths

KEPT = paths.outputs_folder(f"jobs/{JOB}", 0)
Consume = Callable[[bytes], object]

#: writes and reports a checkpoint file for each step, keeps the newest two, and resumes from the newest
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
    stored = (str(o["name"]) for o in host.bucket.list(KEPT + "/"))
    return {name.removeprefix(KEPT + "/"): host.bucket.read(name) for name in stored}


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


#: saves at each step and at SIGTERM; the losses of its steps are in `LOSSES`, the last one for all later steps
NOT_FINITE = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path("ckpt"); folder.mkdir(exist_ok=True)
events = open(os.environ["TPUJOB_OUT"] + "/events.jsonl", "a", buffering=1)
tell = lambda kind, **more: events.write(json.dumps({"t": 0, "kind": kind, **more}) + "\\n")
step = 0
def save(*_):
    (folder / "latest").write_text(str(step)); tell("checkpoint", step=step)
    if _: sys.exit(75)
signal.signal(signal.SIGTERM, save)
losses = os.environ["LOSSES"].split()
for step in range(1, 10**6):
    loss = losses[min(step, len(losses)) - 1]
    print("step", step, "loss", loss, flush=True); tell("step", step=step, loss=float(loss))
    save()
    time.sleep(1.5 if step == 1 else 0.3)
    if os.path.exists("crash"): sys.exit(1)
"""
LATEST = f"{KEPT}/ckpt/latest"


@pytest.mark.parametrize("how", ["watch.nonfinite", "its events", "another host"])
def test_nothing_is_kept_that_was_written_after_a_bad_loss(host: Host, how: str) -> None:
    watch = {"nonfinite": r"step (?P<step>\d+) loss nan" if how == "watch.nonfinite" else None}
    losses = "1.0" if how == "another host" else "1.0 nan"
    host.start(["python3", "-c", NOT_FINITE], outputs=["ckpt"], watch=watch, env={"LOSSES": losses})
    until(lambda: host.bucket.report().get("checkpoint"), "a good checkpoint in the bucket")
    if how == "its events":
        until(lambda: (host.bucket.report().get("step") or 0) > 4, "steps after the bad one")
        (host.out().parent / "work" / "crash").touch()
    if how == "another host":
        host.agent("stop", "--grace", 0, "--discard")
    report = host.ended()
    latest = int(host.bucket.read(LATEST))
    assert latest == report["checkpoint"]
    if how == "another host":
        assert report["exit_code"] == -9, "it got no SIGTERM, which would make it save"
    else:
        assert latest == 1, "the loss of step 2 was not finite"


def test_outputs_are_kept_again_once_the_loss_is_finite_again(host: Host) -> None:
    argv = ["python3", "-c", NOT_FINITE]
    host.start(argv, outputs=["ckpt"], env={"LOSSES": "1.0 nan nan 1.0"})
    until(lambda: (host.bucket.report().get("checkpoint") or 0) > 3, "a checkpoint of a later step")
    host.agent("stop", "--grace", 5)
    assert host.ended()["exit_code"] == 75


class Rig:
    """One host's outputs, with a storage whose answers a test can change."""

    def __init__(self, tmp_path: Path) -> None:
        self.work = tmp_path / "work"
        self.storage = Storage(MetadataClient())
        self.notes: list[str] = []
        self.outputs = self.again()

    def again(
        self,
        work: Path | None = None,
        key: str = KEY,
        host: str = "0",
        wait: Callable[[float], object] = time.sleep,
        batch: int = Outputs.batch,
    ) -> Outputs:
        """The outputs of the next attempt, restored to that folder."""
        self.listed = OutputList(
            self.storage, "gs://shed/kept.list", key, ["000042", "1.0", host], wait
        )
        work = work or self.work
        made = Outputs(
            self.storage, str(work), ["out"], "gs://shed/kept", self.listed, self.notes.append
        )
        made.retry_in, made.batch = 0.05, batch
        made.restore()
        return made

    def save(self, *names: str, text: str = "weights") -> None:
        """Write these files, and upload all files."""
        for name in names:
            self.write(name, text)
        assert self.outputs.finish(1) == ""

    def elsewhere(self, name: str = "next") -> Path:
        """The folder of the next attempt on another host."""
        self.again(work := self.work.parent / name)
        return work / "out"

    def read(self, name: str) -> bytes:
        """An object of the bucket."""
        content = bytearray()
        self.storage.read(f"gs://shed/{name}", content.extend)
        return bytes(content)

    def answer(self, name: str, answer: Callable[[Consume, Callable[[], None]], object]) -> None:
        """Let `answer` answer requests for that file. Its second parameter is a function that answers as usual."""
        read = self.storage.read

        def answered(path: str, consume: Consume, *words: Any, **options: Any) -> None:
            def plain() -> None:
                read(path, consume, *words, **options)

            if path.endswith(f"/{name}"):
                answer(consume, plain)
            else:
                plain()

        self.storage.read = answered

    def before_each(self, do: Callable[[str], object]) -> None:
        """Call this with the name of each file before it is sent."""
        put = self.storage.put_file

        def sent(path: str, file: str, md5: str) -> None:
            do(path.rpartition("/")[2])
            put(path, file, md5)

        self.storage.put_file = sent

    def plant(self, name: str, data: bytes = b"", **metadata: str) -> None:
        self.storage.put(f"gs://shed/kept/out/{name}", data, metadata)

    def write(self, name: str, text: str, age: float = 10) -> None:
        path = self.work / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (time.time() - age,) * 2)


@pytest.fixture
def rig(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", host.bucket.url)
    return Rig(tmp_path)


def test_files_go_up_in_the_order_in_which_they_were_written(rig: Rig) -> None:
    """Else the bucket would name a checkpoint that it does not have."""
    rig.write("weights/1", "weights", age=10)
    rig.write("latest", "1", age=9)
    order = list[str]()

    def note(name: str) -> None:
        order.append(name)
        if order == ["1"]:
            rig.write("weights/2", "weights", age=8)
            rig.write("latest", "2", age=7)

    rig.before_each(note)
    rig.outputs._upload(0)
    assert order == ["1"], "what changes before its turn waits for what was written before"
    assert rig.outputs.finish(1) == ""
    assert rig.again().finish(1) == ""
    assert order == ["1", "2", "latest"], "what the bucket has is not sent again"


def test_a_file_with_a_time_in_the_future_is_uploaded_during_the_program(rig: Rig) -> None:
    """The clock may have been put back since. A host that is lost would lose the file."""
    rig.write("a", "1", age=-3600)
    assert rig.outputs._upload(module.SETTLED) == ""
    assert rig.read("kept/out/a") == b"1"


def test_a_file_that_changes_while_it_is_sent_is_sent_again(rig: Rig) -> None:
    rig.write("a", "half")
    changes = iter(["whole and longer"])
    rig.before_each(lambda name: [rig.write(name, text, age=1) for text in changes])
    assert rig.outputs.note_checkpoint(7) is None
    rig.outputs._upload(0)
    assert rig.outputs.checkpoint is None, "the checkpoint is not whole in the bucket"
    assert rig.outputs.finish(1) == ""
    assert rig.outputs.checkpoint == 7
    assert rig.read("kept/out/a") == b"whole and longer"


def test_what_cannot_be_kept_is_noted_once_and_tried_until_it_can(rig: Rig) -> None:
    rig.write("a", "1")
    times, safe = [2], threading.Event()

    def refuse(_: str) -> None:
        times[0] -= 1
        if times[0] >= 0:
            raise StorageError("HTTP 503: busy", 503)

    rig.before_each(refuse)
    wake: Any = SimpleNamespace(up=safe.set)
    rig.outputs.note_checkpoint(7)
    rig.outputs.follow(wake)
    assert safe.wait(LONG), "not before the next look for new files, minutes later"
    assert rig.outputs.note_checkpoint(7) == 7
    assert rig.notes == ["outputs cannot be kept in the bucket: HTTP 503: busy"]
    rig.write("b", "2")
    times[0] = 2
    assert rig.outputs.finish(30) == ""
    rig.write("c", "3")
    times[0] = 999
    assert "HTTP 503" in rig.outputs.finish(0)


@pytest.mark.parametrize(
    ("code", "notice", "cause"), [(0, "", "OUTPUTS"), (0, "preempted", None), (1, "", None)]
)
def test_a_success_whose_outputs_cannot_be_kept_is_none(
    rig: Rig, code: int, notice: str, cause: str | None
) -> None:
    def refuse(_: str) -> None:
        raise StorageError("HTTP 403: no", 403)

    rig.write("a", "1")
    rig.before_each(refuse)
    state: dict[str, Any] = {"notice": notice, "error": "", "cause": None}
    wake = SimpleNamespace(wait=time.sleep)
    attempt: Any = SimpleNamespace(outputs=rig.outputs, state=state, wake=wake, poll=lambda: None)
    daemon.keep_outputs(attempt, code, patience=0.0, after_notice=0.0)
    assert state["cause"] == cause
    assert ("HTTP 403" in state["error"]) is (cause is not None)


# Files that the bucket cannot have


def unreadable(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (out / "secret").write_text("x")
    read = module.digests_of

    def refuse(path: str) -> tuple[str, str]:
        if path.endswith("secret"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return read(path)

    monkeypatch.setattr(module, "digests_of", refuse)


def closed_folder(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (out / "closed").mkdir()
    (out / "closed" / "x").write_text("x")
    scan = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)


def deep(out: Path, _: pytest.MonkeyPatch) -> None:
    folder = out.joinpath(*["d" * 240] * 5)
    folder.mkdir(parents=True)
    (folder / "f").write_text("x")


def socket_file(out: Path, _: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as context:
        context.chdir(out)  # a socket's path has at most 107 bytes
        server.bind("sock")


BAD: dict[str, tuple[str, Callable[[Path, pytest.MonkeyPatch], object]]] = {
    "unreadable": ("cannot be read: Permission denied: 1 ('out/secret')", unreadable),
    "closed folder": ("cannot be read: Permission denied: 1 ('out/closed')", closed_folder),
    "odd byte": (
        "the name is not UTF-8: 1 ('out/\\udcff.log')",
        lambda out, _: Path(os.fsdecode(os.fsencode(out) + b"/\xff.log")).write_text("x"),
    ),
    "odd folder": (
        "the name is not UTF-8: 1 ('out/\\udcff/x')",
        lambda out, _: (
            (odd := Path(os.fsdecode(os.fsencode(out) + b"/\xff"))).mkdir(),
            (odd / "x").write_text("x"),
        ),
    ),
    "link to an odd byte": (
        "the name is not UTF-8: 1 ('out/link')",
        lambda out, _: (out / "link").symlink_to(os.fsdecode(b"\xff")),
    ),
    "line feed": (
        "the name has a line break: 1 ('out/a\\nb')",
        lambda out, _: (out / "a\nb").write_text("x"),
    ),
    "long path": (f"the name has more than 1024 bytes: 1 ('out/{'d' * 56}...", deep),
    "pipe": (
        "not an ordinary file: 1 ('out/pipe')",
        lambda out, _: os.mkfifo(out / "pipe"),
    ),
    "socket": ("not an ordinary file: 1 ('out/sock')", socket_file),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_cannot_be_kept_is_left_out_by_name_and_costs_no_other_file(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    note, make = BAD[kind]
    make(rig.work / "out", monkeypatch)
    rig.save("step-100/weights")
    rig.outputs.note_checkpoint(100)
    assert rig.outputs.finish(0) == ""
    assert (rig.elsewhere() / "step-100" / "weights").read_text() == "weights"
    assert rig.outputs.facts() == {"restored": 0, "left_out": 1, "empty": []}
    assert rig.outputs.checkpoint == 100, "the file is not part of it"
    (noted,) = (text for text in rig.notes if "left out" in text)
    assert noted.startswith(f"outputs: left out, {note}")


def test_a_loop_of_links_is_kept_as_it_is(rig: Rig) -> None:
    (rig.work / "out" / "a").symlink_to("b")
    (rig.work / "out" / "b").symlink_to("a")
    rig.save("weights")
    assert os.readlink(rig.elsewhere() / "a") == "b"
    assert rig.outputs.facts()["left_out"] == 0


def test_a_closed_folder_costs_none_of_the_files_that_the_bucket_has(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.save("closed/old", "deleted")
    (rig.work / "out" / "deleted").unlink()
    with monkeypatch.context() as context:
        (rig.work / "out" / "closed").rename(rig.work / "old")
        closed_folder(rig.work / "out", context)
        assert rig.outputs.finish(0) == ""
    assert sorted(
        str(p.relative_to(rig.work.parent / "next")) for p in rig.elsewhere().rglob("*")
    ) == [
        "out/closed",
        "out/closed/old",
    ]


@pytest.mark.parametrize("layout", ["{step}/shard", "checkpoint-{step:06d}.pt", "latest"])
def test_a_checkpoint_with_a_file_that_is_left_out_does_not_count(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Where paths have the step, only files with it belong to the checkpoint."""
    closed = set[str]()
    read = module.digests_of

    def refuse(path: str) -> tuple[str, str]:
        if path.rpartition("/out/")[2] in closed:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return read(path)

    monkeypatch.setattr(module, "digests_of", refuse)
    counted = list[int | None]()
    for step, is_closed in ((100, False), (200, True), (300, False), (400, False)):
        name = layout.format(step=step)
        closed = {name} if is_closed else closed if "{" in layout else set[str]()
        rig.write(name, f"weights of {step}")
        rig.write(f"{name}-b", f"more of {step}")
        rig.outputs.note_checkpoint(step)
        assert rig.outputs.finish(0) == ""
        counted.append(rig.outputs.checkpoint)
    assert counted == [100, 100, 300, 400]
    assert "outputs: checkpoint 200 is not complete: files of it are left out" in rig.notes


def test_a_folder_without_a_file_after_a_checkpoint_is_noted_and_keeps_none(rig: Rig) -> None:
    assert rig.outputs.finish(0) == ""
    assert (rig.notes, rig.outputs.facts()["empty"]) == ([], [])
    rig.outputs.note_checkpoint(7)
    for _ in range(2):
        assert rig.outputs.finish(0, complete=True) == ""
    assert rig.notes == ["outputs: empty after checkpoint 7: out"]
    assert (rig.outputs.checkpoint, rig.outputs.facts()["empty"]) == (None, ["out"])
    rig.save("7")
    assert rig.outputs.checkpoint == 7, "its files came late"
    rig.outputs.note_checkpoint(8)
    rig.save("8")
    assert (rig.outputs.checkpoint, rig.outputs.facts()["empty"]) == (8, [])


def test_a_program_that_ends_well_without_a_file_is_noted(rig: Rig) -> None:
    assert rig.outputs.finish(0, complete=True) == ""
    assert rig.notes == ["outputs: empty at the end: out"]


#: saves on host 0 alone, at each step, and resumes from the newest checkpoint that is there
ON_HOST_0 = """
import os, pathlib, time
folder = pathlib.Path("ckpt"); folder.mkdir(exist_ok=True)
found = sorted(int(p.name) for p in folder.iterdir())
print("resumed from", found[-1] if found else 0, flush=True)
if os.environ["NUMBER"] == "0":
    for step in (1, 2):
        (folder / str(step)).write_text("weights"); print("saved", step, flush=True)
else:
    print("saved 2", flush=True)
    if "SHARED" in os.environ: (folder / "own").write_text("of host 1")
"""


@pytest.mark.parametrize("shared", [True, False])
def test_every_host_gets_the_files_of_host_0(host: Host, shared: bool) -> None:
    watch = {"checkpoint": r"saved (?P<step>\d+)"}
    env = {"SHARED": "1"} if shared else {}
    report = dict[str, Any]()
    for attempt, number in ((1, 0), (2, 1), (3, 1)):
        own = ["ckpt"] if number == 0 or not shared else []
        host.start(
            ["python3", "-c", ON_HOST_0],
            attempt=attempt, host=number, watch=watch, env={"NUMBER": str(number), **env},
            outputs=own, shared_outputs=["ckpt"] if shared else [],
        )  # fmt: skip

        def over(attempt: int = attempt, number: int = number) -> dict[str, Any] | None:
            report = host.bucket.report(attempt, number)
            return report if report.get("phase") == "exited" else None

        report = until(over, "the end of the program")
        assert report.get("checkpoint") == (2 if number == 0 else None)
    assert report["outputs"]["restored"] == (2 if shared else 0)
    assert report["outputs"]["empty"] == ([] if shared else ["ckpt"])
    assert sorted(names(host)) == ["ckpt/1", "ckpt/2"]


def test_the_next_attempt_waits_while_an_earlier_one_keeps_its_outputs(tmp_path: Path) -> None:
    lock = str(tmp_path / "host.lock")
    held = take_lock(lock, 0)
    assert held is not None
    threading.Timer(0.5, os.close, (held,)).start()
    attempt: Any = SimpleNamespace(host_lock=None)
    steps.take_lock_of_host(attempt, lock, kill_patience=0.1)
    os.close(attempt.host_lock)


# What others write into the bucket


@pytest.mark.parametrize("further", [0, 2, 36])
def test_no_file_is_written_through_a_planted_link(rig: Rig, tmp_path: Path, further: int) -> None:
    rig.save("own")
    (victim := tmp_path / "victim").mkdir()
    rig.plant("a", **{LINK: str(victim)})
    for n in range(further):
        rig.plant(f"a-{n:03d}", b"x")
    rig.plant("a/authorized_keys", b"ssh-ed25519 PLANTED")
    out = rig.elsewhere()
    assert list(victim.iterdir()) == []
    assert [p.name for p in out.iterdir()] == ["own"]
    assert rig.notes == [
        "outputs: 1 file, 7 bytes of an earlier attempt are back",
        f"outputs: left out, not as this host has listed them: {further + 2} ('out/a', "
        + ("'out/a-000', 'out/a-001', ...)" if further else "'out/a/authorized_keys')"),
    ]


def test_other_bytes_under_a_listed_name_are_left_out(rig: Rig) -> None:
    rig.save("same-size", "longer", "link", "gone", "good")
    rig.plant("same-size", b"WEIGHTS")
    rig.plant("longer", b"weights and more")
    rig.plant("link", **{LINK: "good"})
    rig.storage.delete("gs://shed/kept/out/gone")
    out = rig.elsewhere()
    assert [p.name for p in out.iterdir()] == ["good"]
    assert "3 ('out/link', 'out/longer', 'out/same-size')" in rig.notes[-2]
    assert rig.notes[-1] == "outputs: left out, listed, but not in the bucket: 1 ('out/gone')"


@pytest.mark.parametrize("other", [{"key": "0c" * 32}, {"host": "1"}])
def test_a_list_of_another_host_or_key_is_none(rig: Rig, tmp_path: Path, other: Any) -> None:
    rig.save("a")
    with pytest.raises(UnsignedOutputs, match="signed names 1 object below gs://shed/kept/: "):
        rig.again(tmp_path / "next", **other)
    rig.storage.delete("gs://shed/kept/out/a")
    rig.again(tmp_path / "next", **other)


def test_outputs_without_a_list_fail_the_attempt_with_a_way_out(host: Host) -> None:
    """A silent start without them would overwrite them."""
    host.bucket.put(f"{KEPT}/ckpt/3", b"weights of 3")
    report = host.run(["python3", "-c", TRAINER], outputs=["ckpt"])
    assert (report["cause"], report["exit_code"]) == ("PERMISSION", None)
    assert f"names 1 object below gs://shed/{KEPT}/: the list was removed" in report["error"]
    assert "docs/data.md" in report["error"]
    assert names(host) == {"ckpt/3": b"weights of 3"}


def test_links_stay_in_the_folder_with_no_file_behind_them(rig: Rig, tmp_path: Path) -> None:
    rig.write("1/weights", "1")
    (rig.work / "out" / "latest").symlink_to("1")
    (rig.work / "out" / "away").symlink_to(tmp_path)
    (rig.work / "out" / "up").symlink_to("../../..")
    (rig.work / "out" / "1" / "beside").symlink_to("../../code")
    assert rig.outputs.finish(1) == ""
    listed = OutputList(rig.storage, "gs://shed/kept.list", KEY, ["000042", "1.0", "0"])
    assert listed.read()
    sha256 = hashlib.sha256(b"1").hexdigest()
    listed.contents["out/latest/weights"] = [Content(1, sha256)]  # a program may replace a folder
    listed.write()
    rig.plant("latest/weights", b"1")
    out = rig.elsewhere()
    assert (out / "latest").readlink() == Path("1")
    assert (out / "1" / "beside").readlink() == Path("../../code")
    assert sorted(p.name for p in out.iterdir()) == ["1", "latest"]
    assert "('out/latest/weights')" in rig.notes[-2]
    assert "links that lead out of the program's folder: 2 ('out/away', 'out/up')" in rig.notes[-1]


def test_a_link_that_leads_out_through_a_later_one_is_removed(rig: Rig) -> None:
    rig.write("1/weights", "1")
    (rig.work / "out" / "a").symlink_to("b/..")
    (rig.work / "out" / "b").symlink_to("..")
    (rig.work / "out" / "z").symlink_to("b/out/1")
    assert rig.outputs.finish(1) == ""
    out = rig.elsewhere()
    assert sorted(p.name for p in out.iterdir()) == ["1", "b", "z"]
    assert (out / "z" / "weights").read_text() == "1"
    assert "links that lead out of the program's folder: 1 ('out/a')" in rig.notes[-1]


def test_a_link_that_is_already_on_the_disk_is_not_followed(rig: Rig, tmp_path: Path) -> None:
    rig.save("a/b")
    (victim := tmp_path / "victim").mkdir()
    (tmp_path / "next" / "out").mkdir(parents=True)
    (tmp_path / "next" / "out" / "a").symlink_to(victim)
    rig.again(tmp_path / "next")
    assert list(victim.iterdir()) == []
    assert "('out/a/b')" in rig.notes[-1]


def test_an_object_with_more_bytes_than_listed_is_left_out(rig: Rig) -> None:
    """Such as an object that the storage decompresses."""
    rig.save("a", "b")
    pieces = list[bytes]()

    def endless(consume: Consume, plain: object) -> None:
        for _ in range(1000):
            pieces.append(b"x" * 5)
            consume(pieces[-1])

    rig.answer("a", endless)
    assert [p.name for p in rig.elsewhere().iterdir()] == ["b"], "and no file that is not whole"
    assert "not as this host has listed them: 1 ('out/a')" in rig.notes[-1]
    assert len(pieces) <= 4, "two are more than 7 bytes, and the download is repeated once at most"


def test_an_object_that_came_damaged_is_fetched_once_more(rig: Rig) -> None:
    rig.save("a")
    damaged = iter([b"WEIGHTS"])

    def once(consume: Consume, plain: Callable[[], None]) -> None:
        consume(data) if (data := next(damaged, None)) else plain()

    rig.answer("a", once)
    assert (rig.elsewhere() / "a").read_text() == "weights"
    assert "left out" not in rig.notes[-1]


def test_an_object_that_is_replaced_after_it_was_listed_is_left_out(rig: Rig) -> None:
    rig.save("a", "b")
    rig.answer("a", lambda _, plain: (rig.plant("a", b"weights"), plain()))
    assert [p.name for p in rig.elsewhere().iterdir()] == ["b"]
    assert "not as this host has listed them: 1 ('out/a')" in rig.notes[-1]


def test_a_list_that_was_signed_with_an_empty_key_is_no_list(rig: Rig) -> None:
    listed = OutputList(rig.storage, "gs://shed/kept.list", "", ["000042", "1.0", "0"])
    listed.expect("out/a", None)
    listed.write()
    assert not listed.read()


# The list and the names


def test_two_lists_in_a_second_are_no_failure(rig: Rig) -> None:
    """Cloud Storage takes about one write of an object in a second."""
    put, now, last = rig.storage.put, [100.0], [0.0]

    def limited(path: str, *words: Any, **options: Any) -> None:
        if path.endswith(".list"):
            if now[0] - last[0] < 1:
                raise StorageError("HTTP 429: slow down", 429)
            last[0] = now[0]
        put(path, *words, **options)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    rig.outputs = rig.again(wait=sleep)
    rig.storage.put = limited
    rig.write("a", "1")
    assert rig.outputs.finish(0) == ""
    assert rig.notes == []
    assert (rig.elsewhere() / "a").read_text() == "1"


def test_an_unreadable_list_is_not_written(rig: Rig) -> None:
    rig.save("a")
    rig.listed.max_size = len(rig.read("kept.list")) + 100
    for n in range(9):
        rig.write(str(n), "1")
    rig.outputs._upload(0)
    assert "10 files are too many: their list would have more than" in rig.outputs.finish(0)
    assert len(rig.notes) == 1, "it is noted once"
    assert [p.name for p in rig.elsewhere().iterdir()] == ["a"]


class Killed(BaseException):
    """The host is gone."""


def killed_at(storage: Storage, step: int, after: bool) -> None:
    """The host is lost at its next change of the bucket but `step`: before it is made, or before the answer comes."""
    send, remaining = storage._open, [step]

    def lose(method: str, *words: Any, **options: Any) -> Any:
        if method != "GET" and not remaining[0]:
            if after:
                send(method, *words, **options)
            raise Killed
        remaining[0] -= method != "GET"
        return send(method, *words, **options)

    storage._open = lose


@pytest.mark.parametrize("after", [False, True])
def test_no_kill_between_two_requests_costs_what_was_complete(
    rig: Rig, tmp_path: Path, after: bool
) -> None:
    """A checkpoint of several files, one that is overwritten in place, one that is deleted, a file that becomes a
    folder, and a folder a file: of each the old state or the new one is there, and nothing is left out."""
    new = ("2/0", "2/1", "last", "kind/x", "was", "n" * 255)
    steps = 0
    while True:
        rig.work = tmp_path / f"work-{after}-{steps}"
        for file in rig.storage.objects("gs://shed/kept"):
            rig.storage.delete(f"gs://shed/kept{file.name}")
        rig.outputs = rig.again(batch=8)
        for n, name in enumerate(("1/0", "1/1", "last", "kind", "was/x")):
            rig.write(name, "old", age=60 - n)
        rig.write(module.PART + "0123", "half")  # a host was lost while it fetched
        (rig.work / "out" / "latest").symlink_to("1")
        assert rig.outputs.finish(1) == ""
        (rig.work / "out" / "kind").unlink()
        shutil.rmtree(rig.work / "out" / "was")
        for n, name in enumerate(new):
            rig.write(name, "new", age=30 - n)
        (rig.work / "out" / "1" / "0").unlink()
        (rig.work / "out" / "latest").unlink()
        (rig.work / "out" / "latest").symlink_to("2")
        rig.notes.clear()
        killed_at(rig.storage, steps, after)
        try:
            assert rig.outputs.finish(0) == ""
            break
        except Killed:
            rig.storage = Storage(MetadataClient())
        stored = {file.name for file in rig.storage.objects("gs://shed/kept/out/")}
        out = rig.elsewhere(f"next-{after}-{steps}")
        restored = {str(p.relative_to(out)): p.read_text() for p in out.rglob("*") if p.is_file()}
        context = f"killed at step {steps}: {restored}, {rig.notes}"
        assert restored["last"] in ("old", "new"), context
        assert restored["1/1"] == "old", context
        assert [n in restored for n in ("2/0", "2/1")] != [False, True], context
        assert ("kind" in restored) or ("kind/x" in restored) or not (out / "kind").exists(), (
            context
        )
        assert ("kind/x" in restored) == ("kind/x" in stored), context
        assert ("was" in restored) == ("out/was" in stored or "was" in stored), context
        assert not any(module.PART in name for name in stored), context
        assert "left out" not in "".join(rig.notes), context
        rig.notes.clear()
        assert rig.again(tmp_path / f"next-{after}-{steps}").finish(1) == ""
        stored = {file.name for file in rig.storage.objects("gs://shed/kept/out/")}
        assert stored == restored.keys() | {"latest"}, "what was not deleted then is deleted now"
        steps += 1
    assert steps > 8
