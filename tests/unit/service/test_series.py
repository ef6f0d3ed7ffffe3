"""Curves that are drawn: the newest that host 0 of the attempt has signed."""

from typing import Any

from tests.support.stage import Stage
from tpujob.agent.upload.progress import Series
from tpujob.protocol import paths, signing
from tpujob.protocol.report import sign_report
from tpujob.service import curves
from tpujob.service.curves import RUNNING_TTL
from tpujob.service.jobs import Jobs


def line(last: int) -> bytes:
    """Return the curve of a program that has made so many steps."""
    series = Series()
    for step in range(1, last + 1):
        series.step(step, 5000 + step / 10, {"loss": 1 / step})
    return series.line()


def place(stage: Stage, job_id: str) -> str:
    return paths.report_path(stage.job(job_id).workdir, 1, 0)


def write(stage: Stage, job_id: str, series: bytes = b"", **facts: Any) -> bytes:
    """Host 0 reports; the body."""
    job, now = stage.job(job_id), stage.clock.now()
    about: Any = {"job": job.id, "attempt": 1, "phase": "running", "seq": int(now * 1000)}
    key = stage.bucket.pens[job.workdir, 1]
    metadata, body = sign_report({**about, "host": 0, **facts}, key, b"", series)
    stage.bucket.put(place(stage, job_id), body, metadata=metadata, timeout=1)
    return body


def forge(stage: Stage, job_id: str, body: bytes) -> None:
    """In the place of host 0; the metadata stays signed."""
    path = place(stage, job_id)
    metadata = stage.bucket.objects[path][1].metadata
    stage.bucket.put(path, body, metadata=metadata, timeout=1)


def drawn(api: Jobs, job_id: str) -> int:
    """Up to which step; 0: there is no curve."""
    charts = [c for c in api.metrics(job_id)["charts"] if c["name"] == "loss"]
    return charts[0]["curves"][0]["points"][-1][0] if charts else 0


def test_what_the_hosts_have_not_signed_is_never_drawn(stage: Stage) -> None:
    stage.running(job := stage.create())
    genuine = write(stage, job, line(10))
    other = sign_report({"seq": 10**15, "phase": "running"}, "0c" * 32, b"", line(999))[1]
    rest, _, mac = genuine.replace(b"[10,", b"[999,").rpartition(b"\n")
    unsigned = signing.sign("", "report body", rest).encode()
    for body in (b"\n" + line(999), other, rest + b"\n" + unsigned, rest + b"\n" + mac):
        forge(stage, job, body)
        metrics = stage.api.metrics(job)
        assert (metrics["charts"], metrics["unread"]) == ([], [1])
        assert metrics["why"] == curves.NOT_SIGNED
    forge(stage, job, genuine)
    assert drawn(stage.api, job) == 10


def test_a_forged_body_takes_no_curve_away_that_was_drawn(stage: Stage) -> None:
    stage.running(job := stage.create())
    write(stage, job, line(10))
    assert drawn(api := stage.api, job) == 10
    forge(stage, job, b"\n" + line(999))
    stage.clock.sleep(RUNNING_TTL)
    assert drawn(api, job) == 10
    assert api.metrics(job)["unread"] == []


def test_an_older_body_that_is_put_back_is_not_drawn(stage: Stage) -> None:
    stage.running(job := stage.create())
    old = write(stage, job, line(10))
    stage.clock.sleep(RUNNING_TTL)
    write(stage, job, line(20))
    assert drawn(api := stage.api, job) == 20
    forge(stage, job, old)
    stage.clock.sleep(RUNNING_TTL)
    assert drawn(api, job) == 20


def test_an_agent_that_was_started_again_and_has_no_curve_yet_hides_none(stage: Stage) -> None:
    stage.running(job := stage.create())
    write(stage, job, line(10))
    assert drawn(api := stage.api, job) == 10
    stage.clock.sleep(RUNNING_TTL)
    write(stage, job)
    before = stage.bucket.gets
    assert drawn(api, job) == 10
    assert stage.bucket.gets == before + 1, "one read a look"
