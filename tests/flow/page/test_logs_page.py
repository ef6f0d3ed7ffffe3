"""The page of a log, in a real browser and without scripts: any line, search, tracebacks, following."""

import gzip
import json
import re
from dataclasses import replace
from datetime import datetime

import httpx
from playwright.sync_api import Page, expect

from tests.flow.page import lab
from tests.flow.page.conftest import HTML, NARROW, OpenTab, Site
from tests.flow.page.story import axe, fits
from tpujob.domain.model import Endpoint, Job

EVERY_NODE = """() => {
  const walk = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
  let nodes = 0;
  while (walk.nextNode()) nodes++;
  return nodes;
}"""


def job_with_logs(site: Site, state: lab.State = lab.State.RUNNING) -> Job:
    made = lab.job_in(state, 3)
    slices = tuple(
        replace(s, type="v4-16", endpoints=(Endpoint(0, "10.0.0.1"), Endpoint(1, "10.0.0.2")))
        for s in made.slices
    )
    (job,) = site.store_jobs([replace(made, slices=slices)])
    return job


def numbered(count: int, first: int = 1) -> list[bytes]:
    return [b"line %d" % n for n in range(first, first + count)]


def shown(tab: Page) -> list[str]:
    return [text.rpartition("line ")[2] for text in tab.locator("#log li").all_inner_texts()]


def test_a_log_is_read_without_scripts(site: Site, open_tab: OpenTab):
    job = job_with_logs(site, lab.State.SUCCEEDED)
    lab.ship(site.stage.bucket, job, 0, numbered(5000))
    tab = open_tab(f"/jobs/{job.id}/logs?host=0", scripts=False)
    assert shown(tab)[-1] == "5000", "the last lines come first"
    tab.get_by_role("link", name="Earlier").click()
    assert (shown(tab)[0], shown(tab)[-1]) == ("4701", "4850")
    tab.get_by_role("link", name="Later").click()
    assert (shown(tab)[0], shown(tab)[-1]) == ("4851", "5000")
    tab.get_by_role("link", name="Beginning").click()
    assert shown(tab)[0] == "1"
    tab.get_by_role("searchbox").fill("line 2222")
    tab.get_by_role("button", name="Show").click()
    expect(tab.locator("mark")).to_have_text("line 2222")
    expect(tab.locator(".here")).to_contain_text("line 2222")
    expect(tab.locator(".logs-found")).to_contain_text("1 of 1")
    tab.get_by_role("searchbox").fill("line 12..$")
    tab.get_by_label("regular expression").check()
    tab.get_by_role("button", name="Show").click()
    expect(tab.locator(".logs-found")).to_contain_text("1 of 100")
    tab.get_by_role("link", name="Next").click()
    expect(tab.locator(".here")).to_contain_text("line 1201")
    expect(tab.locator(".logs-found")).to_contain_text("2 of 100")
    tab.get_by_role("link", name="Previous").click()
    expect(tab.locator(".here")).to_contain_text("line 1200")
    expect(tab.locator("footer code")).to_have_text(
        f"tpujob logs {job.id} --attempt {len(job.attempts)} --host 0 --grep 'line 12..$' --regexp"
    )


def test_a_line_has_an_address_for_good_and_is_shown_there(site: Site, open_tab: OpenTab):
    job = job_with_logs(site)
    lab.ship(site.stage.bucket, job, 0, numbered(3000))
    lab.ship(site.stage.bucket, job, 1, numbered(3000))
    tab = open_tab(f"/jobs/{job.id}/logs?attempt={len(job.attempts)}&of=1&line=1234")
    marked = tab.locator(".here")
    expect(marked).to_contain_text("line 1234")
    expect(marked).to_be_in_viewport()
    assert marked.get_attribute("id") == "L1-1234"
    marked.get_by_role("link").click()
    assert f"attempt={len(job.attempts)}" in tab.url
    assert "line=1234" in tab.url
    assert "of=1" in tab.url
    lab.ship(site.stage.bucket, job, 0, numbered(500, 3001), first=3001, number=2)
    tab.reload()
    expect(tab.locator(".here")).to_contain_text("line 1234")
    tab.goto(f"/jobs/{job.id}/logs?of=1&line=999999")
    expect(tab.locator(".note")).to_contain_text("Line 999999 of host 1 is not there")


def test_any_line_comes_in_one_small_page(site: Site):
    job = job_with_logs(site)
    lab.ship(site.stage.bucket, job, 0, [b'<b>&"%d"' % n * 60 for n in range(2000)])
    for line in (1, 777, 2000):
        for twin in ("", ".json"):
            page = httpx.get(
                f"{site.url}/jobs/{job.id}/logs{twin}?host=0&line={line}", headers=HTML
            )
            assert page.status_code == 200
            assert len(page.content) <= 64 * 1024, f"{len(page.content)} bytes"
        numbers = [x["line"] for x in json.loads(page.text)["window"]["lines"]]
        assert line in numbers


def test_scrolling_loads_what_is_beyond_and_keeps_few_nodes(site: Site, open_tab: OpenTab):
    job = job_with_logs(site, lab.State.SUCCEEDED)
    lab.ship(site.stage.bucket, job, 0, numbered(3000))
    lab.ship(site.stage.bucket, job, 1, numbered(3000))
    tab = open_tab(f"/jobs/{job.id}/logs?part=0")
    seen = set[str]()
    box = tab.locator("#scroll")
    for _ in range(5):
        ids = tab.eval_on_selector_all("#log li", "rows => rows.map(row => row.id)")
        assert len(ids) == len(set(ids)) <= 240
        assert tab.evaluate(EVERY_NODE) <= 3000
        seen |= set(ids)
        last = ids[-1]
        box.evaluate("box => { box.scrollTop = box.scrollHeight }")
        tab.wait_for_function(
            "last => document.querySelector('#log li:last-child').id !== last", arg=last
        )
    numbers = sorted((int(n), int(host)) for host, n in (x[1:].split("-") for x in seen))
    assert numbers == [(n, h) for n in range(1, len(seen) // 2 + 1) for h in range(2)]
    top = tab.locator("#log li").first.get_attribute("id")
    box.evaluate("box => { box.scrollTop = 0 }")
    tab.wait_for_function("top => document.querySelector('#log li').id !== top", arg=top)
    box.press("End")
    expect(tab.locator("#L1-3000")).to_be_in_viewport()
    box.press("Home")
    expect(tab.locator("#L0-1")).to_be_in_viewport()
    assert box.evaluate("box => box.scrollHeight") <= 10_000_000


def test_following_shows_new_lines_and_stops_at_a_scroll(site: Site, open_tab: OpenTab):
    job = job_with_logs(site)
    lab.ship(site.stage.bucket, job, 0, numbered(1000))
    tab = open_tab(f"/jobs/{job.id}/logs?host=0")
    expect(tab.locator("#L0-1000")).to_be_in_viewport()
    lab.ship(site.stage.bucket, job, 0, numbered(10, 1001), first=1001, number=2)
    expect(tab.locator("#L0-1010")).to_be_in_viewport()
    tab.locator("#scroll").evaluate("box => { box.scrollTop -= 600 }")
    place = tab.locator("#L0-980")
    expect(place).to_be_in_viewport()
    before = place.bounding_box()
    expect(tab.locator("#range")).to_have_text(re.compile(r"^\d{3}–9\d\d of 1,010$"))
    lab.ship(site.stage.bucket, job, 0, numbered(25, 1011), first=1011, number=3)
    expect(tab.locator("#news")).to_have_text("25 new lines")
    expect(tab.locator("#range")).to_contain_text("of 1,035")
    assert place.bounding_box() == before, "what is read stays where it is"
    tab.locator("#news").click()
    expect(tab.locator("#L0-1035")).to_be_in_viewport()
    expect(tab.locator("#news")).to_be_hidden()
    lab.ship(site.stage.bucket, job, 0, numbered(1, 1036), first=1036, number=4)
    expect(tab.locator("#L0-1036")).to_be_in_viewport()
    expect(tab.locator("#range")).to_have_text(re.compile("–1,036 of 1,036$"))
    expect(tab.locator("#where")).to_have_value("1000")
    cut = "box => (box.scrollTop - box.querySelector('li').offsetTop + box.clientTop) % 20"
    assert tab.locator("#scroll").evaluate(cut) == 0, "the first line is whole"
    first = tab.locator("#range").inner_text().partition("–")[0].replace(",", "")
    expect(tab.locator(f"#L0-{first}")).to_be_in_viewport(ratio=1)
    ids = tab.eval_on_selector_all("#log li", "rows => rows.map(row => row.id)")
    assert len(ids) == len(set(ids)), "each line once"


def test_a_search_stays_on_the_page_while_lines_come(site: Site, open_tab: OpenTab):
    job = job_with_logs(site)
    lab.ship(site.stage.bucket, job, 0, numbered(300))
    tab = open_tab(f"/jobs/{job.id}/logs?q=line+12&times=since&host=0")
    matches, command = tab.locator(".logs-found"), tab.locator("footer code")
    shown = matches.inner_text(), command.inner_text()
    lab.ship(site.stage.bucket, job, 0, numbered(5, 301), first=301, number=2)
    expect(tab.locator("#log-end")).to_have_attribute("data-total", "305")
    assert (matches.all_inner_texts(), command.all_inner_texts()) == ([shown[0]], [shown[1]])
    expect(tab.get_by_role("searchbox")).to_have_value("line 12")
    expect(tab.get_by_label("Times")).to_have_value("since")
    expect(tab.get_by_label("Host")).to_have_value("0")


def test_tracebacks_are_stops(site: Site, open_tab: OpenTab):
    job = job_with_logs(site, lab.State.FAILED)
    trace = [b"Traceback (most recent call last):", b'  File "a.py", line 1', b"ValueError: <no>"]
    lab.ship(site.stage.bucket, job, 1, [*numbered(500), *trace, *numbered(500), *trace])
    lab.ship(site.stage.bucket, job, 0, numbered(200))
    tab = open_tab(f"/jobs/{job.id}/logs")
    tab.get_by_role("link", name="First traceback").click()
    expect(tab.locator(".here")).to_have_attribute("id", "L1-501")
    expect(tab.locator(".logs-found")).to_contain_text("1 of 2")
    tab.get_by_role("link", name="Next").click()
    expect(tab.locator(".here")).to_have_attribute("id", "L1-1004")


def test_hostile_and_binary_lines_are_text(site: Site, open_tab: OpenTab):
    job = job_with_logs(site)
    lines = [
        b"<script>alert(1)</script><img src=x onerror=alert(1)>",
        b"\x1b]0;title\x07\x1b[31mred\x1b[0m \xe2\x80\xaeright to left",
        bytes(range(256)).replace(b"\n", b""),
        b"x" * 1_000_000,
    ]
    lab.ship(site.stage.bucket, job, 0, lines)
    tab = open_tab(f"/jobs/{job.id}/logs?host=0")
    rows = tab.locator("#log li")
    expect(rows.nth(0)).to_contain_text("<script>alert(1)</script>")
    expect(rows.nth(1)).to_contain_text("red right to left")
    expect(rows.nth(3)).to_contain_text("998,000 bytes more")
    assert tab.locator("#log script, #log img").count() == 0
    rows.nth(3).get_by_role("link", name="998,000 bytes more").click()
    assert len(tab.locator("#log li").inner_text()) > 64_000, "as long as agents write one"


def test_times_are_shown_as_chosen(site: Site, open_tab: OpenTab):
    job = job_with_logs(site)
    lab.ship(site.stage.bucket, job, 0, numbered(3))
    tab = open_tab(f"/jobs/{job.id}/logs?host=0")
    first = tab.locator("#log time").first
    expect(first).to_have_text("23:50:00.001")
    local = tab.evaluate("new Date('2025-12-31T23:50:00.001Z').toTimeString().slice(0, 8)")
    tab.get_by_label("Times").select_option("since the start")
    window = httpx.get(f"{site.url}/jobs/{job.id}/logs.json").json()["window"]
    began = datetime.fromisoformat(window["began_at"]).timestamp()
    minutes, seconds = divmod(round(lab.WROTE + 0.001 - began, 3), 60)
    expect(first).to_have_text(f"{int(minutes // 60)}:{int(minutes % 60):02}:{seconds:06.3f}")
    tab.get_by_label("Times").select_option("local")
    expect(first).to_have_text(f"{local}.001")


def test_the_whole_log_is_one_text(site: Site):
    job = job_with_logs(site, lab.State.SUCCEEDED)
    lab.ship(site.stage.bucket, job, 0, [b"a\x1b[1m", b"\xff", b"9 8.000 c"])
    lab.ship(site.stage.bucket, job, 1, [b"b"], first=2)
    url = f"{site.url}/jobs/{job.id}/logs.txt"
    page = httpx.get(url + "?host=0", headers=HTML)
    assert page.content == b"a\x1b[1m\n\xff\n9 8.000 c\n", "of one host to the byte"
    assert page.headers["content-type"] == "text/plain; charset=utf-8"
    assert page.headers["x-content-type-options"] == "nosniff"
    merged = b"0| a\x1b[1m\n0| \xff\n1| b\n0| 9 8.000 c\n"
    assert httpx.get(url, headers=HTML).content == merged
    packed = httpx.get(f"{url}.gz", headers=HTML)
    assert gzip.decompress(packed.content) == merged
    assert f'attachment; filename="tpujob-{job.id}.log.gz"' == packed.headers["content-disposition"]


def test_a_job_without_output_teaches_what_comes(site: Site, open_tab: OpenTab):
    (job,) = site.store_jobs([lab.job_in(lab.State.QUEUED)])
    tab = open_tab(f"/jobs/{job.id}/logs")
    expect(tab.get_by_text("There is no output yet.")).to_be_visible()
    assert httpx.get(f"{site.url}/jobs/{job.id}/logs.txt", headers=HTML).content == b""


def test_the_page_of_a_log_is_accessible_and_fits_a_narrow_screen(site: Site, open_tab: OpenTab):
    job = job_with_logs(site)
    lab.ship(site.stage.bucket, job, 0, [b"wide " * 200] * 50)
    lab.ship(site.stage.bucket, job, 0, numbered(3, 400), first=400, number=3)
    lab.ship(site.stage.bucket, job, 1, numbered(300))
    tab = open_tab(f"/jobs/{job.id}/logs?q=line&of=0&line=7", view=NARROW)
    axe(tab)
    fits(tab)
