"""One follower, many listeners: who waits is told, and nobody asks the store for nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.stores import a_job, an_event
from tests.support.waiting import LONG, until
from tpujob.adapters.sqlite import SqliteStore
from tpujob.domain.model import Job
from tpujob.errors import StoreError
from tpujob.service.job_index import Changes


class Counted(SqliteStore):
    """A store that counts how often it is asked, and can be broken."""

    asked = 0
    broken = False

    def changes(self, after: int) -> tuple[int, list[str]]:
        self.asked += 1
        if self.broken:
            raise StoreError("the disk is gone")
        return super().changes(after)


@pytest.fixture
def store(tmp_path: Path) -> Counted:
    return Counted(tmp_path / "jobs.db")


def moved(store: SqliteStore, job: Job) -> Job:
    job = store.get(job.id)
    return store.commit(
        replace(job, message="moved"),
        an_event(),
        expected_version=job.version,
        op_id=f"{job.version}",
        lease=None,
    )


def followers() -> int:
    return sum(thread.name == "watch" for thread in threading.enumerate())


@pytest.fixture
def job(store: Counted) -> Job:
    return store.create(a_job(), an_event())


@pytest.fixture
def watch(store: Counted) -> Changes:
    return Changes(store, interval=0.01)


@pytest.mark.parametrize("removed", [False, True])
def test_a_change_by_another_process_or_a_removal_ends_the_wait(
    store: Counted, job: Job, watch: Changes, tmp_path: Path, removed: bool
) -> None:
    start = watch.now()
    if removed:
        store.remove(job.id, lease=None)
    else:
        threading.Timer(0.05, moved, (SqliteStore(tmp_path / "jobs.db"), job)).start()
    assert watch.wait(job.id, start, LONG) > start


def test_a_poke_wakes_a_listener_before_the_next_look(store: Counted, job: Job) -> None:
    watch = Changes(store, interval=LONG)
    start = watch.now()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watch.wait, job.id, start, LONG)
        until(lambda: store.asked >= 2, "the follower looks once the listener is there")
        moved(store, job)
        watch.poke()
        assert waiting.result(timeout=LONG / 2) > start
    watch.poke()  # ends the follower


def test_changes_meanwhile_are_reported_at_once(store: Counted, job: Job, watch: Changes) -> None:
    cursor = watch.wait(job.id, 0, 3600)  # pytest's own limit of time is shorter
    assert cursor > 0
    moved(store, job)
    newer = watch.wait(job.id, cursor, LONG)
    assert newer > cursor
    assert watch.wait(job.id, newer, 0.05) == newer, "nothing has changed since"


def test_a_listener_of_a_job_hears_no_others(store: Counted, job: Job, watch: Changes) -> None:
    other = store.create(a_job(), an_event())
    start = watch.now()
    with ThreadPoolExecutor(2) as pool:
        mine = pool.submit(watch.wait, job.id, start, LONG)
        anybody = pool.submit(watch.wait, None, start, LONG)
        moved(store, other)
        assert anybody.result(timeout=LONG) > start
        assert not mine.done()
        moved(store, job)
        assert mine.result(timeout=LONG) > start


def test_many_listeners_share_one_follower_of_the_store(store: Counted) -> None:
    job = store.create(a_job(), an_event())
    watch = Changes(store, interval=0.02)
    start = watch.now()
    until(lambda: followers() == 0, "those of earlier tests have ended")
    with ThreadPoolExecutor(32) as pool:
        waiting = [pool.submit(watch.wait, job.id, start, LONG) for _ in range(32)]
        until(lambda: followers() > 0, "a follower is at work")
        assert followers() == 1
        moved(store, job)
        watch.poke()
        assert all(listener.result(timeout=LONG) > start for listener in waiting)
    until(lambda: followers() == 0, "the follower ends after the last listener")
    reads = store.asked
    watch.poke()
    assert store.asked == reads
    assert watch.wait(job.id, start, LONG) > start, "and the next listener is served again"


# A store that fails --------------------------------------------------------------------------------------------------


def test_since_when_a_store_fails_is_kept_until_it_answers(store: Counted) -> None:
    now = 100.0
    watch = Changes(store, interval=0.01, clock=lambda: now)
    start = watch.now()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watch.wait, None, start, LONG)
        until(lambda: store.asked > 3, "the store is followed")
        assert watch.failing is None
        store.broken = True
        until(lambda: watch.failing is not None, "it is noticed")
        now, reads = 200.0, store.asked
        until(lambda: store.asked > reads + 3, "it is asked again")
        assert watch.failing == 100.0
        store.broken = False
        until(lambda: watch.failing is None, "it answers again")
        store.create(a_job(), an_event())
        assert waiting.result(LONG) > start


def test_a_read_that_does_not_come_back_is_a_failure(store: Counted) -> None:
    now, hanging = 100.0, threading.Event()
    watch = Changes(store, interval=0.01, clock=lambda: now)
    start = watch.now()

    def hang(after: int) -> tuple[int, list[str]]:
        store.asked += 1
        hanging.wait(LONG)
        return after, []

    store.changes = hang  # pyright: ignore[reportAttributeAccessIssue]
    reads = store.asked
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watch.wait, None, start, 0.5)
        until(lambda: store.asked > reads, "it is asked")
        assert watch.failing is None, "it may be slow"
        now = 105.0
        assert watch.failing == 100.0
        hanging.set()
        until(lambda: watch.failing is None, "it answers after all")
        waiting.result(LONG)
