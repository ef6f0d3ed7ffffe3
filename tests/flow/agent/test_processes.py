"""Processes that are not ours: who holds a device as another user, and what a stuck program is doing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.agent_host import until
from tests.support.waiting import LONG
from tpujob.agent import processes, stack_traces
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.storage import Storage
from tpujob.agent.upload.log import Log
from tpujob.agent.upload.redact import Redactor

NOTHING = Redactor({})
HOLD = "import sys, time; held = open(sys.argv[1]); print('held', flush=True); time.sleep(1000)"


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Has the file `accel0` open."""
    device = tmp_path / "accel0"
    device.touch()
    command = [sys.executable, "-c", HOLD, str(device)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def plain_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sudo: str) -> None:
    """This process takes itself for a plain user's, with this script as `sudo`."""
    script = tmp_path / "bin" / "sudo"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\n{sudo}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TPUJOB_DEVICES", f"{tmp_path}/accel*")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    processes._may_sudo.cache_clear()


def test_a_device_that_another_user_holds_is_freed_by_sudo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    plain_user(
        monkeypatch, tmp_path, f'printf \'%s\\n\' "$*" >> {tmp_path}/calls; shift 2; exec "$@"'
    )
    monkeypatch.setattr(processes, "holders", lambda files: set())  # as a plain user sees it
    assert processes.holders_as_root(processes.device_files()) == {holder.pid}
    processes.free_devices(5)
    assert holder.wait(LONG) == -signal.SIGTERM
    calls = (tmp_path / "calls").read_text().splitlines()
    assert all(line.startswith("-n -- ") for line in calls), "sudo might ask for a password"


AS_ROOT = 'shift 2; exec "$@"'


def forbid(*_: object, **__: object) -> None:
    raise PermissionError


def test_a_process_of_root_is_signalled_with_sudo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    plain_user(monkeypatch, tmp_path, AS_ROOT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", forbid)
        processes.send({holder.pid}, signal.SIGTERM)
    assert holder.wait(LONG) == -signal.SIGTERM


def test_sudo_removes_a_lock_of_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain_user(monkeypatch, tmp_path, AS_ROOT)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "unlink", forbid)
    lock = tmp_path / "libtpu_lockfile"
    lock.touch()
    processes.free_devices(1)
    assert not lock.exists()


def test_sudo_empties_a_folder_of_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set-up may call sudo. Without this, every later attempt on the host would fail."""
    plain_user(monkeypatch, tmp_path, AS_ROOT)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "of-root").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", forbid)
        processes.make_empty(str(folder))
    assert list(folder.iterdir()) == []


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_hanging_sudo_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began, note = time.monotonic(), tmp_path / "pid"
    hang = ["sh", "-c", f"echo $$ > {note}; exec sleep 600"]
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", forbid)
        assert processes.output_of(hang, 0.5) is None
    assert time.monotonic() - began < LONG
    pid = until(lambda: note.exists() and note.read_text(), "its number, however late it began")
    os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize(
    "sudo", ["echo a password is required >&2; exit 1", "read password; sleep 1"]
)
def test_without_sudo_processes_of_others_are_skipped_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holder: subprocess.Popen[bytes], sudo: str
) -> None:
    plain_user(monkeypatch, tmp_path, sudo)
    assert processes.holders_as_root(processes.device_files()) == set()
    assert processes.sudo(["true"]) == []
    assert holder.poll() is None


def test_a_stuck_process_gets_no_signal(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    begun = str(tmp_path / "begun")
    log = Log(Storage(MetadataClient()), "gs://shed/log-{}".format, begun, 1000, NOTHING, 300)
    head, thread = stack_traces.collect_stacks({holder.pid, 2**22 + 1}, True, log, str(tmp_path))
    assert isinstance(holder.args, list)
    assert head == f"process {holder.pid}: {' '.join(map(str, holder.args))[:200]}"
    assert thread.startswith("  1 x python")
    assert " in state " in thread
    assert holder.poll() is None
    assert log.finish(20)


def test_an_installed_py_spy_is_used(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    """Nothing else shows the Python stacks of a program without the contract."""
    spy, shown = (
        tmp_path / "py-spy",
        ["Thread 1 (idle): MainThread", "    all_reduce (train.py:12)"],
    )
    spy.write_text("#!/bin/sh\necho Python v3.11.7; echo; cat $0.txt\n")
    spy.chmod(0o755)
    (tmp_path / "py-spy.txt").write_text("\n".join(shown))
    log: Any = SimpleNamespace(redactor=NOTHING)
    lines = stack_traces.collect_stacks({holder.pid}, False, log, str(tmp_path))
    assert lines[:2] == shown
    assert lines[2].startswith(f"process {holder.pid}: ")
