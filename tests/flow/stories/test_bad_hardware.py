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
    assert machines[job.attempt.slice] == ["us-central2-b-h002", "us-central2-b-h003"], (
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
    assert suspect.physical == "us-central2-b-h001", "host 1's machine, not the whole slice"
    assert "device 2 of host 1" in suspect.accusations[0].text

    second = stage.create(name="other")  # is handed out the bad machine again
    job = stage.running(second, attempt=2)
    assert attempts(job)[0][1] == "PREFLIGHT"
    assert job.attempts[0].detail == (
        "host 1: the program is kept off the physical machine us-central2-b-h001: attempt 1 of "
        "job 000001 accuses it: device 2 of host 1 made a NaN at step 41"
    )
    assert job.attempt is not None
    assert job.attempt.number == 2
    assert "us-central2-b-h001" not in stage.cloud.machines[job.attempt.slice].racks


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


NO_TPU = "RuntimeError: TPU initialization failed: open of the device timed out"


def without_tpu(stage: Stage, job_id: str, attempt: int) -> Job:
    """End the program on both hosts as one to which host 0 has no TPU."""
    stage.running(job_id, attempt)
    stage.clock.sleep(30)
    stage.finish(job_id, 1, 76)
    stage.last_words(job_id, 0, NO_TPU)
    return stage.until(job_id, lambda j: j.attempts[attempt - 1].ended_at is not None)


def open_ones(stage: Stage) -> list[tuple[str, str]]:
    return [
        (s.physical, a.standing) for s in stage.store.reputation.suspects() for a in s.accusations
    ]


def test_a_program_that_finds_no_tpu_on_any_machine_marks_none_of_them(stage: Stage) -> None:
    job_id = stage.create(recovery={"failures": 1})
    without_tpu(stage, job_id, 1)
    assert open_ones(stage) == [("us-central2-b-h000", "open")]
    without_tpu(stage, job_id, 2)
    assert len(open_ones(stage)) == 2
    job = without_tpu(stage, job_id, 3)
    assert [a.cause for a in job.attempts[:3]] == ["BAD_HOST", "BAD_HOST", "CRASH"]
    assert "the same failure in 3 attempts on 2 machines: the program is" in job.attempts[2].message
    assert open_ones(stage) == []
    job = without_tpu(stage, job_id, 4)
    assert job.attempts[3].slice == job.attempts[2].slice, "no more slices are spent on it"
    assert stage.until(job_id, State.FAILED).retries_used == {"bad_hosts": 2, "failures": 1}


def test_a_program_that_finds_its_tpu_elsewhere_proves_what_it_said(stage: Stage) -> None:
    first = stage.create()
    without_tpu(stage, first, 1)
    second = stage.create(name="other", run={"command": "python3 else.py"})
    stage.running(second)
    assert len(stage.job(second).attempts) == 1, "nothing is proved yet"
    stage.running(first, 2)
    stage.clock.sleep(30)
    stage.reports(first, step=3)
    stage.until(first, lambda j: j.attempts[1].progress.step is not None)
    assert open_ones(stage) == [("us-central2-b-h000", "proved")]
