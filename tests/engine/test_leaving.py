"""What is kept of the reports of an attempt that is over: the newest curves that its hosts have signed."""

from __future__ import annotations

import pytest

from tests.service.test_series import drawn, line, place, speak
from tests.support.stage import Stage
from tpujob.domain.model import State
from tpujob.engine.listing import STALE, SWEPT
from tpujob.errors import Transient
from tpujob.protocol import paths
from tpujob.protocol.slice_report import series_of


def ended(stage: Stage) -> str:
    """A job of which host 0 spoke first, and then host 1; it is over, while another one of the same owner goes on."""
    stage.running(stage.create(name="other"))
    stage.running(job := stage.create())
    speak(stage, job, 0, line(10))
    stage.clock.sleep(20)
    speak(stage, job, 1, line(20))
    stage.api.cancel(job)
    stage.until(job, State.CANCELLED)
    stage.clock.sleep(STALE + 1)
    return job


def sweep(stage: Stage) -> None:
    stage.clock.sleep(SWEPT + 1)
    stage.new_backend().tidy()


def kept(stage: Stage, job: str) -> bytes:
    """The curves."""
    path = paths.kept_report_path(stage.job(job).workdir, 1, 0)
    return series_of(stage.bucket.objects[path][0])


def left(stage: Stage, job: str) -> list[str]:
    return [path for path in stage.bucket.objects if f"/reports/{job}/" in path]


def test_the_copy_that_is_kept_has_the_newest_curves(stage: Stage) -> None:
    job = ended(stage)
    stage.reconciler.tidy()
    assert (kept(stage, job), left(stage, job)) == (line(20), [])
    assert drawn(stage.api, job) == 20
    assert stage.api.metrics(job)["unread"] == []


def test_newer_words_without_curves_displace_none(stage: Stage) -> None:
    job = ended(stage)
    speak(stage, job, 1)
    sweep(stage)
    assert kept(stage, job) == line(10)


def test_what_is_not_signed_or_older_displaces_nothing_that_is_kept(stage: Stage) -> None:
    job = ended(stage)
    old = stage.bucket.objects[place(stage, job, 0)]
    stage.reconciler.tidy()
    for body, metadata in ((b"\n" + line(99), old[1].metadata), (old[0], old[1].metadata)):
        for host in (0, 1):
            stage.bucket.put(place(stage, job, host), body, metadata=metadata, timeout=1)
            sweep(stage)
            assert (kept(stage, job), left(stage, job)) == (line(20), [])


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_sweep_that_is_cut_off_loses_no_curve(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    job = ended(stage)
    real, calls = stage.bucket.delete, iter(range(9))

    def delete(path: str, *, timeout: float) -> None:
        if next(calls) == cut:
            raise Transient("503")
        real(path, timeout=timeout)

    with monkeypatch.context() as patched:
        patched.setattr(stage.bucket, "delete", delete)
        stage.reconciler.tidy()
    sweep(stage)
    assert (kept(stage, job), left(stage, job)) == (line(20), [])


def test_two_that_sweep_at_once_keep_the_newest_curves(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One finds that the other has removed what it was about to read."""
    job = ended(stage)
    other, real = stage.new_backend(), stage.bucket.get

    def get(path: str, *, end: int | None = None, timeout: float) -> bytes:
        body = real(path, end=end, timeout=timeout)
        if path == place(stage, job, 0):
            monkeypatch.undo()
            other.tidy()
        return body

    monkeypatch.setattr(stage.bucket, "get", get)
    stage.reconciler.tidy()
    assert (kept(stage, job), left(stage, job)) == (line(20), [])


def test_a_record_is_read_only_where_there_is_something_to_choose(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.running(stage.create(name="other"))
    stage.running(job := stage.create())
    stage.bucket.delete(place(stage, job, 1), timeout=1)
    speak(stage, job, 0, line(10))
    stage.api.cancel(job)
    stage.until(job, State.CANCELLED)
    stage.clock.sleep(STALE + 1)
    asked: list[str] = []
    monkeypatch.setattr(stage.store, "get", asked.append)
    stage.reconciler.tidy()
    monkeypatch.undo()
    assert (kept(stage, job), asked) == (line(10), [])


def test_without_a_record_the_report_of_host_0_is_kept(stage: Stage) -> None:
    job = ended(stage)
    workdir = stage.job(job).workdir
    assert stage.reconciler._key_of(job, 1) is not None
    assert stage.reconciler._key_of(job, 2) is None
    assert stage.reconciler._key_of("000099", 1) is None
    stage.reconciler._key_of = lambda *_: None  # type: ignore[method-assign]
    stage.reconciler.tidy()
    assert series_of(stage.bucket.objects[paths.kept_report_path(workdir, 1, 0)][0]) == line(10)
