"""The times at which jobs are ticked."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.support.callers import caller
from tests.support.stage import SPEC, Stage
from tests.support.world import Inline
from tpujob.domain.access import Role
from tpujob.domain.capacity.settings import QueueSettings
from tpujob.domain.model import Cause, Job, State
from tpujob.domain.money.polling_cost import UNASKED
from tpujob.domain.observations import Place
from tpujob.engine import Loop
from tpujob.engine.loop import NEWS_DELAY, REFRESH, RESYNC, RETRY
from tpujob.errors import Refused, StoreError
from tpujob.ports import Blob


@pytest.fixture
def loop(stage: Stage) -> Iterator[Loop]:
    """Return a loop with three running jobs, all of which have just been ticked."""
    for number in range(3):
        stage.running(stage.create(name=f"job-{number}"))
    made = Loop(stage.reconciler, stage.store, stage.clock, sweep=list)
    made.make_pass()
    yield made
    made.stop()


def ticks(loop: Loop) -> int:
    return loop.make_pass()[0]


def test_a_job_is_ticked_when_its_last_tick_asked_for_it(stage: Stage, loop: Loop) -> None:
    assert ticks(loop) == 0
    stage.clock.sleep(10)
    assert ticks(loop) == 3, "a running job asks for a tick in ten seconds"


def test_of_several_times_the_earliest_counts_and_ticks_once(stage: Stage, loop: Loop) -> None:
    now = stage.clock.now()
    for when in (now + 4, now + 3, now + 2, now + 60):
        loop.hasten("000002", when)
    stage.clock.sleep(2)
    assert ticks(loop) == 1, "the earliest counts, and nothing is left of the others"
    assert ticks(loop) == 0
    stage.clock.sleep(8)
    assert ticks(loop) == 3, "the two at their own time, and this one ten seconds after its last"


def test_a_job_whose_tick_failed_is_looked_at_again_in_seconds_and_then_ever_less_often(
    stage: Stage, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lost reply of the store does not hold up what was just found out; a store that is away is spared."""
    tried: list[float] = []

    def fail(job_id: str) -> float | None:
        tried.extend([stage.clock.now()] if job_id == "000001" else [])
        raise StoreError("the reply was lost")

    def pauses(seconds: int) -> list[int]:
        for _ in range(seconds):
            ticks(loop)
            stage.clock.sleep(1)
        return [round(later - earlier) for earlier, later in pairwise(tried)]

    with monkeypatch.context() as away:
        away.setattr(stage.reconciler, "tick", fail)
        assert pauses(100)[:5] == [
            RETRY.first,
            2 * RETRY.first,
            4 * RETRY.first,
            RETRY.longest,
            RETRY.longest,
        ]
    stage.clock.sleep(RETRY.longest)
    ticks(loop)
    tried.clear()
    monkeypatch.setattr(stage.reconciler, "tick", fail)
    assert pauses(20)[0] == RETRY.first, "a tick in between has worked"


def test_a_job_that_may_start_while_it_is_ticked_is_ticked_again(
    stage: Stage, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.reconciler.queue.settings = QueueSettings(quota={"us-central2-b/v4/spot": 24})
    job = stage.create(name="fourth")
    loop.poke(job)
    place = stage.reconciler.observer.place

    def then_falls_free(of: Job) -> Place:
        before = place(of)
        if of.id == job:
            monkeypatch.setattr(stage.reconciler.observer, "place", place)
            stage.api.delete("000001")
            stage.until("000001", State.CANCELLED)
            stage.reconciler.queue.plan()
        return before

    monkeypatch.setattr(stage.reconciler.observer, "place", then_falls_free)
    ticks(loop)
    ticks(loop)
    assert stage.job(job).state is not State.QUEUED


def test_a_job_that_another_backend_changes_during_its_tick_is_ticked_again(
    stage: Stage, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of another caller reads the change while the tick goes on with the record that it has read before."""
    ticked: list[str] = []

    def tick(job_id: str) -> float:
        ticked.append(job_id)
        if len(ticked) == 1:
            stage.api.cancel(job_id)
            loop.make_pass()
        return 3600.0

    monkeypatch.setattr(stage.reconciler, "tick", tick)
    loop.poke("000002")
    loop.make_pass()
    assert ticked == ["000002", "000002"]


def test_an_end_is_seen_between_ticks(stage: Stage, loop: Loop) -> None:
    """One job alone is ticked every ten seconds: nothing else would look at its reports meanwhile."""
    stage.clock.sleep(10)
    loop.make_pass()
    stage.finish("000003", 78, 78)
    stage.clock.sleep(UNASKED)
    stage.reconciler.observer.report_cache.refresh()
    stage.clock.sleep(NEWS_DELAY)
    assert ticks(loop) == 1
    assert stage.job("000003").attempts[0].ended_at is not None


def test_a_bucket_that_refuses_keeps_no_end_in_another_one_from_being_seen(
    stage: Stage, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports of one owner lie in one place, and the places are looked at in turn."""
    bob = stage.api.acting_for(caller("bob", Role.SUBMITTER)).create(SPEC)["id"]
    stage.running(bob)
    for job_id in ("000001", bob):
        stage.reports(job_id, step=1)
    stage.clock.sleep(10)
    loop.make_pass()
    stage.finish(bob, 75, 75)
    stage.clock.sleep(UNASKED)
    real, refused, news = stage.bucket.list, list[str](), list[str]()

    def list_(prefix: str, *, timeout: float) -> list[Blob]:
        if "/u/ada/" in prefix:
            refused.append(prefix)
            raise Refused("403 the backend may not read this", cause=Cause.PERMISSION)
        return real(prefix, timeout=timeout)

    listing = stage.reconciler.observer.report_cache
    listing.news = news.append
    with monkeypatch.context() as patch:
        patch.setattr(stage.bucket, "list", list_)
        listing.refresh()
    assert (bool(refused), news) == (True, [bob])


def test_a_stop_ends_a_pass_before_all_ticks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        stage.create(name=f"job-{number}")
    submitted, may_end = threading.Semaphore(0), threading.Event()

    class Pool(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            future = super().submit(fn, *args, **kwargs)
            submitted.release()
            return future

    def tick(_: str) -> float:
        may_end.wait(30)
        return 3600.0

    monkeypatch.setattr(stage.reconciler, "tick", tick)
    loop = Loop(stage.reconciler, stage.store, stage.clock, sweep=list, pool=Pool(1))
    passing = threading.Thread(target=loop.make_pass, daemon=True)
    passing.start()
    assert submitted.acquire(timeout=30)
    assert submitted.acquire(timeout=30)
    threading.Timer(0.2, may_end.set).start()
    loop.stop()
    passing.join(30)
    assert not passing.is_alive()


def test_a_pass_begins_no_tick_once_the_backend_stops(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.create()
    loop = Loop(stage.reconciler, stage.store, stage.clock, sweep=list)
    dispatch = loop._dispatch  # pyright: ignore[reportPrivateUsage]

    def late(now: float) -> Any:
        loop.stop()
        return dispatch(now)

    monkeypatch.setattr(loop, "_dispatch", late)
    assert loop.make_pass()[0] == 0


class StuckPool(ThreadPoolExecutor):
    """Begins nothing that it is given."""

    def __init__(self) -> None:
        super().__init__(1)
        self.given: list[str] = []

    def submit(self, fn: Any, /, *_: Any, **__: Any) -> Any:
        self.given.append(fn.__name__)


def test_reports_are_not_looked_at_again_while_the_last_look_goes_on(stage: Stage) -> None:
    pool, end = StuckPool(), stage.clock.now() + 10 * REFRESH

    class Wakeup(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            stage.clock.sleep(timeout or 0.0)
            if stage.clock.now() > end:
                loop.stop()
            return False

    loop = Loop(stage.reconciler, stage.store, stage.clock, sweep=list, wakeup=Wakeup(), pool=pool)
    loop.run()
    assert stage.clock.now() > end
    assert pool.given.count("_refresh") == 1


def test_ticks_go_on_when_a_clock_goes_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ticked: list[float] = []
    waited: list[float] = []

    def tick(_: str) -> float:
        ticked.append(stage.clock.now())
        return 10.0

    class Wakeup(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            stage.clock.sleep(timeout or 0.0)
            if len(waited) == 50:
                stage.clock.sleep(-3600)
                ticked.clear()
            if len(waited) == 100:
                loop.stop()
            return False

    stage.create()
    monkeypatch.setattr(stage.reconciler, "tick", tick)
    loop = Loop(
        stage.reconciler, stage.store, stage.clock, sweep=list, wakeup=Wakeup(), pool=Inline()
    )
    loop.run()
    assert max(waited) <= RESYNC
    assert len(ticked) >= 5


def test_a_job_that_a_clock_ahead_has_put_off_is_looked_after_by_every_backend(
    stage: Stage, loop: Loop
) -> None:
    """The backend that has put it off, and whose clock was ahead, may be gone."""
    job = stage.job(stage.create(name="put-off"))
    stage.store.commit(
        replace(job, wake=stage.clock.now() + 7200),
        None,
        expected_version=job.version,
        op_id="ahead",
        lease=None,
    )
    stage.clock.sleep(RESYNC)
    loop.make_pass()
    assert stage.job(job.id).state is not State.QUEUED
