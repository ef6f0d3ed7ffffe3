"""The page of a job in a browser: what it shows, and its buttons."""

import re
from dataclasses import replace

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.flow.page import lab, past
from tests.flow.page.conftest import ALL, HTML, NARROW, OpenTab, Site
from tests.flow.page.story import axe, fits
from tests.support.callers import ADA
from tests.support.stage import SPEC
from tpujob.domain.model import Proof, State, Unreached, Verdict
from tpujob.web.pages.frame import ALONE

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}\u202etxt.exe'\"`</td>"


def test_the_page_shows_state_times_and_curves_of_a_job(site: Site, open_tab: OpenTab) -> None:
    job = past.preempted(site.stage, ADA)
    page = open_tab(f"/jobs/{job}", allowed=["404"])
    view = site.api.get(job)
    expect(page.locator("#job-now")).to_have_text(view["why"])
    expect(page.locator("#job-next")).to_have_text(view["next"]["text"])
    expect(page.locator("#job-time .legend")).to_contain_text("redone")
    expect(page.locator("#job-tries tbody tr")).to_have_count(3)
    expect(page.locator("#job-hosts tr", has_text="rack-07")).to_contain_text("refused")
    assert page.locator("#job-curves polyline.lost").count() >= 2, "both losses are drawn"
    expect(page.locator("#job-curves .plot")).to_have_count(4)
    for rows in page.locator("summary").all():
        rows.evaluate("summary => summary.parentElement.open = true")
    axe(page)
    before = page.locator("#job-events tbody tr").count()
    site.api.cancel(job)
    site.changes.poke()
    expect(page.locator("#job-events tbody tr")).to_have_count(before + 1)
    expect(page.locator("#job-next")).to_have_text(site.api.get(job)["next"]["text"])
    expect(page.locator(".act.cancel")).to_have_count(0)
    expect(page.locator("#job-curves .plot")).to_have_count(4)
    assert page.locator("#job-stretches details").get_attribute("open") is not None, "it stays open"
    site.stage.store.remove(job, lease=None)
    site.changes.poke()
    over = page.get_by_role("alert")
    expect(over).to_contain_text(f"no job {job}")
    expect(over.locator("code")).to_have_text("tpujob list --all")
    expect(over.get_by_role("link", name="All jobs")).to_be_visible()
    expect(page.locator("#live")).to_contain_text("no longer live")
    expect(page.locator("#job-tries tbody tr")).to_have_count(3)  # what it showed stays


def test_retries_and_the_steps_of_an_attempt_are_those_of_the_terminal(site: Site) -> None:
    stage = site.stage
    (starts,) = site.store_jobs([lab.job_in(State.PREPARING)])
    page = httpx.get(f"{site.url}/jobs/{starts.id}", headers=HTML).text
    assert '<span class="mute">starting</span>' in page
    job = stage.started(recovery={"failures": 0, "hangs": 2})
    stage.reports(job, step=30, resumed_from=25)
    stage.step(job)
    page = httpx.get(f"{site.url}/jobs/{job}", headers=HTML).text
    assert ">failures: no retry is allowed<" in page
    assert ">hangs 0 of 2<" in page
    assert '<span class="mute">running</span>' in page
    assert '<td class="num">26</td><td class="num">30</td>' in page, "the first step that it made"


def test_a_loss_that_is_not_finite_is_not_shown_as_the_last_finite_one(site: Site) -> None:
    job = past.preempted(site.stage, ADA)
    bad = {"loss": None, "nonfinite": {"loss": "NaN", "since": 4090}}
    site.stage.reports(job, step=4150, metrics={"norm": "NaN", "mfu": 0.4}, **bad)
    site.stage.step(job)
    page = httpx.get(f"{site.url}/jobs/{job}", headers=HTML).text
    head, _, rest = page.partition('id="job-facts"')
    assert "<span>loss is NaN since step 4090</span>" in head
    assert 'loss <span class="big">NaN</span>' in rest
    assert "<bdi>norm</bdi> <b>not finite</b>" in rest
    assert '<bdi>Loss</bdi> <b class="newest">NaN since step 4090</b>' in rest
    assert '<b class="newest">NaN' not in rest.partition("<bdi>Loss</bdi>")[2][100:], "only there"
    assert "newest good checkpoint: step 4,000" in rest
    assert "steps with a loss of NaN or Inf" in rest
    rows = httpx.get(f"{site.url}{ALL}", headers=HTML).text
    assert "loss is NaN since step 4090" in rows
    assert re.search(r'class="num loss">\s*NaN\s*<', rows)


def test_the_time_left_of_a_hold_is_that_of_the_terminal(site: Site) -> None:
    (job,) = site.store_jobs([lab.job_in(State.HOLDING, hold_until=lab.NOW + 7199)])
    for path in ("/?who=everyone", f"/jobs/{job.id}"):
        page = httpx.get(site.url + path, headers=HTML).text
        assert 'data-age="till">1h59m</time>' in page


@pytest.mark.parametrize("path", ["", "/metrics"])
def test_a_curve_grows_on_an_open_page(site: Site, open_tab: OpenTab, path: str) -> None:
    """Steps that turn out to be lost are drawn as lost."""
    stage = site.stage
    job = site.api.create(SPEC)["id"]
    stage.running(job)
    past.tell(stage, job, 1, 300, seconds=300, checkpoint=0)
    page = open_tab(f"/jobs/{job}{path}")
    expect(page.locator("#live")).to_contain_text("live")
    loss = page.locator("[data-chart=loss]")
    values = loss.locator(".values text")
    assert values.count() >= 2
    for text in (*values.all(), *loss.locator(".steps text").all()):
        box = text.bounding_box()
        frame = loss.bounding_box()
        assert box
        assert frame
        assert frame["x"] <= box["x"], "no label is cut"
        assert box["x"] + box["width"] <= frame["x"] + frame["width"]
    last = loss.locator(".newest").text_content()
    expect(loss.locator(".plot")).to_have_attribute("data-range", re.compile(" 300$"))
    loss.locator(".plot").hover()
    expect(loss.locator("output")).to_contain_text("attempt 1")
    past.tell(stage, job, 1, 600, seconds=600, checkpoint=0)
    site.changes.poke()
    expect(loss.locator(".plot")).to_have_attribute("data-range", re.compile(" 600$"))
    expect(loss.locator(".newest")).not_to_have_text(last or "")
    expect(loss.locator("polyline.lost")).to_have_count(0)
    stage.cloud.preempt(stage.job(job).slices[-1].name)
    stage.running(job, 2)
    site.changes.poke()
    expect(loss.locator("polyline.lost")).to_have_count(1)


def test_a_job_is_cancelled_and_resumed_without_scripts(site: Site, open_tab: OpenTab) -> None:
    job = past.preempted(site.stage, ADA)
    page = open_tab(f"/jobs/{job}", scripts=False, view=NARROW)
    expect(page.locator("#job-curves polyline").first).to_be_visible()
    (offer,) = [action for action in site.api.get(job)["actions"] if action["name"] == "cancel"]
    page.get_by_role("link", name="Cancel", exact=True).click()
    expect(page.locator("#does")).to_have_text(f"it {offer['does']}")
    expect(page.locator("#costs")).to_have_text(offer["costs"])
    page.get_by_role("button", name=f"Cancel job {job}").click()
    expect(page).to_have_url(f"{site.url}/jobs/{job}")
    expect(page.locator("#job-events")).to_contain_text("cancel requested")
    site.stage.until(job, State.HOLDING)
    page.reload()
    expect(page.locator(".standing")).to_contain_text("holding")
    page.get_by_role("link", name="Resume").click()
    page.get_by_label("Its budget").fill("600")
    page.get_by_role("button", name=f"Resume job {job}").click()
    expect(page.locator("#job-events")).to_contain_text("the budget is $600.00")
    assert site.stage.job(job).desired == "run"
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= NARROW["width"], "nothing sticks out of a narrow screen"


def test_a_page_kept_as_a_file_has_its_look_and_leads_nowhere(
    site: Site, chromium: Browser
) -> None:
    page = chromium.new_page(viewport=NARROW)
    for path in (ALL, f"/jobs/{past.preempted(site.stage, ADA)}"):
        page.set_content(httpx.get(site.url + path, headers={**HTML, ALONE: "1"}).text)
        expect(page.locator("a[href], :is(button, form, .act):visible")).to_have_count(0)
        fits(page)
    expect(page.locator(".curve").first).to_have_css("fill", "none")
    page.close()


def test_a_clean_leads_to_the_list(site: Site) -> None:
    (job,) = site.store_jobs([lab.job_in(State.FAILED)])
    form = {"content-type": "application/x-www-form-urlencoded"}
    done = httpx.post(f"{site.url}/jobs/{job.id}/clean", headers=form)
    assert (done.status_code, str(done.url.join(done.headers["location"]))) == (303, f"{site.url}/")


def test_a_viewer_finds_no_button(site: Site) -> None:
    (job,) = site.store_jobs([lab.job_in(State.RUNNING)])
    assert 'class="button act cancel"' in site.page(f"/jobs/{job.id}").text
    page = site.page(f"/jobs/{job.id}", "eve").text
    assert 'class="button act' not in page
    assert "<code>tpujob cancel</code> needs the role" in page
    assert "That is not allowed</h1>" in site.page(f"/jobs/{job.id}/delete", "eve").text


def test_hostile_text_is_shown_as_text(site: Site, open_tab: OpenTab) -> None:
    plain = lab.job_in(State.RUNNING)
    changed = replace(
        plain.attempts[-1],
        message=HOSTILE,
        evidence=(Proof(0, HOSTILE),),
        verdict=Verdict(text=HOSTILE),
        unreached=Unreached(0, 1, 80),
        physical=(HOSTILE, HOSTILE),
        progress=replace(plain.attempts[-1].progress, phase=HOSTILE, metrics={HOSTILE: 1.0}),
        ended_at=lab.NOW,
    )
    slices = tuple(replace(s, delete_reason=HOSTILE, zone=HOSTILE) for s in plain.slices)
    hostile = replace(
        plain, name=HOSTILE, user=HOSTILE, message=HOSTILE, attempts=(changed,), slices=slices
    )
    (job,) = site.store_jobs([hostile])
    for path in ("/spec", ""):
        page = open_tab(f"/jobs/{job.id}{path}")
        assert page.locator("img").count() == 0
        assert page.evaluate("document.scripts.length") < 6
        assert "\u202e" not in page.content()
    page.set_viewport_size(NARROW)
    fits(page)
    expect(page.locator("h1")).to_contain_text("<script>alert(1)</script>")


def test_every_event_is_on_some_page(site: Site) -> None:
    job = past.preempted(site.stage, ADA)
    every = [event["seq"] for event in site.api.events(job)]
    assert len(every) > 15
    seen: list[int] = []
    path = f"/jobs/{job}.json"
    while True:
        page = httpx.get(site.url + path).json()["events"]
        seen += [event["seq"] for event in page]
        if not page or page[-1]["seq"] == 1:
            break
        path = f"/jobs/{job}.json?before={page[-1]['seq']}"
    assert seen == every[::-1]
