"""The page of notifications: whether channels work, and what an admin can do there."""

import html
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.flow.page import lab
from tests.flow.page.conftest import VIEWER, OpenTab, Site
from tests.flow.page.story import axe
from tests.support.callers import ADA, NamedDoor, caller
from tpujob.config.notifications import parse
from tpujob.domain.model import State
from tpujob.domain.notifications.delivery import message_for
from tpujob.domain.notifications.model import Notification, NotificationKind
from tpujob.domain.notifications.rules import ChannelRule
from tpujob.engine.notification_collector import NotificationSetup
from tpujob.service.backend import ProcessFacts


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_an_admin_sees_a_channel_fail_and_tests_it(site: Site, open_tab: OpenTab, scripts: bool):
    site.store_jobs([lab.job_in(State.FAILED)])
    page = open_tab("/notifications", scripts=scripts)
    failing = page.locator("#channel-ops")
    expect(failing).to_contain_text("failing HTTP 503: tpujob x 1 message waiting")
    expect(failing.locator("code")).to_have_text("tpujob x")
    page.get_by_role("button", name="Test ops").click()
    expect(failing).to_contain_text("works")
    expect(failing).to_contain_text("tpujob: test")


def test_a_channel_that_fails_is_failing_although_newer_messages_wait(site: Site):
    for n in range(12):
        fact = Notification(str(n), NotificationKind.FAILED, lab.NOW + n, "failed", "000001", "x")
        message = message_for("ops", fact)
        failed = replace(message, tried=1, tried_at=lab.NOW, error="HTTP 503")
        site.stage.store.outbox.add([message if n else failed])
    (ops,) = (channel for channel in site.api.channels() if channel["name"] == "ops")
    assert (ops["state"], ops["waiting"]) == ("failing", 12)


def test_a_viewer_sees_it_without_buttons(site: Site):
    button, channels = 'aria-label="Test ops"', ('id="channel-lab"', 'id="channel-ops"')
    for name, has_button in (("ada", True), ("eve", False)):
        page = site.page("/notifications", name).text
        assert all(channel in page for channel in channels)
        assert (button in page) is has_button


def test_addresses_are_seen_by_their_owner_and_by_admins(site: Site) -> None:
    """The address of a channel, and its receiver's answer, which may name it."""
    address, secret = "grace@example.org", "HTTP 404: no such hook /T0/B1/s3cret"
    answer = f"SMTP 550: <{address}> unknown"
    channels = site.stage.setup.channels
    mail = replace(channels["lab"], kind="email", to=address)
    hook = replace(channels["ops"], to="hooks.example.org")
    rules = (ChannelRule(("mail", "hook")),)
    site.stop()
    site.stage.setup = NotificationSetup({"mail": mail, "hook": hook}, rules)
    site.jobs = site.stage.api
    site.door = NamedDoor(ADA, VIEWER, caller(address))
    site.start()
    for name, error in (("mail", answer), ("hook", secret)):
        fact = Notification("k", NotificationKind.FAILED, lab.NOW, "it failed", "000001", "digits")
        failed = replace(message_for(name, fact), state="failed", due=None)
        tried = replace(failed, tried=1, tried_at=lab.NOW, error=error)
        site.stage.store.outbox.add([tried])

    def seen(name: str) -> str:
        paths = ("/notifications", "/notifications.json", "/v1/channels", "/v1/deliveries")
        headers = {"x-test-name": name}
        answers = [httpx.get(site.url + path, headers=headers) for path in paths]
        assert {reply.status_code for reply in answers} == {200}
        return html.unescape("\n".join(reply.text for reply in answers))

    for private in (address, "hooks.example.org", "s3cret"):
        assert private in seen("ada"), "an admin sees all"
        assert private not in seen("eve"), "a viewer sees no address of others"
    assert answer in seen(address), "their own is no secret"
    assert "s3cret" not in seen(address)


@pytest.mark.parametrize("local", [True, False], ids=["local", "deployed"])
def test_without_channels_there_is_help(site: Site, open_tab: OpenTab, tmp_path: Path, local: bool):
    file = str(tmp_path / "notifications.yaml") if local else ""
    site.stop()
    site.stage.setup = NotificationSetup()
    site.jobs = site.stage.api
    site.jobs.parts.status.process = ProcessFacts(channels_file=file)
    site.start()
    page = open_tab("/notifications")
    expect(page.locator("main")).to_contain_text("No notification channels are configured.")
    axe(page)
    written = page.locator("main pre").inner_text()
    if not local:
        assert written.startswith("notifications:\n  channels:")
        return
    expect(page.locator("main")).to_contain_text(file)
    settings = parse(written, file)
    assert [*settings.channels] == [*settings.rules[0].channels] == ["lab"]
    for command in ("tpujob down", "tpujob up"):
        expect(page.locator("main code", has_text=command)).to_be_visible()
