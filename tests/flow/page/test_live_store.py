"""The load of open pages on the store, and what they say while it does not answer."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.flow.page import lab
from tests.flow.page.conftest import ALL, OpenTab, Site
from tests.support.stage import Stage
from tests.support.world import service
from tpujob.domain.model import State
from tpujob.errors import StoreError

#: methods of a store that read it
READS = ("get", "peek", "list", "walk", "events", "changes", "newest", "due", "damaged", "recent")
WHY = re.compile("the disk is gone|the store has not answered since")


class Shaky:
    """A store that counts its reads, and can be broken."""

    def __init__(self, store: Any) -> None:
        self._store, self.broken = store, False
        self.reads = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        if name in READS:
            self.reads[name] += 1
            if self.broken:
                return self._fail
        return getattr(self._store, name)

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise StoreError("the disk is gone")


@pytest.fixture
def store() -> Shaky:
    return Shaky(None)


@pytest.fixture
def site(store: Shaky, tmp_path: Path, port: int) -> Iterator[Site]:
    stage = Stage(tmp_path)
    store._store = stage.store
    site = Site(stage, port)
    site.jobs = service(stage.reconciler, store=store)
    site.changes = site.jobs.parts.changes
    site.start()
    yield site
    site.stop()


# It does not answer --------------------------------------------------------------------------------------------------


def test_pages_say_when_the_store_failed(site: Site, store: Shaky, open_tab: OpenTab) -> None:
    job, _ = site.store_jobs([lab.job_in(State.RUNNING, n) for n in range(2)])
    tabs = [open_tab(path, allowed=["503"]) for path in (ALL, f"/jobs/{job.id}")]
    for tab in tabs:
        expect(tab.locator("#live .badge")).to_have_text("live")
        tab.evaluate("window.same = true")
    store.broken = True
    lab.say(site, job, "while the store fails")
    for tab in tabs:
        expect(tab.locator("#live .badge")).to_contain_text("as of")
        expect(tab.locator("#live .badge")).to_contain_text(WHY)
        expect(tab.locator("main")).to_contain_text(job.name)
        expect(tab.locator("main")).not_to_contain_text("while the store fails")
    store.broken = False
    lab.say(site, job, "it is back")
    for tab in tabs:
        expect(tab.locator("main")).to_contain_text("it is back")
        expect(tab.locator("#live .badge")).to_have_text("live")
        assert tab.evaluate("window.same"), "the page was not loaded again"


# What it is asked ----------------------------------------------------------------------------------------------------


def test_open_pages_read_events_only_when_a_job_has_changed(site: Site, store: Shaky) -> None:
    job, other = site.store_jobs([lab.job_in(State.RUNNING, n) for n in range(2)])

    def fetch(path: str) -> str:
        return httpx.get(site.url + path, headers={"x-tpujob-again": "1"}).text

    fetch(f"/jobs/{job.id}")
    lab.say(site, other, "of another job")
    store.reads.clear()
    for _ in range(5):
        fetch(f"/jobs/{job.id}")
    assert not store.reads["events"], "nothing has happened to this job"
    lab.say(site, job, "it moved")
    for _ in range(5):
        assert "it moved" in fetch(f"/jobs/{job.id}")
    assert store.reads["events"] == 1
