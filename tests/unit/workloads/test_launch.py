"""Exit codes of exceptions, and the signals of a program that ours starts."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from tests.support.paths import ROOT
from tpujob.contract import Exit, ProgramContext
from workloads.frame import launch
from workloads.frame.config import ConfigError
from workloads.frame.launch import code_of

GLOO = "UNKNOWN: Gloo all-reduce failed: Read error [127.0.0.1]:1: Connection reset by peer"


@pytest.mark.parametrize(
    ("error", "hosts", "code"),
    [
        (ConfigError("batch=3"), 2, Exit.CONFIG),
        (RuntimeError(GLOO), 2, Exit.PEER),
        (RuntimeError(GLOO), 1, Exit.ERROR),
        (RuntimeError("DEADLINE_EXCEEDED: Barrier timed out"), 4, Exit.PEER),
        (TimeoutError("Timed out while waiting for async_write_complete barrier."), 2, Exit.PEER),
        (RuntimeError("RESOURCE_EXHAUSTED: out of memory"), 2, Exit.ERROR),
        (ValueError("a barrier of its own"), 2, Exit.ERROR),
        (KeyboardInterrupt(), 1, Exit.ERROR),
    ],
)
def test_code(error: BaseException, hosts: int, code: Exit) -> None:
    assert code_of(error, hosts) is code


def test_a_host_that_is_done_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts of `tables` and `numerics` do not compute together: one may be done much earlier."""
    arguments: dict[str, Any] = {}
    monkeypatch.setattr(
        jax.distributed, "initialize", lambda *_, **options: arguments.update(options)
    )
    launch._join(ProgramContext(hosts=2, coordinator="10.0.0.1:1"))
    assert arguments["shutdown_timeout_seconds"] >= 180 > arguments["heartbeat_timeout_seconds"]


def _python(text: str, folder: Path, *, code: int) -> subprocess.CompletedProcess[str]:
    file = folder / "started.py"
    file.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(file)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_programs_that_are_started_can_be_told_to_stop(tmp_path: Path) -> None:
    text = """
import multiprocessing, signal, subprocess
from workloads.frame.signals import Watcher

if __name__ == "__main__":
    Watcher().training()
    worker = multiprocessing.get_context("spawn").Process(target=signal.pause)
    worker.start()
    worker.terminate()
    worker.join(20)
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    print(worker.exitcode, program.wait(20))
    worker.kill()
"""
    assert _python(text, tmp_path, code=0).stdout == "-15 -15\n"


def test_missing_packages_are_one_line_and_no_attempt(tmp_path: Path) -> None:
    text = """
import runpy, sys
sys.modules["jax"] = None  # as if it were not installed
sys.argv = ["mlp", "--steps=1"]
runpy.run_module("workloads.mlp", run_name="__main__")
"""
    done = _python(text, tmp_path, code=Exit.CONFIG)
    assert done.stderr == (
        "the package jax is not installed; workloads/requirements.lock has all that the bundled programs need\n"
    )
