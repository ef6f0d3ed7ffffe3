"""Jobs with a deadline, on spot as long as that suffices: refusals of spot, of on demand, and how they are shown."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.stage import Stage
from tpujob.domain.capacity.deadline import deadline_of
from tpujob.domain.decide.provisioning import SPOT_PATIENCE
from tpujob.domain.model import Cause, Job, State
from tpujob.errors import BadSpec

ZONE = "us-central2-b"
TPU = {"type": "v4-16", "zones": [ZONE], "pricing": ["spot", "on-demand"]}
NO_SPOT, NO_SAFE = f"{ZONE} spot", f"{ZONE} on-demand"
HOUR = 3600.0


def rfc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def due(stage: Stage, hours: float, **changes: Any) -> str:
    """Return the id of a new job of an hour that should end within so many hours."""
    finish_by = rfc(stage.clock.now() + hours * HOUR)
    return stage.create(**{"tpu": TPU, "time": "1h", "finish_by": finish_by, **changes})


def terms(job: Job) -> list[str]:
    return [s.pricing for s in job.slices]


def latest(job: Job) -> float:
    facts = deadline_of(job)
    assert facts
    return facts.latest


def train(
    stage: Stage, job_id: str, first: int, last: int, saved: int | None, seconds: float
) -> None:
    """Let the program make steps of 100 in so many seconds, and save a checkpoint."""
    for step, pause in ((first, 15.0), (last, seconds)):
        stage.clock.sleep(pause)
        checkpoint = {} if saved is None else {"checkpoint": saved}
        stage.reports(job_id, phase="running", step=step, steps=100, **checkpoint)
        stage.step(job_id)
        stage.step(job_id)


def on_spot_until_the_net(stage: Stage) -> str:
    """Return the id of a job that runs on spot without a checkpoint until it may lose no more time."""
    job_id = due(stage, 4, recovery={"stall": "0s"})
    stage.running(job_id)
    for _ in range(1000):
        if stage.clock.now() >= latest(stage.job(job_id)):
            return job_id
        stage.reports(job_id, phase="running")
        stage.step(job_id)
    raise AssertionError


def test_a_job_begins_on_spot_and_requests_on_demand_only_where_spot_is_refused(
    stage: Stage,
) -> None:
    assert terms(stage.running(due(stage, 8))) == ["spot"]
    stage.cloud.full = {NO_SPOT}
    job = stage.running(due(stage, 8, name="second"))
    assert terms(job) == ["spot", "spot", "on-demand"], "once it is behind the line"
    assert job.slices[0].refused is Cause.STOCKOUT


def test_a_request_for_spot_that_only_waits_is_given_up_for_on_demand(stage: Stage) -> None:
    stage.cloud.waiting = {NO_SPOT}
    job_id = due(stage, 8)
    began = stage.clock.now()
    job = stage.running(job_id)
    assert terms(job) == ["spot", "on-demand"]
    assert SPOT_PATIENCE <= job.slices[1].requested_at - began < SPOT_PATIENCE + 60


def test_a_job_ahead_of_its_deadline_returns_to_spot_with_its_checkpoint(stage: Stage) -> None:
    stage.cloud.full = {NO_SPOT}
    job_id = due(stage, 8)
    stage.running(job_id)
    stage.cloud.full = set()
    train(stage, job_id, 1, 12, None, 800)
    assert stage.job(job_id).state is State.RUNNING, "without a checkpoint it would lose its work"
    train(stage, job_id, 13, 25, 25, 800)
    job = stage.until(job_id, lambda job: len(job.attempts) == 2)
    assert terms(job)[-2:] == ["on-demand", "spot"]
    assert job.attempts[0].message == "ahead of its deadline, it returns to spot"
    assert job.retries_used == {}, "nothing has failed"
    assert job.slices[-2].gone_at is not None


def test_spot_that_ends_at_the_worst_moment_is_replaced_by_on_demand_to_the_end(
    stage: Stage,
) -> None:
    job_id = on_spot_until_the_net(stage)
    assert terms(stage.job(job_id)) == ["spot"], "a slice that it has is used until it is lost"
    stage.preempt()
    job = stage.until(job_id, lambda job: len(job.attempts) == 2, limit=2000)
    assert terms(job) == ["spot", "on-demand"], "although spot is to be had"
    train(stage, job_id, 1, 50, 50, 1200)
    assert len(stage.job(job_id).attempts) == 1 + 1, "what remains has no slack"
    job = stage.succeed(job_id)
    assert job.missed_at is None
    assert job.finished_at
    assert job.spec.finish_by
    assert job.finished_at < job.spec.finish_by


def test_on_demand_that_is_refused_once_is_requested_again_and_spot_meanwhile(
    stage: Stage,
) -> None:
    job_id = on_spot_until_the_net(stage)
    stage.cloud.full = {NO_SAFE, NO_SPOT}
    stage.preempt()
    stage.until(job_id, lambda job: len(job.slices) == 3, limit=2000)
    stage.cloud.full = {NO_SPOT}
    job = stage.until(job_id, lambda job: len(job.attempts) == 2, limit=2000)
    assert terms(job)[:3] == ["spot", "on-demand", "spot"]
    assert terms(job)[-1] == "on-demand"
    assert stage.succeed(job_id).missed_at is None


def test_a_missed_deadline_is_said_once_and_ends_nothing(stage: Stage) -> None:
    stage.cloud.full = {ZONE}
    job_id = due(stage, 2)
    job = stage.until(job_id, lambda job: job.missed_at is not None, limit=4000)
    assert job.missed_at == pytest.approx(job.spec.finish_by, abs=60)
    for _ in range(50):
        stage.step(job_id)
    assert stage.kinds(job_id).count("deadline_missed") == 1
    stage.cloud.full = set()
    stage.running(job_id)
    view = stage.api.get(job_id).get("deadline")
    assert view
    assert view["missed"]
    job = stage.succeed(job_id)
    assert job.missed_at


def test_the_view_says_on_what_it_is_and_from_when_on_demand_is_the_latest(stage: Stage) -> None:
    job_id = due(stage, 8)
    job = stage.running(job_id)
    view = stage.api.get(job_id).get("deadline")
    assert view
    assert view["latest"] == rfc(latest(job)).replace("+00:00", ".000Z")
    assert view["low_micros"]
    assert view["high_micros"]
    assert view["low_micros"] < view["high_micros"]
    assert stage.api.get(stage.started(name="plain")).get("deadline") is None


@pytest.mark.parametrize(
    ("hours", "changes", "says"),
    [
        (-1, {}, "is over"),
        (1.2, {}, "the job needs up to 1.5 h"),
        (8, {"time": None}, "nothing says how long the job runs"),
        (8, {"tpu": {**TPU, "pricing": "spot"}}, "give `pricing: \\[spot, on-demand\\]`"),
        (8, {"budget": {"usd": 20}}, "all of it on-demand, which its deadline may require"),
        (8, {"tpu": {**TPU, "pricing": []}}, "must name at least one pricing"),
        (8, {"tpu": {**TPU, "pricing": ["spot", "cheap"]}}, "cheap is not a pricing"),
    ],
)
def test_a_deadline_that_cannot_be_kept_is_refused(
    stage: Stage, hours: float, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadSpec, match=says):
        due(stage, hours, **changes)
    assert not stage.store.list()


def test_a_list_of_pricings_without_a_deadline_is_an_order(stage: Stage) -> None:
    stage.cloud.full = {NO_SPOT}
    job = stage.running(stage.create(tpu=TPU))
    assert terms(job) == ["spot", "on-demand"]
    assert job.slices[0].refused is Cause.STOCKOUT
