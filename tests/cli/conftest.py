"""The real command line in front of a scripted backend: a state folder that says where it listens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import api, front, url
from tests.web.scripted import TOKEN
from tpujob.config import settings, stack

_ = (api, front, url)


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks on a page show UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Tpujob:
    """Runs commands: in this process, or as one of their own."""

    state: Path
    capsys: pytest.CaptureFixture[str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *words: str, code: int = 0) -> Said:
        """In this process; it must end with that exit code."""
        from tpujob.cli.app import run

        self.capsys.readouterr()
        got = run(words)
        out, err = self.capsys.readouterr()
        assert got == code, f"tpujob {' '.join(words)} ended with {got}\n{out}\n{err}"
        return Said(got, out, err)

    def popen(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """As a process of its own; ended by the fixture if the test does not."""
        streams: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        command = [sys.executable, "-m", "tpujob", *words]
        process = subprocess.Popen(command, text=True, **(streams | more))
        self.started.append(process)
        return process


@pytest.fixture(name="tpujob_state", autouse=True)
def _state(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder in which this process is the backend. `tpujob down` would end it: not for tests of that."""
    folder = tmp_path / "state"
    (folder / "run").mkdir(parents=True, mode=0o700)
    ready = {"pid": os.getpid(), "url": url, "token_file": str(folder / "token")}
    (folder / "run" / "backend.json").write_text(json.dumps(ready))
    (folder / "token").write_text(TOKEN)
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
            ready.unlink()  # or this process would be ended
    started = stack.down(settings.load(folder))
    assert not started, "the test started a real stack"


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
