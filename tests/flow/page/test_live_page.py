"""A live page in a browser: what it shows while jobs change, and without an answer."""

import re

from playwright.sync_api import Page, expect

from tests.flow.page import lab
from tests.flow.page.conftest import ALL, NARROW, OpenTab, Site
from tests.flow.page.story import fits, rows
from tests.support.stage import SPEC
from tpujob.domain.model import Job, State
from tpujob.service.backend import capacity


def add(site: Site, state: State = State.RUNNING, n: int = 0) -> Job:
    (stored,) = site.store_jobs([lab.job_in(state, n)])
    site.changes.poke()
    return stored


def live(page: Page) -> None:
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_jobs_come_move_and_go(site: Site, open_tab: OpenTab) -> None:
    page = open_tab(ALL)
    expect(page.get_by_text("There are no jobs yet.")).to_be_visible()
    live(page)
    first = add(site)
    expect(page.locator("#rows tr")).to_have_count(1)
    second = add(site, n=1)
    expect(page.locator("#rows tr")).to_have_count(2)
    assert rows(page) == [second.id, first.id]
    expect(page.locator("#pager")).to_contain_text("1–2 of 2")
    for job in (first, second):
        site.stage.store.remove(job.id, lease=None)
        site.changes.poke()
    expect(page.get_by_text("There are no jobs yet.")).to_be_visible()


def test_rows_keep_their_order_under_the_pointer(site: Site, open_tab: OpenTab) -> None:
    first, second = add(site), add(site, n=1)
    page = open_tab(ALL)
    live(page)
    page.locator(f"#job-{first.id} .why").hover()
    third = add(site, n=2)
    apply = page.get_by_role("button", name="1 changed, apply")
    expect(apply).to_be_visible()
    site.stage.store.remove(second.id, lease=None)
    lab.say(site, first, "attempt 7 runs on 4 hosts")
    expect(page.get_by_role("button", name="2 changed, apply")).to_be_visible()
    assert rows(page) == [second.id, first.id], "a row has moved under the pointer"
    expect(page.locator(f"#job-{first.id} .why")).to_contain_text("attempt 7")
    expect(page.locator(f"#job-{second.id}")).to_have_class("running gone")
    page.get_by_role("button", name="2 changed, apply").click()
    expect(page.locator(f"#job-{third.id}")).to_be_visible()
    expect(page.locator("#rows tr")).to_have_count(2)
    assert rows(page) == [third.id, first.id]
    expect(apply).to_be_hidden()
    page.locator(f"#job-{first.id} .why").hover()
    add(site, n=3)
    expect(apply).to_be_visible()
    page.mouse.move(5, 5)  # to nothing
    expect(page.locator("#rows tr")).to_have_count(3)
    expect(apply).to_be_hidden()


KEPT = """() => ({
  focus: document.activeElement.closest("tr").id,
  same: document.activeElement === window.link,
  selected: getSelection().toString(),
  scroll: scrollY,
  checked: document.querySelector("#rows input:checked").value,
})"""


def test_focus_selection_and_scroll_survive_changes(site: Site, open_tab: OpenTab) -> None:
    jobs = [add(site, n=n) for n in range(30)]
    page = open_tab(ALL)
    live(page)
    page.locator(f"#job-{jobs[20].id} input").check()
    page.locator(f"#job-{jobs[20].id} .name a").focus()
    page.evaluate(
        """(id) => {
            window.link = document.activeElement;
            getSelection().selectAllChildren(document.querySelector(`#job-${id} .name bdi`));
            scrollTo(0, 200);
        }""",
        jobs[20].id,
    )
    before = page.evaluate(KEPT)
    assert before["scroll"] == 200
    assert before["selected"] == jobs[20].name
    for n in range(5):
        for job in (jobs[20], jobs[19], jobs[0]):
            lab.say(site, job, f"attempt {n} runs on 4 hosts")
        why = page.locator(f"#job-{jobs[0].id} .why")
        expect(why).to_contain_text(f"attempt {n} runs")
    assert page.evaluate(KEPT) == before


def test_a_pause_stops_every_change(site: Site, open_tab: OpenTab) -> None:
    first = add(site)
    page = open_tab(ALL)
    live(page)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#live .badge")).to_have_text(re.compile(r"paused at \d\d:\d\d:\d\d UTC"))
    shown = page.locator("#main").inner_html()
    lab.say(site, first, "attempt 7 runs on 4 hosts")
    add(site, n=1)
    watched = open_tab(ALL)
    expect(watched.locator("#rows tr")).to_have_count(2)  # another tab shows it all
    assert page.locator("#main").inner_html() == shown
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#rows tr")).to_have_count(2)
    expect(page.locator(f"#job-{first.id} .why")).to_contain_text("attempt 7")


def test_the_status_line_shows_changes_and_seldom(site: Site, open_tab: OpenTab) -> None:
    jobs = [add(site, n=n) for n in range(4)]
    page = open_tab()
    page.clock.install()
    page.goto(ALL)
    live(page)
    page.evaluate(
        """() => {
            window.words = [];
            const line = document.getElementById("status");
            new MutationObserver(() => words.push(line.textContent)).observe(line, { childList: true });
        }"""
    )
    for n, job in enumerate(jobs):
        state = State.FAILED if n == 0 else State.RELEASING
        lab.say(site, job, f"over {n}", state=state)
    for n, job in enumerate(jobs):
        expect(page.locator(f"#job-{job.id} .why")).to_contain_text(f"over {n}")
    page.clock.fast_forward(2_000)
    lab.say(site, jobs[1], "again", state=State.QUEUED)
    expect(page.locator(f"#job-{jobs[1].id} .why")).to_contain_text("again")
    page.clock.fast_forward(3_000)
    assert page.evaluate("words") == ["4 jobs changed, 1 failed."]
    page.clock.fast_forward(12_000)
    assert page.evaluate("words") == ["4 jobs changed, 1 failed.", "1 job changed."]


def mark(page: Page) -> None:
    page.evaluate("window.same = true")


def watch(page: Page, path: str) -> None:
    page.goto(path)
    live(page)
    mark(page)


def same(page: Page) -> None:
    assert page.evaluate("window.same"), "the page was loaded again"


def test_each_page_of_the_lab_shows_what_has_changed(site: Site, open_tab: OpenTab) -> None:
    page, store, clock = open_tab(), site.stage.store, site.stage.clock
    watch(page, "/capacity")
    expect(page.get_by_text("No hardware is held")).to_be_visible()
    expect(page.locator("#capacity-quota tbody tr").first).to_contain_text("128 cores")
    (job,) = site.store_jobs([lab.job_in(State.RUNNING)])
    site.quota = lab.quota(v4=256)
    clock.time += capacity.EVERY
    expect(page.locator("#capacity-offers tbody tr")).to_have_count(1)
    v4 = page.locator("#capacity-quota tbody tr").first
    expect(v4).to_contain_text("256 cores")
    expect(v4.locator("td").nth(2)).to_contain_text("32 cores")
    same(page)

    watch(page, "/spend?by=job")
    costs = page.locator(f"#spend-{job.id} td").nth(2)
    before = costs.text_content() or ""
    clock.time += 3600
    expect(costs).not_to_have_text(before)
    site.store_jobs([lab.job_in(State.RUNNING, 1)])
    expect(page.locator("#rows tr")).to_have_count(3)
    same(page)

    watch(page, "/notifications")
    expect(page.locator("#rows tr").first).to_contain_text("untried")
    site.store_jobs([lab.job_in(State.FAILED, 2)])
    expect(page.locator("#rows tr").first).to_contain_text("works")
    same(page)

    watch(page, "/hosts")
    expect(page.get_by_text("No machine is suspected.")).to_be_visible()
    lab.blame(site, "rack-1")
    expect(page.locator("#rows tr")).to_have_count(1)
    lab.blame(site, "rack-2", weight=3.0)
    expect(page.locator("#rows tr").first).to_contain_text("rack-2")
    same(page)

    watch(page, "/backend")
    site.api.create(SPEC)
    newest = page.locator("#backend-store div", has_text="Revision")
    expect(newest).to_contain_text(f"{store.newest():,}")
    same(page)


# Cuts ----------------------------------------------------------------------------------------------------------------


def test_a_backend_that_comes_back_is_found(site: Site, open_tab: OpenTab) -> None:
    first = add(site)
    page = open_tab(ALL, allowed=["ERR_CONNECTION_REFUSED"])
    live(page)
    mark(page)
    page.set_viewport_size(NARROW)
    site.stop()
    expect(page.locator("#live")).to_have_attribute("data-state", "stale")
    fits(page)
    lab.say(site, first, "attempt 7 runs on 4 hosts")
    site.start()
    live(page)
    expect(page.locator(f"#job-{first.id} .why")).to_contain_text("attempt 7")
    same(page)


def test_without_a_stream_the_page_asks_by_itself(site: Site, open_tab: OpenTab) -> None:
    """Such as behind a proxy that holds streams back; 503 is what one answers without a backend."""
    first = add(site)
    page = open_tab(allowed=["503"])
    page.route("**/live", lambda route: route.fulfill(status=503, body="no healthy upstream"))
    page.goto(ALL)
    lab.say(site, first, "attempt 7 runs on 4 hosts")
    expect(page.locator(f"#job-{first.id} .why")).to_contain_text("attempt 7")
    live(page)
    page.unroute("**/live")
    while not site.events.streams:
        page.wait_for_timeout(50)
    lab.say(site, first, "attempt 8 runs on 4 hosts")
    expect(page.locator(f"#job-{first.id} .why")).to_contain_text("attempt 8")


def test_a_failed_fetch_is_shown_and_what_was_shown_stays(site: Site, open_tab: OpenTab) -> None:
    first = add(site)
    page = open_tab(ALL, allowed=["503"])
    page.route("**/?who=*", lambda route: route.fulfill(status=503, body="upstream connect error"))
    badge = page.locator("#live")
    expect(badge).to_have_attribute("data-state", "stale")
    expect(badge).to_contain_text("the backend answers 503")
    lab.say(site, first, "attempt 7 runs on 4 hosts")
    expect(page.locator("#rows tr")).to_have_count(1)
    page.unroute("**/?who=*")
    expect(page.locator(f"#job-{first.id} .why")).to_contain_text("attempt 7")
    live(page)


def test_a_caller_without_the_right_to_watch_gets_a_link(site: Site, open_tab: OpenTab) -> None:
    add(site)
    page = open_tab(ALL, name="bob", allowed=["401"])
    live(page)
    site.door.forget("bob")
    box = page.get_by_role("alert")
    expect(box).to_contain_text("Nobody is signed in")
    expect(box.get_by_role("link", name="All jobs")).to_be_visible()
    expect(page.locator("#rows tr")).to_have_count(1)
