"""The backend itself: whether it looks after jobs, what it runs on, and what of it is not as it should be."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import HealthView, JobsApi
from tpujob.web.live import Address, Fragments, Views, same_role
from tpujob.web.pages import frame
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller

#: the macros of `parts/backend.html`, by the ids of what they make
LIVE = {f"backend-{name}": name for name in ("head", "loop", "store", "process")}


def add(app: FastAPI) -> None:
    views: Views = app.state.views

    @frame.page(app, "/backend")
    def backend(api: Caller, request: Request) -> Response:
        found = api.health()
        Query.read(request.url.query, ())
        return frame.answer(
            request,
            "backend.html",
            {**found},
            title="Backend",
            command="tpujob status",
            live=lambda: fragments(found, frame.now(app)),
        )

    def live(api: JobsApi, at: Address) -> Fragments:
        del at
        return fragments(api.health(), frame.now(app))

    views.add("/backend", live, audience=same_role)
    _ = backend


def fragments(found: HealthView, now: float) -> Fragments:
    """As the page shows them when it is loaded, and from there on."""
    return frame.fragments("parts/backend.html", LIVE, found, path="/backend", now=now)
