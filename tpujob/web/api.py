"""`JobsApi` as JSON over HTTP under `/v1`: the app, made of its routes and of what every request passes."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from tpujob.api import JobsApi
from tpujob.domain.access import Principal
from tpujob.service import Changes
from tpujob.service.backend import BackendStatus
from tpujob.version import __version__
from tpujob.web import endpoints, errors, events, schemas, streams
from tpujob.web.events import Events, StreamTimes
from tpujob.web.pages import frame, routes
from tpujob.web.security import browser
from tpujob.web.security.authenticator import Authenticator
from tpujob.web.security.browser import Sessions
from tpujob.web.security.connections import LOOPBACK
from tpujob.web.security.limits import OPEN_PATHS, Limiter, Limits
from tpujob.web.security.middleware import SecurityMiddleware


def create_app(
    jobs: Callable[[Principal], JobsApi],
    authenticator: Authenticator,
    *,
    changes: Changes | None = None,
    times: StreamTimes = StreamTimes(),  # noqa: B008
    stopping: Callable[[], bool] = lambda: False,
    version: str = __version__,
    hosts: Iterable[str] = LOOPBACK,
    make_pass: endpoints.MakePass | None = None,
    limits: Limits | None = None,
    sessions: Sessions | None = None,
    status: BackendStatus | None = None,
) -> FastAPI:
    """Return the backend's app. `jobs` returns the API as the caller that `authenticator` recognised may use it.

    `changes`: the store's changes, sent to open pages and to clients that follow all jobs; without them, pages poll.
    `times`: those of the pages' streams. Once `stopping()` is true, every long poll ends within `LOOK_EVERY`.
    `hosts`: the only host names that requests may use. `make_pass` ticks every due job once. `sessions`: those of
    browsers at a port of this machine. `status` counts requests and reports whether the backend is alive."""

    def routed(app: FastAPI) -> FastAPI:
        follow = streams.endpoint(changes.now if changes else None, stopping)
        endpoints.add_methods(app, {**streams.OWN, "follow": (follow, schemas.Hint)})
        endpoints.add_backend(app, version, status.alive if status else lambda: True)
        endpoints.add_tick(app, make_pass)
        if sessions:
            browser.add(app, sessions)
        return app

    app = _app(version)
    app.router.route_class = _Undescribed
    app.state.jobs = jobs
    app.state.channels_file = status.process.channels_file if status else ""
    app.state.events = live = Events(changes, stopping, times) if changes else None
    if live:
        events.add(app, live)
        if status:
            status.streams = lambda: live.streams
    app.add_middleware(Limiter, limits=limits)
    app.add_middleware(
        SecurityMiddleware,
        authenticator=authenticator,
        hosts=tuple(hosts),
        counters=status.counters if status else None,
    )
    errors.add_handlers(app, frame.problem)
    app.openapi = cache(lambda: _document(routed(_app(version))))
    routed(app)
    routes.add(app)
    return app


def _app(version: str) -> FastAPI:
    return FastAPI(
        title="tpujob",
        version=version,
        description="Training jobs on Cloud TPUs, kept alive until they are done.",
        redoc_url=None,
        docs_url=None,  # its page would load scripts from another server
        root_path_in_servers=False,  # it may be a session
        redirect_slashes=False,  # to an absolute address, which would leave the session, and TLS
        responses={"default": {"model": schemas.ErrorReply, "description": "An error"}},
    )


def _document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of the routes, with the ways to show who sends a request."""
    document = app.openapi()
    document["components"]["securitySchemes"] = schemas.DOORS
    document["security"] = schemas.SECURITY
    for path in OPEN_PATHS & document["paths"].keys():
        for operation in document["paths"][path].values():
            operation["security"] = []
    return document


class _Undescribed(APIRoute):
    """A route without response models. Only the OpenAPI document needs them, and building them takes a fifth of a
    backend's start."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "response_model": None, "responses": None})
