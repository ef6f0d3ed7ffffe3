"""Floating point on this machine, and the report of a result that no setting allows."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.program_events import events_of
from tpujob.contract import Exit
from workloads.frame.launch import code_of
from workloads.numerics import NumericsConfig, checks, report

TINY = NumericsConfig(sizes=(8, 256), rows=32, vocabulary=128, candidates=2000, k=10)


def run(folder: Path, config: NumericsConfig) -> list[dict]:
    """The events of a whole run."""
    return events_of(folder, partial(report.run, config))


def test_a_logit_has_two_values_by_default_and_one_without_excess_precision() -> None:
    """The bug of a production system: two parts of one program disagreed on the most probable token."""
    default = checks.excess_precision(64, 512, seed=0, allowed=None)
    assert default == 1.0, "XLA for CPU keeps float32 for the gathered logit; has that changed?"
    assert checks.excess_precision(64, 512, seed=0, allowed=True) == 1.0
    assert checks.excess_precision(64, 512, seed=0, allowed=False) == 0.0


def test_reduce_precision_rounds_whatever_the_compiler_may_keep() -> None:
    assert checks.rounded_away(seed=0) == 0.0


def test_approximate_top_k_is_exact_on_a_cpu_and_its_values_are_at_its_indices() -> None:
    assert checks.approximate_top_k(5000, 50, seed=3) == checks.TopK(1.0, True, True)


def test_errors_against_float64_grow_with_the_length_of_the_sum() -> None:
    errors = checks.product_errors((8, 512), seed=0)
    mean = {(e.way, e.d, e.shape): e.mean for e in errors}
    for way in ("NumPy", "JAX"):
        assert mean[way, 512, checks.INNER] > 3 * mean[way, 8, checks.INNER]
        assert 0 < mean[way, 512, checks.OUTER] < 1e-6, "four products stay four products"
    assert {e.unequal for e in errors if e.way == "NumPy"} == {0.0}


def test_a_run_prints_both_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = run(tmp_path, TINY)
    output = capsys.readouterr().out
    assert "d=256" in output
    assert "WRONG" not in output
    metrics = {event["name"]: event["value"] for event in events if event["kind"] == "metric"}
    assert metrics["rows whose best logit has two values"] == 1
    assert metrics["the same with xla_allow_excess_precision=False"] == 0
    assert metrics["error at d=256: JAX: [4 d]x[d 4]"] > 0
    assert events[-1]["name"] == "done"


def test_values_that_are_not_at_their_indices_end_the_program_as_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = checks.TopK(recall=0.1, top_kept=False, honest=False)
    monkeypatch.setattr(checks, "approximate_top_k", lambda *_: broken)
    with pytest.raises(report.WrongNumbers) as failure:
        run(tmp_path, TINY)
    assert "approx_max_k: recall is 0.1, not >= 0.95" in str(failure.value)
    assert "values are operand[indices] is 0, not 1" in str(failure.value)
    assert code_of(failure.value, hosts=1) is Exit.ERROR
    assert capsys.readouterr().out.count("WRONG") == 2, "all of it is said before"


@pytest.mark.parametrize("program", ["tables", "numerics"])
def test_a_bad_flag_ends_either_program_with_exit_code_78(program: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", f"workloads.{program}", "--seeed=1"],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == Exit.CONFIG
    assert ended.stderr == f"{program}: no such flag: --seeed; did you mean --seed?\n"
