"""The local stack's processes, with small stand-ins for them: started once, found again, never confused, ended."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import until
from tpujob.config import stack_processes
from tpujob.config.settings import Settings, load
from tpujob.config.stack_processes import StackProcess
from tpujob.errors import BackendGone, BadRequest
from tpujob.wiring import client

DUMMY = Path(__file__).with_name("dummy_process.py")
LONG = 30.0


class Rig:
    """A state folder and a stack of stand-ins for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: Settings = load(folder / "state", env={"USER": "ana"})
        self.how: dict[str, str] = {}

    @property
    def parts(self) -> list[StackProcess]:
        return [self.part(name) for name in ("farm", "emulator", "backend")]

    def part(self, name: str) -> StackProcess:
        ready, story = str(self.settings.ready_file(name)), str(self.folder / "story")
        how = self.how.get(name, "")
        return StackProcess(name, (sys.executable, "-I", str(DUMMY), ready, story, name, how))

    def up(self, deadline: float = LONG) -> None:
        stack_processes.up(self.settings, self.parts, deadline=deadline)

    def down(self, grace: float = LONG) -> list[str]:
        return stack_processes.down(self.settings, self.parts, grace=grace)

    def pids(self) -> list[int | None]:
        return [part.pid for part in stack_processes.status(self.settings, self.parts)]

    def story(self) -> list[str]:
        path = self.folder / "story"
        return path.read_text().splitlines() if path.exists() else []

    def elsewhere(self) -> subprocess.Popen[str]:
        """Run `tpujob up` in another terminal."""
        script = (
            "import sys; from pathlib import Path; from tests.flow.stack.test_stack import Rig\n"
            "rig = Rig(Path(sys.argv[1])); rig.how = eval(sys.argv[2]); rig.up()"
        )
        return subprocess.Popen(
            [sys.executable, "-c", script, str(self.folder), repr(self.how)],
            cwd=ROOT,
            text=True,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.down(grace=2)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of another program."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def test_everything_is_started_in_order_and_only_once_and_stands_on_its_own(rig: Rig) -> None:
    assert rig.pids() == [None, None, None]
    rig.up()
    pids = rig.pids()
    assert None not in pids
    rig.up()
    assert rig.pids() == pids
    names = ("farm", "emulator", "backend")
    assert rig.story() == [f"{name} {event}" for name in names for event in ("began", "up")]
    for part in stack_processes.status(rig.settings, rig.parts):
        assert part.ready
        facts = [part.ready[name] for name in ("session", "stdin", "folder")]
        assert facts == [part.pid, "/dev/null", "/"]
        assert part.log.stat().st_mode & 0o777 == 0o600


def test_several_terminals_at_once_start_one_stack_that_outlives_them(rig: Rig) -> None:
    terminals = [rig.elsewhere() for _ in range(3)]
    for terminal in terminals:
        _, errors = terminal.communicate(timeout=LONG)
        assert terminal.returncode == 0, errors
    assert rig.story().count("farm began") == 1
    assert rig.story().count("backend began") == 1
    pids = rig.pids()
    assert None not in pids
    rig.up()
    assert rig.pids() == pids, "and is found again by the next"


def test_an_interrupted_start_is_completed(rig: Rig) -> None:
    rig.how = {"farm": f"gate={rig.folder / 'gate'}"}
    terminal = rig.elsewhere()
    until(lambda: "farm began" in rig.story() and rig.pids()[0], "the farm is known to begin")
    terminal.kill()
    terminal.communicate()
    (rig.folder / "gate").write_text("")
    rig.up()
    assert rig.story().count("farm began") == 1, "a second farm was started beside the first"
    assert None not in rig.pids()


def test_a_killed_process_is_replaced_with_all_that_know_its_address(rig: Rig) -> None:
    rig.up()
    farm, emulator, backend = rig.pids()
    assert emulator
    os.kill(emulator, signal.SIGKILL)
    until(lambda: rig.pids()[1] is None, "the dead process is seen to be dead")
    rig.up()
    now = rig.pids()
    assert now[0] == farm
    assert None not in now
    assert now[1] != emulator
    assert now[2] != backend
    assert "backend ended" in rig.story()


# What goes wrong -----------------------------------------------------------------------------------------------------


def test_a_process_that_ends_at_once_is_reported_with_its_output(rig: Rig) -> None:
    rig.how = {"emulator": "crash"}
    with pytest.raises(BackendGone) as raised:
        rig.up()
    log = rig.settings.log_file("emulator")
    assert "the emulator ended at once" in raised.value.message
    assert "the port is taken" in raised.value.message
    assert str(log) in raised.value.hint
    assert not any(line.startswith("backend") for line in rig.story())
    rig.how = {}
    rig.up()
    assert "the port is taken" in log.with_suffix(".log.1").read_text(), "the log before is kept"
    assert "the port is taken" not in log.read_text()


def test_a_process_that_never_comes_up_is_ended(rig: Rig) -> None:
    rig.how = {"farm": "mute"}
    with pytest.raises(BackendGone, match="the farm did not come up within 1 s"):
        rig.up(deadline=1)
    assert rig.pids() == [None, None, None]
    rig.how = {}
    rig.up()
    assert None not in rig.pids()


# Which process is ours -----------------------------------------------------------------------------------------------


def test_a_ready_file_or_old_pid_proves_nothing(rig: Rig, sleeper: subprocess.Popen[bytes]) -> None:
    stack_processes.prepare(rig.settings)
    ready, noted = rig.settings.ready_file("backend"), rig.settings.process_file("backend")
    ready.write_text(json.dumps({"pid": sleeper.pid, "url": "unix:/old"}))
    for start in ("", "another boot/1"):
        if start:
            noted.write_text(json.dumps({"pid": sleeper.pid, "start": start}))
        assert stack_processes.running_backend(rig.settings) is None
        assert rig.pids() == [None, None, None]
        assert rig.down() == []
        ready.write_text(json.dumps({"pid": sleeper.pid, "url": "unix:/old"}))
    assert sleeper.poll() is None, "a process of another program was ended"


def test_a_shared_backend_that_is_starting_is_not_ended_by_the_next_one(
    rig: Rig, sleeper: subprocess.Popen[bytes]
) -> None:
    assert stack_processes.claim_service(rig.settings)
    stack_processes.note(rig.settings.process_file("backend"), sleeper.pid)
    with pytest.raises(BadRequest, match="serves all users already, and is starting"):
        client.make_way(rig.settings)
    assert sleeper.poll() is None


@pytest.mark.parametrize("text", ["", "[]", "null", '{"pid": "1"}', '{"pid": -1}', '{"pid": 0}'])
def test_a_damaged_ready_file_is_stale(rig: Rig, text: str) -> None:
    stack_processes.prepare(rig.settings)
    for path in (rig.settings.ready_file("backend"), rig.settings.process_file("backend")):
        path.write_text(text)
    assert rig.pids() == [None, None, None]
    assert rig.down() == []


def test_a_process_that_noted_itself_before_it_joined_the_stack_is_ended(rig: Rig) -> None:
    """Note the process first, as `tpujob serve` does."""
    stack_processes.prepare(rig.settings)
    script = (
        "import os, sys; from pathlib import Path; from tpujob.config import stack_processes\n"
        "stack_processes.note(Path(sys.argv[1]), os.getpid()); os.execv(sys.argv[2], sys.argv[2:])"
    )
    noted = str(rig.settings.process_file("farm"))
    words = [sys.executable, "-c", script, noted, *rig.part("farm").command]
    process = subprocess.Popen(words, cwd=ROOT)
    try:
        until(lambda: rig.pids()[0] == process.pid, "the farm is found")
        until(lambda: "farm up" in rig.story(), "the farm is up")
        rig.up()
        assert rig.pids()[0] == process.pid
        assert rig.story().count("farm began") == 1
    finally:
        rig.down()
        process.wait(timeout=LONG)


# Down ----------------------------------------------------------------------------------------------------------------


def test_down_ends_in_reverse_order_and_leaves_no_trace(rig: Rig) -> None:
    assert rig.down() == []
    assert not rig.settings.state.exists()
    rig.up()
    assert rig.down() == ["backend", "emulator", "farm"]
    assert rig.story()[-3:] == ["backend ended", "emulator ended", "farm ended"]
    assert rig.pids() == [None, None, None]
    suffixes = {path.suffix for path in rig.settings.run.iterdir()}
    assert suffixes == {".log", ".lock"}
    assert rig.down() == []


def test_a_process_that_ignores_the_stop_is_killed(rig: Rig) -> None:
    rig.how = {"emulator": "stubborn"}
    rig.up()
    assert rig.down(grace=0.2) == ["backend", "emulator", "farm"]
    assert rig.pids() == [None, None, None]
    assert "emulator ended" not in rig.story()


# The way to the backend ----------------------------------------------------------------------------------------------


def test_the_backend_is_started_once_and_then_found(rig: Rig) -> None:
    assert stack_processes.running_backend(rig.settings) is None
    access = stack_processes.ensure_backend(rig.settings, rig.parts)
    assert access[:2] == ("unix:/backend", rig.pids()[2])
    assert stack_processes.ensure_backend(rig.settings, []) == access
    assert stack_processes.running_backend(rig.settings) == access


def test_a_killed_backend_is_replaced(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = stack_processes.ensure_backend(rig.settings, rig.parts)
    first = rig.pids()[2]
    assert first
    monkeypatch.setattr(stack_processes, "DYING", 0.1)
    assert stack_processes.backend_after(rig.settings, refused, rig.parts) is None, "it still runs"
    monkeypatch.setattr(stack_processes, "DYING", LONG)
    killer = threading.Timer(0.05, os.kill, (first, signal.SIGKILL))
    killer.start()
    access = stack_processes.backend_after(rig.settings, refused, rig.parts)
    assert access
    assert (access.url, access.pid) == (refused.url, rig.pids()[2]), "at the same address"
    assert access.pid != first


def test_the_real_stack_is_farm_then_emulator_then_backend(rig: Rig) -> None:
    parts = stack_processes.parts(rig.settings)
    assert [part.name for part in parts] == ["farm", "emulator", "backend"]
    for part in parts:
        python, option, module, *arguments = part.command
        assert (python, option) == (sys.executable, "-m")
        assert importlib.util.find_spec(f"{module}.__main__"), f"{module} cannot be run"
        assert arguments[:2] == ["--ready", str(rig.settings.ready_file(part.name))]
        assert arguments[2] == "--state"
