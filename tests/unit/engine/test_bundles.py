"""Shipped code is removed with the last job that names it, and cleaning many jobs reads the records a few times."""

import hashlib
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.bundles import bundle_of
from tests.support.stage import Stage
from tpujob.domain.model import State
from tpujob.engine.bundles import Bundles

CODE = bundle_of("the code of both")


def with_code(stage: Stage, code: bytes = CODE) -> str:
    spec: dict[str, Any] = {"name": "digits", "tpu": {"type": "v4-16"}, "run": {"command": "true"}}
    digest = hashlib.sha256(code).hexdigest()
    path = stage.api.put_bundle(digest, code, bucket=stage.api.plan(spec)["bucket"])
    return stage.api.create(spec, bundles=[path])["id"]


def kept(stage: Stage) -> int:
    return sum("/bundles/" in path for path in stage.bucket.objects)


def test_an_unreadable_record_stops_removals(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job = stage.until(with_code(stage), State.RUNNING)
    monkeypatch.setattr(stage.store, "damaged", lambda: [("000009", "it is no JSON")])
    Bundles(stage.store, stage.bucket).remove(job)
    assert kept(stage) == 1


def test_jobs_cleaned_at_once_share_reads(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """But none of them uses a read that had begun before: it may have passed a record that was made since."""
    jobs = [stage.job(with_code(stage, bundle_of(str(n)))) for n in range(20)]
    read, counts = stage.store.list, Counter[str]()
    all_ask, goes_on = threading.Event(), threading.Event()

    def listed(**options: Any) -> Any:
        counts["reads"] += 1
        goes_on.set()
        assert all_ask.wait(60)
        return read(**options)

    monkeypatch.setattr(stage.store, "list", listed)
    bundles, asking = Bundles(stage.store, stage.bucket), threading.Semaphore(0)

    class Turns:
        """The lock for which each of them waits once it knows which read it needs."""

        lock = threading.Lock()

        def __enter__(self) -> None:
            asking.release()
            self.lock.acquire()

        def __exit__(self, *error: object) -> None:
            self.lock.release()

    monkeypatch.setattr(bundles._naming, "_lock", Turns())  # pyright: ignore[reportPrivateUsage]
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(bundles.remove, jobs[0])
        assert goes_on.wait(60)
        others = [pool.submit(bundles.remove, job) for job in jobs[1:]]
        for _ in jobs:
            assert asking.acquire(timeout=60)
        all_ask.set()
        for future in (first, *others):
            future.result(60)
    assert kept(stage) == 0, "all of it is removed"
    assert 2 <= counts["reads"] <= 4, "one reads, and the next serves the others"
