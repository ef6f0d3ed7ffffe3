"""Slices that end at a time which is known before: flex-start, and calendar reservations."""

from typing import Any

import pytest

from tests.support.stage import Stage
from tpujob.domain.decide.planned_end import EARLY, SILENT
from tpujob.domain.events import EventKind
from tpujob.domain.model import Cause, Job, Outcome, State
from tpujob.domain.money.budget import LOOK
from tpujob.domain.text import rfc3339, utc
from tpujob.emulator import inject
from tpujob.emulator.cloud.states import QueuedState
from tpujob.errors import BadSpec

ZONE, HOUR = "us-east5-a", 3600.0
FLEX = {"type": "v6e-16", "zones": [ZONE], "pricing": "flex-start", "run_for": "1h"}
CALENDAR = {"type": "v6e-16", "zones": [ZONE], "pricing": "calendar", "reservation": "october"}
ONCE_MORE = {"planned_ends": 1}


def ends_at(job: Job) -> float:
    assert job.slice is not None
    assert job.slice.ends_at is not None
    return job.slice.ends_at


def sleep_until(stage: Stage, at: float) -> None:
    stage.clock.sleep(at - stage.clock.now())


def saved(stage: Stage, job_id: str, step: int) -> None:
    """Let every program save that step and exit, as it does after SIGTERM."""
    stage.reports(job_id, phase="exited", exit_code=75, step=step, checkpoint=step, signalled=True)


def stopped(stage: Stage, job_id: str) -> Job:
    """Let the time pass until the program is told that its slice ends."""
    sleep_until(stage, ends_at(stage.job(job_id)) - LOOK - 31)
    return stage.until(job_id, State.HOLDING, limit=3)


def test_a_program_saves_before_its_slice_ends_and_goes_on_with_the_next(stage: Stage) -> None:
    job_id = stage.started(tpu=FLEX, recovery=ONCE_MORE)
    end = ends_at(stage.job(job_id))
    view = stage.api.get(job_id)
    assert view["slices"][0].get("ends_at") == rfc3339(end)
    [ready] = [e for e in stage.store.events(job_id) if e.kind is EventKind.SLICE_READY]
    assert f", until {utc(end)}" in ready.text
    sleep_until(stage, end - 300)
    stage.step(job_id)
    assert stage.job(job_id).state is State.RUNNING
    held = stopped(stage, job_id)
    assert stage.clock.now() < end - 30, "the program has its grace"
    assert (held.attempts[0].outcome, held.attempts[0].cause) == (
        Outcome.INTERRUPTED,
        Cause.PLANNED_END,
    )
    saved(stage, job_id, 480)
    queued = stage.until(job_id, State.QUEUED)
    assert (queued.slices[0].gone_at or end) < end
    again = stage.running(job_id, 2)
    assert (again.retries_used, again.attempts[0].progress.checkpoint) == ({"planned_ends": 1}, 480)
    assert "preempted" not in " ".join(e.text for e in stage.store.events(job_id))


def test_without_another_slice_the_job_ends_and_a_resume_goes_on(stage: Stage) -> None:
    job_id = stage.started(tpu=FLEX)
    stopped(stage, job_id)
    saved(stage, job_id, 480)
    failed = stage.until(job_id, State.FAILED)
    assert (failed.cause, stage.cloud.machines) == (Cause.PLANNED_END, {})
    stage.api.resume(job_id)
    assert ends_at(stage.running(job_id, 2)) > stage.clock.now() + HOUR - 60


def test_a_program_that_has_succeeded_meanwhile_has_succeeded(stage: Stage) -> None:
    job_id = stage.started(tpu=FLEX)
    stopped(stage, job_id)
    stage.finish(job_id, 0, 0, 0, 0)
    assert stage.until(job_id, lambda job: job.state.final).state is State.SUCCEEDED


def test_a_slice_costs_what_it_was_used_for_at_the_price_of_its_terms(stage: Stage) -> None:
    job_id = stage.started(tpu=FLEX, budget={"usd": 50})
    stopped(stage, job_id)
    saved(stage, job_id, 480)
    [slice] = stage.until(job_id, State.FAILED).slices
    assert slice.usd_per_hour == 16 * 1.35
    assert slice.ready_at is not None
    assert slice.gone_at is not None
    hours = (slice.gone_at - slice.ready_at) / HOUR
    assert stage.api.get(job_id)["usd_spent"] == pytest.approx(16 * 1.35 * hours, rel=1e-6)
    with pytest.raises(BadSpec, match="price"):
        stage.create(tpu={**FLEX, "zones": ["us-east1-d"]}, budget={"usd": 50}, name="unpriced")


def taken_by_the_cloud(stage: Stage, job_id: str) -> Job:
    """Let the cloud suspend the slice while no backend looks; return the job when its attempt has ended."""
    stage.cloud.run()
    [queued] = stage.cloud.queued.values()
    assert (queued.state, queued.initiator) == (QueuedState.SUSPENDED, "SERVICE")
    return stage.until(job_id, lambda job: job.attempts[0].cause is not None)


def test_a_slice_that_the_cloud_takes_at_its_planned_end_was_not_preempted(stage: Stage) -> None:
    job_id = stage.started(tpu=FLEX, recovery=ONCE_MORE)
    end = ends_at(stage.job(job_id))
    sleep_until(stage, end - 5)
    stage.reports(job_id, phase="running", step=100, checkpoint=90)
    stage.clock.sleep(HOUR)  # while no backend lives
    ended = taken_by_the_cloud(stage, job_id)
    assert ended.attempts[0].cause is Cause.PLANNED_END
    assert "has reached its planned end; not saved, 10 steps lost" in ended.attempts[0].message
    assert ended.slices[0].preempted_at == end, "it is billed up to its end"
    assert stage.running(job_id, 2).retries_used == {"planned_ends": 1}


@pytest.mark.parametrize("seen", ["before the end", "after it, silent for long"])
def test_a_loss_before_the_planned_end_is_a_preemption(stage: Stage, seen: str) -> None:
    job_id = stage.started(tpu=FLEX)
    end = ends_at(stage.job(job_id))
    sleep_until(stage, end - SILENT - 100)
    stage.reports(job_id, phase="running", step=100)
    stage.preempt()
    if seen != "before the end":
        sleep_until(stage, end + 100)
    ended = stage.until(job_id, lambda job: job.attempts[0].cause is not None)
    assert ended.attempts[0].cause is Cause.PREEMPTED
    assert stage.running(job_id, 2).retries_used == {"preemptions": 1}


def test_a_calendar_reservation_ends_all_slices_that_are_bound_to_it(stage: Stage) -> None:
    inject.add(stage.cloud, "reservation", "october", for_s=HOUR)
    until = stage.clock.now() + HOUR
    job_id = stage.started(tpu=CALENDAR)
    assert ends_at(stage.job(job_id)) == until
    sleep_until(stage, until - EARLY)
    stage.reports(job_id, phase="running", step=100)
    sleep_until(stage, until + EARLY)
    assert taken_by_the_cloud(stage, job_id).attempts[0].cause is Cause.PLANNED_END
    failed = stage.until(job_id, State.FAILED)
    assert failed.retries_used == {}


def test_a_held_slice_that_is_about_to_end_is_not_resumed_on(stage: Stage) -> None:
    job_id = stage.started(tpu=FLEX, hold="2h")
    stage.api.cancel(job_id)
    stage.until(job_id, State.HOLDING)
    saved(stage, job_id, 20)
    sleep_until(stage, ends_at(stage.job(job_id)) - LOOK)
    stage.api.resume(job_id)
    job = stage.running(job_id, 2)
    assert [a.cause for a in job.attempts] == [Cause.CANCELLED, None]
    assert job.retries_used == {}


@pytest.mark.parametrize(("wants", "handed"), [("10m", True), ("1h", False)])
def test_a_slice_is_handed_on_to_a_job_for_which_it_lasts(
    stage: Stage, wants: str, handed: bool
) -> None:
    first = stage.started(tpu=FLEX)
    stage.cloud.full.add(ZONE)
    tpu: dict[str, Any] = {**FLEX, "run_for": wants}
    second = stage.create(tpu=tpu, name="next")
    stage.step(second)
    sleep_until(stage, ends_at(stage.job(first)) - HOUR / 2)
    stage.finish(first, 0, 0, 0, 0)
    stage.until(first, State.SUCCEEDED, also=lambda: stage.step(second))
    got = stage.job(second).slice
    assert (got is not None and got.received_from == first) is handed
    if got:
        assert got.ends_at == stage.job(first).slices[0].ends_at
