"""Many tabs of one browser, which has six connections to a place over HTTP/1.1."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flow.page import lab
from tests.flow.page.conftest import CHROMIUM, Site
from tests.flow.page.tabs import Tab, window
from tests.support.waiting import until

LIVE = "document.getElementById('live')?.dataset.state === 'live'"


@contextmanager
def streams(site: Site) -> Iterator[list[int]]:
    """Return how many streams were open, counted a hundred times a second."""
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            seen.append(site.events.streams)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


@pytest.mark.long
def test_twelve_tabs_load_and_each_is_fresh_when_it_is_shown(site: Site, tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    (job,) = site.store_jobs([lab.job_in(lab.State.RUNNING)])
    with window(CHROMIUM, tmp_path / "profile") as browser, streams(site) as seen:
        tabs: list[Tab] = []
        for _ in range(12):
            tabs.append(Tab(browser, site.url))
            tabs[-1].until(LIVE)
        waited: list[float] = []
        for n, tab in enumerate(tabs):
            assert tab.value("document.hidden")
            lab.say(site, job, f"said {n}")
            tab.show()
            waited.append(
                tab.until(f"document.querySelector('#rows .why').textContent.includes('said {n}')")
            )
        print(
            f"12 tabs: fresh after at most {max(waited):.2f} s; at most {max(seen)} streams at once"
        )
        # A hidden tab closes its stream a moment after another one is shown, so that some are open while one leafs.
        assert max(waited) < site.times.life / 2, (
            "the streams of hidden tabs take the connections of the page"
        )
        until(lambda: site.events.streams == 1, "only the tab that is shown has a stream")
