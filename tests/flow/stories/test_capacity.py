"""Getting a slice where there is none: the next zone, growing pauses, one that asks for all, and a limit."""

import itertools

import pytest

from tests.support.stage import Stage
from tpujob.domain.model import Cause, State
from tpujob.domain.observations import SliceState

ZONES = ["us-east5-b", "us-east5-a", "us-east5-c"]
V6E = {"type": "v6e-8", "zones": ZONES}


def asked(stage: Stage, job_id: str) -> list[str]:
    return [s.zone[-1] for s in stage.job(job_id).slices]


def test_a_stockout_sends_the_job_to_the_next_zone_at_once(stage: Stage) -> None:
    stage.cloud.hosts = 1
    stage.cloud.full = {"us-east5-b"}
    job_id = stage.create(tpu=V6E)
    before = stage.clock.now()
    job = stage.running(job_id)
    assert asked(stage, job_id) == ["b", "a"]
    assert stage.clock.now() - before < 30, "no job waits while another zone has room"
    assert job.spent == {}, "a stockout is no failure of the job"


def test_the_next_job_does_not_ask_where_the_first_was_just_refused(stage: Stage) -> None:
    stage.cloud.hosts = 1
    stage.cloud.full = {"us-east5-b"}
    first = stage.create(tpu=V6E)
    stage.until(first, lambda j: len(j.slices) == 2)
    second = stage.started(name="second", tpu=V6E)
    assert asked(stage, second) == ["a"]


def test_without_room_anywhere_pauses_grow_and_the_wait_is_shown(stage: Stage) -> None:
    stage.cloud.full = set(ZONES)
    job_id = stage.create(tpu=V6E)
    stage.until(job_id, lambda j: j.spent.get("stockouts") == 15, limit=2000)
    by_zone = [s.requested_at for s in stage.job(job_id).slices if s.zone == "us-east5-b"]
    pauses = [b - a for a, b in itertools.pairwise(by_zone)]
    assert pauses[-1] > 4 * pauses[0], f"the same zone is asked ever more seldom: {pauses}"
    message = stage.until(job_id, State.QUEUED).message
    assert "stockout in us-east5-" in message, message
    assert "next try there in" in message, message
    stage.cloud.full = set()
    stage.cloud.hosts = 1
    assert stage.until(job_id, State.RUNNING, limit=2000).spent.get("stockouts") is None


@pytest.mark.parametrize("hours", [2, 12])
def test_a_limit_on_waiting_ends_the_job_and_says_so(stage: Stage, hours: int) -> None:
    """The record does not keep all the requests of 12 hours."""
    stage.cloud.full = {"us-central2-b"}
    job_id = stage.create(recovery={"wait": f"{hours}h"})
    job = stage.until(job_id, State.FAILED, limit=5000)
    assert job.cause is Cause.STOCKOUT
    assert f"no slice in {hours} h, which `recovery.wait` allows" in job.message
    assert hours * 3600 <= stage.clock.now() - job.created_at < hours * 3600 + 900
    assert len(job.slices) <= 22, "requests that came to nothing do not fill the record"


def test_a_wait_for_an_element_of_the_same_group_is_none_for_capacity(stage: Stage) -> None:
    group = stage.create(array=2, at_once=1, hand_on=False, recovery={"wait": "30m"})
    stage.until(group, lambda job: job.submitted == 2)
    first, second = (f"{int(group) + n:06d}" for n in (1, 2))
    stage.running(first)
    for _ in range(40):
        stage.clock.sleep(60)
        stage.reports(first, phase="running")
        for job in (first, second):
            stage.reconciler.tick(job)
    assert stage.job(second).state is State.QUEUED
    stage.cloud.full = {"us-central2-b"}
    stage.succeed(first)
    ended = stage.until(second, State.FAILED, limit=1000)
    assert len(ended.slices) > 3, "its wait begins with its first request"


def test_resume_gives_a_job_that_waited_too_long_its_time_again(stage: Stage) -> None:
    stage.cloud.full = {"us-central2-b"}
    job_id = stage.create(recovery={"wait": "30m"})
    stage.until(job_id, State.FAILED, limit=3000)
    stage.cloud.full = set()
    stage.clock.sleep(100_000)
    stage.api.resume(job_id)
    stage.running(job_id)


def test_in_the_only_zone_the_place_in_the_queue_is_kept(stage: Stage) -> None:
    stage.cloud.queues = {"us-central2-b"}
    job_id = stage.create()
    began = stage.clock.now()
    stage.until(job_id, lambda j: stage.clock.now() - began > 10_000, limit=3000)
    assert asked(stage, job_id) == ["b"]
    stage.cloud.machines["tj-000001-1"].state = SliceState.READY
    stage.running(job_id)
