"""The real command line in front of a scripted backend: a state folder that says where it listens."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.callers import ADA, TokenDoor
from tests.support.commands import Tpujob, stand_in, withdraw
from tests.support.scripted import (
    TOKEN,
    Front,
    ScriptedJobs,
    api,
    front,
    listening,
    scripted_app,
    url,
)
from tests.support.tls import https
from tpujob.config import settings, stack_processes

__all__ = ["api", "front", "url"]


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks on a page show UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(name="tpujob_state", autouse=True)
def _state(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder in which this process is the backend. `tpujob down` would end it: not for tests of that."""
    folder = tmp_path / "state"
    (folder / "run").mkdir(parents=True, mode=0o700)
    stand_in(folder, "backend", url=url)
    environment = {
        "TPUJOB_STATE": str(folder),
        "TPUJOB_USER": "ada",
        "COLUMNS": "80",
        "LINES": "24",
        "TZ": "UTC",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    time.tzset()
    yield folder
    _no_real_stack(folder)


def _no_real_stack(folder: Path) -> None:
    """A test that lets a command believe that nothing runs would leave three processes behind."""
    for ready in (folder / "run").glob("*.json"):
        if json.loads(ready.read_text())["pid"] == os.getpid():
            withdraw(folder, ready.stem)  # or this process would be ended
    started = stack_processes.down(settings.load(folder))
    assert not started, "the test started a real stack"


@pytest.fixture
def edge(
    front: tuple[Front, str], api: ScriptedJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URL of a deployed backend, which asks for a token."""
    del api  # what it asks
    app = scripted_app(front[0], TokenDoor(TOKEN, ADA))
    with listening(app) as port, https(port, tmp_path) as (url, certificate):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        yield url


@pytest.fixture
def tpujob(tpujob_state: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Tpujob]:
    runner = Tpujob(tpujob_state, capsys)
    yield runner
    for process in runner.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text("name: counting\ntpu: {type: v4-16}\nrun: {command: echo hello}\n")
    return file
