"""With JavaScript off, every page and action works: the same story twice."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.flow.page import lab
from tests.flow.page.conftest import OpenTab, Site
from tests.flow.page.story import life_of_a_job


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_job_is_steered_from_the_page(site: Site, open_tab: OpenTab, scripts: bool):
    life_of_a_job(site, open_tab(scripts=scripts))


def test_without_scripts_nothing_is_shown_that_needs_them(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.full())
    page = open_tab("/", scripts=False)
    expect(page.locator("#rows tr")).not_to_have_count(0)
    assert page.locator(".scripted:visible").count() == 0


def test_without_scripts_the_list_is_searched_ordered_and_narrowed(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.full())
    page = open_tab("/?who=everyone&show=all", scripts=False)
    page.get_by_role("link", name="failed").click()
    expect(page.locator("#rows .state.failed")).to_have_count(2)
    expect(page.locator("#rows tr")).to_have_count(2)
    page.get_by_role("link", name="Age", exact=True).click()
    assert "order=age" in page.url
    assert "state=failed" in page.url
    expect(page.locator("th[aria-sort]")).to_have_text("Age")
    page.get_by_role("searchbox").fill("nothing is called so")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("No matching jobs.")).to_be_visible()
    page.get_by_role("link", name="Show all jobs").click()
    expect(page.locator("#rows tr")).to_have_count(len(lab.full()))
