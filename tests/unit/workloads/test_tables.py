"""The tables of the talks on tiny arrays: what is measured, what is refused, what is said."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.support.program_events import events_of
from workloads.tables import TablesConfig, report, talks

TINY = TablesConfig(rounds=3, elements=1000, pairs=40, rows=4, loop_s=0.001)


@pytest.mark.slow
def test_a_run_prints_every_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = events_of(tmp_path, partial(report.run, TINY))
    output = capsys.readouterr().out
    for words in ("a function of two vectors of 1,000", "SELU of 1,000 floats", "vmap + jit",
                  "squared distances of 40 pairs", "nnx.cached_partial", "at 1: 1 4 10 6 0"):  # fmt: skip
        assert words in output
    assert "PyTorch" in output, "its row, or a line that says why there is none"
    metrics = {event["name"]: event["value"] for event in events if event["kind"] == "metric"}
    assert metrics["distances: vmap + jit speedup"] > 0
    assert len(metrics) <= 32, "the agent keeps no more"
    assert all(len(name) <= 60 for name in metrics), "the agent cuts longer names off"
    assert not any("," in name for name in metrics), "they are listed with commas between them"
    assert (events[-1]["kind"], events[-1]["name"]) == ("phase", "done")


def test_a_long_loop_is_timed_in_part_and_the_table_says_so() -> None:
    rng = np.random.default_rng(0)
    table = talks.distances(rng, pairs=200, loop_s=1e-9)
    assert table.parts == {"Python loop": 1 / 200}
    row = report.measured(table, rounds=3)[0]
    assert "Python loop *" in report.shown(table, [row])
    assert "* the loop was timed over 1 of the pairs, and multiplied up" in report.shown(
        table, [row]
    )
    assert row.seconds.median > 200 * 1e-6, "a call of JAX takes more than a microsecond"


@pytest.mark.parametrize("wrong", [0.5, np.nan])
def test_a_way_with_another_result_is_refused_not_timed(wrong: float) -> None:
    table = talks.selu(np.random.default_rng(0), 100)
    ways = {**table.ways, "JAX + jit": lambda: np.full(100, wrong)}
    with pytest.raises(report.WrongResult, match=r"SELU of 100 floats: JAX \+ jit differs"):
        report.measured(table._replace(ways=ways), rounds=3)


def test_wrong_derivatives_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report.checked_derivatives() == (1, 4, 10, 6, 0)
    monkeypatch.setattr(report, "derivatives", lambda: (1.0, 4.0, 10.0, 6.0, 1e-6))
    with pytest.raises(report.WrongResult, match="1e-06"):
        report.checked_derivatives()
