"""The real command line, run in this process or in another."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tpujob.config import stack_processes


def stand_in(state: Path, name: str, **facts: object) -> dict[str, object]:
    """Make this process stand for one of the stack, with these facts in its ready file; return the file's content."""
    ready = {"pid": os.getpid(), **facts}
    (state / "run" / f"{name}.json").write_text(json.dumps(ready))
    stack_processes.note(state / "run" / f"{name}.process", os.getpid())
    return ready


def withdraw(state: Path, name: str) -> None:
    """Undo `stand_in`, as `tpujob down` does for a process that it ends."""
    for end in ("json", "process"):
        (state / "run" / f"{name}.{end}").unlink(missing_ok=True)


@dataclass(frozen=True)
class Output:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Tpujob:
    """A runner of commands, in this process or in another."""

    state: Path
    capsys: pytest.CaptureFixture[str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *words: str, code: int = 0) -> Output:
        """Run a command in this process; it must end with that exit code."""
        from tpujob.cli.app import run

        self.capsys.readouterr()
        ended = run(words)
        out, err = self.capsys.readouterr()
        assert ended == code, f"tpujob {' '.join(words)} ended with {ended}\n{out}\n{err}"
        return Output(ended, out, err)

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in its own process; the fixture ends the process if the test does not."""
        streams: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        command = [sys.executable, "-m", "tpujob", *words]
        process = subprocess.Popen(command, text=True, **(streams | options))
        self.started.append(process)
        return process
