"""The stream that tells open pages what has changed: ids, to those who may know them, until it ends."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.flow.page import lab
from tests.flow.page.conftest import VIEWER, Site
from tests.support.callers import ADA, caller
from tpujob.domain.model import State
from tpujob.web.events import Events, EventStream, StreamTimes

HTML = {"accept": "text/html"}
ALL = "/?who=everyone&show=all"


@contextmanager
def stream(site: Site, name: str = ADA.name) -> Iterator[Iterator[str]]:
    """Yield the stream's events as they come, each as it is written."""

    def events(lines: Iterator[str]) -> Iterator[str]:
        event: list[str] = []
        for line in lines:
            if line:
                event.append(line)
            else:
                yield "\n".join(event)
                event = []

    with httpx.stream("GET", f"{site.url}/live", headers={"x-test-name": name}) as answer:
        yield events(answer.iter_lines())


def jobs_of(events: Iterator[str]) -> list[str] | None:
    """The ids in the next event; None: any job may have changed."""
    data = next(event for event in events if event.startswith("event: jobs\n"))
    return json.loads(data.partition("data: ")[2])


def change_in(events: Iterator[str]) -> list[str]:
    """The ids in the next event that has some."""
    return next(ids for ids in iter(lambda: jobs_of(events), ()) if ids)


def restart(site: Site, **times: float) -> None:
    site.stop()
    site.times = replace(StreamTimes(), **times)
    site.start()


def test_a_stream_tells_the_ids_of_jobs_that_have_changed_and_nothing_else(site: Site) -> None:
    first, second = site.store_jobs([lab.job_in(State.RUNNING, n) for n in range(2)])
    with stream(site) as ada, stream(site, VIEWER.name) as eve:
        assert jobs_of(ada) is jobs_of(eve) is None
        lab.say(site, first, "a secret of its owner")
        assert change_in(ada) == change_in(eve) == [first.id]
        lab.say(site, second, "another one")
        assert change_in(ada) == change_in(eve) == [second.id]
        site.stage.store.remove(first.id, lease=None)
        site.changes.poke()
        assert change_in(ada) == [first.id]


def test_a_stream_is_for_those_who_may_watch(site: Site) -> None:
    site.door._people["none"] = caller("none", None)
    for name, status in (("none", 403), ("stranger", 401)):
        assert httpx.get(f"{site.url}/live", headers={"x-test-name": name}).status_code == status


def test_a_page_is_fetched_again_only_when_it_has_changed(site: Site) -> None:
    job, _ = site.store_jobs([lab.job_in(State.SUCCEEDED, n) for n in range(2)])
    for path in (ALL, f"/jobs/{job.id}", "/events"):
        first = httpx.get(site.url + path, headers=HTML)
        etag = first.headers["etag"]
        again = {"x-tpujob-again": "1", "if-none-match": etag}
        assert httpx.get(site.url + path, headers=again).status_code == 304
        other = httpx.get(site.url + path, headers=again | {"x-test-name": VIEWER.name})
        assert other.status_code == 200, "the ETag of one caller means nothing for another"
        lab.say(site, job, f"seen at {path}")
        changed = httpx.get(site.url + path, headers=again)
        if path != "/events":
            assert changed.headers["etag"] != etag
            assert changed.text == httpx.get(site.url + path, headers=HTML).text


def test_a_stream_has_an_end_and_no_other_follows_without_the_right_to_watch(site: Site) -> None:
    restart(site, life=0.5)
    with stream(site, lab.BOB.name) as bob:
        assert next(bob).startswith("retry: ")
        site.door.forget(lab.BOB.name)
        list(bob)  # to its end
    bob_again = httpx.get(f"{site.url}/live", headers={"x-test-name": lab.BOB.name})
    assert bob_again.status_code == 401


def test_all_streams_end_when_the_process_ends(site: Site) -> None:
    with ExitStack() as stack:
        readers = [stack.enter_context(stream(site)) for _ in range(3)]
        assert [jobs_of(reader) for reader in readers] == [None] * 3
        stopping = threading.Thread(target=site.stop)
        stopping.start()
        for reader in readers:
            list(reader)  # to its end
    stopping.join()


def test_a_reader_that_takes_nothing_is_dropped() -> None:
    class Line:
        dropped = False

        def drop(self) -> None:
            self.dropped = True
            gone.set()

    async def send(message: Any) -> None:
        if message.get("body"):
            await asyncio.Event().wait()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    class Following(Events):
        def add(self, stream: EventStream) -> None: ...

    async def read() -> None:
        events = Following(Any, lambda: False, StreamTimes(life=0.1, slow=0.01))  # pyright: ignore[reportArgumentType]
        state = {"line": line}
        await EventStream(events, state)({}, receive, send)

    gone, line = asyncio.Event(), Line()
    with ThreadPoolExecutor(1) as apart:  # the browser of other tests has a loop in this thread
        apart.submit(asyncio.run, read()).result()
    assert line.dropped


@pytest.mark.parametrize("count", [100, 101])
def test_many_changes_are_told_as_one(count: int) -> None:
    events = Events(Any, lambda: False)  # pyright: ignore[reportArgumentType]
    stream_ = EventStream(events, {})
    stream_.note([f"{n:06}" for n in range(count)])
    assert (stream_._ids is None) == (count > 100)
