"""The long poll by which clients follow one job or all."""

import time
from collections.abc import Callable
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse

from tpujob.api import JobsApi
from tpujob.web.routes.caller import Caller

MAX_WAIT = 30.0  #: seconds of one long poll, after which the thread of a lost client is free again
LOOK_EVERY = 1.0  #: a long poll checks this often, in seconds, whether the backend is being stopped
AGAIN_IN = 2.0  #: seconds that a poll beyond the limit is asked to wait before the next


def endpoint(
    watch: Callable[[], int] | None, stopping: Callable[[], bool]
) -> Callable[..., JSONResponse]:
    """The endpoint of `JobsApi.follow`. `watch` gives the number of the newest change of any job."""

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
        """Answers when that job, or any, may have changed since `cursor` was given out, at the latest after `timeout`
        seconds; at once without a cursor."""
        _ = api.follow  # refuses a caller who may not follow, also when nothing is waited for
        again_in = 0.0
        if cursor:
            if request.scope["state"]["seat"]:
                wait(api, job, cursor, timeout)
            elif current(api, job) == cursor:
                again_in = min(AGAIN_IN, timeout)
        return JSONResponse({"cursor": current(api, job), "again_in": again_in})

    return follow
