"""Admission to a backend: tokens, hosts, sizes; and the headers of every answer."""

import asyncio
import base64
import hashlib
import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

import pytest
from fastapi.routing import APIRoute
from starlette.types import Message

from tests.support.callers import ADA, TokenDoor
from tests.support.http import ask
from tests.support.scripted import TOKEN, Front, ScriptedJobs, listening, scripted_app
from tests.support.waiting import LONG
from tpujob.web.security import limits
from tpujob.web.security.middleware import OPEN_PATHS, SecurityMiddleware


@pytest.fixture(scope="module")
def port(front: tuple[Front, str]) -> Iterator[str]:
    """The URL of a port whose door asks for the token."""
    with listening(scripted_app(front[0], TokenDoor(TOKEN, ADA))) as url:
        yield url


@pytest.fixture
def url(port: str, api: ScriptedJobs) -> str:
    del api  # what is asked at the port
    return port


BEARER = {"Authorization": f"Bearer {TOKEN}"}


def send(
    url: str,
    method: str,
    path: str,
    headers: Iterable[tuple[str, str]],
    body: bytes | Iterable[bytes] = b"",
) -> tuple[int, bytes, Mapping[str, str]]:
    """Status, body and headers; those of the request are sent as they are, with none beside them."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LONG)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders(body, encode_chunked=not isinstance(body, bytes))
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def every_route() -> list[tuple[str, str]]:
    """All of the app's routes as (method, path), those of the documentation included."""
    app = scripted_app(ScriptedJobs())
    routes: list[tuple[str, str]] = []
    for route in app.routes:
        methods = getattr(route, "methods", None) or {"GET"}
        routes += [(method, getattr(route, "path", "?")) for method in methods]
    assert any(isinstance(route, APIRoute) for route in app.routes)
    return sorted(routes)


@pytest.mark.parametrize(("method", "path"), every_route())
def test_every_route_needs_the_token(api: ScriptedJobs, url: str, method: str, path: str) -> None:
    status, headers, _ = ask(url, method, path.replace("{", "").replace("}", ""))
    if path in OPEN_PATHS:
        assert status == 200
    else:
        assert status == 401, f"{method} {path} answers without a token"
        assert "www-authenticate" in headers
    assert api.calls == []


def test_unknown_paths_do_not_tell_a_stranger_that_they_are_unknown(url: str) -> None:
    assert ask(url, "GET", "/v1/secret")[0] == 401
    status, _, body = ask(url, "GET", "/v1/secret", BEARER)
    assert (status, body["error"]["type"]) == (404, "NotFound")
    status, headers, body = ask(url, "DELETE", "/v1/jobs", BEARER)
    assert (status, body["error"]["type"]) == (405, "BadRequest")
    assert headers["allow"] == "GET, POST"
    assert body["error"]["hint"] == f"All paths: {url}/openapi.json"


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["localhost"], 200),
        (["127.0.0.1:8080"], 200),
        (["[::1]:80"], 200),
        (["LOCALHOST:1"], 200),
        (["evil.example"], 400),
        (["evil.example:80"], 400),
        (["127.0.0.1.evil.example"], 400),
        (["localhost.evil"], 400),
        (["0.0.0.0"], 400),
        ([""], 400),
        ([], 400),
        (["localhost", "evil.example"], 400),
        (["localhost", "localhost"], 400),
    ],
    ids=str,
)
def test_only_one_name_of_this_machine_is_answered_even_with_the_token(
    api: ScriptedJobs, url: str, hosts: list[str], status: int
) -> None:
    """DNS rebinding: a page of evil.example that resolves to 127.0.0.1 names its own host. Of two names, a proxy in
    front may go by the one, and the backend by the other."""
    names = [("Host", host) for host in hosts]
    answered, *_ = send(url, "GET", "/v1/jobs", [*BEARER.items(), *names])
    assert answered == status
    assert bool(api.calls) is (status == 200)
    assert send(url, "GET", "/health", names)[0] == 200, "a probe asks by an address, or by none"
    assert (send(url, "GET", "/metrics", names)[0] == 400) is (status == 400)


@pytest.mark.parametrize(
    "sent",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://localhost:8080", "Host": "localhost:9090"},
        {"Origin": "http://localhost.evil.example", "Host": "localhost"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["read", "simple", "preflight", "form"])
def test_a_page_of_another_site_can_ask_nothing(
    api: ScriptedJobs, url: str, sent: dict[str, str], kind: str
) -> None:
    """Browsers send a form or `text/plain` without a preflight; with an address to a token it would be let in."""
    headers = BEARER | sent
    if kind == "read":
        answer = ask(url, "GET", "/v1/jobs", headers)
    elif kind == "preflight":
        wish = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        answer = ask(url, "OPTIONS", "/v1/jobs", headers | wish)
    elif kind == "simple":
        answer = ask(url, "POST", "/v1/sweep", headers | {"Content-Type": "text/plain"}, b"{}")
    else:
        of_a_form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = ask(url, "POST", "/jobs/42/cancel", headers | of_a_form, b"a=1")
    status, answered, body = answer
    assert (status, body["error"]["type"]) == (403, "Forbidden")
    assert not any(name.startswith("access-control-") for name in answered)
    assert api.calls == []


def test_a_page_of_the_backend_itself_may_ask(api: ScriptedJobs, url: str) -> None:
    own = {
        "Host": "localhost:8080",
        "Origin": "http://localhost:8080",
        "Sec-Fetch-Site": "same-origin",
    }
    assert ask(url, "GET", "/v1/jobs", BEARER | own)[0] == 200
    assert ask(url, "GET", "/v1/jobs", BEARER | {"Sec-Fetch-Site": "none"})[0] == 200, "a person"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "", "text/json"]
)
def test_only_what_is_called_json_is_read_as_json(api: ScriptedJobs, url: str, kind: str) -> None:
    """No page can send `application/json` without asking first."""
    body = json.dumps({"physical": "x", "verdict": "bad"}).encode()
    headers = BEARER | ({"Content-Type": kind} if kind else {})
    assert ask(url, "POST", "/v1/hosts/pin", headers, body)[0] == 400
    assert api.calls == []


def test_every_answer_is_private_and_numbered(url: str) -> None:
    for path, headers in (("/healthz", {}), ("/v1/jobs", BEARER), ("/v1/jobs", {}), ("/x", BEARER)):
        _, sent, _ = ask(url, "GET", path, headers)
        assert sent["cache-control"] == "no-store"
        assert sent["x-content-type-options"] == "nosniff"
        assert sent["x-frame-options"] == "DENY"
        assert sent["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in sent["content-security-policy"]
        assert len(sent["x-request-id"]) == 16
        assert not any(name.startswith("access-control-") for name in sent), "no CORS"


def test_the_documentation_describes_every_answer(url: str) -> None:
    basic = {"Authorization": "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()}
    assert ask(url, "GET", "/openapi.json", basic)[0] == 401, "a token is no password"
    status, _, document = ask(url, "GET", "/openapi.json", BEARER)
    assert status == 200
    job = document["components"]["schemas"]["JobView"]
    assert {"id", "state", "usd_per_hour", "slices"} <= set(job["properties"])
    for path, view in (("hosts", "SuspectView"), ("fsck", "BrokenView")):
        content = document["paths"][f"/v1/{path}"]["get"]["responses"]["200"]["content"]
        assert content["application/json"]["schema"]["items"]["$ref"].endswith(f"/{view}")
    archive = document["paths"]["/v1/bundles/{sha256}"]["put"]["requestBody"]["content"]
    assert archive["application/gzip"]["schema"] == {"type": "string", "format": "binary"}
    for path in ("metrics", "jobs/{job}/logs/block"):
        content = document["paths"][f"/v1/{path}"]["get"]["responses"]["200"]["content"]
        assert content == {"text/plain": {"schema": {"type": "string"}}}
    assert document["security"] == [{"token": []}, {"iap": []}, {}]
    assert document["components"]["securitySchemes"].keys() == {"token", "iap"}
    assert document["paths"]["/health"]["get"]["security"] == []
    reply = document["paths"]["/v1/jobs/{job}"]["get"]["responses"]["200"]
    assert reply["content"]["application/json"]["schema"]["$ref"].endswith("/JobView")


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "in chunks"])
def test_a_body_that_is_too_large_is_refused(url: str, announced: bool) -> None:
    """Sent as a client does that never stops to look for an answer."""
    body = b'{"spec": {"x": "' + b"a" * (1 << 20) + b'"}}'
    pieces = [body[i : i + 65536] for i in range(0, len(body), 65536)]
    length = ("Content-Length", str(len(body))) if announced else ("Transfer-Encoding", "chunked")
    headers = [*BEARER.items(), ("Host", "localhost"), length]
    status, reply, _ = send(url, "POST", "/v1/plan", headers, body if announced else pieces)
    assert status == 413
    assert "1 MiB" in json.loads(reply)["error"]["message"]


def test_a_body_that_does_not_come_ends_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JSON_S", 0.1)
    headers = [*BEARER.items(), ("Host", "localhost"), ("Content-Length", "100")]
    status, body, answered = send(url, "POST", "/v1/plan", headers, b"{")
    assert (status, answered["connection"]) == (408, "close")
    assert "not sent within 0.1 s" in json.loads(body)["error"]["message"]


def test_bundles_may_be_larger_than_json(api: ScriptedJobs, url: str) -> None:
    data = b"b" * (3 << 20)
    sha = hashlib.sha256(data).hexdigest()
    status, _, body = ask(url, "PUT", f"/v1/bundles/{sha}?bucket=gs://b", BEARER, data)
    assert (status, body["path"]) == (200, f"gs://b/bundles/{sha}.tar.gz")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 100_000, b'{"spec": 1}', b'{"spec": {}, "x": 1}'],
    ids=["empty", "cut", "deep", "wrong type", "unknown key"],
)
def test_malformed_json_gets_one_clear_error(api: ScriptedJobs, url: str, body: bytes) -> None:
    headers = BEARER | {"Content-Type": "application/json"}
    status, _, answer = ask(url, "POST", "/v1/jobs", headers, body)
    assert status == 400
    assert answer["error"]["type"] == "BadRequest"
    assert answer["error"]["message"]
    assert api.calls == []


def test_a_failure_inside_shows_a_number_and_no_traceback(
    api: ScriptedJobs, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    api.raises = RuntimeError("the password is hunter2")
    status, sent, body = ask(url, "GET", "/v1/jobs", BEARER)
    assert status == 500
    assert sent["x-request-id"] in body["error"]["message"]
    assert "hunter2" not in json.dumps(body)
    assert "Traceback" not in json.dumps(body)
    log = next(r for r in caplog.records if sent["x-request-id"] in r.getMessage())
    assert log.exc_info, "the log has the whole story"


def test_a_websocket_is_closed_at_the_door() -> None:
    """None is served, so none has to show a token."""
    sent: list[Message] = []

    async def closed(*_: object) -> Message:
        raise AssertionError("it came in")

    async def send(message: Message) -> None:
        sent.append(message)

    door = SecurityMiddleware(closed, authenticator=TokenDoor(TOKEN, ADA))
    asyncio.run(door({"type": "websocket", "path": "/healthz"}, closed, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
