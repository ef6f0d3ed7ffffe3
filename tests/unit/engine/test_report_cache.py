"""One look at what hosts have reported serves all jobs of a folder; what is over is taken out of the way."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest

from tests.support.stage import Stage
from tests.support.waiting import LONG
from tpujob.adapters.calling import SystemClock
from tpujob.domain.money.polling_cost import LASTS, UNASKED
from tpujob.engine.report_cache import ASKED, STALE, ReportCache
from tpujob.errors import Transient
from tpujob.ports import Blob
from tpujob.protocol import paths

ROOT = "gs://tpujob-my-project-us-central2/u/ada/reports/"


@pytest.fixture
def listed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prefixes that the bucket was asked for, in order."""
    prefixes: list[str] = []
    real: Callable[..., list[Blob]] = stage.bucket.list

    def list_(prefix: str, **options: object) -> list[Blob]:
        prefixes.append(prefix)
        return real(prefix, **options)

    monkeypatch.setattr(stage.bucket, "list", list_)
    return prefixes


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
    stage.succeed(first)
    root = paths.reports_root(job.workdir)

    def there() -> set[str]:
        return {blob.path[len(root) :] for blob in stage.bucket.list(root, timeout=1)}

    stage.tidy()
    assert len(there()) == 4, "an agent may still be writing"
    stage.clock.sleep(STALE + 1)
    stage.reports(second)
    stage.tidy()
    assert there() == {f"{second}/1/host-0", f"{second}/1/host-1"}
    assert stage.bucket.objects[paths.kept_report_path(job.workdir, 1, 0)]
    stage.api.clean(first)
    stage.until(first, lambda j: True, limit=1)


def test_a_sweep_removes_nothing_that_was_just_written(stage: Stage) -> None:
    stage.running(over := stage.create())
    stage.succeed(over)
    stage.running(going := stage.create(name="other"))
    stage.clock.sleep(STALE + 1)
    stage.reconciler.tick(going)
    stage.report(over, 1)
    stage.tidy()
    remaining = [path for path in stage.bucket.objects if f"/reports/{over}/" in path]
    assert [path.rpartition("/")[2] for path in remaining] == ["host-1"], "its agent still writes"
    stage.clock.sleep(STALE + 1)
    stage.tidy()
    assert not [path for path in stage.bucket.objects if f"/reports/{over}/" in path]


# News ----------------------------------------------------------------------------------------------------------------


def test_the_end_of_a_host_brings_its_job_forward_and_a_step_does_not(stage: Stage) -> None:
    stage.running(first := stage.create())
    stage.running(second := stage.create(name="other"))
    cache = stage.reconciler.observer.report_cache
    cache.reports_of(stage.job(first), timeout=1)
    news: list[str] = []
    cache.news = news.append
    stage.report(second, 0, step=7)
    stage.clock.sleep(LASTS)
    cache.reports_of(stage.job(first), timeout=1)
    assert news == [], "a step calls for no decision"
    stage.finish(second, 75, 75)
    stage.clock.sleep(LASTS)
    cache.reports_of(stage.job(first), timeout=1)
    assert news == [second], "whoever made the listing is another job"


def test_the_end_of_a_host_is_known_before_a_tick(stage: Stage, listed: list[str]) -> None:
    stage.running(job_id := stage.create())
    cache = stage.reconciler.observer.report_cache
    stage.clock.sleep(UNASKED)
    stage.reconciler.tick(job_id)
    news: list[str] = []
    cache.news = news.append
    listed.clear()
    cache.refresh()
    assert listed == [], "what a tick has just read serves"
    stage.finish(job_id, 75, 75)
    stage.clock.sleep(UNASKED)
    cache.refresh()
    assert (len(listed), news) == (1, [job_id])
    stage.clock.sleep(ASKED)
    cache.refresh()
    assert len(listed) == 1, "no tick has asked for long"


def test_while_one_thread_lists_the_others_go_on_with_what_they_have(stage: Stage) -> None:
    stage.running(job_id := stage.create())
    cache, job = stage.reconciler.observer.report_cache, stage.job(job_id)
    cache.reports_of(job, timeout=1)
    stage.clock.sleep(LASTS)
    under_way, go_on = threading.Event(), threading.Event()
    real, calls = stage.bucket.list, 0

    def slow(prefix: str, **options: Any) -> list[Blob]:
        nonlocal calls
        calls += 1
        under_way.set()
        assert go_on.wait(LONG)
        return real(prefix, **options)

    stage.bucket.list = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(cache.reports_of, job, timeout=1)
        assert under_way.wait(LONG)
        blobs, _ = cache.reports_of(job, timeout=1)
        go_on.set()
        made.result(LONG)
    assert (calls, len(blobs)) == (1, 2), "one call, and nobody has waited for it"


def test_a_storage_that_is_slow_is_asked_by_one_thread_while_the_others_wait(stage: Stage) -> None:
    """Eight ticks that each asked anew kept an overloaded storage overloaded: nothing else went on."""
    stage.running(job_id := stage.create())
    job, go_on, real, calls = stage.job(job_id), threading.Event(), stage.bucket.list, 0
    cache = ReportCache(stage.bucket, SystemClock())

    def slow(prefix: str, **options: Any) -> list[Blob]:
        nonlocal calls
        calls += 1
        assert go_on.wait(LONG)
        return real(prefix, **options)

    stage.bucket.list = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(6) as pool:
        first = [pool.submit(cache.reports_of, job, timeout=0.3) for _ in range(6)]
        over = as_completed(first, timeout=LONG)
        refused = [next(over).exception() for _ in range(5)]
        go_on.set()
        (made,) = over
    assert all(isinstance(error, Transient) for error in refused), "in their time nothing is known"
    assert (calls, len(made.result()[0])) == (1, 2)
