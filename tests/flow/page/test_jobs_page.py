"""The first page in a browser: whose jobs, which ones, in which order, and what can be done with them."""

import re
from dataclasses import replace
from typing import get_args

import httpx
from playwright.sync_api import expect

from tests.flow.page import lab, past
from tests.flow.page.conftest import ALL, HTML, NARROW, WIDE, OpenTab, Site
from tests.flow.page.story import fits, rows
from tests.support.callers import ADA
from tpujob.api import JobOrder
from tpujob.domain.model import Cause, Proof, State


def test_an_empty_store_teaches_the_next_command_to_those_who_may_give_it(site: Site) -> None:
    for path in ("/", "/events"):
        seen = {name: site.page(path, name).text for name in ("eve", "bob")}
        assert "There are no jobs yet." in seen["bob"] or path != "/"
        assert "tpujob run --type v4-8 -- echo hello" in seen["bob"], path
        assert "tpujob run" not in seen["eve"], path
        assert "tpujob demo" not in seen["eve"] + seen["bob"], path


def test_the_first_view_is_what_is_mine_and_recent(site: Site, open_tab: OpenTab):
    old = lab.job_in(State.FAILED, 0, finished_at=lab.NOW - 25 * 3600)
    stored = site.store_jobs(lab.full())
    site.store_jobs([old])
    mine = [job.id for job in stored if job.user == "ada"]
    page = open_tab("/")
    assert sorted(rows(page)) == sorted(mine)
    page.get_by_role("link", name="Everyone").click()
    page.wait_for_url("**who=everyone**")
    expect(page.locator("#rows tr")).to_have_count(len(stored))
    page.get_by_role("link", name="All", exact=True).click()
    expect(page.locator("#rows tr")).to_have_count(len(stored) + 1)


def test_when_nothing_of_mine_is_recent_the_page_leads_to_the_rest(site: Site, open_tab: OpenTab):
    site.store_jobs(
        [lab.job_in(State.FAILED, 0, finished_at=lab.NOW - 25 * 3600), lab.job_in(State.RUNNING, 2)]
    )
    page = open_tab("/")
    expect(
        page.get_by_text("You have no job that is active or ended within the last day.")
    ).to_be_visible()
    page.get_by_role("link", name="Show all of mine").click()
    expect(page.locator("#rows tr")).to_have_count(1)
    page.get_by_role("link", name="Everyone").click()
    expect(page.locator("#rows tr")).to_have_count(2)


def test_a_state_has_as_many_jobs_as_its_count_says(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.full())
    page = open_tab("/")  # my own, of which some states have none
    for state in State:
        chip = page.locator(f".chip.{state}")
        if not chip.count():
            expect(page.locator(f"#rows .state.{state}")).to_have_count(0)
            continue
        count = int(chip.locator(".count").inner_text())
        chip.click()
        expect(page.locator("#rows tr")).to_have_count(count)
        expect(page.locator(f"#rows .state.{state}")).to_have_count(count)
        page.locator(f".chip.{state}.on").click()
        expect(page.locator(".chip.on")).to_have_count(0)


def test_a_search_is_in_the_address_and_clears(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.full())
    page = open_tab(ALL)
    page.get_by_role("searchbox").fill("LLAMA")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=LLAMA")
    expect(page.locator("#rows tr")).to_have_count(2)
    assert "type=" not in page.url, "what is empty is left out"
    page.get_by_text("Filters").click()
    page.set_viewport_size(NARROW)
    fits(page)
    page.get_by_label("Type, such as").fill("v4-32")
    page.keyboard.press("Enter")
    page.wait_for_url("**type=v4-32*")
    expect(page.locator("details.more")).to_have_text(re.compile(r"^Filters \(1\)"))
    expect(page.get_by_label("Type, such as")).to_be_hidden()  # it would lie on the rows
    page.get_by_role("searchbox").fill("no such job")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No matching jobs.")).to_be_visible()
    page.get_by_role("link", name="Clear every filter").click()
    expect(page.locator("#rows tr")).not_to_have_count(0)


def test_pages_of_each_order_show_every_job_once_and_say_where_they_are(site: Site):
    stored = sorted(job.id for job in site.store_jobs(lab.many(120)))
    with httpx.Client(headers=HTML) as client:
        for order in get_args(JobOrder):
            seen: list[str] = []
            ranges: list[str] = []
            link = f"?who=everyone&show=all&order={order}"
            while link:
                page = client.get(f"{site.url}/{link}").text
                seen += re.findall(r'<tr id="job-(\d+)"', page)
                ranges += re.findall(r'id="range">([^<]+)<', page)
                next_link = re.search(r'href="([^"]+)" rel="next"', page)
                link = next_link[1].replace("&amp;", "&") if next_link else ""
            assert sorted(seen) == stored, order
            assert ranges == ["1–50 of 120", "51–100 of 120", "101–120 of 120"], order


def test_a_head_orders_over_all_jobs_and_again_the_other_way(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.many(80))
    page = open_tab(ALL)
    spent = page.get_by_role("columnheader", name="Spent")
    expect(spent).not_to_have_attribute("aria-sort", "descending")
    spent.get_by_role("link").click()
    expect(spent).to_have_attribute("aria-sort", "descending")
    first = page.locator("#rows tr").first.get_attribute("data-job")
    spent.get_by_role("link").click()
    expect(spent).to_have_attribute("aria-sort", "ascending")
    page.goto("/?who=everyone&order=id")
    expect(page.locator("select[name=order]")).to_have_value("id")
    page.goto(f"{ALL}&order=spent&reverse=1")
    page.get_by_role("link", name="Next 30").click()
    expect(page.locator("#range")).to_have_text("51–80 of 80")
    assert page.locator("#rows tr").last.get_attribute("data-job") == first
    page.get_by_role("link", name="First page").click()
    expect(page.locator("#range")).to_have_text("1–50 of 80")


def test_the_page_names_the_command_that_lists_the_same(site: Site):
    for query, command in (
        ("", "tpujob list --mine"),
        ("?who=everyone", "tpujob list"),
        ("?who=everyone&show=all", "tpujob list --all"),
        ("?state=failed&state=running", "tpujob list --mine --state failed --state running"),
        ("?cause=OOM_HBM", "tpujob list --mine --cause OOM_HBM"),
        (
            "?user=bob&q=a+b&order=spent&reverse=1",
            "tpujob list --user bob --text &#39;a b&#39; --order spent --reverse",
        ),
    ):
        page = httpx.get(f"{site.url}/{query}", headers=HTML).text
        assert f"<code>{command}</code>" in page, query


def test_a_cause_finds_jobs_that_ended_long_ago_as_its_command_does(site: Site):
    ended = lab.NOW - 9 * 86_400
    (job,) = site.store_jobs(
        [lab.job_in(State.FAILED, cause=Cause.OOM_HBM, finished_at=ended, state_since=ended)]
    )
    page = httpx.get(f"{site.url}/?who=everyone&cause=OOM_HBM", headers=HTML).text
    assert "<code>tpujob list --cause OOM_HBM</code>" in page
    assert f'<tr id="job-{job.id}"' in page


def test_starred_rows_come_first_and_stay_so(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.full())
    page = open_tab(ALL)
    last = rows(page)[-1]
    page.get_by_label(f"Star job {last}").click()
    expect(page.get_by_label(f"Star job {last}")).to_have_attribute("aria-pressed", "true")
    assert rows(page)[0] == last
    page.reload()
    expect(page.get_by_label(f"Star job {last}")).to_have_attribute("aria-pressed", "true")
    assert rows(page)[0] == last
    page.get_by_role("link", name="Age", exact=True).click()
    page.wait_for_url("**order=age**")
    expect(page.locator("#rows tr").first).to_have_attribute("data-job", last)


def test_selected_rows_are_counted_and_done_together(site: Site, open_tab: OpenTab):
    stored = site.store_jobs(lab.job_in(State.QUEUED, n) for n in range(4))
    page = open_tab("/?who=everyone")
    expect(page.locator(".bulk")).to_be_hidden()
    page.get_by_label("Select every row").check()
    expect(page.locator(".bulk")).to_contain_text("4 selected")
    page.get_by_label(f"Select job {stored[0].id}").uncheck()
    expect(page.locator(".bulk")).to_contain_text("3 selected")
    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_role("heading", name="Delete 3 jobs?")).to_be_visible()
    page.get_by_role("button", name="Delete 3 jobs").click()
    expect(page.get_by_text("delete asked")).to_have_count(3)
    wishes = [site.stage.job(job.id).desired.value for job in stored]
    assert wishes == ["run", "release", "release", "release"]


def test_every_row_has_two_lines(site: Site, open_tab: OpenTab):
    failed, long = lab.job_in(State.FAILED), "FileNotFoundError: gs://corpus/" + "x" * 90
    attempt = replace(failed.attempts[-1], message=long)
    failed = replace(failed, attempts=(*failed.attempts[:-1], attempt), user="u" * 60)
    past.preempted(site.stage, ADA, name="llama-" + "x" * 34)
    site.store_jobs([*lab.full(), failed])
    page = open_tab(ALL)
    heights = page.locator("#rows tr").evaluate_all("rows => rows.map(row => row.offsetHeight)")
    assert max(heights) - min(heights) <= 1, heights
    assert max(heights) <= 54
    for width in (1280, 800):
        page.set_viewport_size({"width": width, "height": 900})
        cut = page.locator("#rows .step .line").evaluate_all(
            "lines => lines.filter(line => { if (line.matches('.mute')) line.firstChild.data = '0.993/s · 52m51s'; "
            "return line.scrollWidth > line.clientWidth }).map(line => line.textContent)"
        )
        assert not cut, "nothing of a step is cut"
    page.set_viewport_size(WIDE)
    expect(page.locator("#rows tr").first.locator(".why")).to_contain_text("FileNotFoundError")
    for state, coming in (("releasing", 1), ("queued", 0), ("running", 0), ("failed", 0)):
        row = page.locator(f"#rows tr.{state}").last
        expect(row.locator(".then")).to_have_count(coming)


def test_ages_go_on_while_the_page_is_open(site: Site, open_tab: OpenTab):
    site.store_jobs([lab.job_in(State.QUEUED, created_at=lab.NOW - 59)])
    page = open_tab()
    page.clock.install()
    page.goto("/")
    age = page.locator("#rows .age time")
    expect(age).to_have_text("59s")
    page.clock.run_for(60_000)
    expect(age).to_have_text("1m")


def test_a_success_with_an_error_in_its_last_lines_has_another_mark_and_says_so(
    site: Site, open_tab: OpenTab
):
    plain, doubtful = (lab.job_in(State.SUCCEEDED, n) for n in (0, 3))
    text = "all 2 hosts exited with 0, but the last lines of host 1 have an error"
    *earlier, last = doubtful.attempts
    last = replace(last, message=text, last_error=Proof(1, "ValueError: no such shard"))
    site.store_jobs([plain, replace(doubtful, attempts=(*earlier, last))])
    page = open_tab(ALL)
    mark = page.locator("#rows .state.trouble")
    expect(mark).to_have_count(1)
    expect(mark).to_have_text("succeeded, error")
    expect(mark).to_have_attribute("title", text)
    expect(mark.locator("use")).to_have_attribute("href", "#i-warn")
    expect(page.get_by_text("but the last lines of host 1 have an error")).to_be_visible()
    expect(page.locator("#rows .state.succeeded:not(.trouble)")).to_have_text("succeeded")
