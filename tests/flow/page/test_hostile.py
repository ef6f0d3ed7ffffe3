"""Hostile names and messages: they are shown as text, and move nothing that stands beside them."""

import pytest
from playwright.sync_api import expect

from tests.flow.page import lab
from tests.flow.page.conftest import OpenTab, Site
from tests.flow.page.story import fits, no_inline
from tpujob.domain.model import State

NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "</td></tr></table><h1>gone",
    "javascript:alert(1)",
)
TURNED = "abc\u202egnp.exe\u2066\u200b"  # shows as abcexe.png where marks of direction count
LONG = "wordwithoutend" * 800


def test_hostile_names_are_shown_as_they_are_written(site: Site, open_tab: OpenTab):
    site.store_jobs(
        lab.job_in(State.FAILED, name=name, user=name, message=f"because of {name} {LONG}")
        for name in NAMES
    )
    page = open_tab()
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.goto("/?who=everyone&show=all")
    shown = page.locator("#rows .name").all_inner_texts()
    assert sorted(shown) == sorted(NAMES)
    expect(page.locator("h1")).to_have_text("Jobs")
    no_inline(page)
    page.set_viewport_size({"width": 320, "height": 700})
    fits(page)


def test_marks_that_turn_or_hide_text_are_left_out(site: Site, open_tab: OpenTab):
    site.store_jobs([lab.job_in(State.FAILED, name=TURNED, message=f"{TURNED}\x1b[31m\x07!")])
    page = open_tab("/?who=everyone&show=all")
    assert page.locator("#rows .name").inner_text() == "abcgnp.exe"
    assert page.locator("#rows .summary").inner_text() == "abcgnp.exe!"


#: as somebody might send it in a link
ADDRESSES = (
    "/?q=%3Cscript%3Ealert(1)%3C/script%3E",
    "/%3Cscript%3Ealert(1)%3C/script%3E",
    "/?who=%22onmouseover=alert(1)%20x=%22",
    "/jobs/%2e%2e%2f%2e%2e",
    "/?after=%00%ff",
    "/?at=x",
    "/?x=" + "y" * 5000,
)


def test_a_hostile_address_does_no_harm(site: Site, open_tab: OpenTab):
    site.store_jobs(lab.failing())
    page = open_tab(allowed=("404 (Not Found)", "400 (Bad Request)"))
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    for path in ADDRESSES:
        answer = page.goto(path)
        assert answer is not None, path
        assert answer.status in (200, 400, 404), path
        expect(page.locator("main h1")).to_have_count(1)
        no_inline(page)
