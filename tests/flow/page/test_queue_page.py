"""The page of the queue: who waits for what, why, and what shares have used."""

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.flow.page import lab
from tests.flow.page.conftest import OpenTab, Site
from tests.flow.page.story import axe
from tests.support.callers import ADA
from tests.support.stage import SPEC
from tpujob.cli.render.queue_page import place_facts
from tpujob.domain.capacity.settings import QueueSettings

NAMED = {"x-test-name": "ada"}
V6E = {"type": "v6e-8", "zones": ["us-east5-a"]}


@pytest.fixture
def busy(site: Site) -> list[str]:
    """Two jobs hold the quota of v4; others wait for it, for them, for a person and for a day."""
    stage = site.stage
    quota = {"us-central2-b/v4/spot": 16}
    stage.reconciler.queue.settings = QueueSettings({"vision": 2.0, "speech": 1.0}, quota=quota)
    ada, bob = (site.jobs.acting_for(principal) for principal in (ADA, lab.BOB))
    made = [bob.create({**SPEC, "name": f"sweep-{n}", "share": "vision"})["id"] for n in range(4)]
    made.append(ada.create({**SPEC, "name": "probe", "share": "speech"})["id"])
    made.append(ada.create({**SPEC, "name": "eval", "tpu": V6E, "after": ["probe"]})["id"])
    made.append(ada.create({**SPEC, "name": "later", "tpu": V6E, "start": "held"})["id"])
    for _ in range(3):
        stage.clock.time += 60
        for job in made:
            stage.reconciler.tick(job)
    return made


def test_the_queue_says_why_each_job_waits(site: Site, open_tab: OpenTab, busy: list[str]) -> None:
    page = open_tab("/queue")
    expect(page.get_by_text("5 jobs in the queue")).to_be_visible()
    expect(page.locator("#queue-shapes section")).to_have_count(2)
    sweep, evaluation, later = (page.locator(f"#queue-{busy[n]}") for n in (2, 5, 6))
    expect(sweep).to_contain_text("16 of 16 chips of us-central2-b/v4/spot are in use")
    expect(sweep.locator("td").first).to_have_text("2")  # bob's first has a slice
    expect(evaluation).to_contain_text(f"waits for the success of {busy[4]}")
    expect(later).to_contain_text("held by ada")
    expect(page.locator("#queue-shares tbody tr")).to_have_count(3)
    site.stage.clock.time += 60
    site.api.release(busy[6])
    expect(later).to_contain_text("it may request a slice now")


@pytest.mark.parametrize("width", [1200, 390])
def test_the_queue_fits_a_window(open_tab: OpenTab, busy: list[str], width: int) -> None:
    page = open_tab("/queue", scripts=False, view={"width": width, "height": 900})
    expect(page.locator(f"#queue-{busy[2]}")).to_contain_text("sweep-2")
    left_edges = "bars => bars.map(bar => bar.getBoundingClientRect().x)"
    bars = page.locator("#queue-shares .share").evaluate_all(left_edges)
    assert len(set(bars)) == 1, "they can be compared"
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_was_used_is_not_said_where_it_decides_nothing(site: Site) -> None:
    site.stage.running(site.api.create(SPEC)["id"])
    waits = site.api.create({**SPEC, "start": "held"})["id"]
    site.stage.clock.time += 60
    site.api.release(waits)
    place = site.api.get(waits)["place"]
    assert place
    assert place["order"]
    assert place["order"]["share_usd"] == 0 < site.api.shares()[0]["usd"]
    page = site.page(f"/jobs/{waits}").text
    assert "priority normal" in page
    assert "has used" not in page
    assert "has used" not in str(place_facts(place, site.stage.clock.time))


def test_an_empty_queue_says_so(site: Site) -> None:
    assert "No job is in the queue." in site.page("/queue").text
    for path in ("queue.json", "v1/queue?limit=0"):
        assert httpx.get(f"{site.url}/{path}", headers=NAMED).json()["rows"] == []


def test_a_sweep_is_a_grid_of_its_elements(site: Site, open_tab: OpenTab) -> None:
    sweep = site.api.create(
        {**SPEC, "name": "sweep", "tpu": {"type": "v4-16"}, "matrix": {"lr": [*range(30)]}}
    )["id"]
    for _ in range(3):
        site.stage.clock.time += 60
        for job in [sweep, *(job_.id for job_ in site.stage.store.list() if job_.group)][:6]:
            site.stage.reconciler.tick(job)
    page = open_tab(f"/jobs/{sweep}")
    expect(page.locator("#job-elements .cells a")).to_have_count(30)
    expect(page.locator("#job-facts")).to_contain_text("v4-16, spot any zone")
    expect(page.locator("#job-elements .cells .best")).to_have_count(0)
    for part in ("time", "curves", "tries", "hosts"):  # a group runs no program
        expect(page.locator(f"#job-{part}")).to_have_count(0)
    expect(page.get_by_role("link", name="Logs")).to_have_count(0)
    for index, loss in ((0, 2.5), (1, 0.125)):
        job = site.stage.running(site.api.get(f"sweep-{index}")["id"]).id
        for host in (0, 1):
            site.stage.report(job, host, phase="running", step=10, loss=loss)
        site.stage.step(job)
    site.changes.poke()
    expect(page.locator("#job-head .standing")).to_contain_text("running")
    best = page.locator("#job-elements .cells .best")
    expect(best).to_have_text("sweep-1 running 0.125")
    expect(best.locator("use")).to_have_attribute("href", "#i-running")  # not by colour alone
    expect(page.locator("#job-elements")).to_contain_text("Lowest loss: 0.125, sweep-1")
    axe(page)
    expect(page.locator("#job-elements .cells a").first).to_have_attribute(
        "title", re.compile("sweep-0: ")
    )
    expect(page.locator("#job-elements .legend")).to_contain_text("queued")
    page.locator("#job-elements .cells a").last.click()
    expect(page.locator("#job-elements .cells")).to_have_count(0)
    element = page.locator("#job-facts", has_text="29 of 30 of")
    expect(element).to_contain_text("lr=29")
    element.get_by_role("link", name=sweep).click()
    link = page.get_by_role("link", name="sweep-1", exact=True)
    row = page.locator("#sweep-table tbody tr", has=link)
    expect(row.locator("td")).to_have_text([re.compile("running"), "1", "10", "0.125"])
    axe(page)
    site.stage.store.remove(site.api.get("sweep-29")["id"], lease=None)
    page = open_tab(f"/jobs/{sweep}", scripts=False)
    expect(page.locator("#job-elements .cells a")).to_have_count(29)
    expect(page.locator("#job-elements")).not_to_contain_text("are shown")


def test_a_slice_that_was_handed_on_is_shown_as_its_jobs(site: Site, open_tab: OpenTab) -> None:
    stage, ids = site.stage, [site.api.create({**SPEC, "name": name})["id"] for name in "abc"]
    stage.running(ids[0])
    stage.cloud.full.add("us-central2-b")
    for job in ids[:2]:
        for job_id in ids:
            stage.reconciler.tick(job_id)
        stage.running(job)
        stage.clock.time += 1800
        stage.succeed(job)
    page = open_tab(f"/jobs/{ids[1]}")
    expect(page.locator("#job-time .life rect")).to_have_count(3)
    line = page.locator("#job-time", has_text="was handed on")
    expect(line).to_contain_text(re.compile(rf"{ids[0]} a 30m\d+s → this job 30m\d+s → {ids[2]} c"))
    axe(page)
    line.get_by_role("link", name=f"{ids[2]} c").click()
    expect(page.locator("h1")).to_have_text("c")
