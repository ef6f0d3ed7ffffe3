"""Routes about the lab as a whole: the events of all jobs, and its hardware."""

from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse

from tpujob.api import CapacityReport, EventsPage
from tpujob.domain.pages import EVENTS, PAGE
from tpujob.web.routes.caller import Caller, Several


def add(app: FastAPI) -> None:
    @app.get("/v1/events", tags=["jobs"], response_model=EventsPage)
    def happened(
        api: Caller,
        before: Annotated[str, Query(max_length=100)] = "",
        kinds: Several = [],  # noqa: B006
        limit: Annotated[int, Query(ge=1, le=PAGE)] = EVENTS,
    ) -> JSONResponse:
        """What happened to all jobs, the newest first; older ones are those `before` the `next` of a page."""
        return JSONResponse(api.happened(before=before, kinds=kinds, limit=limit))

    @app.get("/v1/capacity", tags=["jobs"], response_model=CapacityReport)
    def capacity(api: Caller) -> JSONResponse:
        """The hardware that jobs hold and ask for, and what the cloud refuses just now."""
        return JSONResponse(api.capacity())

    _ = (happened, capacity)
