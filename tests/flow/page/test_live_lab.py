"""The pages of the lab while they are open: each shows what has changed, and is not loaded again."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.flow.page import lab
from tests.flow.page.conftest import OpenTab, Site
from tests.support.stage import SPEC
from tpujob.domain.model import State
from tpujob.service.backend import capacity


@pytest.fixture
def page(open_tab: OpenTab) -> Page:
    return open_tab()


def watch(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.evaluate("window.same = true")


def same(page: Page) -> None:
    assert page.evaluate("window.same"), "the page was loaded again"


def test_each_page_of_the_lab_shows_what_has_changed(site: Site, page: Page) -> None:
    store, clock = site.stage.store, site.stage.clock
    watch(page, "/capacity")
    expect(page.get_by_text("No hardware is held")).to_be_visible()
    expect(page.locator("#capacity-quota tbody tr").first).to_contain_text("128 cores")
    (job,) = site.store_jobs([lab.job_in(State.RUNNING)])
    site.quota = lab.quota(v4=256)
    clock.time += capacity.EVERY
    expect(page.locator("#capacity-offers tbody tr")).to_have_count(1)
    v4 = page.locator("#capacity-quota tbody tr").first
    expect(v4).to_contain_text("256 cores")
    expect(v4.locator("td").nth(2)).to_contain_text("32 cores")
    same(page)

    watch(page, "/spend?by=job")
    costs = page.locator(f"#spend-{job.id} td").nth(2)
    before = costs.text_content() or ""
    clock.time += 3600
    expect(costs).not_to_have_text(before)
    site.store_jobs([lab.job_in(State.RUNNING, 1)])
    expect(page.locator("#rows tr")).to_have_count(3)
    same(page)

    watch(page, "/notifications")
    expect(page.locator("#rows tr").first).to_contain_text("untried")
    site.store_jobs([lab.job_in(State.FAILED, 2)])
    expect(page.locator("#rows tr").first).to_contain_text("works")
    same(page)

    watch(page, "/hosts")
    expect(page.get_by_text("No machine is suspected.")).to_be_visible()
    lab.blame(site, "rack-1")
    expect(page.locator("#rows tr")).to_have_count(1)
    lab.blame(site, "rack-2", weight=3.0)
    expect(page.locator("#rows tr").first).to_contain_text("rack-2")
    same(page)

    watch(page, "/backend")
    site.api.create(SPEC)
    newest = page.locator("#backend-store div", has_text="Revision")
    expect(newest).to_contain_text(f"{store.newest():,}")
    same(page)
