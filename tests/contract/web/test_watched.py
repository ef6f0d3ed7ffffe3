"""Monitoring of a backend by machines: the probe, the scrape, and the lines of its log."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.callers import ADA, TokenDoor
from tests.support.http import ask
from tests.support.scripted import LIMITLESS, listening
from tests.support.stage import Stage
from tests.support.waiting import LONG
from tests.unit.service.test_backend_status import scraped, value
from tpujob.engine import Pulse
from tpujob.engine.loop import Loop
from tpujob.lib import log_context
from tpujob.service.backend.status import LATE
from tpujob.service.jobs import Jobs
from tpujob.web.api import create_app
from tpujob.web.log import FORMAT, Json, OneLine
from tpujob.web.security.limits import Limits, Rate

TOKEN = {"Authorization": "Bearer t"}
THREADS = 40  #: in which routes run


@pytest.fixture
def jobs(stage: Stage) -> Jobs:
    return stage.api


@pytest.fixture
def url(jobs: Jobs) -> Iterator[str]:
    app = create_app(
        jobs.acting_for, TokenDoor("t", ADA), status=jobs.parts.status, changes=jobs.parts.changes, limits=LIMITLESS
    )  # fmt: skip
    with listening(app) as url:
        yield url


def test_requests_are_counted_by_the_template_of_their_path(url: str, stage: Stage) -> None:
    job = stage.create()
    ask(url, "GET", f"/v1/jobs/{job}", TOKEN)
    ask(url, "GET", "/v1/jobs/999999", TOKEN)
    ask(url, "GET", "/nothing/of/the/kind", TOKEN)
    ask(url, "GET", "/v1/jobs")
    status, headers, body = ask(url, "GET", "/metrics", TOKEN)
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    metrics = scraped(body if isinstance(body, str) else body.decode())
    labels = {"method": "GET", "route": "/v1/jobs/{job}"}
    assert value(metrics, "http_requests_total", status="200", **labels) == 1
    assert value(metrics, "http_requests_total", status="404", **labels) == 1
    other = {"method": "GET", "route": ""}
    assert value(metrics, "http_requests_total", status="404", **other) == 1
    assert value(metrics, "http_requests_total", status="401", **other) == 1


def test_a_probe_is_answered_while_every_thread_waits_and_however_often_it_asks(jobs: Jobs) -> None:
    """Else the platform would replace a backend whose store is slow."""
    all_wait, go_on = threading.Barrier(THREADS + 1), threading.Event()

    def wait() -> str:
        all_wait.wait(LONG)
        go_on.wait(LONG)
        return ""

    jobs.backend_metrics = wait
    limits = Limits(reads=Rate(0.001, THREADS), at_once=THREADS)
    app = create_app(lambda _: jobs, TokenDoor("t", ADA), status=jobs.parts.status, limits=limits)
    with listening(app) as url, ThreadPoolExecutor(THREADS) as pool:
        busy = [pool.submit(ask, url, "GET", "/metrics", TOKEN, None, 30) for _ in range(THREADS)]
        all_wait.wait(LONG)
        assert [ask(url, "GET", "/health")[0] for _ in range(3 * THREADS)] == [200] * 3 * THREADS
        go_on.set()
        assert {call.result()[0] for call in busy} == {200}


def test_the_probe_says_when_nobody_looks_after_jobs(url: str, jobs: Jobs, stage: Stage) -> None:
    assert ask(url, "GET", "/health")[0] == 200
    began = stage.clock.now()
    jobs.parts.status.loop.pulse = lambda: Pulse(began, began)  # type: ignore[method-assign]
    assert ask(url, "GET", "/health")[0] == 200
    stage.clock.sleep(LATE + 1)
    probe = {"Host": "169.254.169.126:8080", "User-Agent": "GoogleHC/1.0"}
    for headers in ({}, probe):
        assert ask(url, "GET", "/health", headers)[0] == 503
    health = jobs.health()
    assert health["loop"]["late"]
    assert not health["ok"]


# Lines ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[dict[str, str]]]]:
    """Gives the lines as they would be written."""
    before = caplog.handler.formatter
    caplog.handler.setFormatter(Json())
    caplog.set_level(logging.INFO)
    yield lambda: [json.loads(line) for line in caplog.text.splitlines()]
    caplog.handler.setFormatter(before)


def test_lines_of_a_tick_say_which_job_and_attempt(
    stage: Stage, log: Callable[[], list[dict[str, str]]]
) -> None:
    loop = Loop(stage.reconciler, stage.store, stage.clock, sweep=lambda: None, workers=2)
    job, other = stage.create(), stage.create(name="other")
    while not all(stage.job(id).attempt for id in (job, other)):
        stage.clock.time += 1  # a new plan of the queue takes its time
        loop.make_pass()
    loop.make_pass()
    loop.stop()
    of_reconciler = [line for line in log() if line["logger"] == "tpujob.engine.reconciler"]
    assert {line["job"] for line in of_reconciler} == {job, other}
    for line in of_reconciler:
        assert line["message"].startswith(f"job {line['job']}: "), line
        assert line["severity"] == "INFO"
        assert line["time"].endswith("Z")
        assert "request" not in line
    assert any(line.get("attempt") == "1" for line in of_reconciler)


def test_lines_of_a_request_say_which_request_and_job(
    url: str, stage: Stage, jobs: Jobs, log: Callable[[], list[dict[str, str]]]
) -> None:
    job = stage.create()

    def fail(*_: object, **__: object) -> None:
        logging.getLogger("tpujob.service").warning("about to fail")
        raise RuntimeError("a bug")

    stage.store.events = fail  # type: ignore[method-assign, assignment]
    status, headers, _ = ask(url, "GET", f"/v1/jobs/{job}/events", TOKEN)
    assert status == 500
    inner = next(line for line in log() if line["message"] == "about to fail")
    assert inner["job"] == job
    (failed,) = [line for line in log() if line["severity"] == "ERROR"]
    for line in (inner, failed):
        assert line["request"] == headers["x-request-id"]
    assert "RuntimeError: a bug" in failed["message"]


def test_a_line_for_people_ends_with_what_it_is_about() -> None:
    record = logging.LogRecord("tpujob", logging.INFO, "", 0, "a slice is asked for", (), None)
    with log_context.about(request="ab12"):
        log_context.note(job="000042")
        text = OneLine(FORMAT).format(record)
    assert text.endswith("tpujob: a slice is asked for [job=000042 request=ab12]")
    assert OneLine("%(message)s").format(record) == "a slice is asked for"
    log_context.note(job="000042")
    assert log_context.facts() == {}, "outside of any work nothing is noted"
