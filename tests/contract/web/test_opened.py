"""The page of a backend elsewhere: a browser's requests go through as the caller's, and the token stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import queue
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from tests.contract.web.test_page_door import GET, HTML, LINK
from tests.support import stranger
from tests.support.callers import ADA, TokenDoor
from tests.support.http import ask
from tests.support.ports import reserved
from tests.support.scripted import TOKEN, ScriptedJobs, job_view, listening, scripted_app
from tests.support.tls import https
from tests.support.waiting import LONG
from tpujob.adapters.http.transport import BackendAddress, ProxyClient
from tpujob.errors import Unauthorized
from tpujob.web.proxy import opened
from tpujob.web.security.browser import Sessions
from tpujob.web.security.connections import Connections

COOKIE = "of-another-port"


class Elsewhere:
    """A deployed backend, which asks for a token, with some routes beside the real ones."""

    def __init__(self) -> None:
        self.api, self.token = ScriptedJobs(job_view()), TOKEN
        self.asked: list[Mapping[str, str]] = []  #: the headers of each request
        self.more: queue.Queue[bytes] = queue.Queue()  #: pieces of the stream
        self.left = threading.Event()
        app = scripted_app(self.api, self)
        routes: dict[str, Callable[[Request], Response]] = {
            "/stream": lambda _: StreamingResponse(self._pieces(), media_type="text/event-stream"),
            "/form": lambda r: Response("", 303, {"location": r.query_params["to"]}),
            "/cookie": lambda _: PlainTextResponse("x", headers={"set-cookie": "a=b"}),
            "/big": lambda _: PlainTextResponse("x" * 3_000_000),
        }
        for path, handler in routes.items():
            app.add_route(path, handler, methods=["GET", "POST"])
        self.app = app

    async def principal(self, scope: Any, headers: Any) -> Any:
        self.asked.append(dict(headers))
        return await TokenDoor(self.token, ADA).principal(scope, headers)

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    yield self.more.get_nowait()
                await asyncio.sleep(0.01)
        finally:
            self.left.set()


class Opened:
    """The proxy that `tpujob open` runs in front of the backend."""

    def __init__(self, elsewhere: Elsewhere, url: str, *, kernel_says: bool = True) -> None:
        self.elsewhere, self.token, self.renewed = elsewhere, TOKEN, 0
        self.signed_out = False
        self.relay = ProxyClient(BackendAddress(url, sign=self._sign), timeout=LONG)
        self.sessions, self.kernel_says = Sessions(), kernel_says

    def _sign(self, renew: bool) -> dict[str, str]:
        if self.signed_out:
            raise Unauthorized("you are not signed in", hint="tpujob login")
        if renew:
            self.renewed, self.token = self.renewed + 1, self.elsewhere.token
        return {"Authorization": f"Bearer {self.token}"}

    @contextlib.contextmanager
    def served(self) -> Iterator[Opened]:
        place = socket.create_server(("127.0.0.1", 0))
        self.port = place.getsockname()[1]
        app = opened(self.relay, "ada", self.sessions, kernel_says=self.kernel_says)
        connections = Connections(most=512, ports={self.port} if self.kernel_says else ())
        with listening(app, connections, place) as self.url:
            yield self
            self.relay.close()

    def ask(
        self, path: str, headers: Mapping[str, str] = HTML, method: str = "GET", body: bytes = b""
    ) -> tuple[int, dict[str, str], Any]:
        return ask(self.url, method, path, {"Cookie": COOKIE, **headers}, body, timeout=LONG)

    def post(self, path: str, body: bytes = b"a=1") -> tuple[int, dict[str, str], Any]:
        own = {"Origin": self.url, "Content-Type": "application/x-www-form-urlencoded"}
        return self.ask(path, HTML | own, "POST", body)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Elsewhere, str]]:
    elsewhere = Elsewhere()
    with (
        pytest.MonkeyPatch.context() as patch,
        listening(elsewhere.app) as port,
        https(port, tmp_path_factory.mktemp("tls")) as (url, certificate),
    ):
        patch.setenv("SSL_CERT_FILE", str(certificate))
        yield elsewhere, url


@pytest.fixture
def page(far: tuple[Elsewhere, str]) -> Iterator[Opened]:
    elsewhere, url = far
    elsewhere.token = TOKEN
    elsewhere.asked.clear()
    with Opened(elsewhere, url).served() as page:
        yield page


@pytest.fixture
def silent(far: tuple[Elsewhere, str]) -> Iterator[Opened]:
    """Return a page in front of a backend, on a machine whose kernel does not tell who connects."""
    elsewhere, url = far
    elsewhere.asked.clear()
    with Opened(elsewhere, url, kernel_says=False).served() as page:
        yield page


def test_the_page_comes_through_as_the_callers_and_the_token_stays_behind(page: Opened) -> None:
    status, headers, body = page.ask("/")
    assert status == 200
    assert "digits" in body.decode(), "the job of the backend elsewhere"
    assert page.ask("/jobs.json", {})[2]["rows"], "and its twin"
    sent = page.elsewhere.asked[0]
    assert sent["authorization"] == f"Bearer {TOKEN}"
    assert COOKIE not in str(sent), "what other ports of 127.0.0.1 have set"
    assert TOKEN not in f"{headers}{body}"
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    css = body.decode().partition('href="./static/app.')[2].partition('"')[0]
    status, headers, _ = page.ask(f"/static/app.{css}", {})
    assert (status, headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in headers["cache-control"], "a browser keeps it as from the backend"
    assert "set-cookie" not in page.ask("/cookie")[1]


def test_nothing_that_says_who_asks_or_where_the_page_lies_is_passed_on(silent: Opened) -> None:
    address = silent.ask(f"/enter/{silent.sessions.code()}?to=/")[1]["location"]
    session = address.split("/")[2]
    forged = {
        "Authorization": "Bearer forged",
        "X-Serverless-Authorization": "Bearer forged",
        "X-Goog-Iap-Jwt-Assertion": "forged",
        "X-Forwarded-For": "forged",
        "Forwarded": "for=forged",
        "Referer": f"{silent.url}{address}",
        "Hx-Current-Url": f"{silent.url}{address}",
    }
    status, _, body = silent.ask(address, HTML | forged)
    assert status == 200
    assert "forged" not in str(silent.elsewhere.asked)
    assert session not in f"{silent.elsewhere.asked}{body}"


def test_without_the_kernel_a_session_is_needed_and_redirects_stay_in_it(silent: Opened) -> None:
    code = silent.sessions.code()
    address = silent.ask(f"/enter/{code}?to=/form%3Fto=/jobs/000042")[1]["location"]
    assert silent.ask(f"/enter/{code}")[0] == 401
    root = address.removesuffix("/form?to=/jobs/000042")
    assert silent.ask(address)[1]["location"] == f"{root}/jobs/000042"


@stranger.needed
def test_another_user_of_the_machine_is_not_you_to_the_backend(page: Opened) -> None:
    status, body = stranger.run(GET, [page.port, "/"])
    assert (status, "alone" in body) == (403, True)
    assert page.elsewhere.asked == []


def test_another_site_can_open_the_page_and_change_nothing(page: Opened) -> None:
    assert page.ask("/", HTML | LINK)[0] == 200
    page.elsewhere.asked.clear()
    for headers in (LINK, {"Origin": "https://evil.example"}, {}):
        status, *_ = page.ask("/v1/jobs/42/cancel", headers, "POST")
        assert status == 403, headers
    assert page.ask("/", HTML | {"Host": "evil.example"})[0] == 400
    assert page.elsewhere.asked == []
    assert page.post("/v1/jobs/42/cancel", b"")[0] == 200


@pytest.mark.parametrize(
    ("to", "leads"),
    [("/jobs/000042", "/jobs/000042"), ("../jobs/000042?a=1", "../jobs/000042?a=1"),
     ("{there}/jobs/1", "/jobs/1"), ("https://accounts.google.com/o/oauth2", "/"), ("//evil", "/"),
     ("/\\evil", "/"), ("http:evil", "/"), ("//[", "/")],
)  # fmt: skip
def test_no_redirect_leaves_the_page_or_is_followed(page: Opened, to: str, leads: str) -> None:
    to = to.format(there=page.relay.url)
    status, headers, _ = page.post(f"/form?to={to}")
    assert (status, headers["location"]) == (303, leads)
    assert len(page.elsewhere.asked) == 1


def test_a_stream_comes_through_as_it_comes_and_ends_with_its_tab(page: Opened) -> None:
    connection = http.client.HTTPConnection(urlsplit(page.url).netloc, timeout=LONG)
    connection.request("GET", "/stream", headers={"Accept": "text/event-stream"})
    page.elsewhere.left.clear()
    page.elsewhere.more.put(b"data: one\n\n")
    response = connection.getresponse()
    assert response.read1() == b"data: one\n\n", "before anything else is there"
    page.elsewhere.more.put(b"data: two\n\n")
    assert response.read1() == b"data: two\n\n"
    response.close()
    connection.close()
    assert page.elsewhere.left.wait(LONG), "the backend goes on with a stream without a reader"


def test_a_long_answer_comes_through_whole_also_packed(page: Opened) -> None:
    status, headers, body = page.ask("/big")
    assert (status, headers["content-length"], len(body)) == (200, "3000000", 3_000_000)
    assert page.ask("/", HTML | {"Accept-Encoding": "gzip"})[1]["content-encoding"] == "gzip"


def test_a_token_that_was_refused_is_renewed_once(page: Opened) -> None:
    page.elsewhere.token = "a-newer-one"
    assert page.ask("/")[0] == 200
    assert page.renewed == 1
    assert page.ask("/")[0] == 200
    assert page.renewed == 1


@pytest.mark.parametrize("why", ["signed out here", "unknown there"])
def test_whoever_is_not_known_any_more_is_told_to_sign_in(page: Opened, why: str) -> None:
    if why == "signed out here":
        page.signed_out = True
    else:
        page.elsewhere.token, page.renewed = "another", 1
        page.relay._transport.address = BackendAddress(
            page.relay.url, sign=lambda _: {"Authorization": "Bearer old"}
        )  # pyright: ignore[reportPrivateUsage]
    status, headers, body = page.ask("/")
    assert status == 401
    assert "tpujob login" in body.decode()
    assert "refresh" not in headers
    assert page.ask("/jobs.json", {})[2]["error"]["type"] == "Unauthorized"


def test_a_backend_that_is_down_is_said_and_asked_again_until_it_is_back(tmp_path: Path) -> None:
    elsewhere = Elsewhere()
    with (
        reserved() as port,
        pytest.MonkeyPatch.context() as patch,
        https(f"http://127.0.0.1:{port}", tmp_path) as (url, certificate),
    ):
        patch.setenv("SSL_CERT_FILE", str(certificate))
        with Opened(elsewhere, url).served() as page:
            with listening(elsewhere.app, place=socket.create_server(("127.0.0.1", port))):
                assert page.ask("/")[0] == 200
            for _ in range(2):
                status, headers, body = page.ask("/")
                assert (status, headers["refresh"]) == (503, "5")
                assert "Nothing answers at https://127.0.0.1" in body.decode()
            assert page.post("/v1/jobs/42/cancel")[0] == 503
            with listening(elsewhere.app, place=socket.create_server(("127.0.0.1", port))):
                assert page.ask("/")[0] == 200


def test_a_proxy_that_lets_no_request_through_to_the_backend_is_named(tmp_path: Path) -> None:
    async def front(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            response = Response("<html>Error: Forbidden</html>", int(scope["path"][1:]))
            await response(scope, receive, send)

    with (
        pytest.MonkeyPatch.context() as patch,
        listening(front) as port,
        https(port, tmp_path) as (url, certificate),
    ):
        patch.setenv("SSL_CERT_FILE", str(certificate))
        with Opened(Elsewhere(), url).served() as page:
            for status, shown, says in (
                (403, 403, "deploy/join.sh"),
                (401, 401, "tpujob login"),
                (302, 401, "Identity-Aware Proxy"),
                (200, 503, "is not a tpujob backend"),
            ):
                answered, _, body = page.ask(f"/{status}")
                assert says in body.decode(), (status, body)
                assert "<html>Error" not in body.decode()
                assert answered == shown


@pytest.mark.parametrize(
    "path",
    [
        "/", "/enter/x/y", "/enter/x/../../v1/jobs", "/enter/..%2fv1%2fjobs",
        "/enter/x%2f..%2f..%2fv1/jobs", "/enter/", "/health", "/healthz",
    ],
)  # fmt: skip
def test_nothing_goes_through_with_the_token_without_a_session(silent: Opened, path: str) -> None:
    """A server on the way may take `..` for what it means, and another user of this machine is nobody's caller."""
    same = {"Sec-Fetch-Site": "same-origin"}
    for method in ("GET", "POST"):
        assert silent.ask(path, HTML | same, method)[0] == 401, method
    assert not silent.elsewhere.asked
