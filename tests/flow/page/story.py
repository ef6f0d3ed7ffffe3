"""A job's life as a person sees and steers it on the page, with scripts or without; and what holds of any page."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.flow.page import lab
from tests.flow.page.conftest import Site
from tpujob.domain.model import State
from tpujob.service.job_index.query import RECENT


def axe(page: Page) -> None:
    """Fails with what axe-core finds, and where."""
    found: Any = Axe().run(page)
    wrong = [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}\n    {node['failureSummary']}"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]
    assert not wrong, f"{page.url}\n" + "\n".join(wrong)


def no_inline(page: Page) -> None:
    """Fails when the page has a style, a script or a handler written into it."""
    found = page.evaluate(
        """() => [...document.querySelectorAll('*')].filter(
            (one) => [...one.attributes].some(({ name }) => name === 'style' || name.startsWith('on'))
                || one.tagName === 'STYLE' || (one.tagName === 'SCRIPT' && !one.src)
        ).map((one) => one.outerHTML.slice(0, 200))"""
    )
    assert not found, found


def fits(page: Page) -> None:
    """Fails when the page is wider than the window."""
    wide = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wide <= 0, f"{page.url} is {wide} px wider than the window"


def choose(page: Page, job: str, action: str) -> None:
    """Selects the row and takes the action as far as its confirmation."""
    page.get_by_label(f"Select job {job}").check()
    page.get_by_role("button", name=f"{action}…").click()
    expect(page.get_by_role("heading", name=f"{action} 1 job?")).to_be_visible()


def confirm(page: Page, action: str) -> None:
    page.get_by_role("button", name=f"{action} 1 job").click()
    expect(page.get_by_text(f"{action.lower()} asked")).to_be_visible()
    page.get_by_role("link", name="Back to the jobs").click()


def life_of_a_job(site: Site, page: Page) -> None:
    """Submitted by the API, and then cancelled, resumed, deleted and cleaned on the page."""
    stage = site.stage
    job = stage.create()
    page.goto("/")
    expect(page.locator(f"#job-{job}")).to_contain_text("digits")
    stage.running(job)
    page.goto("/")
    expect(page.locator(f"#job-{job}")).to_contain_text("running")
    choose(page, job, "Cancel")
    expect(page.get_by_text("stops the program on all hosts")).to_be_visible()
    expect(page.get_by_text("while the slice is kept")).to_be_visible()
    confirm(page, "Cancel")
    stage.until(job, lambda j: j.state is State.HOLDING and j.stopped)
    page.goto("/")
    choose(page, job, "Resume")
    confirm(page, "Resume")
    stage.running(job, 2)
    page.goto("/")
    choose(page, job, "Delete")
    confirm(page, "Delete")
    stage.until(job, State.CANCELLED)
    page.goto("/")
    expect(page.locator(f"#job-{job}")).to_contain_text("cancelled")
    stage.clock.sleep(RECENT + 60)
    page.goto("/")
    expect(page.locator(f"#job-{job}")).to_have_count(0)
    page.goto("/?show=all")
    expect(page.locator(f"#job-{job}")).to_contain_text("cancelled")


STORES = {"empty": list, "full": lab.full, "failing": lab.failing}
