"""A host whose slice is handed on: what goes for the next job of the same owner, and for one of another."""

import hashlib
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.flow.agent.gate import open_gate, start_at_gate
from tests.support.agent_host import Host, patient, told_json, until
from tests.support.waiting import LONG
from tpujob.agent.base import Failure
from tpujob.agent.processes import process_table
from tpujob.agent.setup import wipe

KEY = "ssh-ed25519 AAAA tpujob"
#: what programs, set-up and people leave in a home folder
LEFT = (
    ".cache/huggingface/token",
    ".config/gcloud/credentials.db",
    ".git-credentials",
    ".netrc",
    ".bashrc",
    ".ssh/id_rsa",
    ".tpujob/envs/abc/done.json",
    ".tpujob/data/corpus/1",
    ".tpujob/bundles/abc/train.py",
    ".tpujob/cache/jax/v4-8/entry",
    ".tpujob/cache/uv/wheels-v8/pypi/numpy",
    ".tpujob/home/.netrc",
    "checkpoint",
)


def leave(home: Path, *names: str) -> None:
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of the first owner")


def files(home: Path) -> set[str]:
    return {str(p.relative_to(home)) for p in home.rglob("*") if p.is_file() or p.is_symlink()}


@pytest.fixture
def emulated(host: Host) -> Host:
    host.env["TPUJOB_EMULATED_HOST"] = f"{host.home}/"
    return host


def wiped(host: Host, *words: object) -> dict[str, object]:
    assert host.agent("stop", "--grace", 1)["ok"]
    return host.agent("wipe", "--epoch", 0, *words)


def test_nothing_of_another_owner_is_left_but_the_agent(emulated: Host) -> None:
    home = emulated.home
    agent = f"agent-{hashlib.sha256(b'of the first owner').hexdigest()[:8]}"
    leave(home, *LEFT, f".tpujob/{agent}")
    leave(home, ".tpujob/agent-12345678", ".tpujob/agent-weights", ".tpujob/agent-87654321/weights")
    (home / ".ssh/authorized_keys").write_text("ssh-ed25519 BBBB a friend's\n")
    leave(emulated.tmp, "scratch", "memory/tpujob/corpus/1")
    assert emulated.run("echo $TPUJOB_JOB > made")["exit_code"] == 0
    assert wiped(emulated, "--key", KEY)["ok"]
    names = {agent, "command.lock", "epoch.json"}
    assert files(home) == {".ssh/authorized_keys", *(f".tpujob/{name}" for name in names)}
    assert (home / ".ssh/authorized_keys").read_text() == f"{KEY}\n"
    assert (home / ".ssh/authorized_keys").stat().st_mode & 0o777 == 0o600
    assert files(emulated.tmp) == set()


def test_a_program_that_does_not_end_at_once_cannot_let_its_owner_in_again(emulated: Host) -> None:
    again = "echo ssh-ed25519 CCCC >> $HOME/.ssh/authorized_keys; sleep 0.01"
    words = ["bash", "-c", f"trap '' TERM; while :; do {again}; done"]
    own = subprocess.Popen(
        words, env=emulated.env, start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        assert wiped(emulated, "--key", KEY)["ok"]
        assert own.wait(LONG) != 0
    finally:
        own.kill()
        own.wait()
    assert (emulated.home / ".ssh/authorized_keys").read_text() == f"{KEY}\n"


def test_on_a_real_host_a_process_needs_no_trace_of_its_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after `sudo su -`: it belongs to another user, has no variables, and its parent has ended."""
    table = process_table().items()
    before = Counter(f"process\t{pid}\t{fields[19].decode()}" for pid, fields in table)
    script = "setsid sleep 600 > /dev/null 2>&1 & echo $!"
    output = subprocess.run(["/bin/sh", "-c", script], env={}, capture_output=True, check=True)
    pid = int(output.stdout)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    try:
        pids = wipe._find_processes(before)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert pid in pids
    assert not {os.getpid(), os.getppid()} & pids, "this process and its ancestors"


def test_for_the_same_owner_what_outlives_attempts_is_kept(emulated: Host) -> None:
    leave(emulated.home, *LEFT)
    leave(emulated.tmp, "scratch", "memory/tpujob/corpus/1")
    leave(emulated.home, ".tpujob/plan-000042-1.json", ".tpujob/work/abc/train.py")
    assert emulated.run("echo x > made")["exit_code"] == 0
    assert wiped(emulated)["ok"]
    remaining = files(emulated.home)
    assert remaining >= set(LEFT)
    assert not any(
        name.endswith(("made", "train.py", "plan-000042-1.json")) for name in remaining - {*LEFT}
    )
    assert files(emulated.tmp) == {"memory/tpujob/corpus/1"}


def test_nothing_outside_of_an_emulated_host_is_touched(emulated: Host, tmp_path: Path) -> None:
    """Neither what a program has linked to, nor the machine's own temporary files, memory and processes."""
    outside = [
        tmp_path / "laptop" / "thesis",
        Path("/tmp/tpujob-test-thesis"),
        Path("/dev/shm/tpujob-test-thesis"),
    ]
    leave(Path("/"), *(str(path).lstrip("/") for path in outside))
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    own = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env=emulated.env,
        start_new_session=True,
    )
    (emulated.home / "link").symlink_to(tmp_path / "laptop")
    (tmp_path / "laptop" / "deep").mkdir()
    emulated.env["TMPDIR"] = str(tmp_path / "laptop" / "deep")
    leave(tmp_path / "laptop" / "deep", "thesis")
    try:
        for words in ((), ("--key", KEY)):
            assert wiped(emulated, *words)["ok"]
            assert all(path.exists() for path in (*outside, tmp_path / "laptop/deep/thesis"))
        assert other.poll() is None
        assert own.wait(LONG) != 0, "a process of the host"
        assert "link" not in files(emulated.home)
    finally:
        for process in (own, other):
            process.kill()
            process.wait()
        for path in outside[1:]:
            path.unlink()


@pytest.mark.parametrize(("folder", "ok"), [(".ssh", False), (".tpujob/cache", True)])
def test_a_folder_that_leads_elsewhere_is_not_followed(
    emulated: Host, tmp_path: Path, folder: str, ok: bool
) -> None:
    leave(tmp_path, "laptop/thesis")
    (emulated.home / ".tpujob").mkdir()
    (emulated.home / folder).symlink_to(tmp_path / "laptop")
    assert wiped(emulated, "--key", KEY)["ok"] is ok
    assert files(tmp_path / "laptop") == {"thesis"}
    assert folder not in files(emulated.home) or not ok


def test_a_bucket_that_is_mounted_is_never_emptied(emulated: Host, tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"my-bucket {emulated.home}/data fuse.gcsfuse rw 0 0\n")
    emulated.env["TPUJOB_MOUNTED"] = str(table)
    leave(emulated.home, "data/weights")
    answer = wiped(emulated, "--key", KEY)
    assert not answer["ok"]
    assert "is mounted in" in str(answer["error"])
    assert (emulated.home / "data/weights").exists()


def test_a_machine_that_is_perhaps_a_persons_is_not_wiped(host: Host) -> None:
    leave(host.home, "thesis")
    answer = wiped(host, "--key", KEY)
    assert "not known to be a host of a slice alone" in str(answer["error"])
    assert wiped(host)["ok"], "what the attempt has left goes all the same"
    assert "thesis" in files(host.home)


def test_the_home_of_a_person_is_none_of_an_emulated_host(monkeypatch: pytest.MonkeyPatch) -> None:
    home = pwd.getpwuid(os.getuid()).pw_dir
    monkeypatch.setenv("TPUJOB_EMULATED_HOST", "farm/slice/0/")
    for folder in (home, os.path.dirname(home), "/"):
        monkeypatch.setenv("HOME", folder)
        with pytest.raises(Failure, match="is a person's"):
            wipe._this_host()


def test_a_host_that_has_run_containers_is_not_wiped_for_another_owner(emulated: Host) -> None:
    leave(emulated.home, ".tpujob/containers/tpujob-000042-1-7-1")
    assert "containers have run here" in str(wiped(emulated, "--key", KEY)["error"])


def test_a_file_that_cannot_be_removed_is_a_failure(emulated: Host) -> None:
    emulated.tools({"rm": "#!/bin/sh\nexit 1\n"})
    leave(emulated.home, "mine")
    answer = wiped(emulated, "--key", KEY)
    assert "could not be emptied" in str(answer["error"])


@pytest.mark.slow
def test_the_rest_of_a_log_is_shipped_first(emulated: Host) -> None:
    start_at_gate(emulated, "echo the end; touch ~/done")
    emulated.bucket.away()
    open_gate(emulated)
    until((emulated.home / "done").exists, "the end of the program")
    back = threading.Timer(6, emulated.bucket.back)
    back.start()
    assert wiped(emulated, "--key", KEY)["ok"]
    back.join()
    assert emulated.bucket.log()[-1] == "the end"


def test_from_the_wipe_on_only_the_next_job_is_started(emulated: Host) -> None:
    assert wiped(emulated, "--key", KEY)["ok"]
    stale = emulated.agent(
        "start", emulated.plan("echo no"), "--secrets-on-stdin", input=told_json()
    )
    assert "does not have this slice any more" in stale["error"]
    assert emulated.agent("wipe", "--epoch", 0)["ok"], "it may be repeated"
    patient(emulated, epoch=1)
    late = emulated.agent("wipe", "--epoch", 0, "--key", KEY)
    assert "another job has this slice by now" in late["error"]
    assert any("ready" in command for command in emulated.processes().values())
    assert json.loads((emulated.home / ".tpujob/epoch.json").read_text()) == {"epoch": 1}
