"""What routes take: who asks, and the parts of a path."""

from typing import Annotated

from fastapi import Depends, Request

from tpujob.api import JobsApi
from tpujob.errors import Forbidden

JobRef = Annotated[str, "an id (`000042` or `42`) or a unique name"]


async def _caller(request: Request) -> JobsApi:
    """What the caller may ask of jobs; the door has put the principal there."""
    return request.app.state.jobs(request.scope["state"]["principal"])


Caller = Annotated[JobsApi, Depends(_caller)]


def may(api: JobsApi, method: str) -> bool:
    """Whether the caller's role allows that method for something of their own."""
    try:
        getattr(api, method)
    except Forbidden:
        return False
    return True
