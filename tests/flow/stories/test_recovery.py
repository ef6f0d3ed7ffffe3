"""Stories of one job and its world: what keeps work and money safe. The clock is turned by hand."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.bundles import bundle_of
from tests.support.stage import SPEC, Stage, bad_device
from tpujob.domain.model import Cause, DesiredState, Outcome, Proof, Slice, State
from tpujob.engine.loop import RESYNC, Loop
from tpujob.errors import BadRequest, Refused


def test_a_preempted_slice_is_replaced_and_the_failure_budget_is_untouched(stage: Stage) -> None:
    job_id = stage.started()
    stage.preempt()
    stage.clock.sleep(60)  # its reports fall silent
    job = stage.running(job_id, attempt=2)
    first = job.attempts[0]
    assert (first.outcome, first.cause) == (Outcome.INTERRUPTED, Cause.PREEMPTED)
    assert job.retries_used == {"preemptions": 1}
    assert stage.cloud.created == ["tj-000001-1", "tj-000001-2"]
    assert stage.cloud.most_alive == 1, "slice 2 is requested only after slice 1 is gone"


def test_a_preempted_host_that_still_reports_is_not_cut_off_while_it_saves(stage: Stage) -> None:
    job_id = stage.started()
    stage.reports(job_id, notice="preempted")
    stage.preempt()
    stage.step(job_id)
    assert "tj-000001-1" in stage.cloud.machines
    stage.finish(job_id, 75, 75)
    job = stage.until(job_id, lambda j: len(j.attempts) == 2)
    assert job.attempts[0].cause is Cause.PREEMPTED


def test_after_a_long_outage_of_the_storage_hosts_get_time_to_report_again(stage: Stage) -> None:
    job_id = stage.started()
    stage.faults.broken.add("blobs")
    stage.step(job_id)
    stage.clock.sleep(3600)
    stage.faults.broken.clear()
    stage.step(job_id)
    assert stage.job(job_id).state is State.RUNNING, "an outage makes no host silent"
    stage.reports(job_id, step=5)
    for _ in range(20):
        stage.step(job_id)
    assert stage.job(job_id).attempt.number == 1
    stage.clock.sleep(3600)
    stage.hosts.dead = {0, 1}
    job = stage.until(job_id, lambda j: len(j.attempts) == 2)
    assert job.attempts[0].cause is Cause.LOST_CONTACT, "but hosts that stay silent are lost"


def test_a_refused_deletion_is_reported_and_repeated_until_it_works(stage: Stage) -> None:
    job_id = stage.started()
    delete = stage.cloud.delete

    def refuse(
        slice: Slice, *, timeout: float, even_suspending: bool = False, seen: object = None
    ) -> None:
        raise Refused("tpu.nodes.delete is not granted", cause="PERMISSION")

    stage.cloud.delete = refuse
    stage.finish(job_id, 0, 0)
    stage.until(job_id, State.RELEASING)
    for _ in range(5):
        stage.step(job_id)
    assert "tpu.nodes.delete is not granted" in stage.api.get(job_id)["trouble"]
    stage.cloud.delete = delete
    stage.until(job_id, State.SUCCEEDED)
    assert stage.cloud.machines == {}


def test_a_slice_that_dies_silently_during_set_up_is_given_back(stage: Stage) -> None:
    job_id = stage.create()
    stage.faults.broken.add("start")
    stage.until(job_id, State.PREPARING)
    stage.faults.broken.clear()
    stage.reports(job_id, phase="fetching")
    stage.hosts.dead = {0, 1}
    stage.clock.sleep(1000)  # READY all the while, and not one more word
    job = stage.until(job_id, lambda j: len(j.attempts) == 2)
    assert job.attempts[0].cause is Cause.LOST_CONTACT


@pytest.mark.parametrize("set_back", [0.0, 300.0])
def test_nothing_is_done_once_the_lease_has_run_out(stage: Stage, set_back: float) -> None:
    """Also when the clock was set back meanwhile, so that no time seems to have passed."""
    job_id = stage.create()
    lease = stage.store.lease

    def held_up(*arguments, **options):
        granted = lease(*arguments, **options)
        stage.clock.sleep(300)
        stage.clock.ahead -= set_back
        return granted

    stage.store.lease = held_up
    stage.reconciler.tick(job_id)
    assert stage.cloud.created == []
    assert stage.store.get(job_id).version == 1


def test_a_crash_is_tried_again_on_the_same_slice_until_its_budget_is_spent(stage: Stage) -> None:
    job_id = stage.create(recovery={"failures": 2})
    for attempt in (1, 2, 3):
        stage.running(job_id, attempt)
        stage.finish(job_id, 1, 0)
    job = stage.until(job_id, State.FAILED)
    assert [a.cause for a in job.attempts] == [Cause.CRASH] * 3
    assert stage.cloud.created == ["tj-000001-1"]
    assert "host 0: exit code 1" in job.message
    assert stage.cloud.machines == {}


@pytest.mark.parametrize("verb", ["cancel", "release", "delete"])
@pytest.mark.parametrize(
    "state", [State.QUEUED, State.PROVISIONING, State.PREPARING, State.RUNNING, State.RELEASING]
)
def test_every_way_out_of_a_state_ends_the_bill(stage: Stage, verb: str, state: State) -> None:
    job_id = stage.create(hold="1m")
    if state is State.PREPARING:
        stage.faults.broken.add("start")
    if state is State.RELEASING:
        stage.running(job_id)
        stage.preempt()
        stage.clock.sleep(60)
        stage.faults.broken.add("delete")
    stage.until(job_id, state)
    for _ in range(2):  # twice is as good as once
        if verb == "delete":
            stage.api.delete(job_id)
        else:
            stage.api.cancel(job_id, release=verb == "release")
    stage.faults.broken.clear()
    job = stage.until(job_id, State.CANCELLED)
    assert stage.cloud.machines == {}
    assert all(s.gone_at for s in job.slices)


def test_a_cancelled_job_starts_again_with_fresh_budgets(stage: Stage) -> None:
    job_id = stage.started(recovery={"failures": 0})
    stage.finish(job_id, 1, 1)
    stage.until(job_id, State.FAILED)
    stage.api.resume(job_id)
    job = stage.running(job_id)
    assert (job.desired, job.outcome, job.retries_used) == (DesiredState.RUN, None, {})
    assert job.attempts[-1].number == 2, "attempt numbers are never used twice"


def test_clean_removes_logs_and_record_but_not_checkpoints(stage: Stage) -> None:
    job_id = stage.create()
    job = stage.running(job_id)
    stage.bucket.put(f"{job.workdir}/checkpoints/100/state", b"x", timeout=1)
    stage.bucket.put(f"{job.workdir}/attempts/1/host-0/log-00001.tpujob-log", b"x", timeout=1)
    stage.api.clean(job_id)
    for _ in range(100):
        stage.step(job_id)
    assert stage.store.list() == []
    assert list(stage.bucket.objects) == [f"{job.workdir}/checkpoints/100/state"]
    assert stage.cloud.machines == {}


def test_a_bundle_is_stored_only_in_a_bucket_of_a_plan(stage: Stage) -> None:
    data = bundle_of("code")
    sha256 = hashlib.sha256(data).hexdigest()
    bucket = stage.api.plan(SPEC)["bucket"]
    path = stage.api.put_bundle(sha256, data, bucket=bucket)
    assert stage.api.put_bundle(sha256, data, bucket=bucket) == path, "equal content is stored once"
    with pytest.raises(BadRequest, match="not a bucket of this backend"):
        stage.api.put_bundle(sha256, data, bucket="gs://of-another-backend")
    with pytest.raises(BadRequest, match="does not have the hash"):
        stage.api.put_bundle(sha256, b"other", bucket=bucket)


# Killed at every effect ----------------------------------------------------------------------------------------------


def _happy(stage: Stage, job_id: str) -> None:
    stage.succeed(job_id)


def _preempted(stage: Stage, job_id: str) -> None:
    stage.preempt()
    stage.clock.sleep(60)
    stage.running(job_id, attempt=2)
    stage.succeed(job_id)


def _swapped(stage: Stage, job_id: str) -> None:
    bad_device(stage, job_id)
    stage.running(job_id, attempt=2)
    stage.until(job_id, lambda j: not j.condemned)
    stage.succeed(job_id)
    assert len(stage.store.reputation.suspects()) == 1, "once, however often it was found"


def _cancelled(stage: Stage, job_id: str) -> None:
    stage.api.cancel(job_id)
    stage.until(job_id, State.HOLDING)
    stage.api.resume(job_id)
    stage.running(job_id)
    stage.api.delete(job_id)
    stage.until(job_id, State.CANCELLED)


@pytest.mark.parametrize("story", [_happy, _preempted, _swapped, _cancelled])
def test_a_backend_killed_at_any_effect_loses_nothing_and_leaks_nothing(
    tmp_path: Path, story: Callable[[Stage, str], None]
) -> None:
    def played(name: str, kill_at: tuple[int, str] | None) -> Stage:
        (tmp_path / name).mkdir()
        stage = Stage(tmp_path / name)
        job_id = stage.create()
        stage.faults.kill_at = kill_at
        stage.running(job_id)
        story(stage, job_id)
        return stage

    plain = played("plain", None)
    assert plain.faults.effects >= 4
    for n in range(1, plain.faults.effects + 1):
        for side in ("before", "after"):
            stage = played(f"{n}-{side}", (n, side))
            where = f"killed {side} effect {n}"
            assert stage.cloud.machines == {}, f"{where}: a slice is left"
            assert stage.cloud.created == plain.cloud.created, f"{where}: other slices than before"
            assert sorted(set(stage.hosts.starts)) == sorted(stage.hosts.starts), f"{where}: twice"


def test_the_lines_that_prove_the_cause_are_kept_with_the_attempt(stage: Stage) -> None:
    job_id = stage.started()
    stage.finish(job_id, 134, 1)
    stage.last_words(job_id, 0, "Couldn't open iommu group /dev/vfio/0")
    stage.last_words(job_id, 1, "UNAVAILABLE: PollForError: the following tasks are unhealthy")
    job = stage.until(job_id, lambda j: len(j.attempts) == 2)
    first = job.attempts[0]
    assert (first.cause, first.host) == (Cause.TPU_BUSY, 0)
    assert first.evidence == (
        Proof(0, "Couldn't open iommu group /dev/vfio/0"),
        Proof(1, "also ended: exit code 1"),
    )
    shown = stage.api.get(job_id)["attempts"][0]["evidence"]
    assert shown == [asdict(line) for line in first.evidence]


def test_evidence_that_cannot_be_read_changes_only_the_detail(stage: Stage) -> None:
    job_id = stage.started()
    stage.finish(job_id, 1, 0)
    stage.last_words(job_id, 0, "MemoryError")
    stage.faults.broken.add("get")
    job = stage.until(job_id, lambda j: len(j.attempts) == 2)
    assert (job.attempts[0].cause, job.attempts[0].evidence) == (Cause.CRASH, ())


@pytest.mark.parametrize(("takes", "reads"), [(0.0, 8), (2.0, 3), (100.0, 1)])
def test_evidence_is_read_from_few_hosts_briefly(tmp_path: Path, takes: float, reads: int) -> None:
    stage = Stage(tmp_path)
    job_id = stage.started(tpu={"type": "v4-160", "zones": ["us-central2-b"]})
    stage.finish(job_id, *[1] * 20)
    stage.bucket.get_takes = takes
    before = stage.clock.now()
    stage.reconciler.tick(job_id)
    assert stage.bucket.gets == reads
    assert stage.clock.now() - before <= 5.0
    assert stage.job(job_id).attempts[0].cause is Cause.CRASH


def test_a_sleeping_job_that_another_backend_moved_is_seen_in_half_a_minute(stage: Stage) -> None:
    """The other backend may have died since, and no other would look before the long sleep is over."""
    stage.faults.refuse_create = [("STOCKOUT", "no more capacity")] * 100
    job_id = stage.create()
    loop = Loop(stage.reconciler, stage.store, stage.clock, sweep=list)
    sleeps = 0.0
    while sleeps < 3 * RESYNC:
        stage.clock.sleep(sleeps)
        sleeps = loop.make_pass()[1] or 0.0
    loop.make_pass()  # its own changes count, once
    stage.clock.sleep(RESYNC)
    assert loop.make_pass()[0] == 0, "nothing has changed: it may sleep"
    stage.api.cancel(job_id)
    assert loop.make_pass()[0] > 0
    assert stage.job(job_id).state is State.CANCELLED
