"""A job of the real local stack on its page: preempted, followed, and steered by buttons, all of it live."""

import re
import time

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.flow.page.conftest import WIDE, Watched
from tests.flow.page.story import axe
from tests.support.local_stack import LocalStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
SOON = 60_000.0  #: ms until the stack has done what it was asked to
PROGRAM = "for i in $(seq 1 3000); do echo count $i; sleep 0.1; done"
LOADED = "document.documentElement.dataset.loaded"


def test_a_job_is_followed_and_steered_by_buttons(stack: LocalStack, chromium: Browser) -> None:
    spec = '{"name": "counting", "tpu": {"type": "v4-16"}, "run": {"command": "%s"}, "stop_grace": "1s"}'
    (stack.folder / "job.yaml").write_text(spec % PROGRAM)
    began = time.monotonic()
    output = stack.run("create", "job.yaml")
    link = re.search(r"^  Page +(http://127\.0\.0\.1:\d+)(/jobs/(\d+))$", output, re.MULTILINE)
    assert link, f"the command says where the page is:\n{output}"
    home, path, job = link.groups()
    context = chromium.new_context(base_url=home, viewport=WIDE)
    watched = Watched(context)
    page = context.new_page()
    page.goto(path)
    page.evaluate(f"{LOADED} = 'once'")
    _stands(page, "running")
    stack.run("emulator", "preempt", job, "--notice", "1s")
    tries = page.locator("#job-tries tbody tr")
    expect(tries).to_have_count(2, timeout=SOON)
    _stands(page, "running")
    expect(tries.last).to_contain_text("PREEMPTED")
    expect(page.locator("#job-time .attempt")).to_have_text(["1", "2"])
    expect(page.locator("#job-events")).to_contain_text("attempt 2 runs on 2 hosts")
    assert page.evaluate(LOADED) == "once", "the page was never loaded again"
    print(f"preempted and running again after {time.monotonic() - began:.0f} s")
    _log_follows(page)
    for action, then in (("Cancel", "holding"), ("Resume", "running"), ("Delete", "cancelled")):
        _steer(page, action, job)
        _stands(page, then)
    expect(page.locator(".act")).to_have_text(["Resume", "Clean"])
    expect(page.locator("#job-facts")).to_contain_text("so far")
    assert stack.job(job)["state"] == "cancelled"
    axe(page)
    context.close()
    watched.check(home)
    print(f"the whole story: {time.monotonic() - began:.0f} s")


def _stands(page: Page, state: str) -> None:
    expect(page.locator("#job-head .standing .state")).to_have_text(state, timeout=SOON)


def _log_follows(page: Page) -> None:
    """Assert that new lines appear by themselves, at the end of the log."""
    page.get_by_role("link", name="Logs").click()
    last = page.locator("#log li").last
    expect(last).to_contain_text("count", timeout=SOON)
    before = str(last.get_attribute("id"))
    page.evaluate(f"{LOADED} = 'logs'")
    page.wait_for_function(
        "before => document.querySelector('#log li:last-child').id !== before",
        arg=before,
        timeout=SOON,
    )
    assert page.evaluate(LOADED) == "logs"
    page.get_by_role("link", name="Overview").click()


def _steer(page: Page, action: str, job: str) -> None:
    if action == "Delete":
        page.get_by_text("Delete or clean").click(timeout=SOON)
    page.get_by_role("link", name=action, exact=True).click(timeout=SOON)
    page.get_by_role("button", name=f"{action} job {job}").click()
