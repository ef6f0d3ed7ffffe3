"""Every page and action without JavaScript."""

from playwright.sync_api import Page, expect

from tests.flow.page import lab
from tests.flow.page.conftest import OpenTab, Site
from tpujob.domain.model import State


def act(page: Page, job: str, action: str) -> None:
    """Selects the row, takes the action, confirms it and goes back."""
    page.goto("/")
    page.get_by_label(f"Select job {job}").check()
    page.get_by_role("button", name=f"{action}…").click()
    expect(page.get_by_role("heading", name=f"{action} 1 job?")).to_be_visible()
    page.get_by_role("button", name=f"{action} 1 job").click()
    expect(page.get_by_text(f"{action.lower()} asked")).to_be_visible()
    page.get_by_role("link", name="Back to the jobs").click()


def test_a_job_is_cancelled_resumed_and_deleted_from_the_list(site: Site, open_tab: OpenTab):
    stage, page = site.stage, open_tab(scripts=False)
    job = stage.create()
    stage.running(job)
    act(page, job, "Cancel")
    stage.until(job, lambda j: j.state is State.HOLDING and j.stopped)
    act(page, job, "Resume")
    stage.running(job, 2)
    act(page, job, "Delete")
    stage.until(job, State.CANCELLED)
    page.goto("/")
    expect(page.locator(f"#job-{job}")).to_contain_text("cancelled")


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
