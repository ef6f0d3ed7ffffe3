"""Which part of the peak a lab's jobs reached, from their records."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.records import a_job
from tpujob.domain.model import Attempt, Job, Progress
from tpujob.domain.money.reached import reached
from tpujob.domain.spec import parse

LM = {"workload": "lm"}
MAXTEXT = {"command": "python3 -m MaxText.train"}


def ran(
    metrics: dict[str, float | None], run: dict[str, Any], step: int = 500, **fields: Any
) -> Job:
    job = a_job()
    spec = parse({"name": "x", "tpu": {"type": "v4-16"}, "run": run, **fields})
    slice = replace(job.slices[0], type="v4-16", ready_at=1.0)
    attempt = Attempt(
        1, slice.name, 1.0, first_step=1, progress=Progress(step=step, metrics=metrics)
    )
    return replace(job, spec=spec, slices=(slice,), attempts=(attempt,))


def test_bundled_programs_and_maxtext_count_by_what_they_report() -> None:
    maxtext = ran({"tflops": 110.0}, MAXTEXT, watch="maxtext")
    jobs = [ran({"mfu": 0.31}, LM), ran({"mfu": 0.35}, LM), maxtext]
    assert reached(jobs) == {"v4": (pytest.approx(0.31), pytest.approx(0.4), 3)}
    assert reached(jobs[:2]) == {}, "two jobs are too few"


@pytest.mark.parametrize(
    "other",
    [
        ran({"mfu": 3.41}, MAXTEXT, watch="nanogpt"),
        ran({"mfu": 0.3}, MAXTEXT),
        ran({"tflops": 110.0}, MAXTEXT),
        ran({"mfu": 0.3}, LM, step=50),
        ran({"mfu": None}, LM),
        ran({"mfu": 0.0}, LM),
        ran({}, LM),
    ],
    ids=["percent", "own count", "found", "few steps", "not finite", "nothing", "none"],
)
def test_other_figures_do_not_count(other: Job) -> None:
    jobs = [ran({"mfu": 0.31}, LM)] * 3
    assert reached([*jobs, other]) == reached(jobs)
