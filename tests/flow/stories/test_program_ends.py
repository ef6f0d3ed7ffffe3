"""Ends of programs whose job was cancelled or deleted, or that came before a look."""

from collections.abc import Callable

import pytest

from tests.support.stage import Stage
from tpujob.domain.decide.holding import REPORTED_WITHIN
from tpujob.domain.model import Cause, Outcome, State
from tpujob.domain.notifications.rules import read_events
from tpujob.domain.progress import job_progress
from tpujob.protocol import paths
from tpujob.service import next_step
from tpujob.service.jobs import Jobs

WISHES: dict[str, Callable[[Jobs, str], object]] = {
    "cancel": lambda api, job: api.cancel(job),
    "release": lambda api, job: api.cancel(job, release=True),
    "delete": lambda api, job: api.delete(job),
}
wishes = pytest.mark.parametrize("wish", WISHES)


@wishes
def test_a_program_that_ended_with_0_before_the_wish_succeeded(stage: Stage, wish: str) -> None:
    job_id = stage.started()
    stage.finish(job_id, 0, 0)
    WISHES[wish](stage.api, job_id)
    job = stage.until(job_id, State.SUCCEEDED)
    assert (job.attempts[0].outcome, job.attempts[0].cause) == (Outcome.SUCCEEDED, None)
    assert "held" not in stage.kinds(job_id), "its slice is not kept"
    assert stage.cloud.machines == {}


@wishes
def test_a_success_that_is_reported_only_after_the_stop_counts(stage: Stage, wish: str) -> None:
    job_id = stage.started()
    WISHES[wish](stage.api, job_id)
    stage.until(job_id, State.HOLDING)
    stage.finish(job_id, 0, 0)
    job = stage.until(job_id, State.SUCCEEDED)
    assert (job.attempts[0].outcome, job.attempts[0].cause) == (Outcome.SUCCEEDED, None)
    assert stage.cloud.machines == {}


@wishes
def test_a_stopped_program_with_0_succeeded_only_at_its_last_step(stage: Stage, wish: str) -> None:
    """Some trainers save and exit with 0 when they are stopped."""
    for step, state in ((8, State.CANCELLED), (9, State.SUCCEEDED)):
        job_id = stage.started(hold="1m")
        WISHES[wish](stage.api, job_id)
        stage.until(job_id, State.HOLDING)
        progress = {"step": step, "steps": 9}
        stage.reports(job_id, phase="exited", exit_code=0, signalled=True, **progress)
        assert stage.until(job_id, lambda job: job.state.final).state is state


def stopping(stage: Stage, wish: str) -> str:
    """A job at step 68, with checkpoint 50, whose program is being stopped."""
    job_id = stage.started(stop_grace="10s")
    stage.reports(job_id, step=68, checkpoint=50)
    stage.step(job_id)
    WISHES[wish](stage.api, job_id)
    stage.until(job_id, State.HOLDING)
    return job_id


def saved(stage: Stage, job_id: str, *hosts: int) -> None:
    """The program saves step 79 on these hosts, and ends."""
    for host in hosts:
        last = {"step": 79, "checkpoint": 79, "signalled": True}
        stage.report(job_id, host, phase="exited", exit_code=75, **last)


@wishes
@pytest.mark.parametrize("lost", ["preempted", "gone"])
def test_saved_work_outlives_a_slice_lost_unseen(stage: Stage, wish: str, lost: str) -> None:
    job_id = stopping(stage, wish)
    saved(stage, job_id, 0, 1)
    if lost == "preempted":
        stage.preempt()
    else:
        stage.cloud.vanish()
    stage.until(job_id, State.CANCELLED)
    view = stage.api.get(job_id)
    assert (view["step"], view["checkpoint"]) == (79, 79)


@wishes
@pytest.mark.parametrize("other", ["reports nothing more", "is killed with its slice"])
def test_one_report_is_kept_beside_a_silent_host(stage: Stage, wish: str, other: str) -> None:
    job_id = stopping(stage, wish)
    saved(stage, job_id, 0)
    if other == "is killed with its slice":
        stage.preempt()
    job = stage.until(job_id, lambda job: job.attempts[0].progress.partial_checkpoint == 79)
    assert stage.clock.now() - (job.attempts[0].ended_at or 0) >= 10 + REPORTED_WITHIN
    assert stage.kinds(job_id).count("progressed") == 2, "its first step, and how it ended"
    view = stage.api.get(job_id)
    assert view["checkpoint"] == 50, "the newest that both hosts have"
    assert "; some have reported 79" in str([view["next"], view["actions"]])


def test_a_host_that_never_reported_is_waited_for_if_the_program_ran(stage: Stage) -> None:
    job_id = stopping(stage, "delete")
    path = paths.report_path(stage.job(job_id).workdir, 1, 1)
    del stage.bucket.objects[path]
    saved(stage, job_id, 0)
    stage.reconciler = stage.new_backend()
    stage.until(job_id, lambda job: job.stopped)
    for _ in range(5):
        stage.step(job_id)
    assert stage.job(job_id).state is State.HOLDING
    saved(stage, job_id, 1)
    stage.until(job_id, State.CANCELLED)
    progress = stage.job(job_id).attempts[0].progress
    assert (progress.step, progress.checkpoint) == (79, 79)


def test_hosts_that_have_not_begun_are_not_waited_for(stage: Stage) -> None:
    stage.faults.broken.add("start")
    job_id = stage.create()
    stage.until(job_id, State.PREPARING)
    stage.api.delete(job_id)
    stage.until(job_id, State.CANCELLED)
    at = {event.kind: event.at for event in stage.store.events(job_id)}
    assert at["release_started"] - at["held"] < REPORTED_WITHIN


@pytest.mark.parametrize("trouble", ["reports cannot be read", "no host reports its end"])
def test_a_delete_waits_for_last_reports_for_a_bounded_time(stage: Stage, trouble: str) -> None:
    job_id = stage.started(stop_grace="10s")
    asked_at = stage.clock.now()
    stage.api.delete(job_id)
    if trouble == "reports cannot be read":
        stage.faults.broken.add("blobs")
    job = stage.until(job_id, State.RELEASING)
    assert job.state_since - asked_at < 10 + REPORTED_WITHIN + 5
    stage.until(job_id, State.CANCELLED)


def started(stage: Stage) -> str:
    """A job whose hosts have just taken its program; no backend can read their reports."""
    stage.faults.broken.add("blobs")
    before = len(stage.hosts.starts)
    job_id = stage.create(recovery={"failures": 0})
    job = stage.until(job_id, lambda _: len(stage.hosts.starts) == before + 2)
    assert job.state is State.PREPARING
    return job_id


def test_a_program_that_ends_before_a_backend_looks_has_run(stage: Stage) -> None:
    for code, state in ((0, State.SUCCEEDED), (1, State.FAILED)):
        job_id = started(stage)
        stage.clock.sleep(20)
        for host in (0, 1):
            ended = {"exit_code": code, "ran": 8.0 + host}
            stage.report(job_id, host, phase="exited", **ended)
        ended_at = stage.clock.now()
        stage.faults.broken.clear()
        stage.clock.sleep(3)
        job = stage.until(job_id, state)
        assert job.attempts[0].running_at == ended_at - 8, "when its last host had started it"
        assert list(dict.fromkeys(e.state for e in stage.store.events(job_id)))[2:] == [
            State.PREPARING,
            State.RUNNING,
            State.RELEASING,
            state,
        ]
        at = [e.at for e in stage.store.events(job_id)]
        assert at == sorted(at)


@wishes
def test_a_program_seen_late_moves_no_event_back(stage: Stage, wish: str) -> None:
    job_id = started(stage)
    began = stage.clock.now()
    stage.clock.sleep(8)
    stage.reports(job_id, phase="exited", exit_code=0, ran=8.0)
    stage.clock.sleep(8)
    WISHES[wish](stage.api, job_id)
    stage.faults.broken.clear()
    job = stage.until(job_id, lambda job: job.state.final)
    assert (job.state, job.attempts[0].running_at) == (State.SUCCEEDED, began)
    assert f"{wish if wish == 'cancel' else 'release'}_requested" in stage.kinds(job_id)
    at = [e.at for e in stage.store.events(job_id)]
    assert at == sorted(at)


def test_a_program_that_was_never_started_has_not_run(stage: Stage) -> None:
    job_id = started(stage)
    stage.reports(job_id, phase="exited", error="no such package", cause="SETUP")
    stage.faults.broken.clear()
    job = stage.until(job_id, State.FAILED)
    assert (job.attempts[0].running_at, job.attempts[0].cause) == (None, Cause.SETUP)


def test_a_program_ends_after_its_time_and_a_resume_gives_it_as_much_again(stage: Stage) -> None:
    job_id = stage.started(max_time="10m", hold="1m")
    stage.clock.sleep(500)
    stage.step(job_id)
    assert stage.job(job_id).state is State.RUNNING
    stage.clock.sleep(120)
    failed = stage.until(job_id, lambda j: j.state.final)
    assert (failed.state, failed.cause) == (State.FAILED, Cause.TIME_LIMIT)
    assert failed.message == "its time limit of 10 min (`max_time`) is reached"
    assert stage.cloud.machines == {}
    stage.api.resume(job_id)
    stage.running(job_id, 2)
    stage.clock.sleep(500)
    stage.step(job_id)
    assert stage.job(job_id).state is State.RUNNING


def test_a_time_limit_is_no_budget_in_any_word(stage: Stage) -> None:
    job_id = stage.started(max_time="10m", budget={"usd": 500})
    stage.clock.sleep(700)
    stopping = stage.until(job_id, State.HOLDING)
    assert next_step.what_next(stopping, job_progress(stopping), None, 0.0)["commands"] == []
    failed = stage.until(job_id, State.FAILED)
    after = next_step.what_next(failed, job_progress(failed), None, 0.0)
    assert [c["command"] for c in after["commands"]] == [f"tpujob resume {job_id}"]
    facts = read_events(failed, stage.store.events(job_id), 0)
    assert [(f.kind, f.cause) for f in facts] == [("failed", "TIME_LIMIT")]
    said = [*(e.text for e in stage.store.events(job_id)), *(f.text for f in facts)]
    assert not [text for text in said if "budget" in text]


def test_more_money_does_not_undo_a_time_limit(stage: Stage) -> None:
    job_id = stage.started(max_time="10m", budget={"usd": 500})
    stage.clock.sleep(700)
    stage.until(job_id, State.HOLDING)
    stage.api.resume(job_id, budget=600)
    assert stage.until(job_id, lambda j: j.state.final).cause is Cause.TIME_LIMIT


def test_a_program_that_ended_in_time_has_succeeded_though_that_is_read_later(stage: Stage) -> None:
    job_id = stage.started(max_time="10m")
    stage.finish(job_id, 0, 0)
    stage.faults.broken.add("blobs")
    stage.clock.sleep(700)
    stage.step(job_id)
    assert stage.job(job_id).state is State.RUNNING
    stage.faults.broken.clear()
    assert stage.until(job_id, lambda j: j.state.final).state is State.SUCCEEDED
