"""The page of notifications: what is said of channels and messages, and what an admin can do there."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.page import lab
from tests.page.conftest import VIEWER, OpenTab, Site
from tests.page.story import axe
from tests.support.callers import ADA, NamedDoor, caller
from tpujob.config.notify import parse
from tpujob.domain.model import State
from tpujob.domain.notify.digest import message_id
from tpujob.domain.notify.model import Kind, Message, Note, Try
from tpujob.domain.notify.rules import Rule
from tpujob.engine.notify import Setup
from tpujob.service.backend import Process

HTML = {"accept": "text/html"}


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_an_admin_sees_what_failed_tests_the_channel_and_sends_it_again(
    site: Site, open_tab: OpenTab, scripts: bool
):
    site.store_jobs([lab.job_in(State.FAILED)])
    page = open_tab("/notifications", scripts=scripts)
    messages = page.locator("#deliveries tbody tr")
    expect(messages).to_have_count(6)
    failed = messages.filter(has_text="HTTP 404: no_service").first
    expect(failed.locator(".state")).to_have_text("failed")
    page.get_by_role("button", name="Test lab").click()
    expect(page.locator("h1")).to_have_text("Test: it was delivered")
    page.get_by_role("link", name="Back to the notifications").click()
    expect(messages).to_have_count(7)
    failed.get_by_role("button", name="Send again").click()
    expect(page.locator("h1")).to_have_text("Replay: it was delivered")


def test_a_viewer_sees_it_without_buttons_and_is_refused_what_they_do(
    site: Site, open_tab: OpenTab
):
    site.store_jobs([lab.job_in(State.FAILED)])
    page = open_tab("/notifications", name="eve")
    expect(page.locator("#deliveries tbody tr")).to_have_count(6)
    expect(page.locator("main button", has_text="Test")).to_have_count(0)
    expect(page.locator("main button", has_text="Send again")).to_have_count(0)
    form = {"x-test-name": "eve", "origin": site.url, **HTML}
    refused = httpx.post(f"{site.url}/notifications/test", data={"channel": "lab"}, headers=form)
    assert refused.status_code == 403


def test_addresses_are_seen_by_their_owner_and_by_admins(site: Site) -> None:
    """Where a channel leads, and what its receiver answers, which may name it."""
    address, secret = "grace@example.org", "HTTP 404: no such hook /T0/B1/s3cret"
    answer = f"SMTP 550: <{address}> unknown"
    outlets = site.stage.setup.outlets
    mail = replace(outlets["lab"], kind="email", to=address)
    hook = replace(outlets["ops"], to="hooks.example.org")
    rules = (Rule(("mail", "hook")),)
    site.stop()
    site.stage.setup = Setup({"mail": mail, "hook": hook}, rules)
    site.jobs = site.stage.api
    site.door = NamedDoor(ADA, VIEWER, caller(address))
    site.start()
    for name, error in (("mail", answer), ("hook", secret)):
        note = Note("k", Kind.FAILED, lab.NOW, "it failed", "000001", "digits", "bob", 1, "CRASH")
        told = Message(message_id(name, 1, lab.NOW), name, lab.NOW, (note,), ("k",))
        told = replace(told, state="failed", tries=(Try(lab.NOW, error),))
        outbox = site.stage.store.outbox
        disabled = replace(outbox.channel(name), disabled_at=lab.NOW, disabled_why=error)
        outbox.write(disabled, told)

    def seen(name: str) -> str:
        paths = ("/notifications", "/notifications.json", "/v1/channels", "/v1/deliveries")
        who = {"x-test-name": name}
        found = [httpx.get(site.url + path, headers=who) for path in paths]
        assert {one.status_code for one in found} == {200}
        return html.unescape("\n".join(one.text for one in found))

    for private in (address, "hooks.example.org", "s3cret"):
        assert private in seen("ada"), "an admin sees all"
        assert private not in seen("eve"), "a viewer sees no address of others"
    assert answer in seen(address), "their own is no secret"
    assert "s3cret" not in seen(address)


def test_one_channel_is_a_link_and_pages_lead_on(site: Site):
    site.store_jobs([lab.job_in(State.FAILED)])
    twin = httpx.get(f"{site.url}/notifications.json?channel=ops").json()
    assert [one["channel"] for one in twin["deliveries"]] == ["ops"] * 3
    assert [one["name"] for one in twin["channels"]] == ["lab", "ops"]
    older = twin["deliveries"][0]["id"]
    then = httpx.get(f"{site.url}/notifications.json?channel=ops&before={older}").json()
    assert then["deliveries"] == twin["deliveries"][1:]
    for wrong in ("?channel=nobody", "?before=../jobs/1", "?colour=green"):
        answer = httpx.get(f"{site.url}/notifications{wrong}", headers=HTML)
        assert answer.status_code in (400, 404)
        assert "tpujob notifications" in answer.text or "nknown filter" in answer.text


def test_without_channels_the_page_says_how_to_get_one(site: Site, open_tab: OpenTab):
    site.stop()
    site.stage.setup = Setup()
    site.jobs = site.stage.api
    site.start()
    page = open_tab("/notifications")
    expect(page.locator("main")).to_contain_text("No notification channels are configured.")
    expect(page.locator("main pre")).to_contain_text("notifications:\n  channels:")
    axe(page)


def test_the_hint_of_a_local_stack_is_a_file_that_its_backend_reads(
    site: Site, open_tab: OpenTab, tmp_path: Path
):
    file = tmp_path / "notifications.yaml"
    site.stop()
    site.stage.setup = Setup()
    site.jobs = site.stage.api
    site.jobs.itself.process = Process(channels_file=str(file))
    site.start()
    page = open_tab("/notifications")
    expect(page.locator("main")).to_contain_text(str(file))
    found = parse(page.locator("main pre").inner_text(), str(file))
    assert [*found.channels] == ["lab"]
    assert [*found.rules[0].channels] == ["lab"]
    for command in ("tpujob down", "tpujob up"):
        expect(page.locator("main code", has_text=command)).to_be_visible()
