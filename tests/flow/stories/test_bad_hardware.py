"""Numbers that are not finite: the slice is swapped, maths and machine are told apart, machines are remembered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.stage import DEVICE, Stage, bad_device
from tpujob.domain.model import Cause, Job, SliceRole, State
from tpujob.domain.observations import SliceState


def nan(stage: Stage, job_id: str, step: int, *, reached: int | None = None) -> None:
    """The program's output says NaN, and its agents stop it."""
    verdict = {"step": step, "host": None, "device": "", "blame": "", "text": "loss=nan"}
    for host in range(2):
        stage.report(
            job_id,
            host,
            phase="exited",
            exit_code=None,
            error="loss=nan",
            cause="NONFINITE",
            verdict=verdict,
            step=reached or step,
        )


def attempts(job: Job) -> list[tuple[str, str, int]]:
    return [(a.slice, str(a.cause), a.resume_before) for a in job.attempts]


def test_a_bad_slice_is_kept_until_another_one_is_there_and_then_given_back(stage: Stage) -> None:
    job_id = stage.started()
    bad_device(stage, job_id)
    job = stage.until(job_id, State.PROVISIONING)
    assert [(s.k, s.role, s.stopped) for s in job.slices] == [
        (1, SliceRole.CONDEMNED, True),
        (2, SliceRole.SERVING, False),
    ], "its program was stopped, and it is still there while another one is asked for"
    job = stage.running(job_id, attempt=2)
    assert job.attempt is not None
    assert job.attempt.resume_before == 41, "only checkpoints before the verdict are resumed from"
    machines = {m.name: m.racks for m in stage.cloud.machines.values()}
    assert machines[job.attempt.slice] == ["us-central2-b-02", "us-central2-b-03"], (
        "given back first, the same machines would have been handed out again"
    )
    job = stage.until(job_id, lambda j: not j.condemned)
    assert list(stage.cloud.machines) == ["tj-000001-2"], "nothing bad is billed any more"
    assert stage.cloud.most_alive == 2


def test_a_bad_slice_is_given_back_though_the_next_one_cannot_be_started(stage: Stage) -> None:
    job_id = stage.started()
    bad_device(stage, job_id)
    stage.faults.broken.add("start")
    stage.until(job_id, State.PREPARING)
    began = stage.clock.now()
    job = stage.until(job_id, lambda j: not j.condemned)
    assert job.state is State.PREPARING, "its hosts do not answer"
    assert stage.clock.now() - began < 120, "the bad one is billed no longer for that"


def test_the_machine_that_a_replay_names_is_remembered_across_jobs(stage: Stage) -> None:
    first = stage.started()
    bad_device(stage, first)
    stage.running(first, attempt=2)
    stage.until(first, lambda j: not j.condemned)
    (suspect,) = stage.store.reputation.suspects()
    assert suspect.physical == "us-central2-b-01", "host 1's machine, not the whole slice"
    assert "device 2 of host 1" in suspect.reasons[0]

    second = stage.create(name="other")  # is handed out the bad machine again
    job = stage.running(second, attempt=2)
    assert attempts(job)[0][1] == "PREFLIGHT"
    assert "us-central2-b-01 is suspected of wrong numbers" in job.attempts[0].detail
    assert job.attempt is not None
    assert job.attempt.number == 2
    assert "us-central2-b-01" not in stage.cloud.machines[job.attempt.slice].racks


def test_success_on_other_hardware_accuses_the_first_machines(stage: Stage) -> None:
    job_id = stage.started()
    nan(stage, job_id, 300)
    stage.running(job_id, attempt=2)
    assert stage.store.reputation.suspects() == [], "not yet: nobody knows"
    for host in range(2):
        stage.report(job_id, host, step=350)
    stage.until(job_id, lambda j: bool(j.attempt and j.attempt.progress.step == 350))
    found = {s.physical for s in stage.store.reputation.suspects()}
    assert found == {"us-central2-b-00", "us-central2-b-01"}


def test_other_steps_on_other_hardware_are_retried_until_the_budget_is_spent(
    stage: Stage,
) -> None:
    job_id = stage.create(recovery={"nonfinite": 2})
    for number, step in enumerate((100, 50, 75), start=1):
        stage.running(job_id, attempt=number)
        nan(stage, job_id, step)
    job = stage.until(job_id, State.FAILED)
    assert [a.resume_before for a in job.attempts] == [0, 100, 50], "never forward, only back"
    assert "2 retries allowed by `recovery.nonfinite`, all used" in job.message
    assert "not finite at steps 100, 50, 75 in 3 attempts, and neither a replay" in job.message
    assert "not yet" not in job.message


def test_checkpoints_past_the_bad_step_are_good_again(stage: Stage) -> None:
    job_id = stage.started()
    bad_device(stage, job_id)
    stage.running(job_id, attempt=2)
    for host in range(2):
        stage.report(job_id, host, step=90, checkpoint=80, resumed_from=40)
    stage.until(job_id, lambda j: bool(j.attempt and j.attempt.progress.checkpoint == 80))
    stage.cloud.machines["tj-000001-2"].state = SliceState.PREEMPTED
    job = stage.until(job_id, lambda j: len(j.attempts) == 3)
    assert attempts(job)[2][2] == 0


def test_a_replay_that_blames_the_data_is_never_tried_again(stage: Stage) -> None:
    job_id = stage.started()
    verdict = {**DEVICE, "blame": "data", "host": None, "text": "row 7 of step 41 made it"}
    for host in range(2):
        stage.report(job_id, host, phase="exited", exit_code=65, verdict=verdict)
    job = stage.until(job_id, State.FAILED)
    assert (job.cause, len(job.attempts)) == (Cause.NONFINITE, 1)
    assert stage.api.get(job_id)["message"].startswith(
        "attempt 1 ended, NONFINITE: row 7 of step 41"
    )


def test_with_release_a_bad_slice_is_given_back_at_once(stage: Stage) -> None:
    job_id = stage.started(recovery={"on_bad_host": "release"})
    bad_device(stage, job_id)
    stage.until(job_id, lambda j: j.slices[0].gone_at is not None)
    assert stage.cloud.machines == {}


@pytest.mark.parametrize("cause", ["QUOTA", "STOCKOUT"])
def test_where_a_second_slice_is_refused_the_bad_one_goes_first(stage: Stage, cause: str) -> None:
    job_id = stage.started()
    bad_device(stage, job_id)
    stage.faults.refuse_create = [(cause, "no")]
    job = stage.until(job_id, lambda j: len(j.slices) == 3)
    assert job.slices[0].gone_at is not None, "it took the room that the other one needs"
    assert list(stage.cloud.machines) == ["tj-000001-3"]


def test_a_bad_slice_is_not_kept_for_one_that_only_waits_in_the_queue(stage: Stage) -> None:
    job_id = stage.started()
    stage.cloud.queues.add("us-central2-b")
    bad_device(stage, job_id)
    stage.until(job_id, lambda j: j.state is State.PROVISIONING and not j.condemned)
    assert list(stage.cloud.machines) == ["tj-000001-2"]


@pytest.mark.parametrize("release", [False, True])
def test_cancel_in_the_middle_of_a_swap_leaves_nothing_behind(stage: Stage, release: bool) -> None:
    job_id = stage.started()
    bad_device(stage, job_id)
    stage.until(job_id, State.QUEUED)
    stage.api.cancel(job_id, release=release)
    job = stage.until(job_id, State.CANCELLED)
    assert stage.cloud.machines == {}
    assert job.condemned == ()


def ledger(stage: Stage, job_id: str) -> dict[str, Any]:
    job = stage.job(job_id)
    return {"state": job.state, "attempts": len(job.attempts), "left": list(stage.cloud.machines)}


def _swapped(stage: Stage) -> str:
    job_id = stage.started()
    bad_device(stage, job_id)
    stage.until(job_id, lambda j: j.state is State.RUNNING and len(j.attempts) == 2)
    stage.until(job_id, lambda j: not j.condemned)
    stage.succeed(job_id)
    return job_id


def test_a_backend_killed_at_any_effect_of_a_swap_loses_nothing_and_leaks_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    calm = Stage(tmp_path_factory.mktemp("calm"))
    expected = ledger(calm, _swapped(calm))
    for number in range(1, calm.faults.effects + 1):
        for side in ("before", "after"):
            stage = Stage(tmp_path_factory.mktemp("kill"))
            stage.faults.kill_at = (number, side)
            found = ledger(stage, _swapped(stage))
            assert found == expected, f"killed {side} effect {number}"
            assert len(stage.store.reputation.suspects()) == 1, "once, however often it was found"
