"""Capacity, hosts, spend and events, as a person reads and uses them."""

import httpx
from playwright.sync_api import expect

from tests.flow.page import lab
from tests.flow.page.conftest import NARROW, OpenTab, Site
from tests.flow.page.story import axe, fits
from tests.support.stage import SPEC
from tpujob.domain import text
from tpujob.domain.model import State

NAMED = {"x-test-name": "ada"}


def test_the_bar_shows_where_one_is_in_a_narrow_window(open_tab: OpenTab) -> None:
    page = open_tab("/backend", view=NARROW)
    expect(page.locator("nav [aria-current]")).to_be_in_viewport(ratio=1)


def test_events_are_turned_over_in_pages_without_scripts(site: Site, open_tab: OpenTab) -> None:
    job = site.api.create(SPEC)["id"]
    for number in range(120):
        site.stage.clock.time += 1
        site.api.resume(job, budget=1000.0 + number)
    page = open_tab("/events", scripts=False)
    expect(page.locator("#rows tr")).to_have_count(100)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("#rows tr")).to_have_count(21)
    expect(page.locator("#rows tr").last).to_contain_text("created")
    page.get_by_role("link", name="Newest").click()
    expect(page.locator("#rows tr").first).to_contain_text("$1,119.00")
    live = open_tab("/events")
    expect(live.locator("#live")).to_have_attribute("data-state", "live")
    site.stage.clock.time += 1
    site.api.cancel(job)
    expect(live.locator("#rows tr").first).to_contain_text("cancel requested by ada")
    last = live.locator("#rows tr").last.get_attribute("id") or ""
    live.get_by_role("link", name="Older").click()
    first = live.locator("#rows tr").first.get_attribute("id") or ""
    older = [int(name.rpartition("-")[2]) for name in (last, first)]
    assert older[0] - older[1] == 1, "a row that was pushed out of the page is on no other"
    page.get_by_role("link", name="budget_changed").first.click()
    assert "kind=budget_changed" in page.url
    expect(page.locator("#rows tr")).to_have_count(100)


def test_a_machine_is_called_bad_and_forgotten_by_buttons(site: Site, open_tab: OpenTab) -> None:
    lab.blame(site, "rack-1")
    page = open_tab("/hosts", scripts=False)
    page.get_by_role("button", name="Bad").click()
    row = page.locator("tbody tr")
    expect(row).to_contain_text("marked bad by a person")
    expect(row).to_contain_text("refused")
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_text("No machine is suspected.")).to_be_visible()


def test_hosts_are_for_admins_and_the_page_says_so(site: Site) -> None:
    page = site.page("/hosts", "eve")
    assert page.status_code == 403
    assert "That is not allowed</h1>" in page.text
    assert "needs the role admin" in page.text


def test_capacity_looks_for_what_is_left_over_only_when_asked(site: Site) -> None:
    for query, shown in (("", None), ("?leaks=1", [])):
        left_over = httpx.get(f"{site.url}/capacity.json{query}", headers=NAMED).json()["left_over"]
        assert (left_over and left_over["deleted"]) == shown


def test_a_long_name_leaves_room_for_what_it_has_spent(site: Site, open_tab: OpenTab) -> None:
    site.store_jobs([lab.job_in(State.SUCCEEDED, user="n" * 200)])
    page = open_tab("/spend?by=user", scripts=False)
    expect(page.locator("#rows td").last).to_be_in_viewport(ratio=1)
    expect(page.locator("#rows .person")).to_have_attribute("title", "n" * 200)


def test_last_months_dollars_of_one_owner_are_found_by_clicks(
    site: Site, open_tab: OpenTab
) -> None:
    site.store_jobs(lab.full())
    page = open_tab("/spend", scripts=False, view=NARROW)
    page.get_by_role("link", name="Last month").click()
    expect(page.get_by_text("2025-12-01 to 2025-12-31")).to_be_visible()
    expect(page.locator("footer code")).to_have_text("tpujob cost report --by user --month 2025-12")
    costs = site.api.cost(by="user", since="2025-12-01", until="2025-12-31")
    spent = {row["key"]: text.dollars(row["list_micros"]) for row in costs["rows"]}
    row = page.locator("#rows tr", has_text="bob")
    expect(row.locator("td").nth(2)).to_have_text(spent["bob"])
    expect(page.locator(".bars rect")).to_have_count(31)
    page.get_by_role("link", name="× Day").click()
    row = page.locator("tr", has_text="bob")
    expect(row.locator("td").first).to_have_text(spent["bob"])
    fits(page)
    rows = site.page("/spend.csv?by=user&then=day&month=2025-12").text
    assert rows.startswith("user,day,name,part,")
    assert ",2026-" not in rows
    page = open_tab("/spend?by=share&then=type")
    axe(page)
    page.get_by_label("From").fill("2025-12-31")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/spend?by=share&then=type&since=2025-12-31")


def test_spend_by_user_leads_to_the_jobs_of_one(site: Site, open_tab: OpenTab) -> None:
    site.store_jobs(lab.full())
    site.api.create({**SPEC, "tpu": {"type": "v4-16"}, "budget": {"usd": 50}})
    site.stage.clock.time += 60
    axe(open_tab("/spend"))
    page = open_tab("/spend", scripts=False)
    expect(page.locator("#rows tr")).to_have_count(3)  # all, and two users
    page.get_by_role("link", name="Zone", exact=True).click()
    expect(page.locator("#rows th", has_text="us-central2-b")).to_be_visible()
    expect(page.locator("#rows th", has_text="no zone")).to_have_count(0)  # nothing is billed
    page.get_by_role("link", name="User", exact=True).click()
    page.get_by_role("link", name="bob").click()
    expect(page.get_by_text("Only jobs of bob")).to_be_visible()
    expect(page.locator("footer code")).to_have_text("tpujob cost report --by job --user bob")
