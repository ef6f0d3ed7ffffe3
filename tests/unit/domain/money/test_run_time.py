"""Run times of jobs: stated values count first, then earlier runs of the same program."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.support.records import a_job
from tpujob.domain.model import Attempt, Job, Progress, State
from tpujob.domain.money.run_time import RunTime, StatedWork, estimate_run_time
from tpujob.domain.spec import JobSpec, parse

HOUR = 3600.0
SLICE = replace(a_job().slices[0], type="v4-16", ready_at=1000.0)


def spec(steps: int | None = 1000, **fields: Any) -> JobSpec:
    args = {"batch": 32} | ({} if steps is None else {"steps": steps})
    run = {"workload": "mlp", "args": args}
    return parse({"name": "x", "tpu": {"type": "v4-16"}, "run": run} | fields)


def ran(hours: float, given_spec: JobSpec | None = None, state: State = State.SUCCEEDED) -> Job:
    slice = replace(SLICE, gone_at=1000.0 + hours * HOUR)
    return replace(a_job(), spec=given_spec or spec(), state=state, slices=(slice,), attempts=())


def with_steps(job: Job, first: int, last: int, seconds: float, setup: float = 120.0) -> Job:
    """An attempt that was seen at step `first`, `setup` seconds after the slice was ready, and `seconds` later at
    `last`."""
    start = 1000.0 + setup
    attempt = Attempt(
        1, SLICE.name, 1000.0, first_step=first, first_step_at=start, progress_at=start + seconds,
        progress=Progress(step=last),
    )  # fmt: skip
    return replace(job, attempts=(attempt,))


def run_time(
    jobs: list[Job], given_spec: JobSpec | None = None, stated: StatedWork | None = None
) -> RunTime:
    return estimate_run_time(given_spec or spec(), "v4-16", jobs, stated or StatedWork())


def test_stated_work_counts_first() -> None:
    result = run_time([ran(2.0)], stated=StatedWork(hours=Decimal(3)))
    assert (result.hours, result.by, result.text) == (3, "stated", "as stated by --hours")
    result = run_time([ran(2.0)], stated=StatedWork(steps=7200, step_seconds=Decimal("0.5")))
    assert (result.hours, result.by) == (1, "stated")
    result = run_time([ran(2.0)], stated=StatedWork(step_seconds=Decimal("3.6")))
    assert result.hours == 1, "the steps are those of the file"


def test_earlier_runs_with_the_same_arguments_give_their_median() -> None:
    result = run_time([ran(2.0), ran(5.0), ran(2.5), ran(1.0, state=State.FAILED)])
    assert (result.hours, result.least, result.most) == (Decimal("2.5"), 2, 5)
    assert result.text == "as 3 earlier runs of this program on this type took"


def test_all_slices_of_a_run_count() -> None:
    lost = replace(SLICE, name="a", gone_at=1000.0 + HOUR)
    assert run_time([replace(ran(2.0), slices=(lost, *ran(2.0).slices))]).hours == 3


def test_more_steps_than_before_are_estimated_at_the_pace_of_earlier_attempts() -> None:
    """Ten steps of 0.5 s were made in the 125 s until the first look: they are no set-up."""
    short = with_steps(ran(1.0, spec(100)), first=10, last=90, seconds=40.0, setup=125.0)
    result = run_time([short], spec(7200))
    assert (result.hours, result.by) == (Decimal("3720") / 3600, "steps")
    assert (
        result.text
        == "7,200 steps of 0.5 s, as in 1 earlier attempt on this type, and 2 min of set-up"
    )
    assert run_time([short], stated=StatedWork(steps=14_400)).hours == Decimal("7320") / 3600


@pytest.mark.parametrize(
    "jobs",
    [
        [],
        [ran(2.0, spec(1000, tpu={"type": "v4-16", "slices": 2}))],
        [ran(2.0, parse({"name": "x", "tpu": {"type": "v4-16"}, "run": {"command": "true"}}))],
        [replace(ran(2.0), slices=(replace(SLICE, type="v4-8", gone_at=9000.0),))],
        [replace(ran(2.0), slices=(SLICE,))],  # still there
        [with_steps(ran(2.0, spec(100), State.RUNNING), first=10, last=10, seconds=40.0)],
        [with_steps(ran(2.0, spec(100), State.RUNNING), first=10, last=20, seconds=0.0)],
    ],
)
def test_otherwise_the_run_time_is_unknown(jobs: list[Job]) -> None:
    result = run_time(jobs)
    assert (result.hours, result.by) == (None, "unknown")
    assert "--hours" in result.text


def test_a_program_without_steps_is_not_estimated_by_them() -> None:
    paced = with_steps(ran(2.0, spec(100)), first=10, last=20, seconds=10.0)
    assert run_time([paced], spec(None)).by == "unknown"
