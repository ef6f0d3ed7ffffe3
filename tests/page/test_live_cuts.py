"""A live page through what happens to real backends: one is killed, a proxy finds none, a stream has its end."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.page import lab
from tests.page.backend import Process
from tests.page.conftest import OpenTab, Site
from tpujob.web.live.hub import Pace

pytestmark = pytest.mark.page
EVERYBODY = "/?who=everyone&show=all"
STATE = "document.getElementById('live').dataset.state"
SHOWN = "[...document.querySelectorAll('#rows tr')].map(row => row.id + row.querySelector('.why .said').textContent)"


class Lab:
    """A backend in a process of its own, and a tab that looks at it."""

    def __init__(self, folder: Path, chromium: Browser) -> None:
        self.folder = folder
        self.backend = Process(folder, 60, 2)
        self._context = chromium.new_context(extra_http_headers={"x-test-name": "u0"})
        self.page = self._context.new_page()
        self.page.goto(f"http://127.0.0.1:{self.backend.port}{EVERYBODY}")
        self.until(f"{STATE} === 'live'")
        self.page.evaluate("window.same = true")

    def until(self, expression: str, seconds: float = 20) -> None:
        """Playwright's own way of waiting is against the policy of the page."""
        late = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < late, f"not within {seconds} s: {expression}"
            self.page.wait_for_timeout(50)

    def restart(self) -> None:
        self.backend = Process(self.folder, 60, 2, self.backend.port)

    def fresh_after(self) -> float:
        """Seconds until the page shows what another, fresh one does."""
        began = time.monotonic()
        fresh = self._context.new_page()
        fresh.goto(self.page.url)
        wanted = _json(fresh.evaluate(SHOWN))
        fresh.close()
        self.until(f"JSON.stringify({SHOWN}) === {json.dumps(wanted)}")
        assert self.page.evaluate("window.same"), "the page was loaded again"
        return time.monotonic() - began

    def close(self) -> None:
        self._context.close()
        self.backend.end()


def _json(value: list[str]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.fixture
def cut(tmp_path: Path, chromium: Browser) -> Iterator[Lab]:
    made = Lab(tmp_path / "store", chromium)
    yield made
    made.close()


def test_a_backend_that_is_killed_and_started_again(cut: Lab) -> None:
    waited: list[float] = []
    for _ in range(3):
        cut.backend.ask("change", 20, 50, 50)
        cut.backend.end(signal.SIGKILL)
        cut.until(f"{STATE} === 'waiting'")
        cut.restart()
        cut.backend.ask("change", 20, 50, 50)
        waited.append(cut.fresh_after())
        cut.until(f"{STATE} === 'live'")
    print(
        f"kill -9, three times: equal to the store {max(waited):.1f} s after it was back, at most"
    )
    assert max(waited) <= 5


def test_half_a_minute_of_503(cut: Lab) -> None:
    cut.page.route("**/live?*", lambda route: route.fulfill(status=503, body="no healthy upstream"))
    cut.backend.end(signal.SIGKILL)
    cut.restart()
    began = time.monotonic()
    cut.until(f"{STATE} === 'stale'", 40)
    stale = time.monotonic() - began
    cut.backend.ask("change", 20, 50, 50)
    cut.page.unroute("**/live?*")
    waited = cut.fresh_after()
    print(
        f"30 s of 503: called stale after {stale:.0f} s, equal to the store {waited:.1f} s after its end"
    )
    assert stale <= 35
    assert waited <= 5


def test_streams_that_end_by_themselves_are_followed_by_others(
    site: Site, open_tab: OpenTab
) -> None:
    site.stop()
    site.pace = Pace(life=0.5)
    site.start()
    jobs = site.store_jobs(lab.full())
    page: Page = open_tab(EVERYBODY)
    began: list[str] = []
    page.on("request", lambda asked: began.append(asked.url) if "/live?" in asked.url else None)
    heard: list[str] = []

    def pass_on(route: Route) -> None:
        heard.append(route.request.headers.get("last-event-id", ""))
        route.continue_()

    page.route("**/live?*", pass_on)
    for n in range(20):
        lab.say(site, jobs[0], f"attempt {n} runs")
        expect(page.locator(f"#job-{jobs[0].id} .why")).to_contain_text(f"attempt {n} runs")
        page.wait_for_timeout(200)
    assert len(began) >= 3
    assert all(re.fullmatch(r"[0-9a-f]{8}-\d+-[0-9a-f]{24}", each) for each in heard[1:]), heard
