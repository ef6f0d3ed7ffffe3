"""What routes take: whoever asks, and the parts of a path."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from tpujob.api import JobsApi
from tpujob.domain.pages import PAGE


async def _caller(request: Request) -> JobsApi:
    """What whoever asks may ask of jobs; the door has put the principal there."""
    return request.app.state.jobs(request.scope["state"]["principal"])


Caller = Annotated[JobsApi, Depends(_caller)]
JobRef = Annotated[str, "an id (`000042` or `42`) or a unique name"]
#: of the records that one answer has
Limit = Annotated[int, Query(ge=1, le=PAGE)]
Number = Annotated[int | None, Query(ge=0, le=1_000_000)]
