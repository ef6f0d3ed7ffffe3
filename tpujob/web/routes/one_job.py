"""Routes about one job."""

import gzip
from typing import Annotated, cast
from urllib.parse import quote

from fastapi import FastAPI, Header, Query
from fastapi.responses import JSONResponse, Response

from tpujob.api import (
    DiffView,
    EventView,
    HostAccess,
    JobView,
    LogMatches,
    LogPage,
    LogWindow,
    MetricsView,
    PatchView,
    SearchAsked,
    WindowAsked,
)
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

    @app.get("/v1/jobs/{job}/metrics", tags=["one job"], response_model=MetricsView)
    def get_metrics(api: Caller, job: JobRef, attempt: Number = None) -> JSONResponse:
        """How the numbers went that its program told of its steps."""
        return JSONResponse(api.metrics(job, attempt=attempt))

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

    @app.get("/v1/jobs/{job}/logs/block", tags=["one job"], response_class=Response)
    def get_log_block(
        api: Caller,
        job: JobRef,
        host: Number = None,
        attempt: Number = None,
        cursor: Annotated[str, Query(max_length=32_768)] = "",
        accept_encoding: Annotated[str, Header()] = "",
    ) -> Response:
        """Some mebibytes of its output: lines of host, seconds since the epoch, and what the program wrote. The headers
        `x-tpujob-cursor`, `-done` and `-more` say what the fields of a page say, `-note`, URL-encoded, what there is to
        know beside."""
        block = api.log_block(job, host=host, attempt=attempt, cursor=cursor)
        packs = "gzip" in accept_encoding
        headers = {
            "x-tpujob-cursor": block.cursor,
            "x-tpujob-done": str(int(block.done)),
            "x-tpujob-more": str(int(block.more)),
            "x-tpujob-note": quote(block.note),
        } | ({"content-encoding": "gzip"} if packs else {})
        body = gzip.compress(block.data, 1, mtime=0) if packs else block.data
        return Response(body, media_type="text/plain; charset=utf-8", headers=headers)

    @app.get("/v1/jobs/{job}/logs/window", tags=["one job"], response_model=LogWindow)
    def get_log_window(
        api: Caller, job: JobRef, asked: Annotated[schemas.LogPlace, Query()]
    ) -> JSONResponse:
        """Some lines at any place of the output of one attempt; the last ones, unless a place is given."""
        return JSONResponse(api.log_window(job, cast(WindowAsked, asked.given())))

    @app.get("/v1/jobs/{job}/logs/search", tags=["one job"], response_model=LogMatches)
    def search_log(
        api: Caller, job: JobRef, asked: Annotated[schemas.LogQuery, Query()]
    ) -> JSONResponse:
        """Where the output of one attempt has a text, matches a pattern or shows a traceback; how often, exactly."""
        return JSONResponse(api.log_search(job, cast(SearchAsked, asked.given())))

    @app.get("/v1/diff", tags=["one job"], response_model=DiffView)
    def diff(api: Caller, a: JobRef, b: JobRef) -> JSONResponse:
        """What differs between two jobs: spec, outcome, and the files of their bundles."""
        return JSONResponse(api.diff(a, b))

    @app.get("/v1/jobs/{job}/patch", tags=["one job"], response_model=PatchView)
    def patch(api: Caller, job: JobRef) -> JSONResponse:
        """What was shipped with it beside its commit, as a diff."""
        return JSONResponse(api.patch(job))

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

    _ = (get_log_block, get_log_window, search_log)
    _ = (
        get_job,
        get_events,
        get_metrics,
        get_logs,
        diff,
        patch,
        access_,
        cancel,
        resume,
        delete,
        clean,
    )
