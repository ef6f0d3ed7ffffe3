"""Requests for one job: which job a name means, what is refused and why, and writes of others meanwhile."""

import time
from typing import Any

import pytest

from tests.support.stage import SPEC, Stage
from tests.support.world import NoLoop, service
from tpujob.domain.model import DesiredState, Job, State
from tpujob.errors import BadRequest, Conflict, IllegalInState, NotFound
from tpujob.ports import Store

# Which job -----------------------------------------------------------------------------------------------------------


def test_a_job_is_named_by_its_id_with_or_without_zeros_or_by_its_name(stage: Stage) -> None:
    first, second = stage.create(), stage.create(name="other")
    for name in (first, "1", "0001", "digits"):
        assert stage.api.get(name)["id"] == first
    assert stage.api.get("other")["id"] == second


def test_a_name_means_the_live_job_and_the_ended_one_where_none_lives(stage: Stage) -> None:
    first, second = stage.create(), stage.create()
    with pytest.raises(BadRequest, match=r"^2 jobs are called 'digits': 000002, 000001$") as error:
        stage.api.cancel("digits")
    assert error.value.hint == "Use the id."
    assert stage.job(first).desired is stage.job(second).desired is DesiredState.RUN
    stage.api.delete(first)
    stage.until(first, State.CANCELLED)
    assert stage.api.get("digits")["id"] == second
    stage.api.delete(second)
    stage.until(second, State.CANCELLED)
    with pytest.raises(BadRequest, match=r"^2 jobs"):
        stage.api.get("digits")


# Who hears of it -----------------------------------------------------------------------------------------------------


def test_the_loop_hears_of_every_write(stage: Stage) -> None:
    loop = NoLoop()
    api = service(stage.reconciler, loop=loop)
    job_id = api.create(SPEC)["id"]
    assert loop.poked == [job_id]
    api.cancel(job_id)
    api.cancel(job_id)
    assert loop.poked == [job_id] * 2, "the second changed nothing"


def test_a_follower_misses_no_change_between_two_looks(stage: Stage) -> None:
    loop = NoLoop()
    api, job_id = service(stage.reconciler, loop=loop), stage.create()
    follower = api.follow("digits", timeout=60)
    next(follower)
    assert loop.attended == [], "no follower waits yet"
    api.cancel(job_id)
    began = time.monotonic()
    next(follower)
    assert time.monotonic() - began < 30, "it was changed before the wait began"
    assert loop.attended == [(job_id, 65)], "the backend attends to it while a follower waits"
    of_all = api.follow(timeout=0.01)
    next(of_all), next(of_all)
    assert len(loop.attended) == 1, "no follower waits for one job"
    with pytest.raises(NotFound):
        next(api.follow("absent"))


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_job_that_succeeded_or_is_being_cleaned_cannot_be_resumed(stage: Stage) -> None:
    job_id = stage.started()
    stage.succeed(job_id)
    with pytest.raises(IllegalInState, match="job 000001 has succeeded; there is nothing"):
        stage.api.resume(job_id)
    other = stage.started()
    stage.api.clean(other)
    with pytest.raises(IllegalInState, match="job 000002 is being cleaned"):
        stage.api.resume(other)
    assert stage.job(other).desired is DesiredState.CLEAN


def test_a_wish_that_is_already_fulfilled_is_not_written_again(stage: Stage) -> None:
    job_id = stage.started()

    def written(request: Any) -> int:
        before = stage.job(job_id).version
        request()
        return stage.job(job_id).version - before

    assert written(lambda: stage.api.resume(job_id)) == 0
    assert written(lambda: stage.api.cancel(job_id)) == 1
    assert written(lambda: stage.api.cancel(job_id)) == 0
    assert written(lambda: stage.api.cancel(job_id, release=True)) == 1, "it asks for more"
    assert written(lambda: stage.api.cancel(job_id)) == 0, "and that is not taken back"
    assert written(lambda: stage.api.delete(job_id)) == 0
    assert written(lambda: stage.api.clean(job_id)) == 1
    assert written(lambda: stage.api.clean(job_id)) == 0
    assert written(lambda: stage.api.delete(job_id)) == 0
    assert written(lambda: stage.api.clean(job_id, checkpoints=True)) == 1
    assert stage.job(job_id).wipe_checkpoints
    last = [e["text"] for e in stage.api.events(job_id) if e["kind"] == "clean_requested"]
    assert last == ["clean requested", "clean requested, with its checkpoints"]


KEY = "ssh-ed25519 AAAA"


def test_a_host_is_reached_only_where_there_is_one(stage: Stage) -> None:
    job_id = stage.create()
    with pytest.raises(IllegalInState, match="job 000001 is queued: it has no host") as error:
        stage.api.access(job_id, key=KEY)
    assert "`tpujob logs 000001`" in error.value.hint
    stage.running(job_id)
    assert stage.api.access(job_id, key=KEY)["address"] == "10.0.1.0"
    assert stage.api.access(job_id, host=1, key=KEY)["address"] == "10.0.1.1"
    for host in (2, -1):
        with pytest.raises(NotFound, match=f"has hosts 0 to 1, no host {host}"):
            stage.api.access(job_id, host=host, key=KEY)
    with pytest.raises(NotFound, match="has hosts 0 to 1, no host 7"):
        stage.api.logs(job_id, host=7)
    stage.faults.broken.add("delete")
    stage.finish(job_id, 0, 0)
    stage.until(job_id, State.RELEASING)
    with pytest.raises(IllegalInState, match="is releasing"):
        stage.api.access(job_id, key=KEY)


# Who wrote in between ------------------------------------------------------------------------------------------------


class Busy:
    """A store in which others change the job between a read and a commit, so many times."""

    def __init__(self, stage: Stage, times: int) -> None:
        self._stage, self._times = stage, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage.store, name)

    def get(self, job_id: str) -> Job:
        job = self._stage.store.get(job_id)
        if self._times > 0:
            self._times -= 1
            op = f"busy-{self._times}"
            self._stage.store.commit(job, None, expected_version=job.version, op_id=op, lease=None)
        return job


def busy(stage: Stage, times: int) -> Any:
    store: Store = Busy(stage, times)  # type: ignore[assignment]
    return service(stage.reconciler, store)


def test_a_wish_is_written_though_the_backend_writes_at_the_same_time(stage: Stage) -> None:
    job_id = stage.started()
    assert busy(stage, 7).cancel(job_id)["desired"] == "cancel"
    assert stage.kinds(job_id).count("cancel_requested") == 1
    stage.until(job_id, State.HOLDING)


def test_a_write_that_always_conflicts_is_reported(stage: Stage) -> None:
    job_id = stage.create()
    with pytest.raises(Conflict, match="could not be changed") as error:
        busy(stage, 8).cancel(job_id)
    assert error.value.hint == "Try again in a moment."
    assert stage.job(job_id).desired is DesiredState.RUN


def test_a_resume_that_comes_while_the_slice_is_given_back_is_carried_out(stage: Stage) -> None:
    job_id = stage.started()
    stage.faults.broken.add("delete")
    stage.api.cancel(job_id, release=True)
    stage.until(job_id, State.RELEASING)
    stage.api.resume(job_id)
    stage.faults.broken.clear()
    job = stage.running(job_id, attempt=2)
    assert stage.cloud.created == ["tj-000001-1", "tj-000001-2"]
    assert "cancelled" not in stage.kinds(job_id), "it never ended"
    assert job.retries_used == {}
