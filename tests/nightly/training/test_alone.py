"""`python -m workloads.mlp` by hand, in a folder of one's own, with no tpujob anywhere."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT
from tpujob.contract import Exit


def _mlp(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    alone = {name: value for name, value in os.environ.items() if not name.startswith("TPUJOB_")}
    environment = {**alone, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "workloads.mlp", *flags]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150
    )


def test_the_mlp_learns_the_digits_and_a_second_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    first = _mlp(tmp_path, "--steps=120", "--log-every=30", "--eval-every=60")
    assert first.returncode == Exit.DONE, first.stderr
    lines = first.stdout.splitlines()
    assert lines[0].startswith("mlp 64-1024-512-10 on digits; 1 cpu devices on 1 host")
    logged = [line.split("/")[0] for line in lines if line.startswith("step") and "/" in line]
    assert logged == [f"step {step}" for step in (30, 60, 90, 120)]
    tested = [line.split(":")[0] for line in lines if "accuracy" in line]
    assert tested == ["step 60", "step 120"]
    assert _accuracy(first.stdout) >= 98

    again = _mlp(tmp_path, "--steps=120")
    assert again.returncode == Exit.DONE, again.stderr
    assert "going on from the checkpoint of step 120" in again.stdout
    assert _accuracy(again.stdout) == _accuracy(first.stdout)


def _accuracy(text: str) -> float:
    last = text.splitlines()[-1]
    return float(last.split("test accuracy ")[1].split(" %")[0])
