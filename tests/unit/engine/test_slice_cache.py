"""One list of all slices serves the looks of some seconds, and is believed only in what it shows."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.stage import Stage
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Job, Slice, State
from tpujob.domain.observations import Absent, Present, SliceSeen, SliceState, Unknown
from tpujob.engine.slice_cache import (
    AHEAD,
    CALLS,
    FOR_EACH_CALL,
    GAP,
    LAG,
    MAX_LIST_AGE,
    NAMED,
    SliceCache,
)
from tpujob.ports import Providers, SliceSurvey


class Counted:
    """A cloud whose calls are counted, and whose lists may take more of them."""

    def __init__(self, stage: Stage) -> None:
        self.cloud, self.made, self.calls = stage.cloud, Counter[str](), 2
        self.timeouts = list[float]()

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        self.made["look"] += 1
        return self.cloud.look(slice, timeout=timeout)

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        self.made["list"] += 1
        self.timeouts.append(timeout)
        survey = self.cloud.survey(zones, timeout=timeout)
        return SliceSurvey(survey.seen, survey.missed, self.calls)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def cloud(stage: Stage) -> Counted:
    return Counted(stage)


@pytest.fixture
def listing(stage: Stage, cloud: Counted) -> SliceCache:
    providers = Providers({CLOUD_TPU: cloud})  # pyright: ignore[reportArgumentType]
    return SliceCache(providers, CLOUD_TPU, stage.clock)


def slices(stage: Stage, count: int) -> list[Slice]:
    """So many that are there, and were asked for long ago."""
    jobs = [stage.running(stage.create()) for _ in range(count)]
    stage.clock.sleep(LAG)
    return [job.slice for job in jobs if job.slice]


def looks(listing: SliceCache, *slices: Slice, by_name: bool = False) -> list[SliceSeen]:
    return [listing.look(slice_, timeout=10, by_name=by_name)[0] for slice_ in slices]


def test_one_list_serves_every_slice(stage: Stage, cloud: Counted, listing: SliceCache) -> None:
    five = slices(stage, 5)
    for _ in range(int(CALLS * FOR_EACH_CALL) + 1):
        assert {type(seen) for seen in looks(listing, *five)} == {Present}
        stage.clock.sleep(1)
    assert cloud.made == {"list": 1}
    looks(listing, *five)
    assert cloud.made == {"list": 2}


def test_jobs_of_lost_slices_are_noted_at_once(stage: Stage, listing: SliceCache) -> None:
    three, news = slices(stage, 3), list[str]()
    listing.news = news.append
    for slice_ in three:
        listing.look(slice_, timeout=10, job_id=slice_.name.upper())
    stage.cloud.preempt(three[1].name)
    for _ in range(2):
        stage.clock.sleep(CALLS * FOR_EACH_CALL)
        listing.look(three[0], timeout=10)
    assert news == [three[1].name.upper()], "once, by the look at another slice"


def test_a_slow_list_leaves_the_old_one(stage: Stage, cloud: Counted, listing: SliceCache) -> None:
    """Else every job would be looked at by name, which takes a slow cloud even longer."""
    first, second = slices(stage, 2)
    looks(listing, first, second)
    stage.clock.sleep(2 * FOR_EACH_CALL * CALLS)
    real, answers = cloud.survey, list[tuple[SliceSeen, bool]]()

    def slow(zones: Collection[str], *, timeout: float) -> SliceSurvey:
        stage.clock.sleep(MAX_LIST_AGE / 2)
        answers.append(listing.look(second, timeout=10))
        return real(zones, timeout=timeout)

    cloud.survey = slow  # pyright: ignore[reportAttributeAccessIssue]
    looks(listing, first)
    assert [(type(seen), listed) for seen, listed in answers] == [(Present, True)]
    assert cloud.made["look"] == 0


def test_new_slices_are_seen_in_lists(stage: Stage, cloud: Counted, listing: SliceCache) -> None:
    """A thousand slices that come up at once would take thousands of looks by name."""
    (old,), cloud.calls = slices(stage, 1), 20
    looks(listing, old)
    stage.clock.sleep(1)
    young = replace(old, name="tj-000002-1", requested_at=stage.clock.now())
    stage.cloud.add(young, "000002")
    for second in range(60):
        stage.clock.sleep(1)
        (seen, listed), rest = listing.look(young, timeout=10), second % 24
        assert isinstance(seen, Present)
        assert listed is (second >= NAMED), f"after {rest} s: it is known to be some seconds old"
    assert cloud.made == {"list": 3, "look": 1}, "by name until a list was younger than the request"


def test_a_deleted_slice_needs_a_look(stage: Stage, cloud: Counted, listing: SliceCache) -> None:
    (slice_,), cloud.calls = slices(stage, 1), 20
    looks(listing, slice_)
    deleted = replace(slice_, delete_asked_at=stage.clock.now())
    for _ in range(int(LAG / NAMED) - 1):
        stage.clock.sleep(NAMED)
        looks(listing, deleted)
    assert cloud.made == {"list": 1, "look": int(LAG / NAMED) - 1}


def test_a_slice_that_a_list_lacks_is_read_by_name_and_never_called_absent(
    stage: Stage, cloud: Counted, listing: SliceCache
) -> None:
    shown, missing, gone = slices(stage, 3)
    stage.cloud.unlisted.add(missing.name)
    stage.cloud.vanish(gone.name)
    seen = looks(listing, shown, missing, gone)
    assert [type(look) for look in seen] == [Present, Present, Absent]
    assert cloud.made == {"list": 1, "look": 2}


def test_looks_at_missed_zones_are_few(stage: Stage, cloud: Counted, listing: SliceCache) -> None:
    (first,) = slices(stage, 1)
    sixty = [replace(first, name=f"tj-{n:06}-1") for n in range(60)]
    for slice_ in sixty:
        stage.cloud.add(slice_, "")
    stage.cloud.unlisted.add(first.zone)
    reached = Counter[str]()
    for _ in range(6):
        for slice_ in sixty:
            seen = listing.look(slice_, timeout=10)[0]
            reached[slice_.name] += isinstance(seen, Present)
            assert isinstance(seen, Present) or seen == Unknown("not reached")
        stage.clock.sleep(10)
    assert cloud.made["look"] <= (60 + AHEAD) / GAP
    assert min(reached.values()) >= 1, "each was looked at in a minute"


def test_a_list_from_before_a_look_is_not_believed(stage: Stage, listing: SliceCache) -> None:
    (slice_,) = slices(stage, 1)
    (before,) = looks(listing, slice_)
    stage.cloud.vanish(slice_.name, takes=60)
    stage.clock.sleep(1)
    (by_name,) = looks(listing, slice_, by_name=True)
    stage.clock.sleep(1)
    (after,) = looks(listing, slice_)
    states = [slice_.state for slice_ in (before, by_name, after) if isinstance(slice_, Present)]
    assert states == [SliceState.READY, SliceState.DELETING, SliceState.DELETING]


def test_a_look_by_name_serves_briefly(stage: Stage, cloud: Counted, listing: SliceCache) -> None:
    (slice_,) = slices(stage, 1)
    looks(listing, slice_)
    stage.clock.sleep(1)
    looks(listing, slice_, by_name=True)
    looks(listing, slice_)
    assert cloud.made == {"list": 1, "look": 1}
    deleted = replace(slice_, delete_asked_at=stage.clock.now())
    looks(listing, deleted)
    assert cloud.made == {"list": 1, "look": 2}
    looks(listing, deleted, by_name=True)
    assert cloud.made == {"list": 1, "look": 3}
    stage.clock.sleep(NAMED)
    looks(listing, deleted)
    assert cloud.made == {"list": 1, "look": 4}


# In a tick -----------------------------------------------------------------------------------------------------------


def _running_for_long(stage: Stage) -> Job:
    job = stage.running(stage.create())
    stage.clock.sleep(LAG)
    stage.report(job.id, 0)
    stage.report(job.id, 1)
    stage.reconciler.tick(job.id)
    return stage.job(job.id)


def test_no_attempt_is_ended_on_the_strength_of_a_list(stage: Stage) -> None:
    job = _running_for_long(stage)
    assert job.slice
    real = stage.cloud.survey

    def torn(zones: Collection[str], *, timeout: float) -> SliceSurvey:
        lost = Present(SliceState.PREEMPTED, detail="node 1 of 2 does not exist any more")
        return SliceSurvey(dict.fromkeys(real(zones, timeout=timeout).seen, lost), {}, 2)

    stage.cloud.survey = torn  # type: ignore[method-assign]
    stage.clock.sleep(60)
    stage.reconciler.tick(job.id)
    assert stage.job(job.id).state is State.RUNNING
    stage.cloud.preempt(job.slice.name)
    stage.clock.sleep(CALLS * FOR_EACH_CALL)
    stage.reconciler.tick(job.id)
    assert stage.job(job.id).state is not State.RUNNING, "and by a look that agrees it is"


def test_a_lost_slice_is_looked_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _running_for_long(stage)
    assert job.slice
    looked, deleted = Counter[str](), list[str]()
    look, delete = stage.cloud.look, stage.cloud.delete

    def looks_at(slice_: Slice, *, timeout: float) -> SliceSeen:
        looked["after" if deleted else "before"] += 1
        return look(slice_, timeout=timeout)

    def deletes(slice_: Slice, *, timeout: float, **options: bool) -> None:
        deleted.append(slice_.name)
        delete(slice_, timeout=timeout, **options)

    monkeypatch.setattr(stage.cloud, "look", looks_at)
    monkeypatch.setattr(stage.cloud, "delete", deletes)
    stage.cloud.preempt(job.slice.name)
    stage.clock.sleep(30)
    stage.reconciler.tick(job.id)
    assert (looked["before"], deleted) == (1, [job.slice.name])
