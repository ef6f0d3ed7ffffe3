"""The endpoints that send or take more than JSON, or wait: a bundle, a block of a log, the text that Prometheus reads,
and the long poll by which clients follow jobs."""

import gzip
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from typing import IO, Annotated, cast
from urllib.parse import quote

from fastapi import Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response

from tpujob.api import JobsApi
from tpujob.api.methods import BOUNDS
from tpujob.service.authorization import authorize
from tpujob.web import schemas
from tpujob.web.schemas import Caller, JobRef

IN_MEMORY = 1 << 20  #: bytes of a bundle; a larger one is in a file while it is received
#: media type of the text that Prometheus reads
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"

Number = Annotated[int | None, Query(ge=0, le=1_000_000)]


async def _body(request: Request) -> AsyncIterator[IO[bytes]]:
    """Yield the request's body as a file; a small body stays in memory."""
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        async for piece in request.stream():
            file.write(piece)
        file.seek(0)
        yield cast("IO[bytes]", file)


def put_bundle(
    api: Caller, sha256: str, bucket: str, data: Annotated[IO[bytes], Depends(_body)]
) -> JSONResponse:
    return JSONResponse({"path": api.put_bundle(sha256, data, bucket=bucket)})


def log_block(
    api: Caller,
    job: JobRef,
    host: Number = None,
    attempt: Number = None,
    cursor: Annotated[str, Query(max_length=cast("int", BOUNDS["cursor"]))] = "",
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """Return the block's bytes as the body, its other fields in the headers `x-tpujob-cursor`, `-done`, `-more` and,
    URL-encoded, `-note`."""
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


def backend_metrics(api: Caller) -> Response:
    return Response(api.backend_metrics(), media_type=TEXT_FORMAT)


#: by method, with the model of the answer; None: it is no JSON
OWN = {
    "put_bundle": (put_bundle, schemas.StoredBundle),
    "log_block": (log_block, None),
    "backend_metrics": (backend_metrics, None),
}


# The long poll -------------------------------------------------------------------------------------------------------


MAX_WAIT = 30.0  #: seconds of one long poll, after which the thread of a lost client is free again
LOOK_EVERY = 1.0  #: a long poll checks this often, in seconds, whether the backend is being stopped
AGAIN_IN = 2.0  #: seconds that a poll beyond the limit is asked to wait before the next


def endpoint(
    watch: Callable[[], int] | None, stopping: Callable[[], bool]
) -> Callable[..., JSONResponse]:
    """Return the endpoint of `JobsApi.follow`. `watch` returns the number of the newest change of any job."""

    def current(api: JobsApi, job: str | None) -> str:
        if job is not None:
            return str(api.get(job)["version"])
        return str(watch()) if watch else "-"

    def wait(api: JobsApi, job: str | None, cursor: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for _ in api.follow(job, timeout=min(LOOK_EVERY, timeout)):
            if current(api, job) != cursor or stopping() or time.monotonic() >= deadline:
                return

    def follow(
        api: Caller,
        request: Request,
        job: str | None = None,
        cursor: Annotated[str, Query(max_length=64)] = "",
        timeout: Annotated[float, Query(ge=0, le=MAX_WAIT)] = MAX_WAIT,
    ) -> JSONResponse:
        """Answer when the job, or any job, may have changed since `cursor`, at the latest after `timeout` seconds; at
        once without a cursor."""
        authorize(schemas.caller_of(request), "follow")  # also when nothing is waited for
        again_in = 0.0
        if cursor:
            if request.scope["state"]["seat"]:
                wait(api, job, cursor, timeout)
            elif current(api, job) == cursor:
                again_in = min(AGAIN_IN, timeout)
        return JSONResponse({"cursor": current(api, job), "again_in": again_in})

    return follow
