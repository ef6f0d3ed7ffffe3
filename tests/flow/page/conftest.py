"""A real backend app over a real SQLite store, and a real Chromium in front of it.

`site` is a backend with no jobs; `site.store_jobs(lab.full())` fills it. `tab` is a browser tab whose page may break no
rule: at its end there was no violation of the policy, no error in its console and no request to another site.
"""

import shutil
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.flow.page import lab
from tests.support.callers import ADA, NamedDoor, caller
from tests.support.local_stack import stack
from tests.support.ports import reserved
from tests.support.scripted import listening
from tests.support.stage import Stage
from tpujob.domain.access import Role
from tpujob.domain.model import Job
from tpujob.service.backend.capacity import Quotas
from tpujob.web.api import create_app
from tpujob.web.events import Events, StreamTimes
from tpujob.web.security.limits import Limits, Rate

__all__ = ["stack"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
VIEWER = caller("eve", Role.VIEWER)
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
HTML = {"accept": "text/html,application/xhtml+xml"}  #: the headers of a browser
ALL = "/?who=everyone&show=all"  #: the page of all jobs
PATIENCE = 60_000.0  #: ms until what a page must show or do counts as never
expect.set_options(timeout=PATIENCE)
httpx.get.__kwdefaults__["timeout"].read = PATIENCE / 1000  # all its functions share this default
#: a test sends more requests than a person
NO_HURRY = Limits(reads=Rate(10_000, 10_000), changes=Rate(10_000, 10_000))


class Site:
    """A backend at an address of this machine, which it keeps across restarts."""

    def __init__(self, stage: Stage, port: int = 0) -> None:
        self.stage, self.url = stage, ""
        self.stage.clock.time = lab.NOW
        self.stage.setup = lab.setup()
        self.quota = lab.quota()  #: as the cloud has it
        self.stage.quotas = Quotas(lambda: self.quota, self.stage.clock)
        self.jobs = stage.api
        self.api = self.jobs.acting_for(ADA)
        self.changes = self.jobs.parts.changes
        self.door = NamedDoor(ADA, lab.BOB, VIEWER)
        self.times, self.limits = StreamTimes(), NO_HURRY
        self._port, self._running = port, ExitStack()

    def store_jobs(self, jobs: Iterable[Job]) -> list[Job]:
        stored = lab.store_jobs(self.stage.store, jobs)
        lab.notify(self.stage.store.outbox, stored)
        return stored

    def start(self) -> None:
        stage, stopping = self.stage, threading.Event()
        app = create_app(
            self.jobs.acting_for,
            self.door,
            limits=self.limits,
            changes=self.changes,
            stopping=stopping.is_set,
            times=self.times,
            status=self.jobs.parts.status,
        )
        app.state.now = stage.clock.now
        self.events: Events = app.state.events
        place = socket.create_server(("127.0.0.1", self._port))
        self._port = place.getsockname()[1]
        self.url = self._running.enter_context(listening(app, place=place))
        self._running.callback(stopping.set)

    def stop(self) -> None:
        self._running.close()

    def page(self, path: str, name: str = ADA.name) -> httpx.Response:
        """Return a page as that user gets it, for tests of what needs no browser."""
        return httpx.get(self.url + path, headers={**HTML, "x-test-name": name})


@pytest.fixture(scope="package")
def port() -> Iterator[int]:
    """A reserved port for each site of this process, as a browser's context knows one address."""
    with reserved() as port:
        yield port


@pytest.fixture
def site(tmp_path: Path, port: int) -> Iterator[Site]:
    site = Site(Stage(tmp_path), port)
    site.start()
    yield site
    site.stop()


# Not of the session: while Playwright is started, its event loop counts as running in this thread, and no test of
# another folder could run one.
@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(
            "no Chromium on this machine: pages are not tested in a browser (apt-get install chromium)"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        print(f"Chromium {browser.version}")
        yield browser
        browser.close()


class Watched:
    """A page under watch: what it must not do, as it happens."""

    def __init__(self, context: BrowserContext) -> None:
        self.context, self.closed = context, False
        #: a page that stays, and with it the window, which costs more than a tab
        self.blank = context.new_page()
        context.on("close", lambda _: setattr(self, "closed", True))
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self.allowed: list[str] = []  #: parts of what the test expects
        context.on("page", self._page)
        context.expose_binding("__violated", lambda _, text: self._note(f"policy: {text}"))
        context.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) => "
            "window.__violated(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`))"
        )

    def begin(self, allowed: Iterable[str]) -> None:
        """Forget the test before."""
        self.wrong, self.requests, self.allowed = [], [], [*allowed]

    def _page(self, page: Page) -> None:
        page.on("request", lambda request: self.requests.append(f"{request.method} {request.url}"))
        page.on("pageerror", lambda error: self._note(f"script: {error}"))
        page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self._note(f"console: {message.text} at {message.location}")

    def _note(self, text: str) -> None:
        if not any(part in text for part in self.allowed):
            self.wrong.append(text)

    def check(self, home: str) -> None:
        own = (home, "about:", "data:")
        others = [r for r in self.requests if not r.split(" ")[1].startswith(own)]
        assert not others, f"the page requested another site: {others}"
        assert not self.wrong, "\n".join(self.wrong)


class Contexts:
    """The contexts of one browser, for one test after the other: a new one takes Chromium longer than most pages do."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: defaultdict[tuple[str, bool], list[Watched]] = defaultdict(list)

    def take(self, home: str, *, scripts: bool) -> Watched:
        if free := self._free[home, scripts]:
            return free.pop()
        context = self._browser.new_context(
            base_url=home, java_script_enabled=scripts, reduced_motion="reduce"
        )
        context.set_default_timeout(PATIENCE)
        return Watched(context)

    def give_back(self, watched: Watched, home: str, *, scripts: bool) -> None:
        """Make the context as new: without tabs, cookies, storage and cache. A clock cannot be turned back: its context
        is closed."""
        if watched.closed:
            return
        context, blank = watched.context, watched.blank
        if scripts and blank.evaluate("'__pwClock' in window"):
            context.close()
            return
        for page in context.pages:
            if page is not blank:
                page.close()
        session = context.new_cdp_session(blank)
        session.send("Storage.clearDataForOrigin", {"origin": home, "storageTypes": "all"})
        session.send("Network.clearBrowserCache")
        session.detach()
        self._free[home, scripts].append(watched)


@pytest.fixture(scope="package")
def contexts(chromium: Browser) -> Contexts:
    return Contexts(chromium)


#: opens a tab: `open_tab(scripts=False, dark=True, view=NARROW, name="bob")`
OpenTab = Callable[..., Page]


@pytest.fixture
def open_tab(contexts: Contexts, site: Site) -> Iterator[OpenTab]:
    taken: list[tuple[Watched, bool]] = []

    def open_it(
        path: str = "",
        *,
        scripts: bool = True,
        dark: bool = False,
        view: Any = WIDE,
        name: str = ADA.name,
        allowed: Iterable[str] = (),
    ) -> Page:
        watched = contexts.take(site.url, scripts=scripts)
        taken.append((watched, scripts))
        watched.begin(allowed)
        watched.context.set_extra_http_headers({"x-test-name": name})
        page = watched.context.new_page()
        page.set_viewport_size(view)
        page.emulate_media(color_scheme="dark" if dark else "light")
        if path:
            page.goto(path)
        return page

    yield open_it
    home = site.url
    for watched, scripts in taken:
        contexts.give_back(watched, home, scripts=scripts)
        watched.check(home)


@pytest.fixture
def tab(open_tab: OpenTab) -> Page:
    return open_tab()
