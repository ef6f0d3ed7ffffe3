"""What every page has in common: its address and its `.json` twin, its frame, its headers, and how it is written.

A handler asks the API and returns `answer(request, "job.html", data, title=..., command=...)`. Templates are in
`web/templates/`; `parts/` has the macros that they share, each file with a comment that lists them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.types import Scope

from tpujob.errors import TpujobError
from tpujob.web import plain
from tpujob.web.live import Fragments
from tpujob.web.pages.assets import Asset, assets
from tpujob.web.pages.query import Query

if TYPE_CHECKING:  # a backend whose page nobody opens does without it
    from jinja2 import Environment

#: what a browser may do with a page: nothing that is not served here, nothing that is written into the page
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: the pages that lead everywhere; one that the app does not have is not shown
NAVIGATION = (
    ("/", "Jobs"),
    ("/capacity", "Capacity"),
    ("/hosts", "Hosts"),
    ("/spend", "Spend"),
    ("/events", "Events"),
    ("/notifications", "Notifications"),
    ("/backend", "Backend"),
)
ALONE = (
    "x-tpujob-alone"  #: a header that asks for a page that needs nothing else, to be kept as a file
)
PACK_FROM = 1000  #: bytes of a body that is worth the packing

Handler = Callable[..., Response]


def page(app: FastAPI, path: str, *, twin: str = "") -> Callable[[Handler], Handler]:
    """Registers a handler for GET at `path` and at its twin: the same path with `.json`, or `twin`."""

    def register(handler: Handler) -> Handler:
        for each in (twin or f"{path}.json", path):  # the first that matches is taken
            app.get(each, include_in_schema=False)(handler)
        app.state.pages = {*getattr(app.state, "pages", ()), path}
        return handler

    return register


def answer(
    request: Request,
    template: str,
    data: Mapping[str, Any],
    *,
    title: str,
    command: str = "",
    live: bool | Callable[[], Fragments] = False,
    status: int = 200,
    **shown: Any,
) -> Response:
    """`data` as JSON where the address ends in `.json`, else as that template. The template sees the keys of `data`,
    what is `shown` beside them, and what `base.html` says. `command`: prints the same in a terminal. `live`: the page
    has a `live` function, and changes while it is open; as a function, it gives what the template writes of
    that, and the stream sends only what differs from it."""
    told = json.dumps(data, ensure_ascii=False)
    etag = _etag(request, told)
    if (
        request.method == "GET"
        and status == 200
        and etag in request.headers.get("if-none-match", "")
    ):
        return Response(status_code=304, headers={"etag": etag})
    if route_path(request.scope).endswith(".json"):
        return _packed(request, told.encode(), "application/json", status, {"etag": etag})
    about = {"title": title, "command": command, "status": status}
    about |= {"live": bool(live), "live_id": ""}
    if callable(live):
        fragments = shown["fragments"] = live()
        about["live_id"] = request.app.state.views.loaded(fragments)
    body = _html(request, template, data, about, shown)
    headers = {"content-security-policy": POLICY, "referrer-policy": "same-origin", "etag": etag}
    return _packed(request, body.encode(), "text/html; charset=utf-8", status, headers)


def problem(request: Request, error: TpujobError, status: int) -> Response:
    """A page that says what happened and what to do, and leads on."""
    if "principal" not in request.scope["state"]:  # a path that answers anybody
        return plain.answer(request.scope, error, status)
    data = {"error": error.message, "hint": error.hint, "status": status}
    title = _PROBLEMS.get(status, "That failed")
    url = _urls(route_path(request.scope))
    everyone = {"who": "everyone", "show": "all"}
    ways = [(url("/"), "My recent jobs"), (url("/", everyone), "All jobs")]
    return answer(request, "problem.html", data, title=title, status=status, ways=ways)


_PROBLEMS = {
    400: "Invalid request",
    403: "That is not allowed",
    404: "Not found",
    405: "That is not allowed here",
    409: "That is not possible now",
    422: "Invalid request",
}


def parts(name: str, *, path: str, now: float) -> Any:
    """The macros of a template as functions, such as `parts("parts/jobs.html", path="/", now=...).row(row)`: what the
    page at `path` shows, in the same words."""
    return environment().get_template(name).make_module({"url": _urls(path), "now": now})


def fragments(
    template: str, made: Mapping[str, str], shown: Mapping[str, Any], *, path: str, now: float
) -> Fragments:
    """What of the page at `path` changes while it is open: `made` by macros of the template, by their ids. Each macro
    is given what is `shown`."""
    macros = parts(template, path=path, now=now)
    return Fragments({id: str(getattr(macros, macro)(shown)) for id, macro in made.items()})


def pager(asked: Query, older: str, what: str, *, path: str) -> str:
    """The links from one page of something to the others; `older`: what comes before the last row, if anything does."""
    return str(parts("parts/blocks.html", path=path, now=0.0).pager(asked, older, what))


def link(request: Request, to: str) -> str:
    """To a path of this page, as seen from where the request went."""
    return _urls(route_path(request.scope))(to)


def route_path(scope: Scope) -> str:
    """The path without what the page lies under."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def _html(
    request: Request,
    template: str,
    data: Mapping[str, Any],
    page: Mapping[str, Any],
    shown: Mapping[str, Any],
) -> str:
    app, path = request.app, route_path(request.scope)
    known = getattr(app.state, "pages", ())
    about = {
        **page,
        "path": path,
        "query": request.url.query,
        "who": request.scope["state"]["principal"],
        "navigation": [(to, name) for to, name in NAVIGATION if to in known],
        "version": app.version,
        "alone": ALONE in request.headers,
        "twin": "" if page["status"] != 200 else "/jobs.json" if path == "/" else f"{path}.json",
    }
    context = {"page": about, "url": _urls(path), "now": now(app), **data, **shown}
    return environment().get_template(template).render(context)


def now(app: FastAPI) -> float:
    """Seconds since the epoch, as the page counts them."""
    clock: Callable[[], float] = getattr(app.state, "now", time.time)
    return clock()


def _urls(path: str) -> Callable[..., str]:
    """Makes a link to a path of this page, with that query. Links are relative to the page at `path`: they hold under
    whatever the whole lies under, and say nothing of it."""
    up = "../" * (path.count("/") - 1) or "./"

    def url(to: str, query: Mapping[str, Any] | None = None) -> str:
        asked = urlencode(query, doseq=True) if query else ""
        return up + to.removeprefix("/") + (f"?{asked}" if asked else "")

    return url


@cache
def environment() -> Environment:
    from tpujob.web.pages import templating

    return templating.environment(_asset)


def _asset(name: str) -> Asset:
    return assets()[name]


def _etag(request: Request, told: str) -> str:
    """Of what that caller is told at that address."""
    who = request.scope["state"]["principal"]
    said = f"{who.id} {request.url.query} {route_path(request.scope)} {told}"
    return f'"{hashlib.sha256(said.encode()).hexdigest()[:32]}"'


def _packed(
    request: Request, body: bytes, media_type: str, status: int, headers: Mapping[str, str]
) -> Response:
    packs = "gzip" in request.headers.get("accept-encoding", "") and len(body) >= PACK_FROM
    sent = gzip.compress(body, 5, mtime=0) if packs else body
    more = {"content-encoding": "gzip"} if packs else {}
    return Response(sent, status, {**headers, **more, "vary": "accept-encoding"}, media_type)
