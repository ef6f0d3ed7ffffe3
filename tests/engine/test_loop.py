"""Which jobs are ticked when."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.support.stage import Stage
from tpujob.domain.money.looks import BY_NAME_LASTS
from tpujob.engine import Loop
from tpujob.engine.loop import AGAIN, HEARD, SELDOM
from tpujob.errors import StoreError


@pytest.fixture
def loop(stage: Stage) -> Iterator[Loop]:
    """With three running jobs, all of which have just been ticked."""
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


def test_of_several_times_for_a_job_the_earliest_counts_and_it_is_ticked_once(
    stage: Stage, loop: Loop
) -> None:
    now = stage.clock.now()
    for when in (now + 4, now + 3, now + 2, now + 60):
        loop.hasten("000002", when)
    stage.clock.sleep(2)
    assert ticks(loop) == 1, "the earliest counts, and nothing is left of the others"
    assert ticks(loop) == 0
    stage.clock.sleep(8)
    assert ticks(loop) == 3, "the two at their own time, and this one ten seconds after its last"


def test_a_job_whose_hosts_have_ended_is_ticked_as_soon_as_another_one_has_seen_it(
    stage: Stage, loop: Loop
) -> None:
    stage.clock.sleep(5.5)
    loop.poke("000001")
    stage.finish("000003", 75, 75)
    stage.clock.sleep(HEARD)
    assert ticks(loop) >= 2, "job 1 by command; job 3, as the listing of job 1 had its news"
    assert stage.job("000003").attempts[0].ended_at is not None


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
        return [round(later - one) for one, later in pairwise(tried)]

    with monkeypatch.context() as away:
        away.setattr(stage.reconciler, "tick", fail)
        assert pauses(100)[:5] == [AGAIN, 2 * AGAIN, 4 * AGAIN, SELDOM, SELDOM]
    stage.clock.sleep(SELDOM)
    ticks(loop)
    tried.clear()
    monkeypatch.setattr(stage.reconciler, "tick", fail)
    assert pauses(20)[0] == AGAIN, "a tick in between has worked"


def test_an_end_is_seen_between_ticks_without_a_list(
    stage: Stage, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job alone is ticked every ten seconds: nothing else would look at its reports meanwhile."""
    stage.clock.sleep(10)
    loop.make_pass()
    stage.finish("000003", 75, 75)
    stage.clock.sleep(BY_NAME_LASTS)

    def no_list(prefix: str, **more: object) -> None:
        raise AssertionError("a list is an operation of class A")

    with monkeypatch.context() as patch:
        patch.setattr(stage.bucket, "list", no_list)
        stage.reconciler.observer.listing.refresh()
    stage.clock.sleep(HEARD)
    assert ticks(loop) == 1
    assert stage.job("000003").attempts[0].ended_at is not None
