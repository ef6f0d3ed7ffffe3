"""Whose curves are drawn: the newest that hosts of the attempt have signed, whichever of them speaks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from tests.support.records import a_job
from tests.support.stage import Stage
from tpujob.agent.ship.series import Series
from tpujob.domain.host import reports
from tpujob.errors import NotFound
from tpujob.ports import Blobs, Clock
from tpujob.protocol import paths, signing
from tpujob.protocol.slice_report import Word, pack
from tpujob.service import metrics
from tpujob.service.jobs import Jobs
from tpujob.service.series import FRESH, LATE, SEARCHED


def line(last: int) -> bytes:
    """Of a program that has made so many steps."""
    series = Series()
    for step in range(1, last + 1):
        series.step(step, 5000 + step / 10, {"loss": 1 / step})
    return series.line()


def place(stage: Stage, job_id: str, host: int) -> str:
    return paths.report_path(stage.job(job_id).workdir, 1, host)


def speak(stage: Stage, job_id: str, by: int, *series: bytes, phase: str = "running") -> bytes:
    """A host writes for its slice; the body."""
    job, now = stage.job(job_id), stage.clock.now()
    about = {"job": job.id, "attempt": 1, "phase": phase, "seq": int(now * 1000)}
    words = [Word(by, {**about, "host": by})]  # type: ignore[typeddict-item]
    key = stage.bucket.pens[job.workdir, 1]
    metadata, body = pack(words, by=by, at=now, key=key, series=b"".join(series))
    stage.bucket.put(place(stage, job_id, by), body, metadata=metadata, timeout=1)
    return body


def forge(stage: Stage, job_id: str, body: bytes, host: int = 0) -> None:
    """In the place of a host; the metadata stays signed."""
    path = place(stage, job_id, host)
    metadata = stage.bucket.objects[path][1].metadata
    stage.bucket.put(path, body, metadata=metadata, timeout=1)


def drawn(api: Jobs, job_id: str) -> int:
    """Up to which step; 0: there is no curve."""
    charts = [c for c in api.metrics(job_id)["charts"] if c["name"] == "loss"]
    return charts[0]["curves"][0]["points"][-1][0] if charts else 0


def test_what_the_hosts_have_not_signed_is_never_drawn(stage: Stage) -> None:
    stage.running(job := stage.create())
    genuine = speak(stage, job, 0, line(10))
    _, other = pack([], by=0, at=stage.clock.now(), key="0c" * 32, series=line(999))
    rest = genuine.partition(b"\n")[2].replace(b"[10,", b"[999,")
    unsigned = signing.sign("", "slice body", rest).encode()
    mine = genuine.partition(b"\n")[0]
    for body in (b"\n" + line(999), other, unsigned + b"\n" + rest, mine + b"\n" + rest):
        forge(stage, job, body)
        found = stage.api.metrics(job)
        assert (found["charts"], found["unread"]) == ([], [1])
        assert found["why"] == metrics.NOT_SIGNED
    forge(stage, job, genuine)
    assert drawn(stage.api, job) == 10


def test_a_forged_body_takes_no_curve_away_that_was_drawn(stage: Stage) -> None:
    stage.running(job := stage.create())
    speak(stage, job, 0, line(10))
    assert drawn(api := stage.api, job) == 10
    forge(stage, job, b"\n" + line(999))
    stage.clock.sleep(FRESH)
    assert drawn(api, job) == 10
    assert api.metrics(job)["unread"] == []


def test_the_curves_go_on_while_another_host_than_0_speaks(stage: Stage) -> None:
    """Also on a page of a process that has heard no report, and with one read a look."""
    stage.running(job := stage.create())
    speak(stage, job, 0, line(10))
    assert drawn(api := stage.api, job) == 10
    for last in (20, 30):
        stage.clock.sleep(LATE + 1)
        speak(stage, job, 1, line(last))
        assert drawn(api, job) == drawn(stage.api, job) == last
    before = stage.bucket.gets
    stage.clock.sleep(FRESH)
    assert drawn(api, job) == 30
    assert stage.bucket.gets == before + 1
    stage.clock.sleep(LATE + 1)
    speak(stage, job, 0, line(40))
    assert drawn(api, job) == drawn(stage.api, job) == 40, "and host 0 speaks again"


def test_a_host_whose_program_tells_no_steps_hides_no_curve(stage: Stage) -> None:
    stage.running(job := stage.create())
    speak(stage, job, 0, line(10))
    stage.clock.sleep(LATE + 1)
    speak(stage, job, 1)
    assert drawn(stage.api, job) == 10


def test_places_where_nobody_spoke_are_looked_at_once_a_minute(stage: Stage) -> None:
    stage.running(job := stage.create())
    speak(stage, job, 0, line(10))
    stage.clock.sleep(LATE + 1)
    api, before = stage.api, stage.bucket.gets
    looks = int(SEARCHED / FRESH)
    for _ in range(looks):
        assert drawn(api, job) == 10
        stage.clock.sleep(FRESH)
    assert stage.bucket.gets == before + 2 * looks + 1, "host 0's two places, and once host 1's"


def test_an_older_body_that_is_put_back_is_not_drawn(stage: Stage) -> None:
    stage.running(job := stage.create())
    old = speak(stage, job, 0, line(10))
    stage.clock.sleep(FRESH)
    speak(stage, job, 0, line(20))
    assert drawn(api := stage.api, job) == 20
    forge(stage, job, old)
    stage.clock.sleep(FRESH)
    assert drawn(api, job) == 20, "of the same host"
    stage.clock.sleep(LATE + 1)
    speak(stage, job, 1, line(30))
    forge(stage, job, old)
    assert drawn(stage.api, job) == 30, (
        "of a host for which another one speaks, and nothing is remembered"
    )
    stage.bucket.put(paths.kept_report_path(stage.job(job).workdir, 1, 0), old, timeout=1)
    assert drawn(stage.api, job) == 30, "where it would be kept once the attempt is over"


def test_the_end_of_host_0_is_its_last_word(stage: Stage) -> None:
    stage.running(job := stage.create())
    speak(stage, job, 0, line(10), phase="exited")
    stage.clock.sleep(LATE + 1)
    before = stage.bucket.gets
    assert drawn(stage.api, job) == 10
    assert stage.bucket.gets == before + 1, "nobody else is asked"


def test_attempts_of_agents_that_do_not_sign_are_read_where_these_report() -> None:
    job = a_job()
    job = replace(job, attempts=tuple(replace(a, running_at=a.started_at) for a in job.attempts))
    assert job.attempt is not None
    assert not job.attempt.signed
    path, body = reports.report_path(job, job.attempt, 0), b'{"lines": []}\n' + line(10)

    def get(asked: str, **_: object) -> bytes:
        if asked != path:
            raise NotFound(asked)
        return body

    def key(_: object) -> str:
        raise AssertionError("no key is needed")

    blobs, clock = SimpleNamespace(get=get), SimpleNamespace(now=lambda: 2e9)
    found = metrics.Curves(cast(Blobs, blobs), cast(Clock, clock), key).metrics(job)
    assert [c["name"] for c in found["charts"]] == ["loss", "steps/s"]
    assert found["unread"] == []
