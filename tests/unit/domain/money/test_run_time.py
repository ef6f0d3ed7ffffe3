"""For how long a job will hold its slices: what is said counts first, then what the same program took before."""

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


def spec(steps: int | None = 1000, **more: Any) -> JobSpec:
    args = {"batch": 32} | ({} if steps is None else {"steps": steps})
    run = {"workload": "mlp", "args": args}
    return parse({"name": "x", "tpu": {"type": "v4-16"}, "run": run} | more)


def ran(hours: float, made: JobSpec | None = None, state: State = State.SUCCEEDED) -> Job:
    slice = replace(SLICE, gone_at=1000.0 + hours * HOUR)
    return replace(a_job(), spec=made or spec(), state=state, slices=(slice,), attempts=())


def with_steps(job: Job, first: int, last: int, seconds: float, setup: float = 120.0) -> Job:
    """An attempt that was seen at step `first`, `setup` seconds after the slice was ready, and `seconds` later at
    `last`."""
    start = 1000.0 + setup
    attempt = Attempt(
        1, SLICE.name, 1000.0, first_step=first, first_step_at=start, progress_at=start + seconds,
        progress=Progress(step=last),
    )  # fmt: skip
    return replace(job, attempts=(attempt,))


def found(jobs: list[Job], made: JobSpec | None = None, said: StatedWork | None = None) -> RunTime:
    return estimate_run_time(made or spec(), "v4-16", jobs, said or StatedWork())


def test_what_is_said_by_name_counts_first() -> None:
    told = found([ran(2.0)], said=StatedWork(hours=Decimal(3)))
    assert (told.hours, told.by, told.text) == (3, "said", "as stated by --hours")
    told = found([ran(2.0)], said=StatedWork(steps=7200, step_seconds=Decimal("0.5")))
    assert (told.hours, told.by) == (1, "said")
    told = found([ran(2.0)], said=StatedWork(step_seconds=Decimal("3.6")))
    assert told.hours == 1, "the steps are those of the file"


def test_earlier_runs_with_the_same_arguments_tell_their_median() -> None:
    told = found([ran(2.0), ran(5.0), ran(2.5), ran(1.0, state=State.FAILED)])
    assert (told.hours, told.least, told.most) == (Decimal("2.5"), 2, 5)
    assert told.text == "as 3 earlier runs of this program on this type took"


def test_all_slices_of_a_run_count() -> None:
    lost = replace(SLICE, name="a", gone_at=1000.0 + HOUR)
    assert found([replace(ran(2.0), slices=(lost, *ran(2.0).slices))]).hours == 3


def test_more_steps_than_before_are_reckoned_at_the_pace_of_earlier_attempts() -> None:
    """Ten steps of 0.5 s were made in the 125 s until the first look: they are no set-up."""
    short = with_steps(ran(1.0, spec(100)), first=10, last=90, seconds=40.0, setup=125.0)
    told = found([short], spec(7200))
    assert (told.hours, told.by) == (Decimal("3720") / 3600, "steps")
    assert (
        told.text
        == "7,200 steps of 0.5 s, as in 1 earlier attempt on this type, and 2 min of set-up"
    )
    assert found([short], said=StatedWork(steps=14_400)).hours == Decimal("7320") / 3600


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
def test_otherwise_nobody_knows(jobs: list[Job]) -> None:
    told = found(jobs)
    assert (told.hours, told.by) == (None, "nobody")
    assert "--hours" in told.text


def test_a_program_without_steps_is_not_reckoned_by_them() -> None:
    paced = with_steps(ran(2.0, spec(100)), first=10, last=20, seconds=10.0)
    assert found([paced], spec(None)).by == "nobody"
