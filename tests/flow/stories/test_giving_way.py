"""A job of low priority gives way to one that waits for its chips, and goes on later from its checkpoint."""

from collections.abc import Iterable

import pytest

from tests.support.callers import caller
from tests.support.stage import SPEC, Stage
from tpujob.domain import invariants
from tpujob.domain.access import Role
from tpujob.domain.capacity.giving_way import AGAIN, LEAST_RUN
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.model import Cause, Job, Outcome, State
from tpujob.domain.money.shared import SharedBudget
from tpujob.engine.reconciler import Reconciler

POOL = "us-central2-b/v4/spot"
ADA, BOB = caller("ada", Role.SUBMITTER), caller("bob", Role.SUBMITTER)


def limited(stage: Stage, chips: int = 8, **settings: object) -> None:
    """Let the project have that many chips of v4; by default enough for one small job."""
    stage.queue = QueueSettings(quota={POOL: chips}, **settings)  # type: ignore[arg-type]
    stage.reconciler = stage.new_backend()


def low(stage: Stage, name: str = "low", **changes: object) -> str:
    """Return a job of Ada with low priority whose program has just begun."""
    spec = {**SPEC, "name": name, "priority": "low", **changes}
    job = stage.api.acting_for(ADA).create(spec)["id"]
    stage.running(job)
    return job


def head(stage: Stage, **changes: object) -> str:
    """Return a job of Bob that waits."""
    return stage.api.acting_for(BOB).create({**SPEC, "name": "head", **changes})["id"]


def turn(stage: Stage, seconds: float, *jobs: str, backends: Iterable[Reconciler] = ()) -> None:
    """Let time pass while the programs run; each job is ticked every half minute, by every backend."""
    end = stage.clock.now() + seconds
    while stage.clock.now() < end:
        for job in jobs:
            if stage.job(job).state is State.RUNNING:
                stage.reports(job, phase="running")
            for backend in backends or (stage.reconciler,):
                backend.tick(job)
        stage.clock.sleep(30)


def sound(stage: Stage, job_id: str) -> Job:
    record, events = stage.job(job_id), stage.store.events(job_id)
    first = invariants.first_record(record)
    assert invariants.of_job(record) + invariants.of_history(first, events, record) == []
    return record


def test_it_saves_and_stops_after_twenty_minutes_and_goes_on_when_the_other_job_has_ended(
    stage: Stage,
) -> None:
    limited(stage)
    first = low(stage)
    second = head(stage)
    turn(stage, LEAST_RUN - 120, first, second)
    assert stage.job(first).state is State.RUNNING, "it has just begun"
    stage.reports(first, phase="running", step=90, checkpoint=80)
    turn(stage, 180, first, second)
    assert stage.job(first).state is State.HOLDING
    assert not stage.job(second).slices, "it waits until the program has saved"
    stage.finish(first, 75, 75)
    gave = stage.until(first, State.QUEUED)
    stage.running(second)
    assert (gave.retries_used, gave.cause, gave.next_state) == ({}, None, None)
    (attempt,) = gave.attempts
    assert (attempt.outcome, attempt.cause) == (Outcome.INTERRUPTED, Cause.GAVE_WAY)
    assert attempt.message == f"gave way to job {second}"
    assert gave.message == f"gave way to job {second}, and waits for chips again"
    stage.succeed(second)
    again = stage.running(first, 2)
    assert again.retries_used == {}
    sound(stage, second)
    sound(stage, first)


def test_its_slice_is_handed_on_if_it_fits_the_other_job(stage: Stage) -> None:
    limited(stage, hand_on="lab")
    first = low(stage)
    turn(stage, LEAST_RUN, first)
    second = head(stage, priority="high")
    turn(stage, 60, second, first)
    stage.finish(first, 75, 75)
    gave = stage.until(first, State.QUEUED)
    assert gave.slices[-1].handed_to == second
    assert stage.running(second).slices[-1].epoch == 1
    sound(stage, first)


def test_no_job_gives_way_twice_in_an_hour(stage: Stage) -> None:
    limited(stage)
    first = low(stage)
    turn(stage, LEAST_RUN, first)
    second = head(stage)
    turn(stage, 60, second, first)
    gave = stage.job(first).state_since
    stage.finish(first, 75, 75)
    stage.until(first, State.QUEUED)
    stage.running(second)
    stage.succeed(second)
    stage.running(first, 2)
    third = head(stage, name="third")
    turn(stage, gave + AGAIN - 60 - stage.clock.now(), third, first)
    assert stage.job(first).state is State.RUNNING, "it has run for 20 min, and gave way lately"
    turn(stage, 240, third, first)
    assert stage.job(first).attempts[-1].cause is Cause.GAVE_WAY


def test_it_is_off_by_a_setting(stage: Stage) -> None:
    limited(stage, give_way=False)
    first = low(stage)
    second = head(stage)
    turn(stage, LEAST_RUN + 300, first, second)
    assert stage.job(first).state is State.RUNNING


def test_a_request_that_waits_in_the_cloud_s_queue_is_withdrawn(stage: Stage) -> None:
    limited(stage)
    stage.cloud.waiting.add("us-central2-b")
    first = stage.api.acting_for(ADA).create({**SPEC, "priority": "low"})["id"]
    stage.until(first, State.PROVISIONING)
    second = head(stage)
    turn(stage, 60, second, first)
    gave = stage.job(first)
    assert (gave.attempts, gave.retries_used) == ((), {})
    assert gave.slices[0].delete_reason == f"gives way to job {second} before it has a slice"


def test_nobody_gives_way_to_a_job_that_no_budget_pays_for(stage: Stage) -> None:
    """Of $4.60, $9.72 an hour for the owner's other job leave too little for a start at $7.37 an hour."""
    stage.budgets = (SharedBudget(4_600_000, user="bob"),)
    limited(stage)
    first = low(stage)
    second = head(stage)
    other = head(stage, name="other", tpu={"type": "v6e-8", "zones": ["us-east5-b"]})
    stage.running(other)
    turn(stage, LEAST_RUN + 60, first, second, other)
    assert stage.reconciler.queue.plan().gives_way[first].to == second
    assert [stage.job(job).state for job in (first, second, other)] == ["running", "queued", "running"]  # fmt: skip


def test_two_backends_stop_one_job_for_one_slice(stage: Stage) -> None:
    """The second backend plans by what it read before the first one stopped a job."""
    limited(stage, chips=16)
    jobs = [low(stage, "one"), low(stage, "two")]
    turn(stage, LEAST_RUN, *jobs)
    second = head(stage)
    other = stage.new_backend()
    assert len(other.queue.plan().gives_way) == len(stage.reconciler.queue.plan().gives_way) == 1
    (chosen,) = other.queue.plan().gives_way
    stage.reconciler.tick(chosen)
    assert stage.job(chosen).attempts[-1].cause is Cause.GAVE_WAY
    for job in jobs:
        other.tick(job)
    states = sorted(stage.job(job).state for job in jobs)
    assert states == [State.HOLDING, State.RUNNING]
    assert stage.job(second).state is State.QUEUED


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("effect", range(1, 5))
def test_a_backend_may_die_at_any_point(stage: Stage, effect: int, moment: str) -> None:
    limited(stage)
    first = low(stage)
    turn(stage, LEAST_RUN, first)
    second = head(stage)
    stage.faults.kill_at = (stage.faults.effects + effect, moment)

    def saves() -> None:
        if stage.job(first).state is State.HOLDING:
            stage.finish(first, 75, 75)
        elif stage.job(first).state is State.RUNNING:
            stage.reports(first, phase="running")
        if not stage.job(second).slices:
            stage.step(first)

    stage.until(second, State.RUNNING, also=saves)
    gave = sound(stage, first)
    assert [a.cause for a in gave.attempts] == [Cause.GAVE_WAY]
    assert gave.retries_used == {}
