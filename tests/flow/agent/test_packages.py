"""A set-up that may install system packages waits for another process that does so."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_host import Host, until
from tpujob.agent.setup import steps

#: as dpkg does it: a lock on the file's first byte by fcntl
HOLD = """import fcntl, sys
held = open(sys.argv[1], "w")
fcntl.lockf(held, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock-frontend"
    path.touch()
    return path


@pytest.fixture
def other_apt(lock: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock until its standard input ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], **pipes)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_set_up_begins_when_another_apt_has_ended(
    host: Host, lock: Path, other_apt: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    host.env["TPUJOB_PACKAGE_LOCKS"] = f"{tmp_path}/none:{lock}"
    began = tmp_path / "began"
    host.start("echo done", setup=f"touch {began} # apt-get install")
    until(lambda: any("waiting for" in line for line in host.bucket.log()), "it says so")
    assert not began.exists(), "set-up did not wait"
    other_apt.communicate(b"")
    report = host.ended()
    assert report["exit_code"] == 0, report
    assert began.exists()
    log = " ".join(host.bucket.log())
    assert f"(pid {other_apt.pid}), which installs packages ({lock})" in log
    assert "the package locks are free" in log


def test_the_wait_for_apt_is_bounded(
    lock: Path, other_apt: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUJOB_PACKAGE_LOCKS", str(lock))
    notes: list[str] = []
    steps.wait_for_package_locks(notes.append, patience=0.05, pause=0.01)
    assert "continuing" in notes[-1]
    assert other_apt.poll() is None
    other_apt.communicate(b"")
    notes.clear()
    steps.wait_for_package_locks(notes.append, pause=0.01)
    assert notes == []


@pytest.mark.parametrize(
    ("setup", "may"),
    [
        ("sudo apt-get install -y ffmpeg", True),
        ("apt update", True),
        ("dpkg -i x.deb", True),
        ("bash setup.sh", True),
        ("pip install -r requirements.txt", False),
        ("uv sync --frozen", False),
        ("pip install adapt", False),
    ],
)
def test_only_steps_that_may_install_system_packages_wait(setup: str, may: bool) -> None:
    assert steps.may_install(setup) is may
