"""One tick, and what may happen between its poll, its commit and its action: slow calls, refusals, silent hosts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.stage import Stage
from tpujob.domain.actions import HostPlan
from tpujob.domain.decide.condemned import STOP_PATIENCE
from tpujob.domain.model import Cause, Slice, State
from tpujob.engine.actor import MARGIN, START_TIMEOUT
from tpujob.engine.reconciler import LEASE
from tpujob.errors import HostKeyChanged
from tpujob.ports import Lease


def test_each_call_ends_before_its_lease(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another backend may lead by then; the record says what is to be done, and the next look at it does it."""
    granted: list[Lease] = []
    margins: list[float] = []
    lease, commit, create = stage.store.lease, stage.store.commit, stage.cloud.create

    def noted(*arguments: Any, **options: Any) -> Lease | None:
        grant = lease(*arguments, **options)
        until = stage.clock.steady() + LEASE
        granted.extend([replace(grant, until=until)] if grant else [])
        return grant

    def slow(*arguments: Any, **options: Any) -> Any:
        stored = commit(*arguments, **options)
        stage.clock.sleep(LEASE - MARGIN)
        return stored

    def timed(slice: Slice, *, timeout: float, **options: Any) -> None:
        margins.append(granted[-1].until - stage.clock.now() - timeout)
        assert timeout > 0
        create(slice, timeout=timeout, **options)

    monkeypatch.setattr(stage.store, "lease", noted)
    monkeypatch.setattr(stage.store, "commit", slow)
    monkeypatch.setattr(stage.cloud, "create", timed)
    job_id = stage.create()
    stage.until(job_id, lambda j: bool(stage.cloud.created))
    assert len(granted) == 2, "the lease of the commit was not long enough for the call"
    assert margins == [MARGIN]


def test_a_slow_report_restarts_no_program(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[float] = []
    start = stage.hosts.start

    def counted(slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        started.append(stage.clock.now())
        start(slice, plans, timeout=timeout)

    monkeypatch.setattr(stage.hosts, "start", counted)
    monkeypatch.setattr(stage.bucket, "report", lambda *arguments, **options: None)
    job_id = stage.create()
    stage.until(job_id, lambda j: len(started) == 3)
    first, second, third = started
    assert START_TIMEOUT <= second - first <= 2 * START_TIMEOUT
    assert START_TIMEOUT <= third - second <= 2 * START_TIMEOUT
    assert stage.hosts.starts == [(1, 0), (1, 1)], "and starting it again changes nothing"
    launched = stage.reconciler.live[job_id].launched
    assert launched is not None
    assert abs(launched - first) < 1, "since when hosts may be expected to report"


def test_the_next_attempt_is_started_at_once(stage: Stage) -> None:
    job_id = stage.create()
    while not stage.hosts.starts:
        stage.clock.sleep(1)
        stage.reconciler.tick(job_id)
    begun = stage.clock.now()
    stage.api.cancel(job_id)
    stage.reconciler.tick(job_id)
    stage.api.resume(job_id)
    stage.reconciler.tick(job_id)
    assert stage.clock.now() - begun < START_TIMEOUT, "the first was started a moment ago"
    assert stage.hosts.starts == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_host_with_another_key_is_replaced(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    start = stage.hosts.start

    def met(slice: Slice, plans: Sequence[HostPlan], *, timeout: float) -> None:
        if slice.k == 1:
            raise HostKeyChanged("host 1 of tj-000001-1 shows another key than before")
        start(slice, plans, timeout=timeout)

    monkeypatch.setattr(stage.hosts, "start", met)
    job_id = stage.create()
    job = stage.running(job_id, attempt=2)
    assert job.attempts[0].cause is Cause.BAD_HOST
    assert "shows another key" in job.attempts[0].message
    assert [a.slice for a in job.attempts] == ["tj-000001-1", "tj-000001-2"]


def test_a_slice_is_not_taken_early_from_a_program_that_cannot_be_stopped(stage: Stage) -> None:
    job_id = stage.started(stop_grace="30s")
    stage.faults.broken.add("stop")
    stage.api.cancel(job_id)
    since = stage.until(job_id, State.HOLDING).state_since
    stage.api.delete(job_id)
    deleted_at = stage.until(job_id, State.RELEASING).slices[0].delete_asked_at
    assert deleted_at is not None
    assert STOP_PATIENCE + 30 <= deleted_at - since < STOP_PATIENCE + 30 + 10
    stage.until(job_id, State.CANCELLED)
    assert stage.cloud.machines == {}


def test_a_checkpoint_saved_during_a_stop_is_in_the_record(stage: Stage) -> None:
    job_id = stage.started()
    stage.reports(job_id, step=40, checkpoint=30)
    stage.api.cancel(job_id)
    stage.until(job_id, lambda j: j.state is State.HOLDING and j.stopped)
    stage.report(job_id, 0, phase="exited", exit_code=75, step=42, checkpoint=42)
    stage.step(job_id)
    assert stage.api.get(job_id)["attempts"][0]["step"] != 42, "host 1 has not ended yet"
    stage.report(job_id, 1, phase="exited", exit_code=75, step=42, checkpoint=42)
    job = stage.until(job_id, lambda j: bool(j.attempts[0].progress.checkpoint == 42))
    assert (job.state, job.attempts[0].progress.step) == (State.HOLDING, 42)
    assert stage.kinds(job_id).count("progressed") == 1, "and there is one event for it"


def test_slow_cleaning_goes_on_to_its_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = stage.create()
    job = stage.running(job_id)
    for step in range(10):
        stage.bucket.put(f"{job.workdir}/checkpoints/{step}", b"x", timeout=1)
    stage.bucket.put(f"{job.workdir}0/kept", b"of another job", timeout=1)
    delete = stage.bucket.delete

    def slow(path: str, *, timeout: float) -> None:
        stage.clock.sleep(20)
        delete(path, timeout=timeout)

    monkeypatch.setattr(stage.bucket, "delete", slow)
    stage.api.clean(job_id, checkpoints=True)
    stage.until(job_id, State.CANCELLED)
    before, now = len(stage.bucket.objects), stage.clock.now()
    stage.reconciler.tick(job_id)
    assert stage.clock.now() - now <= LEASE + 20, "nothing is done once the lease has run out"
    assert 1 < len(stage.bucket.objects) < before
    assert stage.job(job_id).id == job_id, "the record goes last"
    while stage.store.list():
        assert stage.clock.now() - now < 1000
        stage.step(job_id)
    assert list(stage.bucket.objects) == [f"{job.workdir}0/kept"]


def test_the_keys_of_a_slice_that_is_not_there_yet_stay(stage: Stage) -> None:
    job_id = stage.create()
    stage.faults.broken.add("create")
    stage.until(job_id, lambda j: bool(j.slices))
    stage.step(job_id)
    assert (stage.cloud.machines, stage.reconciler.actor.hosts.kept()) == ({}, ["tj-000001-1"])
    assert stage.api.sweep()["keys"] == []
    stage.faults.broken.clear()
    stage.running(job_id)
    stage.preempt()
    stage.clock.sleep(60)
    stage.running(job_id, attempt=2)
    stage.reconciler.actor.hosts.keys.add(
        "tj-000001-1"
    )  # the backend that deleted it was killed before it forgot them
    assert stage.api.sweep()["keys"] == ["tj-000001-1"], "that one is gone, its job goes on"
