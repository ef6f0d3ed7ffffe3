"""`tpujob fit` of a program that is not ours, by the TPU's own compiler for slices that are not here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.nightly.training.test_check_compiles import checked, pytestmark  # noqa: F401, it skips
from tests.support.paths import ROOT
from workloads.check.finding import GIB

PROGRAMS = ROOT / "tests" / "support" / "fit"


def fit(*words: str, folder: Path = PROGRAMS) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code of `tpujob fit --json`, its findings, and what it says beside them."""
    done = subprocess.run(
        [sys.executable, "-m", "tpujob", "fit", *words, "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else [], done.stderr


@pytest.mark.timeout(1500)  # three compilations
def test_a_plain_flax_program_is_compiled_with_its_alternatives() -> None:
    words = ["plain_flax.py:fit", "--type", "v5e-4", "--tokens", "1B"]
    alternatives = ["remat=true", "donate=false", "mesh=fsdp=3"]
    code, (finding,), err = fit(*words, *(f"--with={text}" for text in alternatives))
    assert code == 0, err
    made = finding["program"]
    assert finding["fit"] == "yes", finding["reason"]
    assert finding["tokens"] == 4 * 4 * 128
    assert 0 < made["argument_bytes"] < made["peak_bytes"] < 0.1 * GIB
    assert made["model_flops"] == made["asked_flops"], "nothing is computed twice"
    assert finding["pace"]["hours"][0] < finding["pace"]["hours"][1]
    remat, undonated, mesh = finding["gains"]
    assert "more operations; bound" in remat
    assert "more memory" in undonated
    assert "refused: mesh fsdp=3: 3 devices do not go with the 4 of the slice" in mesh


def test_a_program_that_fails_is_refused_by_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def fit(mesh):\n    return mesh.shape['model']\n")
    code, (finding,), _ = fit("train.py:fit", "--type", "v5e-1", folder=tmp_path)
    assert (code, finding["fit"]) == (78, "refused")
    assert "train.py:fit failed: KeyError: 'model' (train.py:2)" in finding["reason"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_lab_s_own_figures_of_a_7b_are_in_the_range() -> None:
    """Llama 2 7B in a plain port, tokens a second of a chip."""
    shape = [
        "--layers=32",
        "--dim=4096",
        "--heads=32",
        "--kv-heads=32",
        "--ff=11008",
        "--vocab=32000",
        "--no-tied",
    ]
    how = ["--sequence=2048", "--fsdp=0", "--stacked", "--remat=full", "--check-batch-per-chip=2"]
    measured = {"v4-128": 1079, "v5e-64": 1021, "v6e-64": 3627}
    words = [*shape, *how, f"--check={','.join(measured)}", "--check-tokens=10B"]
    findings = checked("lm", *words, timeout=3500)
    for target, speed in measured.items():
        fast, slow = (each / 64 for each in findings[target]["pace"]["per_second"])
        assert slow < speed < fast, target
