"""`tpujob_events`, which programs import: what it writes, and what it makes of Orbax and of SIGTERM."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tpujob.contract
from tests.support.paths import ROOT
from tpujob.agent.upload.progress import ProgressReader

IMPORTABLE = ROOT / "tpujob" / "contract" / "importable"


def run(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("TPUJOB_")}
    env |= {"PYTHONPATH": str(IMPORTABLE), "JAX_PLATFORMS": "cpu", **variables}
    words = [sys.executable, "-c", program]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def events(folder: Path) -> list[dict]:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "t"} for line in lines]


def test_scalars_of_arrays_are_numbers_and_nothing_else_ends_a_program(tmp_path: Path) -> None:
    program = """
from pathlib import Path
import numpy
from tpujob_events import tell
tell("step", step=numpy.int64(7), loss=numpy.float32(0.5))
tell("metric", name=Path("accuracy"), value=1)
tell("step", step=8, loss=float("nan"))
"""
    assert run(program, tmp_path).returncode == 0
    step, metric, _ = events(tmp_path / "run")
    assert step == {"kind": "step", "step": 7, "loss": 0.5}
    assert metric == {"kind": "metric", "name": "accuracy", "value": 1}
    reader = ProgressReader(str(tmp_path / "run" / "events.jsonl"))
    reader.look()
    assert reader.facts["nonfinite"] == {"loss": "NaN", "since": 8}
    twice = run(program, tmp_path, TPUJOB_OUT="/dev/null/out")
    assert twice.returncode == 0
    assert twice.stderr.count("going on, though not all is reported") == 1


def test_sigterm_is_noticed_and_an_earlier_handler_is_called_too(tmp_path: Path) -> None:
    program = """
import os, signal
from tpujob_events import INTERRUPTED, stopping
signal.signal(signal.SIGTERM, lambda *_: print("earlier"))
assert not stopping()
os.kill(os.getpid(), signal.SIGTERM)
assert stopping()
raise SystemExit(INTERRUPTED)
"""
    ended = run(program, tmp_path)
    assert (ended.returncode, ended.stdout) == (tpujob.contract.Exit.INTERRUPTED, "earlier\n")
    assert (
        run("import tpujob_events, os; os.kill(os.getpid(), 15)", tmp_path).returncode
        == -signal.SIGTERM
    )


@pytest.mark.slow
def test_a_checkpoint_of_orbax_is_reported_once_it_is_committed(tmp_path: Path) -> None:
    program = """
import pathlib, numpy, orbax.checkpoint as ocp
from tpujob_events.orbax import OrbaxEvents
folder = pathlib.Path("saves").resolve()
manager = ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(save_interval_steps=2))
saves = OrbaxEvents(manager)
for step in range(1, 5):
    manager.save(step, args=ocp.args.StandardSave({"weights": numpy.ones(4)}))
    saves.look()
    assert not (pathlib.Path("run").exists() and not list(folder.glob("[0-9]")))
manager.wait_until_finished()
saves.look()
saves.look()
manager.close()
"""
    ended = run(program, tmp_path)
    assert ended.returncode == 0, ended.stderr
    told = [event["step"] for event in events(tmp_path / "run")]
    assert told[-1] == 4
    assert told == sorted(set(told))
    assert {path.name for path in (tmp_path / "saves").glob("[0-9]")} >= {str(s) for s in told}
