"""Errors as pages that say what went wrong and lead on; a program gets the same as JSON."""

import httpx
import pytest

from tests.flow.page import lab
from tests.flow.page.conftest import HTML, Site
from tpujob.domain.model import State
from tpujob.web.security.limits import Limits, Rate

FORM = {"content-type": "application/x-www-form-urlencoded"}


#: path, status, and what the page says
SENSELESS = (
    ("/nothing/of/the/kind", 404, "There is no page /nothing/of/the/kind."),
    ("/?colour=green", 400, "Unknown filter &#39;colour&#39;."),
    ("/?state=asleep", 400, "asleep"),
    ("/?order=beauty", 400, "beauty"),
    ("/?after=yesterday", 400, "yesterday"),
    ("/confirm/cancel", 400, "No job was selected."),
    ("/do/cancel", 405, "GET is not allowed here."),
    ("/jobs/999999", 404, "999999"),
    ("/jobs/000001?before=x", 400, "is not an event number"),
    ("/jobs/000001/code", 404, "has no diff"),
    ("/jobs/000001/resume", 409, "is already active"),
    ("/jobs/000001/resume", 409, 'href="../../jobs/000001">Job 000001</a>'),
    ("/compare", 400, "A comparison needs jobs"),
    ("/compare?jobs=000001,000009", 404, "000009"),
    ("/diff?a=000001", 400, "A comparison needs two jobs"),
    ("/diff?a=000001&b=000009", 404, "000009"),
    ("/spend?by=colour", 400, "colour"),
    ("/jobs/000001/logs?attempt=99", 404, "no attempt 99"),
    ("/jobs/000001/logs?host=7", 404, "no host 7"),
    ("/jobs/000001/logs?line=x", 400, "Line must be a number"),
    ("/jobs/000001/logs?part=2", 400, "Part must be a number from 0 to 1"),
    ("/jobs/000001/logs?times=mars", 400, "Times must be one of"),
    ("/jobs/000001/logs?q=(&re=1", 400, "is not a pattern"),
    ("/jobs/000001/logs?q=" + "x" * 1100, 400, "1,000 characters"),
)


@pytest.mark.parametrize(("path", "status", "says"), SENSELESS, ids=lambda part: str(part)[:40])
def test_an_address_that_makes_no_sense(site: Site, path: str, status: int, says: str):
    (job,) = site.store_jobs([lab.job_in(State.RUNNING)])
    lab.ship(site.stage.bucket, job, 0, [b"a line"])
    page = httpx.get(site.url + path, headers=HTML)
    assert page.status_code == status
    assert says in page.text
    assert "All jobs</a>" in page.text, "it leads on"
    assert "/openapi.json" not in page.text, "which are for programs"
    for_programs = httpx.get(site.url + path)
    assert for_programs.status_code == status
    assert for_programs.json()["error"]["message"]


def test_what_is_not_allowed_is_not_offered(site: Site):
    site.store_jobs(lab.full())
    for name, is_offered in (("ada", True), ("eve", False)):
        page = site.page("/?who=everyone", name).text
        assert '<tr id="job-' in page
        for part in ("Resume…</button>", "Cancel…</button>"):
            assert (part in page) is is_offered, part
        assert 'formaction="./compare">Compare</button>' in page, "everybody may compare"


def test_a_job_of_another_user_says_why_it_stays(site: Site):
    [job] = site.store_jobs([lab.job_in(State.QUEUED, owner=lab.ADA.id, user="ada")])
    page = site.page(f"/confirm/cancel?job={job.id}", "bob")
    assert "None of them is possible" in page.text
    assert "Cancel is not possible</h1>" in page.text


def test_what_is_no_form_changes_nothing(site: Site):
    [job] = site.store_jobs([lab.job_in(State.QUEUED)])
    plain = {**HTML, "content-type": "text/plain"}
    answer = httpx.post(f"{site.url}/do/cancel", headers=plain, content=f"job={job.id}")
    assert answer.status_code == 400
    too_many = "&".join(f"job={n}" for n in range(201))
    answer = httpx.post(f"{site.url}/do/cancel", headers={**HTML, **FORM}, content=too_many)
    assert answer.status_code == 400
    assert site.stage.job(job.id).desired == "run"


def test_a_job_that_is_gone_meanwhile_is_among_the_results(site: Site):
    first, second = site.store_jobs(lab.job_in(State.QUEUED, n) for n in range(2))
    site.stage.store.remove(first.id, lease=None)
    jobs = f"job={first.id}&job={second.id}"
    answer = httpx.get(f"{site.url}/confirm/cancel?{jobs}", headers=HTML)
    assert f"there is no job {first.id}" in answer.text
    assert "Cancel 1 job" in answer.text
    assert f"<code>tpujob cancel {second.id}</code>" in answer.text, "the same in a terminal"
    result = httpx.post(f"{site.url}/do/cancel", headers={**HTML, **FORM}, content=jobs)
    assert result.status_code == 200
    assert "not done" in result.text
    assert "as JSON" not in result.text, "no address has the same as JSON"
    assert "cancel asked" in result.text


def test_a_caller_above_the_limit_gets_a_page_that_refreshes(site: Site):
    site.limits = Limits(reads=Rate(0.5, 1))
    site.stop()
    site.start()
    assert httpx.get(site.url, headers=HTML).status_code == 200
    busy = httpx.get(site.url, headers=HTML)
    assert busy.status_code == 429
    assert "text/html" in busy.headers["content-type"]
    assert 1 <= int(busy.headers["refresh"]) <= 3


@pytest.mark.parametrize("path", ["/health", "/healthz"])
def test_a_wrong_method_gets_a_page(site: Site, path: str, caplog: pytest.LogCaptureFixture):
    page = httpx.post(site.url + path, headers={**HTML, "x-test-name": "stranger"})
    assert page.status_code == 405, "the caller is unknown, and nothing fails"
    assert "POST is not allowed here" in page.text
    assert "failed" not in caplog.text, "a stranger cannot fill the log"
