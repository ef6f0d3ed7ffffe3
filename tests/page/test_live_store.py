"""What open pages ask of the store, and what they say while it does not answer."""

from __future__ import annotations

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page import lab
from tests.page.backend import READS
from tests.page.conftest import OpenTab, Site
from tests.page.live_rig import QUICK, Reader
from tests.support.stage import Stage
from tests.support.world import service
from tpujob.domain.model import Job, State
from tpujob.errors import StoreError

ALL = "/?who=everyone&show=all"


class Shaky:
    """A store that counts its reads, and can be broken."""

    def __init__(self, store: Any) -> None:
        self._store, self.broken = store, False
        self.reads = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        if name in (*READS, "recent"):
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
    site.changes, site.pace = site.jobs.changes, replace(QUICK, beyond=0.1, beat=1.0)
    site.start()
    yield site
    site.stop()


@pytest.fixture
def opened(site: Site) -> Iterator[Callable[[str], Reader]]:
    readers: list[Reader] = []

    def open_it(view: str) -> Reader:
        readers.append(Reader(site.url, view, {}))
        return readers[-1]

    yield open_it
    for reader in readers:
        reader.close()


def say(site: Site, job: Job, text: str) -> None:
    known = site.stage.store.get(job.id)
    changed = replace(known, message=text)
    site.stage.store.commit(changed, None, expected_version=known.version, op_id=text, lease=None)
    site.changes.poke()


def looks(site: Site, times: int) -> None:
    """So many times a page was made again. Pytest's own limit of time ends this."""
    wanted = site.hub.made + times
    while site.hub.made < wanted:
        time.sleep(0.005)


# It does not answer --------------------------------------------------------------------------------------------------


def test_open_pages_say_since_when_the_store_does_not_answer_and_recover(
    site: Site, store: Shaky, open_tab: OpenTab
) -> None:
    job, _ = site.store_jobs([lab.job_in(State.RUNNING, n) for n in range(2)])
    tabs = [open_tab(ALL), open_tab(f"/jobs/{job.id}")]
    for tab in tabs:
        expect(tab.locator("#live .badge")).to_have_text("live")
        tab.evaluate("window.same = true")
    store.broken = True
    say(site, job, "nobody can read this")
    for tab in tabs:
        expect(tab.locator("#live .badge")).to_contain_text("the store has not answered since")
        expect(tab.locator("#live .badge")).to_contain_text("as of")
        expect(tab.locator("main")).to_contain_text(job.name)
        expect(tab.locator("main")).not_to_contain_text("nobody can read this")
    store.broken = False
    say(site, job, "it is back")
    for tab in tabs:
        expect(tab.locator("main")).to_contain_text("it is back")
        expect(tab.locator("#live .badge")).to_have_text("live")
        assert tab.evaluate("window.same"), "the page was not loaded again"


def test_who_joins_while_the_store_fails_is_told_of_the_first_failure(
    site: Site, store: Shaky, opened: Callable[[str], Reader]
) -> None:
    (job,) = site.store_jobs([lab.job_in(State.RUNNING)])
    first = opened(ALL)
    say(site, job, "it is followed")
    first.wait(lambda page: "it is followed" in page.rows.get(f"job-{job.id}", ""))
    store.broken = True
    said = first.until("store")
    assert said["since"] >= said["answered"] > 0
    second = opened(ALL)
    assert second.until("store") == said
    second.close()
    store.broken = False
    assert first.until("store") == {"since": None, "answered": None}
    say(site, job, "it is back")
    first.wait(lambda page: "it is back" in page.rows[f"job-{job.id}"])


# What it is asked ----------------------------------------------------------------------------------------------------


def test_a_page_of_a_job_reads_it_again_only_when_it_has_changed(
    site: Site, store: Shaky, opened: Callable[[str], Reader]
) -> None:
    job, other = site.store_jobs([lab.job_in(State.RUNNING, n) for n in range(2)])
    page = opened(f"/jobs/{job.id}")
    page.change()

    def read() -> dict[str, int]:
        return {name: n for name, n in store.reads.items() if name not in ("changes", "newest")}

    looks(site, 3)
    store.reads.clear()
    looks(site, 10)
    assert not read(), "nothing has happened"
    say(site, other, "of another job")
    looks(site, 10)
    assert not read(), "nothing has happened to this job"
    say(site, job, "it moved")
    page.wait(lambda page: "it moved" in page.parts["job-head"])
    assert read() == {"get": 1, "events": 1}


def test_what_happened_is_read_again_only_when_something_did(
    site: Site, store: Shaky, opened: Callable[[str], Reader]
) -> None:
    (job,) = site.store_jobs([lab.job_in(State.RUNNING)])
    lists, events = opened(ALL), opened("/events")
    lists.change(), events.change()
    say(site, job, "settled")
    lists.wait(lambda page: "settled" in page.rows[f"job-{job.id}"])
    looks(site, 5)  # at the list, in which a job runs
    store.reads.clear()
    looks(site, 10)
    assert not store.reads["recent"]


# What is sent --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ("/events", State.SUCCEEDED),
        ("/jobs/{}/logs", State.RUNNING),  # of one that has ended it is not live
        ("/jobs/{}", State.SUCCEEDED),  # of one that runs, money runs on
        (ALL, State.SUCCEEDED),
    ],
)
def test_the_first_stream_of_a_page_sends_nothing_that_it_has(
    site: Site, path: str, state: State
) -> None:
    (job,) = site.store_jobs([lab.job_in(state)])
    path = path.format(job.id)
    asked = urllib.request.Request(site.url + path, headers={"accept": "text/html"})
    with urllib.request.urlopen(asked) as answer:
        found = re.search(r'data-live-id="(.+?)"', answer.read().decode())
    assert found, "the page does not say what it shows"
    page = Reader(site.url, path, {"last-event-id": found[1]})
    kinds = [page.next()[0] for _ in range(3)]
    page.close()
    assert sorted(kinds) == ["beat", "beat", "retry"]
