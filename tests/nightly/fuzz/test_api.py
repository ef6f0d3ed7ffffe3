"""Every route of a whole backend, with what its OpenAPI document allows and with what it forbids: an error of the
caller is a 4xx in the API's own form, and no request makes the backend fail."""

import asyncio
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from starlette.routing import Route

from tests.nightly.fuzz import cases
from tests.support.callers import TokenDoor
from tests.support.scripted import LIMITLESS, TOKEN
from tests.support.stage import SPEC, Stage
from tests.support.world import ADA
from tpujob.domain.model import State
from tpujob.web.api import create_app
from tpujob.web.security.browser import Sessions


class Backend:
    """A backend's app over the world in memory, and requests to it without a network."""

    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        job = self.stage.create()
        self.stage.until(job, State.RUNNING)
        self.app: FastAPI = create_app(
            self.stage.api.acting_for,
            TokenDoor(TOKEN, ADA),
            stopping=lambda: True,  # a long poll is answered at once
            make_pass=lambda sweep: (0, None),
            limits=LIMITLESS,
            changes=self.stage.api.parts.changes,
            sessions=Sessions(),
        )
        self.schema = schemathesis.openapi.from_dict(self.app.openapi())
        self.runner = asyncio.Runner()

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes = b"",
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> tuple[int, bytes]:
        sent_headers = [
            (b"host", b"localhost"),
            (b"authorization", f"Bearer {TOKEN}".encode()),
            *(headers or [(b"content-type", b"application/json")]),
        ]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": urlencode(query or {}, doseq=True, errors="replace").encode(),
            "headers": [*sent_headers, (b"content-length", b"%d" % len(body))],
        }
        return self.runner.run(self._call(scope, body))

    async def _call(self, scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
        messages: list[Any] = []
        sent = iter([{"type": "http.request", "body": body}])

        async def receive() -> Any:
            return next(sent, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            messages.append(message)

        await self.app(scope, receive, send)
        return messages[0]["status"], b"".join(m.get("body", b"") for m in messages[1:])


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    made = Backend(tmp_path_factory.mktemp("backend"))
    with made.runner:
        yield made


@schemathesis.serializer("application/gzip")
def as_it_is(_: object, value: object) -> object:
    """The body of a bundle is bytes: a library that knows JSON alone is told how to send them."""
    return value


def fails(status: int, answer: bytes) -> str:
    """Return the fault of an answer; empty: none."""
    if status >= 500:
        return f"HTTP {status}"
    if b"Traceback" in answer or b'File "' in answer:
        return "a traceback"
    if status >= 400 and answer.startswith(b"<!doctype html>"):
        return ""
    form = {"type", "message", "hint", "exit_code"}
    if status >= 400 and set(json.loads(answer)["error"]) < form:
        return "no error form"
    return ""


DOCUMENT = create_app(lambda _: None, TokenDoor("x", ADA)).openapi()["paths"]  # type: ignore[arg-type, return-value]
ROUTES = [(method.upper(), path) for path, methods in DOCUMENT.items() for method in methods]


def modes(method: str, path: str) -> list[GenerationMode]:
    """A name in a path may be anything: only a query, a header or a body can be wrong."""
    operation = DOCUMENT[path][method.lower()]
    can_be_wrong = "requestBody" in operation or any(
        parameter["in"] != "path" for parameter in operation.get("parameters", ())
    )
    return list(GenerationMode) if can_be_wrong else [GenerationMode.POSITIVE]


REQUESTS = [(*route, mode) for route in ROUTES for mode in modes(*route)]


@pytest.mark.parametrize(
    ("method", "path", "mode"), REQUESTS, ids=[f"{m} {p}-{g.name.lower()}" for m, p, g in REQUESTS]
)
def test_no_request_makes_the_backend_fail(
    backend: Backend, method: str, path: str, mode: GenerationMode
) -> None:
    operation = backend.schema[path][method]

    @cases(0.5 / len(REQUESTS))
    @given(case=operation.as_strategy(generation_mode=mode), real=st.booleans())
    def ask(case: Case, real: bool) -> None:
        where = path
        for name, value in (case.path_parameters or {}).items():
            where = where.replace(f"{{{name}}}", "1" if real and name == "job" else str(value))
        body = case.body if isinstance(case.body, bytes) else b""
        if not isinstance(case.body, bytes | schemathesis.core.NotSet):
            body = json.dumps(case.body).encode()
        query = case.query if isinstance(case.query, dict) else {}
        status, answer = backend.ask(method, where, query, body)
        assert not fails(status, answer), (where, query, body[:500], answer[:500])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ask()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=10,
)
NAMES = [
    "name", "tpu", "run", "env", "data", "type", "zones", "slices", "pricing", "command",
    "args", "budget", "retries", "workload", "code", "setup", "environment", "outputs",
    "secrets", "notify", "grace", "watch",
]  # fmt: skip
ODD = st.sampled_from([
    "", "\n", "\0", "\ud800", "../..", "a" * 70, "é", "%s", "{}", "1e400", "-1", "💥", " x ",
    "x\u202ey",
])  # fmt: skip
ODD_VALUE = JSON | ODD | st.sampled_from([0, -1, 2**63, 10**400, True, 1e308])


@cases(0.12)
@given(
    place=st.lists(st.sampled_from(NAMES) | st.text(max_size=8), min_size=1, max_size=3),
    value=ODD_VALUE,
    where=st.sampled_from(["/v1/plan", "/v1/jobs", "/v1/estimate", "/v1/compare"]),
)
def test_no_job_file_makes_the_backend_fail(
    backend: Backend, place: list[str], value: Any, where: str
) -> None:
    """A good one, with an odd value somewhere."""
    spec = json.loads(json.dumps(SPEC))
    inner = spec
    for key in place[:-1]:
        if not isinstance(inner.get(key), dict):
            inner[key] = {}
        inner = inner[key]
    inner[place[-1]] = value
    status, answer = backend.ask("POST", where, body=json.dumps({"spec": spec}).encode())
    assert not fails(status, answer), (spec, answer[:500])


@cases(0.1)
@given(
    name=st.text(max_size=300) | ODD,
    route=st.sampled_from(["", "/events", "/logs", "/access", "/cancel", "/clean"]),
    query=st.dictionaries(
        st.sampled_from(["host", "attempt", "cursor", "tail", "after"]), st.text(max_size=40) | ODD
    ),
)
def test_no_name_of_a_job_makes_the_backend_fail(
    backend: Backend, name: str, route: str, query: dict[str, str]
) -> None:
    name = name.encode(errors="replace").decode()  # as the server decodes the path
    method = "POST" if route in ("/cancel", "/clean") else "GET"
    status, answer = backend.ask(method, f"/v1/jobs/{name}{route}", query)
    assert not fails(status, answer), (name, route, query, answer[:500])
    query = {name: name} | dict.fromkeys(query, "1")
    status, answer = backend.ask("GET", f"/v1/jobs/1{route}", query)
    assert not fails(status, answer), (name, route, query, answer[:500])


HEADER = st.sampled_from(
    b"host authorization content-type content-length idempotency-key origin cookie x".split()
)


@cases(0.1)
@given(
    headers=st.lists(st.tuples(HEADER, st.binary(max_size=60)), min_size=1, max_size=5),
    body=st.binary(max_size=100),
)
def test_no_header_makes_the_backend_fail(
    backend: Backend, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/plan"), ("PUT", "/v1/bundles/0")):
        status, answer = backend.ask(method, path, body=body, headers=headers)
        assert not fails(status, answer), (method, headers, body, answer[:500])


#: the names of parameters in addresses and forms of pages
PARAMETERS = [
    "view", "to", "who", "show", "state", "cause", "type", "zone", "user", "q", "order",
    "reverse", "after", "attempt", "host", "of", "line", "part", "side", "re", "i", "tb",
    "whole", "times", "before", "kind", "channel", "by", "leaks", "a", "b", "job", "budget",
    "machine", "do", "id",
]  # fmt: skip
PLACES = ("/jobs/1", "/jobs/1/logs", "/", "/events", "//[", "http://[x/", "/jobs/\ud800?before=1")
VALUES = (
    st.text(max_size=30)
    | ODD
    | st.sampled_from(["0", "1", "9" * 12, "nan", "-1", "spent", *PLACES])
)


@cases(0.03)
@given(
    place=st.integers(0, 99),
    job=st.sampled_from(["1", "x", "000001", "9" * 30, "../1", "\u0663"]) | ODD,
    parameters=st.dictionaries(st.sampled_from(PARAMETERS), VALUES, max_size=3),
    accept=st.sampled_from([b"text/html", b"application/json"]),
)
def test_no_address_and_no_form_makes_a_page_fail(
    backend: Backend, place: int, job: str, parameters: dict[str, str], accept: bytes
) -> None:
    """Every route of a page, with live views and sign-in; each describes what is wrong with the parameters."""
    described = {"/openapi.json", *(path for _, path in ROUTES)}
    pages = [r for r in backend.app.routes if isinstance(r, Route) and r.path not in described]
    route = pages[place % len(pages)]
    name = job.encode(errors="replace").decode()  # as the server decodes the path
    path = re.sub(r"{[a-z]+}", lambda _: name, route.path)
    for method in (route.methods or {"GET"}) & {"GET", "POST"}:
        form = urlencode(parameters, errors="replace").encode() if method == "POST" else b""
        headers = [(b"accept", accept), (b"content-type", b"application/x-www-form-urlencoded")]
        query = {} if form else parameters
        status, answer = backend.ask(method, path, query, form, headers)
        assert not fails(status, answer), (method, path, parameters, answer[:500])
