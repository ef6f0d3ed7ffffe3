"""The ways to the page as a real browser goes them: a one-time code, links within the session, and another site."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.flow.page import lab
from tests.flow.page.conftest import NO_HURRY, PATIENCE
from tests.support.callers import ADA
from tests.support.scripted import listening, on_socket
from tests.support.stage import Stage
from tpujob.adapters.http.transport import BackendAddress, ProxyClient
from tpujob.domain.model import DesiredState
from tpujob.service import Changes
from tpujob.web.api import create_app
from tpujob.web.proxy import opened
from tpujob.web.security.authenticator import Authenticator, PeerAuthenticator
from tpujob.web.security.browser import BrowserAuthenticator, Sessions
from tpujob.web.security.connections import Connections

EVIL = """<!doctype html><title>evil</title>
<img src="{page}/jobs.json"><iframe src="{page}/" title="x"></iframe>
<script src="{page}/jobs.json"></script>
<a href="{page}/">your jobs</a>
<form method="post" action="{page}/v1/jobs/000001/cancel"><button>win a prize</button></form>
"""


class Local:
    """The page of a backend with one job that runs, at a port of this machine: the backend's own, or that of the relay
    of `tpujob open` in front of it."""

    def __init__(self, folder: Path, *, kernel_says: bool, relayed: bool = False) -> None:
        self.stage, self.sessions = Stage(folder), Sessions()
        self.stage.clock.time = lab.NOW
        lab.store_jobs(self.stage.store, [lab.job_in(lab.State.RUNNING)])
        self.kernel_says, self.relayed = kernel_says, relayed
        self.answered: dict[str, set[int]] = {}  #: the statuses of each request

    @property
    def desired(self) -> DesiredState:
        return self.stage.job("000001").desired

    def backend(self, door: Authenticator) -> ASGIApp:
        app = create_app(
            self.stage.api.acting_for,
            door,
            limits=NO_HURRY,
            sessions=self.sessions,
            changes=Changes(self.stage.store, interval=0.02),
        )
        app.state.now = self.stage.clock.now
        return app

    @contextmanager
    def served(self) -> Iterator[Local]:
        with ExitStack() as stack:
            if self.relayed:
                url = stack.enter_context(on_socket(self.backend(PeerAuthenticator(ADA))))
                relay = ProxyClient(BackendAddress(url))
                stack.callback(relay.close)
                app = opened(relay, "ada", self.sessions, kernel_says=self.kernel_says)
            else:
                door = BrowserAuthenticator(ADA, self.sessions, kernel_says=self.kernel_says)
                app = self.backend(door)
            place = socket.create_server(("127.0.0.1", 0))
            ports = {place.getsockname()[1]} if self.kernel_says else set[int]()
            connections = Connections(most=512, ports=ports)
            self.url = stack.enter_context(listening(self._noted(app), connections, place))
            yield self

    def _noted(self, app: ASGIApp) -> ASGIApp:
        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            async def sent(message: Message) -> None:
                if "status" in message:
                    request = f"{scope['method']} {scope['path']}"
                    self.answered.setdefault(request, set()).add(message["status"])
                await send(message)

            await app(scope, receive, sent)

        return noted


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("relayed", [False, True], ids=["here", "through the relay"])
def test_a_code_opens_the_page_and_a_session(tmp_path: Path, tab: Page, relayed: bool) -> None:
    wrong: list[str] = []
    requests: list[str] = []
    tab.on(
        "console", lambda message: wrong.append(message.text) if message.type == "error" else None
    )
    tab.on("request", lambda request: requests.append(request.url))
    with Local(tmp_path, kernel_says=False, relayed=relayed).served() as local:
        assert tab.goto(local.url)
        assert "tpujob open" in tab.inner_text("main")
        wrong.clear()
        requests.clear()
        tab.goto(f"{local.url}/enter/{local.sessions.code()}")
        home = tab.url
        assert home.startswith(f"{local.url}/s/"), home
        assert "llama-8b-pretrain" in tab.inner_text("main")
        lab.store_jobs(local.stage.store, [lab.job_in(lab.State.QUEUED, 1)])
        tab.get_by_role("link", name="vit-l-imagenet").wait_for()  # the page is live
        tab.get_by_role("link", name="llama-8b-pretrain").first.click()
        tab.wait_for_url(f"{home}jobs/000001")
        tab.get_by_role("link", name="Cancel").first.click()
        tab.wait_for_url(f"{home}jobs/000001/cancel")
        tab.get_by_role("button", name="Cancel").first.click()
        tab.wait_for_url(f"{home}jobs/000001")
        assert local.desired is DesiredState.CANCEL
        assert tab.context.cookies() == []
        entered, *rest = requests
        assert "/enter/" in entered
        assert all(url.startswith(home) for url in rest), rest
    assert wrong == []


def test_another_site_can_only_lead_to_the_page(tmp_path: Path, tab: Page) -> None:
    """On Linux the kernel knows this browser as its user's: only who asked it to ask is another."""
    with Local(tmp_path, kernel_says=True).served() as local:

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await HTMLResponse(EVIL.format(page=local.url))(scope, receive, send)

        with listening(app) as evil:
            tab.goto(evil.replace("127.0.0.1", "localhost"), wait_until="networkidle")
            results = tab.evaluate(
                "(to) => fetch(to + '/jobs.json').then(() => 'read', () => 'refused')", local.url
            )
            assert results == "refused"
            sent = tab.evaluate(
                "(to) => fetch(to, {method: 'POST', mode: 'no-cors'}).then(() => 'sent')",
                f"{local.url}/v1/jobs/000001/cancel",
            )
            assert sent == "sent"
            requests = ("GET /", "GET /jobs.json", "POST /v1/jobs/000001/cancel")
            assert local.answered == {key: {403} for key in requests}
            tab.get_by_role("link").click()
            assert "llama-8b-pretrain" in tab.inner_text("main")
            tab.go_back()
            with tab.expect_response(lambda r: r.request.method == "POST") as response:
                tab.get_by_role("button").click()
            assert response.value.status == 403
        assert local.desired is DesiredState.RUN
