"""A picture of each page that has one; `make screenshots` puts them into `docs/page/`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.page import lab, past
from tests.page.conftest import NARROW, WIDE, OpenTab, Site
from tests.page.pages import PAGES, Shown
from tests.support.callers import ADA
from tests.support.local_stack import LocalStack

FOLDER = Path(__file__).parents[2] / "docs" / "page"
#: what is shown dark and narrow, too
FIRST = PAGES[0].name
DEMO = "demo"  #: the picture of the demo's job
KEEP = bool(os.environ.get("TPUJOB_SCREENSHOTS"))
pytestmark = pytest.mark.page


@pytest.mark.parametrize("shown", [one for one in PAGES if one.picture], ids=lambda one: one.name)
def test_a_page_has_its_picture(site: Site, open_tab: OpenTab, tmp_path: Path, shown: Shown):
    if shown.path.startswith("/jobs/000001"):  # the job 000001 then has a past to show
        past.preempted(site.stage, ADA)
    site.store_jobs(lab.full())
    lab.output(site.stage.bucket, site.stage.job("000001"))
    folder = FOLDER if KEEP else tmp_path
    folder.mkdir(exist_ok=True)
    looks = [("", {"dark": False, "view": WIDE})]
    if shown.name == FIRST:
        looks += [("-dark", {"dark": True, "view": WIDE}), ("-phone", {"view": NARROW})]
    for suffix, look in looks:
        page = open_tab(shown.path, allowed=shown.said, **look)
        expect(page.locator("main h1, main .empty")).not_to_have_count(0)
        if page.locator("body[data-live]").count():
            expect(page.locator("#live")).to_have_attribute("data-state", "live")
        file = folder / f"{shown.name}{suffix}.png"
        page.screenshot(path=file, full_page=look["view"] is WIDE)
        assert file.stat().st_size > 5_000, "there is something on it"
        page.context.close()


@pytest.mark.skipif(not KEEP, reason="the demo trains for a minute: `make screenshots`")
def test_the_job_of_the_demo_has_its_picture(stack: LocalStack, chromium: Browser):
    stack.run("demo")
    address = stack.run("open", "000001", "--print").split()[-1]
    page = chromium.new_page(viewport=WIDE, reduced_motion="reduce")
    page.goto(address)
    expect(page.locator("#job-head .state")).to_have_text("succeeded")
    expect(page.locator("[data-chart] .plot")).not_to_have_count(0)
    page.screenshot(path=FOLDER / f"{DEMO}.png", full_page=True)
    page.close()
