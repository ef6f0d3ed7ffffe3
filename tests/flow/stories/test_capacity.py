"""Getting a slice where there is none: the next zone, growing pauses, one that asks for all, and a limit."""

import itertools

import pytest

from tests.support.stage import SPEC, Stage
from tpujob.adapters.this_machine import EmulatedQuota
from tpujob.doctor.quota import QuotaOverview, overview
from tpujob.domain.capacity.circuits import RAISED
from tpujob.domain.capacity.settings import OwnerLimits, QueueSettings
from tpujob.domain.model import Cause, State
from tpujob.errors import BadSpec
from tpujob.service.backend.capacity import Quotas

ZONES = ["us-east5-b", "us-east5-a", "us-east5-c"]
V6E = {"type": "v6e-8", "zones": ZONES}


def asked(stage: Stage, job_id: str) -> list[str]:
    return [s.zone[-1] for s in stage.job(job_id).slices]


def test_a_stockout_sends_the_job_to_the_next_zone_at_once(stage: Stage) -> None:
    stage.cloud.full = {"us-east5-b"}
    job_id = stage.create(tpu={**V6E, "race": 1})
    before = stage.clock.now()
    job = stage.running(job_id)
    assert asked(stage, job_id) == ["b", "a"]
    assert stage.clock.now() - before < 30, "no job waits while another zone has room"
    assert job.retries_used == {}, "a stockout is no failure of the job"


def test_the_next_job_does_not_ask_where_the_first_was_just_refused(stage: Stage) -> None:
    stage.cloud.full = {"us-east5-b"}
    first = stage.create(tpu=V6E)
    stage.until(first, lambda j: len(j.slices) == 2)
    second = stage.started(name="second", tpu=V6E)
    assert asked(stage, second) == ["a"]


def test_without_room_anywhere_pauses_grow_and_the_wait_is_shown(stage: Stage) -> None:
    stage.cloud.full = set(ZONES)
    job_id = stage.create(tpu=V6E)
    stage.until(job_id, lambda j: j.retries_used.get("stockouts") == 15, limit=2000)
    by_zone = [s.requested_at for s in stage.job(job_id).slices if s.zone == "us-east5-b"]
    pauses = [b - a for a, b in itertools.pairwise(by_zone)]
    assert pauses[-1] > 4 * pauses[0], f"the same zone is asked ever more seldom: {pauses}"
    message = stage.until(job_id, State.QUEUED).message
    assert "stockout in us-east5-" in message, message
    assert "next try there in" in message, message
    stage.cloud.full = set()
    assert stage.until(job_id, State.RUNNING, limit=2000).retries_used.get("stockouts") is None


def test_a_choice_that_a_budget_excludes_leaves_no_room_for_two_jobs_in_a_quota(
    stage: Stage,
) -> None:
    stage.queue = QueueSettings(quota={"us-east5-a/v6e/spot": 8})
    stage.reconciler = stage.new_backend()
    either = {"type": ["v5p-16", "v6e-8"], "zones": ["us-east5-a"], "pricing": "spot"}
    first = stage.create(name="first", tpu=either, budget={"usd": 1.5})
    second = stage.create(name="second", tpu={**either, "type": "v6e-8"})
    stage.clock.sleep(60)
    assert stage.reconciler.queue.of(stage.job(second)).ask, "the first is to get a v5p-16"
    stage.reconciler.queue.planned = 0.001  # as with many jobs: both are stepped by one plan
    stage.step(first)
    stage.step(second)
    assert [s.type for s in stage.job(first).slices] == ["v6e-8"], "as its budget is small"
    assert stage.job(second).slices == ()


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


@pytest.mark.parametrize(("known", "minutes"), [(4, 30), (5, 5)])
def test_a_request_waits_for_as_long_as_others_have_waited_in_its_zone(
    stage: Stage, known: int, minutes: int
) -> None:
    """Four waits say nothing; five that took seconds say that a slice comes soon or late."""
    for number in range(known):
        earlier = stage.started(name=f"earlier-{number}", tpu={**V6E, "zones": ZONES[:1]})
        stage.finish(earlier, 0)
        stage.until(earlier, State.SUCCEEDED)
    stage.cloud.waiting = {ZONES[0]}
    job_id = stage.create(tpu={**V6E, "zones": ZONES[:2]})
    began = stage.clock.now()
    job = stage.running(job_id)
    assert [s.zone for s in job.slices] == ZONES[:2]
    assert minutes * 60 <= stage.clock.now() - began < minutes * 60 + 120
    assert f"has waited {minutes} min" in job.slices[0].delete_reason


def test_in_the_only_zone_the_place_in_the_queue_is_kept(stage: Stage) -> None:
    stage.cloud.waiting = {"us-central2-b"}
    job_id = stage.create()
    began = stage.clock.now()
    stage.until(job_id, lambda j: stage.clock.now() - began > 10_000, limit=3000)
    assert asked(stage, job_id) == ["b"]
    stage.cloud.grant("tj-000001-1")
    stage.running(job_id)


V4 = "us-central2-b"


def of_size(stage: Stage, type: str, **fields: object) -> str:
    tpu = {"type": type, "zones": [V4], "pricing": "spot"}
    return stage.create(name=type, tpu=tpu, hand_on=False, **fields)


def turn(stage: Stage, *jobs: str, seconds: int) -> None:
    """Let all these jobs live for some time, each looked at once a second."""
    for _ in range(seconds):
        stage.clock.sleep(1)
        for job_id in jobs:
            stage.reconciler.tick(job_id)


def test_a_job_above_the_quota_keeps_nobody_else_waiting_and_says_what_it_needs(
    stage: Stage,
) -> None:
    stage.cloud.quotas = {V4: 48}
    never = of_size(stage, "v4-64")
    turn(stage, never, seconds=20)
    assert len(stage.job(never).slices) == 1
    small = of_size(stage, "v4-8")
    turn(stage, never, small, seconds=10)
    assert stage.job(small).attempt, "it has its slice at once"
    waits = stage.api.get(never)
    text = "it needs 32 chips of us-central2-b/v4/spot, and the project has 24, by the cloud's answer of "
    assert waits["why"].startswith(text)
    assert "console.cloud.google.com" in waits["place"]["helps"][0]
    turn(stage, never, seconds=3000)
    assert len(stage.job(never).slices) == 1, "it does not ask again"
    with pytest.raises(BadSpec, match=r"tpu\.type: v4-64: it needs 32 chips"):
        of_size(stage, "v4-64")
    with pytest.raises(BadSpec, match="it needs 64 chips"):
        stage.api.plan({**SPEC, "tpu": {"type": "v4-32", "slices": 4, "zones": [V4]}})
    stage.clock.sleep(RAISED)
    stage.cloud.quotas = {V4: 128}
    turn(stage, never, seconds=20)
    assert stage.job(never).attempt, "limits are raised: it asks once a day"


def test_a_new_backend_knows_the_limit_and_a_person_may_ask_again(stage: Stage) -> None:
    stage.cloud.quotas = {V4: 48}
    never = of_size(stage, "v4-64")
    turn(stage, never, seconds=20)
    stage.reconciler = stage.new_backend()
    turn(stage, never, seconds=700)
    assert len(stage.job(never).slices) == 1
    stage.cloud.quotas = {V4: 128}
    stage.api.hold(never)
    stage.api.release(never)
    assert "next try there now" in stage.api.get(never)["waiting"]
    turn(stage, never, seconds=20)
    assert stage.job(never).attempt


def test_a_newer_reading_of_the_quota_lets_a_larger_job_in_and_those_that_wait(
    stage: Stage,
) -> None:
    stage.cloud.quotas = {V4: 48}

    def read() -> QuotaOverview:
        quota = EmulatedQuota(emulator_with(stage.cloud.quotas[V4]))
        return overview("the emulator", quota, quota.zones)

    stage.quotas = Quotas(read, stage.clock, every=5.0)
    never = of_size(stage, "v4-64")
    turn(stage, never, seconds=20)
    with pytest.raises(BadSpec):
        of_size(stage, "v4-64")
    stage.cloud.quotas = {V4: 128}
    turn(stage, never, seconds=20)
    second = of_size(stage, "v4-64")
    turn(stage, never, second, seconds=20)
    assert stage.job(never).attempt
    assert stage.job(second).attempt


def emulator_with(limit: int) -> dict[str, object]:
    quota = {"zone": V4, "generation": "v4", "pricing": "spot", "limit": limit}
    return {"faults": {"quotas": [quota]}, "slices": [], "zones": [{"zone": V4}]}


def test_chips_that_come_free_are_requested_at_once(stage: Stage) -> None:
    stage.cloud.quotas = {V4: 8}
    first = of_size(stage, "v4-8")
    stage.running(first)
    second = of_size(stage, "v4-8")
    turn(stage, second, seconds=3600)
    tries = len(stage.job(second).slices)
    assert tries > 3, "it has asked, ever more seldom"
    why = stage.api.get(second)["waiting"]
    assert f"{tries}th quota refusal in us-central2-b since " in why
    stage.succeed(first)
    before = stage.clock.now()
    stage.until(second, lambda j: j.attempt is not None, limit=100)
    assert stage.clock.now() - before < 30


@pytest.mark.parametrize(
    "settings",
    [
        QueueSettings(limits=OwnerLimits(chips=16)),
        QueueSettings(by_type={"v4-64": OwnerLimits(chips=16)}),
    ],
)
def test_a_slice_larger_than_the_limit_of_each_owner_is_refused_at_submission(
    stage: Stage, settings: QueueSettings
) -> None:
    waiting = of_size(stage, "v4-64", start="held")
    stage.reconciler.queue.settings = settings
    text = "it needs 32 chips of v4-64, and the limit of each owner is 16"
    with pytest.raises(BadSpec, match=text) as refused:
        of_size(stage, "v4-64")
    assert refused.value.hint == "`queue` of the context has the limits. Name a smaller type."
    stage.running(of_size(stage, "v4-32"))
    stage.api.release(waiting)
    turn(stage, waiting, seconds=20)
    assert stage.api.get(waiting)["why"].endswith(text)
    assert not stage.job(waiting).slices


def test_a_slice_larger_than_the_quota_in_the_settings_is_refused_at_submission(
    stage: Stage,
) -> None:
    stage.reconciler.queue.settings = QueueSettings(quota={f"{V4}/v4/spot": 24})
    with pytest.raises(
        BadSpec, match="it needs 32 chips of us-central2-b/v4/spot, and the settings"
    ):
        of_size(stage, "v4-64")
    assert stage.api.plan({**SPEC, "tpu": {"type": "v4-48", "zones": [V4]}})
    either = {"type": ["v4-64", "v4-8"], "zones": [V4], "pricing": "spot"}
    stage.running(stage.create(tpu=either))
    stage.reconciler.queue.settings = QueueSettings()
    huge = of_size(stage, "v4-64", start="held")
    stage.reconciler.queue.settings = QueueSettings(quota={f"{V4}/v4/spot": 24})
    stage.api.release(huge)
    turn(stage, huge, seconds=20)
    waits = stage.api.get(huge)
    assert waits["why"].endswith("and the settings of the queue give the project 24")
    assert waits["next"]["text"] == "it requests a slice once so many chips are allowed"
    assert not stage.job(huge).slices
