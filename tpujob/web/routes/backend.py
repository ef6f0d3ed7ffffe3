"""Routes about the backend itself: its version, its health, who asks, and a pass over its jobs."""

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from tpujob.api import CallerView, HealthView
from tpujob.domain import access
from tpujob.errors import BadRequest
from tpujob.web import docs, schemas
from tpujob.web.auth.authenticator import TICK_PATH
from tpujob.web.routes.caller import Caller

#: what Prometheus is told that it gets
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


def add(app: FastAPI, version: str, alive: Callable[[], bool]) -> None:
    @app.get("/v1/version", tags=["backend"], response_model=schemas.Version)
    def get_version() -> JSONResponse:
        """Which tpujob this is."""
        return JSONResponse({"version": version, "api": "v1"})

    @app.get("/v1/whoami", tags=["backend"], response_model=CallerView)
    def whoami(api: Caller) -> JSONResponse:
        """Who is asking, as the backend sees it."""
        return JSONResponse(api.whoami())

    @app.get("/health", tags=["backend"], response_model=schemas.Health)
    @app.get("/healthz", include_in_schema=False, response_model=schemas.Health)
    async def health() -> JSONResponse:  # answers also while every thread waits for the store
        """Whether the backend works; to anybody. 503: it answers, and its jobs are not looked after. Cloud Run keeps
        `/healthz` for itself."""
        ok = alive()
        return JSONResponse({"ok": ok}, 200 if ok else 503)

    @app.get("/v1/health", tags=["backend"], response_model=HealthView)
    def state(api: Caller) -> JSONResponse:
        """How the backend is doing, and what of it is not as it should be."""
        return JSONResponse(api.health())

    @app.get("/v1/metrics", tags=["backend"], response_class=Response)
    @app.get("/metrics", include_in_schema=False)
    def metrics(api: Caller) -> Response:
        """What Prometheus reads, in its text format."""
        return Response(api.backend_metrics(), media_type=TEXT_FORMAT)

    @app.get("/docs", include_in_schema=False)
    def describe() -> HTMLResponse:
        """Every route and every shape, as a page."""
        policy = {"content-security-policy": docs.POLICY}
        return HTMLResponse(docs.page(app.openapi()), headers=policy)

    _ = (get_version, whoami, health, state, metrics, describe)


def add_tick(app: FastAPI, make_pass: Callable[[bool], tuple[int, float | None]] | None) -> None:
    @app.post(TICK_PATH, tags=["backend"], response_model=schemas.Pass)
    def tick(request: Request, sweep: bool = False) -> JSONResponse:
        """One pass over every job that is due, for a backend that only runs while it is called; with `sweep` also over
        what is in the cloud. Safe to repeat, and from several callers at once."""
        access.check(request.scope["state"]["principal"], "tick")
        if make_pass is None:
            raise BadRequest("this backend makes its passes by itself")
        ticks, next_in = make_pass(sweep)
        return JSONResponse({"ticks": ticks, "next_in": next_in})

    _ = tick
