"""Everything can be done by keyboard alone; focus stays where it was put."""

import re

from playwright.sync_api import Page, expect

from tests.flow.page import lab
from tests.flow.page.conftest import ALL, OpenTab, Site
from tpujob.domain.model import DesiredState, State


def tab_to(page: Page, name: str) -> None:
    for _ in range(300):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == name:
            return
    raise AssertionError(f"{name!r} is not reached by Tab")


def test_a_job_is_cancelled_by_keyboard_alone(site: Site, open_tab: OpenTab):
    stored = site.store_jobs(lab.job_in(State.QUEUED, n) for n in range(3))
    page = open_tab("/?who=everyone")
    for key in "jjkx":
        page.keyboard.press(key)
    newest = stored[-1].id
    expect(page.get_by_label(f"Select job {newest}")).to_be_checked()
    tab_to(page, "Cancel…")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Cancel")).to_be_focused()
    tab_to(page, "Cancel 1 job")
    page.keyboard.press("Enter")
    expect(page.get_by_text("cancel asked")).to_be_visible()
    assert site.stage.job(newest).desired is DesiredState.CANCEL


def test_the_page_of_an_action_begins_at_its_heading(site: Site, open_tab: OpenTab):
    [job] = site.store_jobs([lab.job_in(State.QUEUED)])
    page = open_tab(f"/jobs/{job.id}/cancel")
    expect(page.get_by_role("heading", name="Cancel")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name=f"Cancel job {job.id}")).to_be_focused()


def test_keys_go_through_the_rows_and_open_one(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.full())
    page = open_tab(ALL, allowed=("404 (Not Found)",))
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.locator("#rows tr").nth(1)
    expect(second.locator(".name a")).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("#rows tr").nth(0).locator(".name a")).to_be_focused()
    page.keyboard.press("o")
    page.wait_for_url("**/jobs/000015")


def test_a_viewer_selects_jobs_to_compare_and_may_do_nothing_else(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.full())
    page = open_tab(ALL, name="eve")
    for key in "jxjx":
        page.keyboard.press(key)
    expect(page.locator("#rows tr").nth(1)).to_have_class(re.compile(r"\bat\b"))
    expect(page.locator(".bulk button")).to_have_text(["Compare"])
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?job=*&job=*")
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 jobs")


def test_keys_are_letters_in_a_text_field(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.full())
    page = open_tab(ALL)
    page.keyboard.press("/")
    page.keyboard.type("jkx?")
    expect(page.get_by_role("searchbox")).to_have_value("jkx?")
    assert page.locator("tr.at").count() == 0
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_focus_stays_on_what_changed_the_view(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.full())
    page = open_tab(ALL)
    page.get_by_role("link", name="Spent").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**order=spent**")
    expect(page.get_by_role("link", name="Spent")).to_be_focused()


def test_the_first_key_skips_to_the_content(site: Site, open_tab: OpenTab):
    page = open_tab("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
