"""Many live lists of one store: each shows in the end what the store has, and only those that a change concerns are
made again. Nothing is looked at twice here: what a page misses once, it misses for good."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.page import lab
from tests.page.conftest import VIEWER, Site
from tests.page.live_rig import QUICK, Reader
from tests.support.callers import ADA
from tests.support.stage import Stage
from tpujob.domain.model import State

ROW = re.compile(r'<tr id="(job-\d+)".*?</tr>', re.DOTALL)
EVERYBODY = "/?who=everyone&show=all"
VIEWS = [
    *(("/", who.name) for who in (ADA, lab.BOB, VIEWER)),
    *(("/?show=all", who.name) for who in (ADA, lab.BOB)),
    ("/?who=everyone", VIEWER.name),
    (f"{EVERYBODY}&order=name", VIEWER.name),
    (f"{EVERYBODY}&order=state&reverse=1", ADA.name),
    (f"{EVERYBODY}&order=attempts", ADA.name),
    (f"{EVERYBODY}&user=bob", ADA.name),
    (f"{EVERYBODY}&state=failed&state=queued", ADA.name),
    (f"{EVERYBODY}&type=v4-32", ADA.name),
    (f"{EVERYBODY}&q=vit", ADA.name),
    (f"{EVERYBODY}&cause=NONFINITE", ADA.name),
]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(Stage(tmp_path))
    site.pace = replace(QUICK, beyond=3600.0)
    site.store_jobs(lab.full())
    site.start()
    yield site
    site.stop()


#: opens a live page: its address, and who looks at it
Opened = Callable[..., Reader]


@pytest.fixture
def opened(site: Site) -> Iterator[Opened]:
    readers: list[Reader] = []

    def open_it(view: str, name: str = ADA.name) -> Reader:
        readers.append(Reader(site.url, view, {"x-test-name": name}, timeout=30))
        return readers[-1]

    yield open_it
    for reader in readers:
        reader.close()


class Deeds:
    """What happens to jobs, at random."""

    def __init__(self, site: Site) -> None:
        self._site, self._store, self._dice = site, site.stage.store, Random(7)
        self._ids = [job.id for job in self._store.list()]

    def some(self, times: int) -> None:
        for n in range(times):
            kind = self._dice.choice(("say", "say", "say", "end", "requeue", "remove", "create"))
            getattr(self, kind)(n)
            self._site.changes.poke()

    def one(self) -> str:
        return self._dice.choice(self._ids)

    def say(self, n: int) -> None:
        self.change(self.one(), message=f"said {n}")

    def end(self, n: int) -> None:
        self.change(self.one(), state=State.FAILED, message=f"ended {n}", finished_at=lab.NOW)

    def requeue(self, n: int) -> None:
        self.change(self.one(), state=State.QUEUED, message=f"again {n}", finished_at=None)

    def remove(self, n: int) -> None:
        del n
        self._store.remove(self._ids.pop(self._dice.randrange(len(self._ids))), lease=None)

    def create(self, n: int) -> None:
        job = lab.job_in(self._dice.choice([State.RUNNING, State.SUCCEEDED]), n)
        self._ids += [made.id for made in lab.store_jobs(self._store, [job])]

    def change(self, job_id: str, **changes: object) -> None:
        job = self._store.get(job_id)
        changed = replace(job, **changes)  # pyright: ignore[reportArgumentType]
        op = f"{job.version} {job_id}"
        self._store.commit(changed, None, expected_version=job.version, op_id=op, lease=None)


def shown(site: Site, view: str, name: str) -> dict[str, str]:
    """The rows of the page as it is made for somebody who opens it now."""
    headers = {"x-test-name": name, "accept": "text/html"}
    with urllib.request.urlopen(urllib.request.Request(site.url + view, headers=headers)) as answer:
        return {row[1]: row[0] for row in ROW.finditer(answer.read().decode())}


def test_every_page_shows_what_the_store_has_in_the_end(site: Site, opened: Opened) -> None:
    readers = [opened(view, name) for view, name in VIEWS]
    for reader in readers[::2]:  # the others join while jobs change
        reader.change()
    Deeds(site).some(60)
    for reader, (view, name) in zip(readers, VIEWS, strict=True):
        wanted = shown(site, view, name)
        while lost := different(reader, wanted):
            try:
                reader.change()
            except TimeoutError:
                pytest.fail(f"{view} of {name} lost what happened to {sorted(lost)}")


def different(reader: Reader, wanted: dict[str, str]) -> set[str]:
    """Rows that a page does not show as it should."""
    found = {row: reader.rows[row].strip() for row in reader.order}
    if [*wanted] != reader.order:
        return {*wanted} ^ {*found} or {"their order"}
    return {row for row in wanted if wanted[row] != found[row]}


def test_a_change_touches_only_the_pages_that_show_it(site: Site, opened: Opened) -> None:
    jobs = site.stage.store.list()
    hers, his = (
        next(job.id for job in jobs if job.owner == who.id and job.state is State.RUNNING)
        for who in (ADA, lab.BOB)
    )
    views = ("/", f"{EVERYBODY}&user=bob", f"{EVERYBODY}&order=name", f"{EVERYBODY}&state=failed")
    ada, bob, names, failed = map(opened, views)
    deeds = Deeds(site)

    def said(reader: Reader, job: str, text: str) -> None:
        deeds.change(job, message=text)
        site.changes.poke()
        reader.wait(lambda page: text in page.rows.get(f"job-{job}", ""))

    for reader in (ada, bob, names, failed):
        reader.change()
    said(ada, hers, "settled"), said(bob, his, "settled")
    names.wait(lambda page: sum("settled" in html for html in page.rows.values()) == 2)
    made = site.hub.made
    for n in range(5):
        said(bob, his, f"said {n}")
        names.wait(lambda page, n=n: f"said {n}" in page.rows[f"job-{his}"])
    assert site.hub.made - made == 2 * 5, "of four pages two show that job"
    made = site.hub.made
    deeds.change(his, state=State.FAILED, message="it is over", finished_at=lab.NOW)
    site.changes.poke()
    for reader in (bob, names, failed):
        reader.wait(lambda page: "it is over" in page.rows.get(f"job-{his}", ""))
    assert site.hub.made - made == 3, "it came to a third one"
