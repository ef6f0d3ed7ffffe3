"""The bytes that a browser fetches: little at first, one answer for a change of view, and nothing for having many
jobs."""

import gzip
from typing import Any

import httpx
from playwright.sync_api import Page, Request, expect

from tests.flow.page import lab
from tests.flow.page.conftest import OpenTab, Site

MOST_BYTES, MOST_REQUESTS, MOST_GROWTH = 60_000, 8, 1.05
#: by then a new page has asked for what it asks for
STREAMED = "new Promise((done) => setTimeout(done, 600, true))"
HTML = {"accept": "text/html"}
VIEW = "/?who=everyone&show=all"


def first_view(page: Page, path: str) -> tuple[int, list[str]]:
    """Bytes as they came over the wire, headers included, and what was asked for."""
    session = page.context.new_cdp_session(page)
    urls: list[str] = []
    sizes: list[int] = []
    streams: set[str] = set()  #: they do not end, and are not packed

    def begun(event: dict[str, Any]) -> None:
        if "/live" in event["response"]["url"]:
            streams.add(event["requestId"])
            sizes.append(event["response"]["encodedDataLength"])

    def received(event: dict[str, Any]) -> None:
        if event["requestId"] in streams:
            sizes.append(event["dataLength"])

    session.on("Network.requestWillBeSent", lambda event: urls.append(event["request"]["url"]))
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    session.on("Network.responseReceived", begun)
    session.on("Network.dataReceived", received)
    session.send("Network.enable")
    page.goto(path)
    expect(page.locator("html.js")).to_have_count(1)
    page.wait_for_load_state("load")
    expect(page.locator("#live[data-state=live]")).to_have_count(1)
    page.wait_for_function(STREAMED)
    return sum(sizes), urls


def html(site: Site, path: str = VIEW) -> bytes:
    """Return the page as it is sent: compressed."""
    with httpx.stream("GET", site.url + path, headers=HTML, timeout=60) as answer:
        return b"".join(answer.iter_raw())


def test_the_first_view_is_light(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.many(60))
    page = open_tab()
    size, urls = first_view(page, VIEW)
    expect(page.locator("#rows tr")).to_have_count(50)
    assert len({*urls}) <= MOST_REQUESTS, urls
    assert size <= MOST_BYTES, f"{size:,} bytes"
    print(f"first view: {size:,} bytes in {len(urls)} requests")


def test_a_page_does_not_grow_with_the_jobs_that_there_are(site: Site):
    site.store_jobs(lab.many(100))
    before = gzip.decompress(html(site))
    site.store_jobs(lab.many(300))
    after = gzip.decompress(html(site))
    assert len(after) <= MOST_GROWTH * len(before)


def test_a_change_of_view_is_one_request(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.many(120))
    page = open_tab(VIEW)
    expect(page.locator("html.js")).to_have_count(1)
    urls: list[str] = []

    def note(request: Request) -> None:
        if "x-tpujob-again" not in request.headers:
            urls.append(request.url)

    page.on("request", note)
    for step, shows in (
        (page.get_by_role("link", name="Spent"), "order=spent"),
        (page.locator(".chip.failed"), "state=failed"),
        (page.get_by_role("link", name="Mine"), "state=failed"),
    ):
        urls.clear()
        step.click()
        page.wait_for_url(lambda url, shows=shows: shows in url)
        expect(page.locator("#main.htmx-swapping, #main.htmx-request")).to_have_count(0)
        own = {url for url in urls if "/live" not in url and "/icon." not in url}
        assert len(own) == 1, own
    expect(page.get_by_role("link", name="Mine")).to_have_attribute("aria-current", "true")
    page.go_back()
    expect(page.get_by_role("link", name="Everyone")).to_have_attribute("aria-current", "true")
    expect(page.locator(".chip.failed")).to_have_attribute("aria-current", "true")
