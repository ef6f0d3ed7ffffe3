"""Routes that are about no method of `JobsApi`: version, liveness, the API's own page, and a pass over all jobs."""

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse

from tpujob.errors import BadRequest
from tpujob.service import authorization
from tpujob.web import docs, schemas
from tpujob.web.auth.authenticator import TICK_PATH
from tpujob.web.routes import streams


def add(app: FastAPI, version: str, alive: Callable[[], bool]) -> None:
    def get_version() -> JSONResponse:
        """Which tpujob this is."""
        return JSONResponse({"version": version, "api": "v1"})

    async def health() -> JSONResponse:  # answers also while every thread waits for the store
        """Whether the backend works; to anybody. 503: it answers, and its jobs are not looked after. Cloud Run keeps
        `/healthz` for itself."""
        ok = alive()
        return JSONResponse({"ok": ok}, 200 if ok else 503)

    def describe() -> HTMLResponse:
        """Every route and every shape, as a page."""
        policy = {"content-security-policy": docs.POLICY}
        return HTMLResponse(docs.page(app.openapi()), headers=policy)

    app.get("/v1/version", tags=["backend"], response_model=schemas.Version)(get_version)
    app.get("/health", tags=["backend"], response_model=schemas.Health)(health)
    app.get("/healthz", include_in_schema=False)(health)
    app.get("/metrics", include_in_schema=False)(streams.backend_metrics)
    app.get("/docs", include_in_schema=False)(describe)


def add_tick(app: FastAPI, make_pass: Callable[[bool], tuple[int, float | None]] | None) -> None:
    def tick(request: Request, sweep: bool = False) -> JSONResponse:
        """One pass over every job that is due, for a backend that only runs while it is called; with `sweep` also over
        what is in the cloud. Safe to repeat, and from several callers at once."""
        authorization.check(request.scope["state"]["principal"], "tick")
        if make_pass is None:
            raise BadRequest("this backend makes its passes by itself")
        ticks, next_in = make_pass(sweep)
        return JSONResponse({"ticks": ticks, "next_in": next_in})

    app.post(TICK_PATH, tags=["backend"], response_model=schemas.Pass)(tick)
