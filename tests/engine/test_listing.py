"""One look at what hosts have reported serves all jobs of a folder; what is over is taken out of the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest

from tests.support.stage import Stage
from tpujob.adapters.clock import SystemClock
from tpujob.domain.model import State
from tpujob.domain.money.looks import BY_NAME_LASTS, LASTS, WHOLE
from tpujob.engine.listing import STALE, SWEPT, ReportListing
from tpujob.errors import Transient
from tpujob.ports import Blob
from tpujob.protocol import paths
from tpujob.protocol.slice_report import Word, pack

ROOT = "gs://tpujob-my-project-us-central2/u/ada/reports/"


@pytest.fixture
def listed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prefixes that the bucket was asked for, in order."""
    asked: list[str] = []
    real: Callable[..., list[Blob]] = stage.bucket.list

    def list_(prefix: str, **more: object) -> list[Blob]:
        asked.append(prefix)
        return real(prefix, **more)

    monkeypatch.setattr(stage.bucket, "list", list_)
    return asked


def test_one_call_serves_all_jobs_for_some_seconds(stage: Stage, listed: list[str]) -> None:
    jobs = [stage.create(name=f"job-{n}") for n in range(6)]
    for job_id in jobs:
        stage.running(job_id)
    stage.clock.sleep(LASTS)
    listed.clear()
    for job_id in jobs:
        stage.reconciler.tick(job_id)
    assert len(listed) == 1, listed
    assert all(prefix.endswith("/reports/") for prefix in listed)
    stage.clock.sleep(LASTS)
    stage.reconciler.tick(jobs[0])
    assert len(listed) == 2, "what is old is looked at again"


def test_a_report_is_as_old_as_it_is_however_old_the_listing(stage: Stage) -> None:
    stage.running(job_id := stage.create())
    stage.report(job_id, 0)
    stage.clock.sleep(LASTS)
    job, observer = stage.job(job_id), stage.reconciler.observer
    ages = [observer.look(job).heard[0].age]
    stage.clock.sleep(LASTS - 1)
    ages.append(observer.look(job).heard[0].age)
    assert ages == [LASTS, 2 * LASTS - 1]


def test_reports_of_what_is_over_are_removed_and_the_curves_are_kept(stage: Stage) -> None:
    stage.running(first := stage.create())
    stage.running(second := stage.create(name="other"))
    job = stage.job(first)
    stage.finish(first, 0, 0)
    stage.until(first, State.SUCCEEDED)
    root = paths.reports_root(job.workdir)

    def there() -> set[str]:
        return {blob.path[len(root) :] for blob in stage.bucket.list(root, timeout=1)}

    stage.reconciler.tidy()
    assert len(there()) == 4, "an agent may still be writing"
    stage.clock.sleep(STALE + 1)
    for host in range(2):
        stage.report(second, host)
    stage.reconciler.tidy()
    assert there() == {f"{second}/1/host-0", f"{second}/1/host-1"}
    assert stage.bucket.objects[paths.kept_report_path(job.workdir, 1, 0)]
    stage.api.clean(first)
    stage.until(first, lambda j: True, limit=1)


def test_what_is_cleaned_leaves_no_report(stage: Stage) -> None:
    stage.running(job_id := stage.create())
    stage.finish(job_id, 0, 0)
    stage.until(job_id, State.SUCCEEDED)
    stage.api.clean(job_id)
    stage.step(job_id)
    assert not [path for path in stage.bucket.objects if f"/{job_id}/" in path]


# By name -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def looked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The objects that the bucket was asked for, in order."""
    asked: list[str] = []
    real = stage.bucket.stat

    def stat(path: str, *, timeout: float) -> Blob:
        asked.append(path.rpartition("/reports/")[2])
        return real(path, timeout=timeout)

    monkeypatch.setattr(stage.bucket, "stat", stat)
    return asked


def test_while_all_hosts_are_heard_their_objects_are_looked_at_by_name(
    stage: Stage, listed: list[str], looked: list[str]
) -> None:
    stage.running(job_id := stage.create())
    stage.reconciler.tick(job_id)
    listed.clear()
    for step in range(10):
        for host in range(2):
            stage.report(job_id, host, step=step)
        stage.clock.sleep(10)
        stage.reconciler.tick(job_id)
        assert stage.reconciler.live[job_id].progress.step == step
    assert listed == []
    assert set(looked) == {f"{job_id}/1/host-0", f"{job_id}/1/host-1"}


def test_an_object_that_cannot_be_looked_at_leaves_no_other_job_unheard(
    stage: Stage, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_, last = [stage.running(stage.create(name=f"job-{n}")) for n in range(3)]
    stage.reconciler.tick(first.id)
    listed.clear()
    real = stage.bucket.stat

    def stat(path: str, *, timeout: float) -> Blob:
        if f"/reports/{last.id}/" in path:
            raise Transient("503 the service is unavailable")
        return real(path, timeout=timeout)

    monkeypatch.setattr(stage.bucket, "stat", stat)
    for one in (first, last, first):
        stage.clock.sleep(10)
        stage.report(one.id, 0, step=7)
        stage.report(one.id, 1, step=7)
        stage.reconciler.tick(one.id)
        live = stage.reconciler.live[one.id]
        assert (live.trouble, live.progress.step) == ("", 7)
    assert len(listed) >= 1, "a list has shown what could not be looked at by name"


def test_the_host_that_comes_to_speak_next_is_heard_without_a_list(
    stage: Stage, listed: list[str]
) -> None:
    job = stage.running(stage.create())
    key = stage.bucket.pens[job.workdir, 1]

    def speak(by: int, seq: int, ages: tuple[float, float], **fields: object) -> None:
        about = {"job": job.id, "attempt": 1, "phase": "running", "seq": seq * 10**6, **fields}
        said = [Word(k, {**about, "host": k}, age) for k, age in enumerate(ages)]  # type: ignore[typeddict-item]
        metadata, body = pack(said, by=by, at=stage.clock.now(), key=key)
        path = paths.report_path(job.workdir, 1, by)
        stage.bucket.put(path, body, metadata=metadata, timeout=1)

    speak(0, 1, (0, 3), step=1)
    stage.clock.sleep(10)
    stage.reconciler.tick(job.id)
    listed.clear()
    speak(1, 2, (20, 0), step=2)
    stage.clock.sleep(10)
    stage.reconciler.tick(job.id)
    assert (listed, stage.reconciler.live[job.id].progress.step) == ([], 2)


def test_all_is_listed_from_time_to_time_as_another_host_may_have_come_to_speak(
    stage: Stage, listed: list[str]
) -> None:
    stage.running(job_id := stage.create())
    stage.reconciler.tick(job_id)
    listed.clear()
    for _ in range(int(2 * WHOLE / 10)):
        for host in range(2):
            stage.report(job_id, host)
        stage.clock.sleep(10)
        stage.reconciler.tick(job_id)
    assert len(listed) == 2


def test_a_host_that_falls_silent_makes_all_be_listed(
    stage: Stage, listed: list[str], looked: list[str]
) -> None:
    stage.running(job_id := stage.create())
    stage.reconciler.tick(job_id)
    for _ in range(6):
        stage.report(job_id, 0)
        stage.clock.sleep(10)
        stage.reconciler.tick(job_id)
    listed.clear()
    looked.clear()
    stage.clock.sleep(10)
    stage.reconciler.tick(job_id)
    assert (len(listed), looked) == (1, []), "host 1 may speak elsewhere"


def test_the_end_of_a_host_that_was_looked_at_by_name_brings_its_job_forward(
    stage: Stage, listed: list[str]
) -> None:
    jobs = [stage.create(name=name) for name in ("one", "two")]
    for job_id in jobs:
        stage.running(job_id)
    for job_id in jobs:
        for host in range(2):
            stage.report(job_id, host)
        stage.clock.sleep(LASTS)
        stage.reconciler.tick(job_id)
    news: list[str] = []
    stage.reconciler.observer.listing.news = news.append
    stage.finish(jobs[1], 75, 75)
    listed.clear()
    stage.clock.sleep(BY_NAME_LASTS)
    stage.reconciler.tick(jobs[0])
    assert (listed, news) == ([], [jobs[1]]), "the tick of the other job has looked at both"


def test_a_sweep_lists_nothing_that_is_known_and_removes_nothing_that_was_written_since(
    stage: Stage, listed: list[str]
) -> None:
    stage.running(over := stage.create())
    stage.finish(over, 0, 0)
    stage.until(over, State.SUCCEEDED)
    stage.running(going := stage.create(name="other"))
    stage.clock.sleep(STALE + 1)
    stage.reconciler.tick(going)
    listed.clear()
    stage.report(over, 1)
    stage.reconciler.tidy()
    left = [path for path in stage.bucket.objects if f"/reports/{over}/" in path]
    assert [path.rpartition("/")[2] for path in left] == ["host-1"], "its agent still writes"
    assert listed == []
    stage.clock.sleep(SWEPT + 1)
    stage.reconciler.tidy()
    assert len(listed) == 1
    assert not [path for path in stage.bucket.objects if f"/reports/{over}/" in path]


# News ----------------------------------------------------------------------------------------------------------------


def test_the_end_of_a_host_brings_its_job_forward_and_a_step_does_not(stage: Stage) -> None:
    stage.running(first := stage.create())
    stage.running(second := stage.create(name="other"))
    listing = stage.reconciler.observer.listing
    listing.of(stage.job(first), timeout=1)
    news: list[str] = []
    listing.news = news.append
    stage.report(second, 0, step=7)
    stage.clock.sleep(LASTS)
    listing.of(stage.job(first), timeout=1)
    assert news == [], "a step calls for no decision"
    stage.finish(second, 75, 75)
    stage.clock.sleep(LASTS)
    listing.of(stage.job(first), timeout=1)
    assert news == [second], "whoever made the listing is another job"


def test_while_one_thread_lists_the_others_go_on_with_what_they_have(stage: Stage) -> None:
    stage.running(job_id := stage.create())
    listing, job = stage.reconciler.observer.listing, stage.job(job_id)
    listing.of(job, timeout=1)
    stage.clock.sleep(LASTS)
    under_way, go_on = threading.Event(), threading.Event()
    real, calls = stage.bucket.list, 0

    def slow(prefix: str, **more: Any) -> list[Blob]:
        nonlocal calls
        calls += 1
        under_way.set()
        assert go_on.wait(10)
        return real(prefix, **more)

    stage.bucket.list = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(listing.of, job, timeout=1)
        assert under_way.wait(10)
        found, _ = listing.of(job, timeout=1)
        go_on.set()
        made.result(10)
    assert (calls, len(found)) == (1, 2), "one call, and nobody has waited for it"


def test_a_storage_that_is_slow_is_asked_by_one_thread_while_the_others_wait(stage: Stage) -> None:
    """Eight ticks that each asked anew kept an overloaded storage overloaded: nothing else went on."""
    stage.running(job_id := stage.create())
    job, go_on, real, calls = stage.job(job_id), threading.Event(), stage.bucket.list, 0
    listing = ReportListing(stage.bucket, SystemClock())

    def slow(prefix: str, **more: Any) -> list[Blob]:
        nonlocal calls
        calls += 1
        assert go_on.wait(10)
        return real(prefix, **more)

    stage.bucket.list = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(6) as pool:
        first = [pool.submit(listing.of, job, timeout=0.3) for _ in range(6)]
        over = as_completed(first, timeout=10)
        refused = [next(over).exception() for _ in range(5)]
        go_on.set()
        (made,) = over
    assert all(isinstance(error, Transient) for error in refused), "in their time nothing is known"
    assert (calls, len(made.result()[0])) == (1, 2)
