"""The times at which the loop saves, and its time of a step; on clocks that are turned by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tpujob.contract import ProgramContext, Reporter
from workloads.frame.config import TrainConfig
from workloads.frame.log import ProgressLog
from workloads.frame.loop import SaveTimes


class _Host:
    """A host with a clock of its own, which gets the answers of the first host."""

    def __init__(self, config: TrainConfig, first: _Host | None = None) -> None:
        self.seconds, self.questions = 0.0, 0
        self._first, self._answer = first, np.array(False)
        self.times = SaveTimes(config, 0, clock=lambda: self.seconds, answer_of_first=self._told)

    def _told(self, mine: NDArray[np.bool_]) -> NDArray[np.bool_]:
        self.questions += 1
        self._answer = self._first._answer if self._first else mine
        return self._answer

    def due(self, step: int, seconds: float) -> bool:
        self.seconds += seconds
        if due := self.times.due(step):
            self.times.saved(step)
        return due


def test_all_hosts_save_at_the_same_steps_by_the_clock_of_the_first() -> None:
    config = TrainConfig(steps=3000, checkpoint_every=0, checkpoint_minutes=1)
    first = _Host(config)
    second = _Host(config, first)
    saved: list[list[int]] = [[], []]
    for step in range(1, 3001):
        # the second's clock goes wrong: it runs twice as fast, stops, and is set back
        wrong = [0.2, 0.0, -5.0][step * 3 // 3001]
        for host, seconds, steps in ((first, 0.1, saved[0]), (second, wrong, saved[1])):
            if host.due(step, seconds):
                steps.append(step)
    assert saved[0] == saved[1]
    gaps = np.diff([0, *saved[0][:-1]])
    assert len(gaps) == 4
    assert gaps.min() >= 600, "saved before a minute had passed"
    assert gaps.max() <= 600 * 9 / 8, "saved late"
    assert first.questions == second.questions
    assert first.questions <= 300, "the hosts wait for each other in more than a tenth of the steps"


def test_a_run_that_becomes_slow_does_not_save_much_too_late() -> None:
    config = TrainConfig(steps=10_000, checkpoint_every=0, checkpoint_minutes=1)
    host = _Host(config)
    paces = [0.01] * 100 + [1.0] * 1000
    times = [sum(paces[: step + 1]) for step, pace in enumerate(paces) if host.due(step + 1, pace)]
    assert times
    assert 60 <= times[0] <= 80


def test_steps_and_minutes_go_together_and_the_last_step_is_always_saved() -> None:
    host = _Host(TrainConfig(steps=250, checkpoint_every=100, checkpoint_minutes=1))
    assert [step for step in range(1, 251) if host.due(step, 1.0)] == [64, 100, 164, 200, 250]
    host = _Host(TrainConfig(steps=250, checkpoint_every=0))
    assert [step for step in range(1, 251) if host.due(step, 1e6)] == [250]
    assert not host.questions


def test_the_time_of_a_step_has_no_save(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    reporter = Reporter(ProgramContext(out=str(tmp_path)))
    config = TrainConfig(steps=4, batch=16, log_every=2)
    log = ProgressLog(reporter, config, speaks=True, clock=lambda: now[0])
    log.start_clock()
    for step in range(1, 5):
        now[0] += 0.01
        log.step(step, 0.5, 1.0, 0.0)
        with log.apart():
            now[0] += 3.0
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["ms"] for line in lines] == [10.0] * 4
    shown = "loss 0.5000  10.0 ms/step  1,600 rows/s"
    assert capsys.readouterr().out.splitlines() == [f"step 2/4  {shown}", f"step 4/4  {shown}"]
