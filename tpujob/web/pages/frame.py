"""The common parts of all pages: routes, `.json` twin, frame and headers.

A loader asks the API and returns `PageContent`. Templates are in `web/templates/`; `parts/` has the macros that they
share, each file with a comment that lists them.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import mimetypes
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import Scope

from tpujob.api import JobsApi
from tpujob.domain.access import Principal
from tpujob.errors import NotFound, TpujobError
from tpujob.service.authorization import authorize
from tpujob.web import errors
from tpujob.web.pages.query import PageQuery
from tpujob.web.schemas import Caller, caller_of
from tpujob.web.security.middleware import FOR_GOOD

if TYPE_CHECKING:
    from jinja2 import Environment


STATIC = Path(__file__).parents[1] / "static"
SUFFIXES = (".css", ".js", ".svg")


class Asset(NamedTuple):
    address: str  #: below the top of the page
    integrity: str  #: as a browser verifies it
    media_type: str
    body: bytes


@cache
def assets() -> dict[str, Asset]:
    """Return the static files by name. They are read once, as they do not change while the backend runs."""
    files = (path for path in sorted(STATIC.rglob("*")) if path.suffix in SUFFIXES)
    return {path.name: _read_asset(path) for path in files}


def _read_asset(path: Path) -> Asset:
    body = path.read_bytes()
    digest = hashlib.sha384(body)
    return Asset(
        address=f"/static/{path.stem}.{digest.hexdigest()[:8]}{path.suffix}",
        integrity="sha384-" + base64.b64encode(digest.digest()).decode(),
        media_type=mimetypes.types_map[path.suffix],
        body=body,
    )


def add_assets(app: FastAPI) -> None:
    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str, request: Request) -> Response:
        matches = (asset for asset in assets().values() if asset.address == f"/static/{name}")
        asset = next(matches, None)
        if asset is None:
            raise NotFound(f"there is no file {name[:80]!r}", hint="load the page again")
        return _packed(request, asset.body, asset.media_type, 200, {"cache-control": FOR_GOOD})

    _ = static


#: what a browser may do with a page: nothing that is not served here, nothing that is written into the page
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: the pages that lead everywhere
NAVIGATION = (
    ("/", "Jobs"),
    ("/queue", "Queue"),
    ("/capacity", "Capacity"),
    ("/hosts", "Hosts"),
    ("/spend", "Spend"),
    ("/events", "Events"),
    ("/notifications", "Notifications"),
    ("/backend", "Backend"),
)
#: a header that requests a page without any links to other files, to be saved as a file
ALONE = "x-tpujob-alone"
AGAIN = "x-tpujob-again"  #: a header of `live.js`, which fetches a page that is open already
PACK_FROM = 1000  #: bytes of a body that is worth the packing


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The request for a page, as its loader gets it."""

    api: JobsApi
    caller: Principal
    query: PageQuery
    job: str  #: the job in the path; empty: the page is not about one job
    path: str  #: without the root path
    now: float
    again: str = ""  #: what `PageContent.again` of the open page was, when it is fetched again
    channels_file: str = ""  #: where notification channels are written


@dataclass(frozen=True, slots=True)
class PageContent:
    """The content of a page, as its loader returns it."""

    data: Mapping[str, Any]  #: the JSON of the page; its template sees the keys
    title: str
    command: str = ""  #: prints the same in a terminal
    #: ids of the jobs whose changes update the page, with spaces; empty: any job; None: the page is not updated
    live: str | None = None
    again: str = ""  #: `PageRequest.again` when the open page is fetched again
    shown: Mapping[str, Any] = field(default_factory=dict[str, Any])  #: what the template sees, too


class PageRow(NamedTuple):
    """A page, as data."""

    path: str
    template: str
    load: Callable[[PageRequest], PageContent]
    method: str  #: of `JobsApi`: a caller who may not call it is refused, whatever they ask for
    filters: tuple[str, ...] = ()  #: the names that its query may have


def add_page(app: FastAPI, page: PageRow) -> None:
    def show(api: Caller, request: Request) -> Response:
        caller = caller_of(request)
        authorize(caller, page.method)
        page_request = PageRequest(
            api,
            caller,
            PageQuery.read(request.url.query, page.filters),
            request.path_params.get("job", ""),
            route_path(request.scope),
            now(app),
            request.headers.get(AGAIN, ""),
            app.state.channels_file,
        )
        if AGAIN in request.headers and app.state.events:
            app.state.events.check_store()
        return respond(request, page.template, page.load(page_request))

    for path in (_twin(page.path), page.path):  # the first that matches is taken
        app.get(path, include_in_schema=False)(show)


def respond(request: Request, template: str, content: PageContent, status: int = 200) -> Response:
    """Return the content as JSON if the path ends in `.json`, else as that template; 304 if the client's ETag
    matches."""
    text = json.dumps(content.data, ensure_ascii=False)
    etag = _etag(request, text)
    client_etags = request.headers.get("if-none-match", "")
    if request.method == "GET" and status == 200 and etag in client_etags:
        return Response(status_code=304, headers={"etag": etag})
    if route_path(request.scope).endswith(".json"):
        return _packed(request, text.encode(), "application/json", status, {"etag": etag})
    body = _html(request, template, content, status, etag)
    headers = {"content-security-policy": POLICY, "referrer-policy": "same-origin", "etag": etag}
    return _packed(request, body.encode(), "text/html; charset=utf-8", status, headers)


def problem(request: Request, error: TpujobError, status: int) -> Response:
    """Return a page that says what happened and what to do, with a link."""
    if "principal" not in request.scope["state"]:  # a path that answers anybody
        return errors.answer(request.scope, error, status)
    data = {"error": error.message, "hint": error.hint, "status": status}
    title = _PROBLEMS.get(status, "That failed")
    url = _urls(route_path(request.scope))
    everyone = {"who": "everyone", "show": "all"}
    ways = [(url("/"), "My recent jobs"), (url("/", everyone), "All jobs")]
    if status == 409 and (job := request.path_params.get("job")):
        ways.insert(0, (url(f"/jobs/{job}"), f"Job {job}"))
    return respond(request, "problem.html", PageContent(data, title, shown={"ways": ways}), status)


_PROBLEMS = {
    400: "Invalid request",
    403: "That is not allowed",
    404: "Not found",
    405: "That is not allowed here",
    409: "That is not possible now",
    422: "Invalid request",
}


def link(request: Request, to: str) -> str:
    """Return a link to a path of this page, relative to the request's path."""
    return _urls(route_path(request.scope))(to)


def route_path(scope: Scope) -> str:
    """Return the request's path without its root path."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def _html(request: Request, template: str, content: PageContent, status: int, etag: str) -> str:
    app, path = request.app, route_path(request.scope)
    about = {
        "title": content.title,
        "command": content.command,
        "live": content.live,
        "again": content.again,
        "etag": etag,
        "path": path,
        "query": request.url.query,
        "who": request.scope["state"]["principal"],
        "local": bool(app.state.channels_file),
        "navigation": NAVIGATION,
        "version": app.version,
        "alone": ALONE in request.headers,
        "twin": _twin(path) if status == 200 and request.method == "GET" else "",
    }
    context = {"page": about, "url": _urls(path), "now": now(app), **content.data, **content.shown}
    html = environment().get_template(template).render(context)
    return re.sub(r'(<a\b[^>]*?) href="[^"]*"', r"\1", html) if about["alone"] else html


def _twin(path: str) -> str:
    """Return the path of the page's JSON."""
    return "/jobs.json" if path == "/" else f"{path}.json"


def now(app: FastAPI) -> float:
    """Return seconds since the epoch by the app's clock."""
    clock: Callable[[], float] = getattr(app.state, "now", time.time)
    return clock()


def _urls(path: str) -> Callable[..., str]:
    """Return a function that makes links relative to the page at `path`, with a query. Relative links hold under any
    root path, and do not reveal it."""
    up = "../" * (path.count("/") - 1) or "./"

    def url(to: str, query: Mapping[str, Any] | None = None) -> str:
        encoded = urlencode(query, doseq=True) if query else ""
        return up + to.removeprefix("/") + (f"?{encoded}" if encoded else "")

    return url


@cache
def environment() -> Environment:
    from tpujob.web.pages import templating

    return templating.environment(assets().__getitem__)


def _etag(request: Request, text: str) -> str:
    """Return the ETag of what that caller reads at that address."""
    principal = request.scope["state"].get("principal")
    about = f"{principal and (principal.id, principal.role)} {request.url.query} {route_path(request.scope)} {text}"
    return f'"{hashlib.sha256(about.encode()).hexdigest()[:32]}"'


def _packed(
    request: Request, body: bytes, media_type: str, status: int, headers: Mapping[str, str]
) -> Response:
    packs = "gzip" in request.headers.get("accept-encoding", "") and len(body) >= PACK_FROM
    sent = gzip.compress(body, 5, mtime=0) if packs else body
    encoding = {"content-encoding": "gzip"} if packs else {}
    return Response(sent, status, {**headers, **encoding, "vary": "accept-encoding"}, media_type)
