"""The door of the page at a port of loopback: the kernel's word, codes and sessions, and what browsers may do there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from tests.support import stranger
from tests.support.callers import ADA
from tests.support.http import ask
from tests.support.scripted import ScriptedJobs, job_view, listening, scripted_app
from tpujob.errors import Forbidden, Unauthorized
from tpujob.lib import unix_sockets
from tpujob.web.security.browser import (
    CODE_S,
    MAX_SESSIONS,
    SESSION_S,
    BrowserAuthenticator,
    Sessions,
)
from tpujob.web.security.connections import PEER, Connections

HTML = {"Accept": "text/html"}
#: a link in a chat, and a page that loads something, as browsers send them
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
GET = """
other = http.client.HTTPConnection("127.0.0.1", given[0], timeout=90)
other.request("GET", given[1], headers={"Accept": "text/html"})
answer = other.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Page:
    """A backend with a page at a port; `asked`: the kernel says who connects there."""

    def __init__(self, *, kernel_says: bool) -> None:
        self.api, self.clock = ScriptedJobs(job_view()), Clock()
        self.sessions = Sessions(self.clock)
        self.kernel_says = kernel_says

    @contextlib.contextmanager
    def served(self) -> Iterator[Page]:
        place = socket.create_server(("127.0.0.1", 0))
        self.port = place.getsockname()[1]
        door = BrowserAuthenticator(ADA, self.sessions, kernel_says=self.kernel_says)
        app = scripted_app(self.api, door, sessions=self.sessions)
        connections = Connections(most=512, ports={self.port} if self.kernel_says else ())
        with listening(app, connections, place) as self.url:
            yield self

    def ask(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        method: str = "GET",
        body: bytes = b"",
    ) -> tuple[int, dict[str, str], Any]:
        return ask(self.url, method, path, headers, body)

    def fresh(self) -> Page:
        self.api.raises = None
        self.api.calls.clear()
        return self

    def enter(self, to: str = "") -> str:
        """Return where a browser with a new code is led to."""
        status, headers, _ = self.ask(
            f"/enter/{self.sessions.code()}" + (f"?to={to}" if to else ""), HTML
        )
        assert status == 303, (status, to)
        return headers["location"]


@pytest.fixture(scope="module")
def pages() -> Iterator[dict[bool, Page]]:
    """One where the kernel says who connects to a port, as on Linux, and one where it does not, as on macOS."""
    with Page(kernel_says=True).served() as page, Page(kernel_says=False).served() as silent:
        yield {True: page, False: silent}


@pytest.fixture
def page(pages: dict[bool, Page]) -> Page:
    return pages[True].fresh()


@pytest.fixture
def silent(pages: dict[bool, Page]) -> Page:
    return pages[False].fresh()


def test_its_user_needs_no_session_where_the_kernel_says_who_connects(page: Page) -> None:
    assert unix_sockets.tells_peers()
    assert page.ask("/v1/jobs")[0] == 200
    assert page.ask("/queue", HTML)[0] == 200
    assert page.api.named("list")


def test_without_the_kernel_only_a_code_opens_a_session(silent: Page) -> None:
    status, headers, body = silent.ask("/queue", HTML)
    assert status == 401
    assert "<code>tpujob open</code>" in body.decode()
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert silent.ask("/v1/jobs")[2]["error"]["hint"].startswith("`tpujob open`")
    address = silent.enter("/queue")
    assert re.fullmatch(r"/s/[A-Za-z0-9_-]{43}/queue", address)
    status, headers, body = silent.ask(address, HTML)
    assert status == 200
    assert headers["referrer-policy"] == "same-origin", "it would carry the session elsewhere"
    assert "set-cookie" not in headers
    assert 'href="./events"' in body.decode(), "a link within the session"
    assert silent.ask(address.replace("/queue", "/v1/jobs"))[0] == 200


def test_a_code_is_used_once_and_within_a_minute(silent: Page) -> None:
    used, late = silent.sessions.code(), silent.sessions.code()
    assert silent.ask(f"/enter/{used}", HTML)[0] == 303
    for again in (f"/enter/{used}", f"/s/{used}/queue", "/enter/" + "A" * 43, "/enter/%ff"):
        status, _, body = silent.ask(again, HTML)
        assert status == 401, again
        assert used not in body.decode()
    silent.clock.now += CODE_S
    assert silent.ask(f"/enter/{late}", HTML)[0] == 401


def test_a_session_ends_twelve_hours_after_its_last_use_and_with_the_process(silent: Page) -> None:
    address = silent.enter("/queue")
    for _ in range(3):
        silent.clock.now += SESSION_S - 1
        assert silent.ask(address, HTML)[0] == 200
    silent.clock.now += SESSION_S
    assert silent.ask(address, HTML)[0] == 401
    address = silent.enter("/queue")
    with Page(kernel_says=False).served() as after:
        assert after.ask(address, HTML)[0] == 401


def test_the_number_of_sessions_and_of_codes_is_bounded() -> None:
    sessions = Sessions()
    first_code = sessions.code()
    for _ in range(MAX_SESSIONS):
        sessions.code()
    with pytest.raises(Unauthorized, match="used already, or is older"):
        sessions.enter(first_code)
    first, second, *_ = [sessions.enter(sessions.code()) for _ in range(MAX_SESSIONS)]
    assert sessions.holds(first)
    sessions.enter(sessions.code())
    assert sessions.holds(first), "it was used just now"
    assert not sessions.holds(second)


def test_a_guessed_session_is_no_session(silent: Page) -> None:
    session = silent.enter("/queue").split("/")[2]
    almost = ("A" if session[0] != "A" else "B") + session[1:]
    for guess in (almost, session[:-1], session + "A", session.swapcase(), "", "-", "%00"):
        assert silent.ask(f"/s/{guess}/queue", HTML)[0] == 401, guess
    bearer = HTML | {"Authorization": f"Bearer {session}"}
    assert silent.ask(f"/queue?s={session}", bearer)[0] == 401
    assert silent.ask(f"/s/{session}/s/{session}/queue", HTML)[0] == 401, "not one in another"


@pytest.mark.parametrize(
    "to", ["https://evil.example", "//evil.example", "//[", "/\\evil.example", "jobs", "javascript:1",
           "/%09/evil.example", "/a%0d%0aSet-Cookie:x", "/../../evil", "%2F%2Fevil.example"],
)  # fmt: skip
def test_a_code_leads_to_a_path_of_the_page_and_outlives_a_wrong_one(silent: Page, to: str) -> None:
    code = silent.sessions.code()
    status, headers, _ = silent.ask(f"/enter/{code}?to={to}", HTML)
    assert (status, "location" in headers) == (400, False)
    assert silent.ask(f"/enter/{code}?to=/jobs/000042", HTML)[0] == 303


def test_no_header_of_a_proxy_moves_the_page(page: Page) -> None:
    names = ("X-Forwarded-Prefix", "X-Script-Name", "X-Forwarded-Path")
    status, _, body = page.ask("/queue", HTML | dict.fromkeys(names, "/evil"))
    assert status == 200
    assert 'href="./events"' in body.decode()
    assert "evil" not in body.decode()


def test_no_log_shows_the_session_or_code(silent: Page, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    root = silent.enter().rstrip("/")
    session, dead = root.split("/")[2], silent.sessions.code()
    answers = ""
    for path in ("/nothing", "/openapi.json", "/v1/jobs", "/v1/jobs/77", "/jobs/"):
        _, headers, body = silent.ask(root + path)
        answers += f"{headers} {body}"
    silent.api.raises = RuntimeError("broken")
    assert silent.ask(f"{root}/v1/jobs")[0] == 500
    silent.clock.now += SESSION_S
    for path in (f"{root}/queue", f"/enter/{dead}"):
        assert silent.ask(path)[0] == 401
    assert silent.ask(f"/enter/{dead}", {"Host": "evil.example"})[0] == 400
    # the one that a backend switches off; the tests' own handler is fed by it all the same
    lines = [r for r in caplog.records if r.name != "uvicorn.access"]
    logged = "\n".join(map(logging.Formatter().format, lines))
    for text in (answers, logged):
        assert session not in text
        assert dead not in text
    assert "GET /queue" in logged


# Other users of the machine ------------------------------------------------------------------------------------------


@stranger.needed
@pytest.mark.parametrize("kind", ["page", "session", "code", "health"])
def test_another_user_is_refused_also_with_a_stolen_session_or_code(page: Page, kind: str) -> None:
    session = page.enter("/v1/jobs")
    code = page.sessions.code()
    paths = {"page": "/v1/jobs", "session": session, "code": f"/enter/{code}", "health": "/health"}
    stolen = paths[kind]
    status, body = stranger.run(GET, [page.port, stolen])
    assert status == 403
    assert "alone" in body
    assert page.api.calls == []
    assert page.sessions.enter(code), "it is still its owner's"


def test_whoever_sends_and_hangs_up_at_once_is_nobody() -> None:
    """The kernel says nothing of an end that is closed: a stranger could otherwise use a stolen session blindly."""
    sessions = Sessions()
    session = sessions.enter(sessions.code())

    def known(uid: int | None, root: str = "", *, kernel_says: bool) -> str:
        door = BrowserAuthenticator(ADA, sessions, kernel_says=kernel_says)
        scope = {"state": {PEER: uid}, "path": "/", "method": "GET", "root_path": root}
        try:
            return asyncio.run(door.principal(scope, Headers())).name
        except (Forbidden, Unauthorized) as error:
            return type(error).__name__

    assert known(None, f"/s/{session}", kernel_says=False) == ADA.name
    assert known(None, f"/s/{session}", kernel_says=True) == "Unauthorized"
    assert known(os.geteuid(), kernel_says=True) == ADA.name
    assert known(os.geteuid() + 1, kernel_says=False) == "Forbidden"


# Browsers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "differs",
    [{"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Dest": "image", "Sec-Fetch-Mode": "no-cors"},
     {"Sec-Fetch-Mode": "cors"}, {"Origin": "https://evil.example"}, {"Origin": "null"}],
    ids=str,
)  # fmt: skip
def test_another_site_can_only_look(page: Page, silent: Page, differs: dict[str, str]) -> None:
    assert page.ask("/queue", HTML | LINK)[0] == 200, "by a link in a chat"
    page.api.calls.clear()
    assert silent.ask(f"/enter/{silent.sessions.code()}", HTML | LINK)[0] == 303
    assert page.ask("/queue", HTML | LINK | differs)[0] == 403
    assert page.ask("/v1/jobs", HTML | LINK)[0] == 403, "the API has no pages"
    assert page.ask("/v1/jobs/42/cancel", LINK | differs, "POST")[0] == 403
    assert page.ask("/v1/jobs/42/cancel", LINK, "POST")[0] == 403
    assert page.api.calls == []


@pytest.mark.parametrize("site", ["same-origin", "same-site", "cross-site", "none", ""])
@pytest.mark.parametrize("origin", ["own", "https", "other port", ""])
def test_a_change_needs_a_page_of_this_backend(page: Page, site: str, origin: str) -> None:
    own = f"http://127.0.0.1:{page.port}"
    origins = {"own": own, "https": own.replace("http", "https"), "other port": own + "1"}
    headers = {"Sec-Fetch-Site": site} if site else {}
    headers |= {"Origin": origins[origin]} if origin else {}
    status, *_ = page.ask("/v1/jobs/42/cancel", headers, "POST")
    same = site == "same-origin" and origin != "other port"
    assert (status == 200) is (same or (not site and origin == "own")), (status, headers)


def test_a_refusal_is_a_page_for_a_person_and_json_for_a_program(page: Page) -> None:
    for path, accept, kind in (
        ("/queue", "text/html,*/*;q=0.8", "text/html; charset=utf-8"),
        ("/queue", "*/*", "application/json"),
        ("/v1/jobs", "text/html", "application/json"),
    ):
        status, headers, _ = page.ask(path, {"Accept": accept, "Host": "evil.example"})
        assert (status, headers["content-type"]) == (400, kind)


# Its port ------------------------------------------------------------------------------------------------------------


def test_the_port_is_kept_from_run_to_run_unless_another_process_has_it(tmp_path: Path) -> None:
    file = tmp_path / "page.port"
    first, taken = unix_sockets.kept_port(file)
    port = first.getsockname()[1]
    assert (first.getsockname()[0], taken) == ("127.0.0.1", 0)
    second, taken = unix_sockets.kept_port(file)
    with first, second:
        assert taken == port
        moved = second.getsockname()[1]
        assert moved != port
    third, taken = unix_sockets.kept_port(file)
    with third:
        assert (third.getsockname()[1], taken) == (moved, 0)
    for odd in ("", "80", "x", "-1", "99999", "\x00\xff"):
        file.write_text(odd)
        made, taken = unix_sockets.kept_port(file)
        with made:
            assert (made.getsockname()[1] >= 20_000, taken) == (True, 0), odd


@pytest.mark.parametrize("path", ["/jobs/42/", "/capacity/", "/v1/jobs/", "//evil.example/"])
def test_a_slash_too_many_leads_nowhere_else(silent: Page, path: str) -> None:
    root = silent.enter().rstrip("/")
    status, headers, _ = silent.ask(root + path, HTML)
    assert (status, "location" in headers) == (404, False)
