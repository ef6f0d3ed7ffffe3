"""The endpoints whose request or answer is bytes: a bundle, a block of a log, the text that Prometheus reads."""

import gzip
import tempfile
from collections.abc import AsyncIterator
from typing import IO, Annotated, cast
from urllib.parse import quote

from fastapi import Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response

from tpujob.api.methods import BOUNDS
from tpujob.web import schemas
from tpujob.web.routes.caller import Caller, JobRef

IN_MEMORY = 1 << 20  #: bytes of a bundle; a larger one is in a file while it is received
#: of the text that Prometheus reads
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"

Number = Annotated[int | None, Query(ge=0, le=1_000_000)]


async def _body(request: Request) -> AsyncIterator[IO[bytes]]:
    """In a file, unless it is small."""
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
    """Its bytes are the body. The headers `x-tpujob-cursor`, `-done`, `-more` and, URL-encoded, `-note` are its other
    fields."""
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
