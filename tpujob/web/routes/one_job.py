"""Routes about one job."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse

from tpujob.api import DiffView, EventView, HostAccess, JobView, LogPage
from tpujob.domain.pages import PAGE
from tpujob.web import schemas
from tpujob.web.routes.caller import Caller, JobRef, Limit, Number


def add(app: FastAPI) -> None:
    @app.get("/v1/jobs/{job}", tags=["one job"], response_model=JobView)
    def get_job(api: Caller, job: JobRef) -> JSONResponse:
        """Everything about one job."""
        return JSONResponse(api.get(job))

    @app.get("/v1/jobs/{job}/events", tags=["one job"], response_model=list[EventView])
    def get_events(
        api: Caller,
        job: JobRef,
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Limit = PAGE,
    ) -> JSONResponse:
        """A page of what happened to it, oldest first, with `seq > after`."""
        return JSONResponse(api.events(job, after=after, limit=limit))

    @app.get("/v1/jobs/{job}/logs", tags=["one job"], response_model=LogPage)
    def get_logs(
        api: Caller,
        job: JobRef,
        host: Number = None,
        attempt: Number = None,
        cursor: Annotated[str, Query(max_length=32_768)] = "",
        tail: Number = None,
    ) -> JSONResponse:
        """A page of its output; `cursor` leads to the next."""
        page = api.logs(job, host=host, attempt=attempt, cursor=cursor, tail=tail)
        return JSONResponse(page)

    @app.get("/v1/diff", tags=["one job"], response_model=DiffView)
    def diff(api: Caller, a: JobRef, b: JobRef) -> JSONResponse:
        """What differs between two jobs: spec, outcome, and the files of their bundles."""
        return JSONResponse(api.diff(a, b))

    @app.post("/v1/jobs/{job}/access", tags=["one job"], response_model=HostAccess)
    def access_(api: Caller, job: JobRef, asked: schemas.AccessAsked) -> JSONResponse:
        """Let a key in at one of its hosts for some minutes, and say how the host is reached."""
        return JSONResponse(api.access(job, host=asked.host, key=asked.key))

    @app.post("/v1/jobs/{job}/cancel", tags=["one job"], response_model=JobView)
    def cancel(api: Caller, job: JobRef, release: bool = False) -> JSONResponse:
        """Stop the program and keep the slice for a while, or give it back with `release`."""
        return JSONResponse(api.cancel(job, release=release))

    @app.post("/v1/jobs/{job}/resume", tags=["one job"], response_model=JobView)
    def resume(api: Caller, job: JobRef, budget: float | None = None) -> JSONResponse:
        """Go on from the last checkpoint; with `budget`, it may cost that many US dollars in all."""
        return JSONResponse(api.resume(job, budget=budget))

    @app.post("/v1/jobs/{job}/delete", tags=["one job"], response_model=JobView)
    def delete(api: Caller, job: JobRef) -> JSONResponse:
        """Stop it and give the slice back; record and logs stay."""
        return JSONResponse(api.delete(job))

    @app.post("/v1/jobs/{job}/clean", tags=["one job"], response_model=JobView)
    def clean(api: Caller, job: JobRef, checkpoints: bool = False) -> JSONResponse:
        """As delete; then remove logs, bundle and record, and with `checkpoints` those too."""
        return JSONResponse(api.clean(job, checkpoints=checkpoints))

    _ = (get_job, get_events, get_logs, diff, access_, cancel, resume, delete, clean)
