"""The kept report of an attempt that is over: that of host 0 with the newest curves that it has signed."""

from pathlib import Path

import pytest

from tests.support.records import curves_in
from tests.support.stage import Stage
from tests.unit.engine.test_orphans import damage
from tests.unit.service.test_series import drawn, line, place, write
from tpujob.domain.model import State
from tpujob.engine.report_cache import STALE
from tpujob.errors import Transient
from tpujob.protocol import paths


def ended(stage: Stage) -> str:
    """Return a job that has ended, while another one of the same owner is running."""
    stage.running(stage.create(name="other"))
    stage.running(job := stage.create())
    write(stage, job, line(20))
    stage.api.cancel(job)
    stage.until(job, State.CANCELLED)
    stage.clock.sleep(STALE + 1)
    return job


def tidy_later(stage: Stage) -> None:
    stage.clock.sleep(STALE + 1)
    stage.tidy(stage.new_backend())


def kept(stage: Stage, job: str) -> bytes:
    """Return the curves in the report that is kept."""
    path = paths.kept_report_path(stage.job(job).workdir, 1, 0)
    return curves_in(stage.bucket.objects[path][0])


def left(stage: Stage, job: str) -> list[str]:
    return [path for path in stage.bucket.objects if f"/reports/{job}/" in path]


def test_the_copy_that_is_kept_has_the_curves(stage: Stage) -> None:
    job = ended(stage)
    stage.tidy()
    assert (kept(stage, job), left(stage, job)) == (line(20), [])
    assert drawn(stage.api, job) == 20
    assert stage.api.metrics(job)["unread"] == []


def test_what_is_not_signed_or_older_displaces_nothing_that_is_kept(stage: Stage) -> None:
    job = ended(stage)
    old = stage.bucket.objects[place(stage, job)]
    stage.tidy()
    for body in (b"\n" + line(99), old[0]):
        stage.bucket.put(place(stage, job), body, metadata=old[1].metadata, timeout=1)
        tidy_later(stage)
        assert (kept(stage, job), left(stage, job)) == (line(20), [])


@pytest.mark.parametrize("cut", [0, 1])
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
        stage.tidy()
    tidy_later(stage)
    assert (kept(stage, job), left(stage, job)) == (line(20), [])


def test_two_sweeps_at_once_keep_the_curves(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second backend removes the report that the first one is about to read."""
    job = ended(stage)
    other, real = stage.new_backend(), stage.bucket.get

    def get(path: str, *, end: int | None = None, timeout: float) -> bytes:
        if path == place(stage, job):
            monkeypatch.undo()
            stage.tidy(other)
        return real(path, end=end, timeout=timeout)

    monkeypatch.setattr(stage.bucket, "get", get)
    stage.tidy()
    assert (kept(stage, job), left(stage, job)) == (line(20), [])


def test_reports_of_a_job_whose_record_cannot_be_read_stay(stage: Stage, tmp_path: Path) -> None:
    """The attempt may go on: the end of one host is recorded in its report alone."""
    stage.running(stage.create(name="other"))
    stage.running(job := stage.create())
    stage.report(job, 1, phase="exited", exit_code=0)
    reports = left(stage, job)
    damage(tmp_path, job)
    tidy_later(stage)
    assert left(stage, job) == reports


def test_without_a_record_the_report_of_host_0_is_kept(stage: Stage) -> None:
    job = ended(stage)
    assert stage.reconciler._key_of(job, 1) is not None
    assert stage.reconciler._key_of(job, 2) is None
    assert stage.reconciler._key_of("000099", 1) is None
    stage.reconciler._key_of = lambda *_: None  # type: ignore[method-assign]
    stage.tidy()
    assert kept(stage, job) == line(20)
