"""Numbers that are not finite: the slice is swapped, maths and machine are distinguished, machines are remembered."""

import pytest

from tests.support.stage import Stage, bad_device
from tpujob.domain.model import Job, SliceRole, State


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
