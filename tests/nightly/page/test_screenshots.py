"""A picture of each page that a document shows; `make screenshots` puts them into `docs/page/`."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.flow.page import lab, past
from tests.flow.page.conftest import WIDE, OpenTab, Site
from tests.flow.page.pages import PAGES, Shown
from tests.support.callers import ADA
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "page"
KEEP = bool(os.environ.get("TPUJOB_SCREENSHOTS"))
pytestmark = pytest.mark.long


@pytest.mark.parametrize("shown", [p for p in PAGES if p.picture], ids=lambda p: p.name)
def test_a_page_has_its_picture(site: Site, open_tab: OpenTab, tmp_path: Path, shown: Shown):
    if shown.path.startswith("/jobs/000001"):  # the job 000001 then has a past to show
        past.preempted(site.stage, ADA)
    site.store_jobs(lab.full())
    lab.output(site.stage.bucket, site.stage.job("000001"))
    folder = FOLDER if KEEP else tmp_path
    folder.mkdir(exist_ok=True)
    page = open_tab(shown.path, allowed=shown.console, dark=False, view=WIDE)
    expect(page.locator("main h1, main .empty")).not_to_have_count(0)
    if page.locator("body[data-live]").count():
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
    file = folder / f"{shown.name}.png"
    page.screenshot(path=file, full_page=True)
    assert file.stat().st_size > 5_000, "there is something on it"
