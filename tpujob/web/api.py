"""`JobsApi` as JSON over HTTP under `/v1`: the app, made of its routes and of what every request passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from tpujob import __version__
from tpujob.api import JobsApi
from tpujob.domain.access import Principal
from tpujob.web import errors, schemas
from tpujob.web.door import Door
from tpujob.web.guard import Guard
from tpujob.web.limits import Limiter, Limits
from tpujob.web.routes import backend, following, one_job, upkeep
from tpujob.web.routes import jobs as jobs_routes


def create_app(
    jobs: Callable[[Principal], JobsApi],
    door: Door,
    *,
    watch: Callable[[], int] | None = None,
    stopping: Callable[[], bool] = lambda: False,
    version: str = __version__,
    hosts: Iterable[str] = (),
    make_pass: Callable[[bool], tuple[int, float | None]] | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """The backend's app: `jobs` is what a caller may ask, once `door` has recognised them. `watch` gives the number of
    the newest change of any job, so that a client that follows all jobs misses none between two polls. Once
    `stopping()` is true, every long poll ends within `LOOK_EVERY`. The backend answers under the names in `hosts` and
    the loopback ones. `make_pass` runs one tick of every job that is due. `limits`: left
    out, those of every backend."""

    def routed(app: FastAPI) -> FastAPI:
        for part in (jobs_routes, one_job, upkeep):
            part.add(app)
        following.add(app, watch, stopping)
        backend.add(app, version)
        backend.add_tick(app, make_pass)
        return app

    app = _app(version)
    app.router.route_class = _Undescribed
    app.state.jobs = jobs
    app.add_middleware(Limiter, limits=limits)
    app.add_middleware(Guard, door=door, hosts=tuple(hosts))
    errors.add_handlers(app)
    app.openapi = cache(lambda: routed(_app(version)).openapi())
    return routed(app)


def _app(version: str) -> FastAPI:
    return FastAPI(
        title="tpujob",
        version=version,
        description="Training jobs on Cloud TPUs, kept alive until they are done.",
        redoc_url=None,
        docs_url=None,  # its page would load scripts from another server
        responses={"default": {"model": schemas.ErrorReply, "description": "An error"}},
    )


class _Undescribed(APIRoute):
    """Without the models of its answers. Only the page at `/docs` needs them, and making them takes a fifth of a
    backend's start."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "response_model": None, "responses": None})
