"""A slice whose job has ended serves the next job of the same owner, or of the lab."""

import pytest

from tests.support.callers import ADA, caller
from tests.support.stage import SPEC, Stage
from tpujob.domain import invariants
from tpujob.domain.access import Principal, Role
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.model import Cause, Job, State
from tpujob.domain.money.ledger import usd
from tpujob.domain.observations import ReasonKind
from tpujob.errors import HostKeyChanged, Refused, TpujobError, Transient

ZONE = "us-central2-b"
BOB = caller("bob", Role.SUBMITTER)


def full(stage: Stage, **spec: object) -> str:
    """Return a job of Ada that has the last slice of its zone."""
    first = stage.api.acting_for(ADA).create({**SPEC, **spec})["id"]
    stage.running(first)
    stage.cloud.full.add(ZONE)
    return first


def waiting(stage: Stage, owner: Principal = ADA, name: str = "second", **spec: object) -> str:
    """Return a job that waits for a slice while the cloud has none."""
    job_id = stage.api.acting_for(owner).create({**SPEC, "name": name, **spec})["id"]
    stage.until(job_id, lambda j: j.state is State.QUEUED and bool(j.slices))
    return job_id


def waits_beside(stage: Stage, **spec: object) -> tuple[str, str]:
    """Return a job that runs, and a job that waits for such a slice while the cloud has none."""
    return full(stage), waiting(stage, **spec)


def end(stage: Stage, job_id: str, code: int = 0) -> Job:
    stage.finish(job_id, code, code)
    return stage.until(job_id, lambda j: j.state.final)


def test_a_budget_counts_slices_that_were_handed_on(stage: Stage) -> None:
    """The price is $7.37 an hour: of ten dollars, an hour before the requeues leaves a third of an hour after them."""
    first = stage.create(budget={"usd": 10})
    stage.running(first)
    for number in range(3):
        stage.clock.sleep(1200)
        stage.running(first)
        heir = stage.create(name=f"heir-{number}")
        stage.api.requeue(first)
        stage.until(first, State.QUEUED)
        assert stage.job(first).slices[-1].handed_to == heir
        stage.running(heir)
        stage.finish(heir, 0, 0)
        stage.until(heir, lambda job: job.state.final)
        stage.until(first, lambda job: job.state.final or job.state is State.RUNNING)
    ended = stage.until(
        first, State.FAILED, limit=2000, also=lambda: stage.reports(first, phase="running")
    )
    assert ended.cause is Cause.BUDGET
    assert 9 < usd(ended.slices, stage.clock.now()) <= 10


def test_the_next_job_starts_on_the_slice_and_pays_from_that_moment(stage: Stage) -> None:
    first, second = waits_beside(stage)
    giver = end(stage, first)
    assert giver.state is State.SUCCEEDED
    heir = stage.job(second)
    assert heir.state is State.PREPARING, "before any other tick"
    assert [others for _, _, others in stage.hosts.wiped] == [False], "of the attempt alone"
    (name,) = stage.cloud.machines
    assert (giver.slices[-1].name, heir.slices[-1].name) == (name, name)
    assert giver.slices[-1].gone_at == heir.slices[-1].ready_at
    assert (giver.slices[-1].handed_to, heir.slices[-1].epoch) == (second, 1)
    stage.running(second)
    stage.clock.sleep(3600)
    end(stage, second)
    assert stage.cloud.machines == {}
    now = stage.clock.now()
    both = [stage.job(id) for id in (first, second)]
    whole = both[1].slices[-1].gone_at - both[0].slices[-1].ready_at  # type: ignore[operator]
    rate = both[0].slices[-1].usd_per_hour or 0.0
    assert sum(usd(job.slices, now) or 0 for job in both) == pytest.approx(rate * whole / 3600)
    for job in both:
        assert invariants.of_job(job) == []
    assert len(stage.cloud.created) == 1


def test_a_long_queue_hands_slices_on(stage: Stage) -> None:
    first, second = waits_beside(stage)
    stage.reconciler.queue.planned = 0.001
    end(stage, first)
    assert stage.job(second).slices[-1].epoch == 1


def test_a_held_job_gets_no_slice(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = waits_beside(stage)
    stop = stage.hosts.stop

    def stops(*arguments: object, **options: object) -> None:
        stage.api.acting_for(ADA).hold(second)
        stop(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(stage.hosts, "stop", stops)
    end(stage, first)
    deleted(stage, first, second)


def test_each_job_shows_all_jobs_of_its_slice(stage: Stage) -> None:
    first, second = waits_beside(stage)
    assert stage.api.get(first)["slices"][-1].get("jobs") == []
    third = stage.api.acting_for(ADA).create({**SPEC, "name": "third"})["id"]
    stage.clock.sleep(3600)
    end(stage, first)
    stage.running(second)
    stage.clock.sleep(1800)
    end(stage, second)
    stage.running(third)
    views = [stage.api.get(job)["slices"][-1].get("jobs") for job in (first, second, third)]
    assert views[0] == views[1] == views[2]
    assert views[0] is not None
    assert [(view["id"], view["name"], view["now"]) for view in views[0]] == [
        (first, "digits", False),
        (second, "second", False),
        (third, "third", True),
    ]
    assert 3600 < views[0][0]["seconds"] < 3900
    assert 1800 < views[0][1]["seconds"] < 1900
    stage.store.remove(first, lease=None)
    jobs = stage.api.get(third)["slices"][-1].get("jobs")
    assert jobs is not None
    assert [view["id"] for view in jobs] == [second, third]


@pytest.mark.parametrize("code", [1, 78])
def test_a_failed_program_says_nothing_against_its_hosts(stage: Stage, code: int) -> None:
    first, second = full(stage, recovery={"failures": 0}), waiting(stage)
    assert end(stage, first, code).state is State.FAILED
    assert stage.job(second).state is State.PREPARING


def test_a_job_starts_on_the_slice_of_the_one_that_it_waits_for(stage: Stage) -> None:
    api = stage.api.acting_for(ADA)
    first = api.create(SPEC)["id"]
    then = api.create({**SPEC, "name": "then", "after": [first]})["id"]
    stage.running(first)
    stage.finish(first, 0, 0)
    stage.faults.kill_at = (stage.faults.effects + 1, "before")
    gave = stage.until(first, State.RELEASING)
    position = stage.reconciler.queue.of(stage.job(then))
    assert not position.ask, "it requests no slice of its own"
    assert [(r.kind, r.jobs) for r in position.reasons] == [(ReasonKind.HANDED_ON, (first,))]
    stage.step(then)
    stage.until(first, State.SUCCEEDED)
    assert stage.running(then).slices[-1].name == gave.slices[-1].name
    assert len(stage.cloud.created) == 1


def test_the_next_job_requests_a_slice_when_the_hosts_do_not_answer(stage: Stage) -> None:
    api = stage.api.acting_for(ADA)
    first = api.create(SPEC)["id"]
    then = api.create({**SPEC, "name": "then", "after": [first]})["id"]
    stage.running(first)
    stage.faults.broken.add("stop")
    end(stage, first)
    stage.faults.broken.clear()
    stage.running(then)
    assert len(stage.cloud.created) == 2


def deleted(stage: Stage, first: str, second: str) -> None:
    """Assert that the slice was not handed on."""
    gave = stage.job(first)
    assert gave.slices[-1].handed_to == ""
    assert stage.job(second).state is State.QUEUED
    assert stage.cloud.machines == {}


@pytest.mark.parametrize(
    "spec",
    [
        {"hand_on": False},
        {"tpu": {**SPEC["tpu"], "type": "v4-32"}},
        {"tpu": {**SPEC["tpu"], "pricing": "on-demand"}},
        {"tpu": {**SPEC["tpu"], "runtime_version": "tpu-vm-v4-base"}},
    ],
)
def test_a_slice_that_does_not_fit_is_deleted(stage: Stage, spec: dict[str, object]) -> None:
    first, second = waits_beside(stage, **spec)
    end(stage, first)
    deleted(stage, first, second)


@pytest.mark.parametrize(
    "spec",
    [
        {"tpu": {**SPEC["tpu"], "runtime_version": "tpu-vm-v4-base"}},
        {"tpu": {**SPEC["tpu"], "type": ["v4-16", "v4-8"]}, "budget": {"usd": 0.6}},
    ],
    ids=["another runtime version", "a budget for a smaller slice"],
)
def test_a_slice_that_the_next_job_cannot_use_goes_to_the_one_after_it(
    stage: Stage, spec: dict[str, object]
) -> None:
    first, second = waits_beside(stage, **spec)
    third = stage.api.acting_for(ADA).create({**SPEC, "name": "third"})["id"]
    stage.step(third)
    assert end(stage, first).slices[-1].handed_to == third
    assert stage.job(second).state is State.QUEUED
    assert len(stage.hosts.wiped) == 1, "for the third alone"


def test_a_job_does_not_get_a_slice_again_that_it_had_and_the_next_job_does(stage: Stage) -> None:
    first, second = waits_beside(stage)
    stage.api.acting_for(ADA).requeue(first)
    stage.until(first, State.QUEUED)
    third = stage.api.acting_for(ADA).create({**SPEC, "name": "third"})["id"]
    stage.step(third)
    stage.running(second)
    assert end(stage, second).slices[-1].handed_to == third
    assert stage.job(first).state is State.QUEUED


def test_a_slice_that_was_preempted_meanwhile_is_not_handed_on(stage: Stage) -> None:
    first, second = waits_beside(stage)
    stage.preempt()
    end(stage, first)
    deleted(stage, first, second)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_backend_that_dies_leaves_the_slice_to_one_job(stage: Stage, moment: str) -> None:
    first, second = waits_beside(stage)
    stage.finish(first, 0, 0)
    stage.faults.kill_at = (stage.faults.effects + 1, moment)
    stage.until(first, lambda j: j.state.final)
    assert stage.faults.kill_at is None
    claims = [s for id in (first, second) for s in stage.job(id).slices if s.gone_at is None]
    assert len(claims) == 1
    stage.running(second)
    assert stage.job(first).cause is None


def test_a_cancelled_heir_gets_nothing(stage: Stage) -> None:
    first, second = waits_beside(stage)
    stage.api.acting_for(ADA).cancel(second)
    end(stage, first)
    assert stage.job(first).slices[-1].handed_to == ""
    assert stage.until(second, State.CANCELLED).cause is Cause.CANCELLED


# Kept for a job that comes later -------------------------------------------------------------------------------------


def kept(stage: Stage, keep: float = 600.0, **settings: object) -> str:
    """Return a job of Ada that has succeeded, and whose slice is kept."""
    in_a_lab(stage, "owner", keep=keep, **settings)
    first = stage.api.acting_for(ADA).create({**SPEC, "recovery": {"failures": 0}})["id"]
    stage.running(first)
    stage.finish(first, 0, 0)
    stage.until(first, lambda j: j.hold_until is not None)
    assert stage.job(first).state is State.RELEASING
    return first


def test_a_kept_slice_serves_a_job_that_is_submitted_later(stage: Stage) -> None:
    first = kept(stage)
    stage.clock.sleep(300)
    stage.step(first)
    assert stage.cloud.machines
    woken = list[str]()
    stage.reconciler.queue.news = woken.append
    second = stage.api.acting_for(ADA).create({**SPEC, "name": "second"})["id"]
    stage.step(second)
    assert woken == [first], "it has found a job"
    stage.step(first)
    assert stage.job(first).state is State.SUCCEEDED
    assert stage.job(second).slices[-1].received_from == first
    assert len(stage.cloud.created) == 1


def test_a_kept_slice_is_deleted_in_time_also_by_another_backend(stage: Stage) -> None:
    first = kept(stage)
    ended = stage.job(first).attempts[-1].ended_at or 0.0
    assert "releases it now" in str(stage.api.get(first).get("next"))
    stage.reconciler = stage.new_backend()
    done = stage.until(first, State.SUCCEEDED)
    gone = done.slices[-1].gone_at or 0.0
    assert ended + 600 <= gone < ended + 700
    assert invariants.of_job(done) == []


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_a_kept_slice_is_given_back_when_its_owner_says_so(stage: Stage, verb: str) -> None:
    first = kept(stage)
    getattr(stage.api.acting_for(ADA), verb)(first)
    stage.step(first)
    assert stage.job(first).slices[-1].delete_asked_at
    assert stage.until(first, State.SUCCEEDED).cause is None


@pytest.mark.parametrize("owner", [ADA, BOB])
def test_a_kept_slice_that_others_need_is_given_back(stage: Stage, owner: Principal) -> None:
    first = kept(stage, quota={"us-central2-b/v4/spot": 16})
    api, big = stage.api.acting_for(owner), {"type": "v4-32", "zones": [ZONE], "pricing": "spot"}
    second = api.create({**SPEC, "name": "second", "tpu": big})["id"]
    stage.step(second)
    stage.step(first)
    assert stage.job(first).slices[-1].delete_asked_at
    stage.until(first, State.SUCCEEDED)
    stage.running(second)


def test_a_slice_is_kept_no_longer_than_the_budget_pays_for(stage: Stage) -> None:
    first = kept(stage, 3600.0)
    rate = stage.job(first).slices[-1].usd_per_hour or 0.0
    spent = usd(stage.job(first).slices, stage.clock.now()) or 0.0
    stage.api.acting_for(ADA).resume(first, budget=spent + rate / 4)
    done = stage.until(first, State.SUCCEEDED)
    assert (usd(done.slices, stage.clock.now()) or 0.0) < spent + rate / 4


def test_a_slice_that_is_lost_while_it_is_kept_is_given_back(stage: Stage) -> None:
    first = kept(stage)
    stage.preempt()
    stage.step(first)
    assert stage.job(first).slices[-1].delete_asked_at
    assert stage.until(first, State.SUCCEEDED).outcome


# Across owners --------------------------------------------------------------------------------------------------------


def in_a_lab(stage: Stage, hand_on: str = "lab", **settings: object) -> None:
    stage.queue = QueueSettings(hand_on=hand_on, **settings)  # type: ignore[arg-type]
    stage.reconciler = stage.new_backend()


def test_in_a_lab_the_next_job_in_order_gets_it_after_a_wipe(stage: Stage) -> None:
    in_a_lab(stage)
    first, theirs = full(stage), waiting(stage, BOB, "theirs")
    own = stage.api.acting_for(ADA).create({**SPEC, "name": "own"})["id"]
    stage.step(own)
    gave = end(stage, first)
    assert gave.slices[-1].handed_to == theirs
    assert stage.hosts.wiped == [(gave.slices[-1].name, 0, True)]
    stage.running(theirs)
    assert end(stage, theirs).slices[-1].handed_to == own
    assert stage.hosts.wiped[1:] == [(gave.slices[-1].name, 1, True)]


@pytest.mark.parametrize(
    "error",
    [
        Refused("containers have run here", cause=Cause.SETUP),
        Refused("the TPU is still held by process 7", cause=Cause.TPU_BUSY),
        Transient("no answer in time"),
        HostKeyChanged("it shows another host key"),
    ],
)
@pytest.mark.parametrize("owner", [ADA, BOB])
def test_a_wipe_that_fails_deletes_the_slice(
    stage: Stage, error: TpujobError, owner: Principal
) -> None:
    in_a_lab(stage)
    first, second = full(stage), waiting(stage, owner)
    stage.hosts.wipe_error = error
    assert end(stage, first).state is State.SUCCEEDED
    deleted(stage, first, second)


@pytest.mark.parametrize(("giver", "heir"), [({"hand_on": False}, {}), ({}, {"hand_on": False})])
def test_a_job_keeps_out_of_it_in_a_lab_as_well(
    stage: Stage, giver: dict[str, object], heir: dict[str, object]
) -> None:
    in_a_lab(stage)
    first, theirs = full(stage, **giver), waiting(stage, BOB, **heir)
    end(stage, first)
    deleted(stage, first, theirs)


def test_a_slice_whose_hold_has_run_out_is_handed_on(stage: Stage) -> None:
    first, second = waits_beside(stage)
    stage.api.acting_for(ADA).cancel(first)
    gave = stage.until(first, lambda j: j.state is State.HOLDING and j.stopped)
    assert stage.job(second).state is State.QUEUED
    stage.clock.sleep(gave.spec.hold)
    gave = stage.until(first, State.CANCELLED)
    assert gave.slices[-1].handed_to == second
    assert len(stage.cloud.created) == 1


def test_a_slice_that_is_released_by_a_user_is_deleted(stage: Stage) -> None:
    first, second = waits_beside(stage)
    stage.api.acting_for(ADA).cancel(first, release=True)
    stage.until(first, State.CANCELLED)
    deleted(stage, first, second)
