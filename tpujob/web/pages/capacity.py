"""Capacity: the hardware that jobs hold and wait for, quota, what the cloud refuses; on demand, what is left over."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import JobsApi
from tpujob.web.live import Address, Fragments, Views, same_role
from tpujob.web.pages import frame
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller, may

#: the macros of `parts/capacity.html`, by the ids of what they make
LIVE = {f"capacity-{name}": name for name in ("waiting", "offers", "quota", "closed")}


def add(app: FastAPI) -> None:
    views: Views = app.state.views

    @frame.page(app, "/capacity")
    def capacity(api: Caller, request: Request) -> Response:
        _ = api.capacity  # refused to whoever may not look, whatever they ask for
        asked = Query.read(request.url.query, ("leaks",))
        found = {**api.capacity()}
        shown = _fragments(found, frame.now(app))
        left_over = (
            api.leaks() if asked.one("leaks") else None
        )  # which asks the cloud, in every zone
        return frame.answer(
            request,
            "capacity.html",
            {**found, "left_over": left_over},
            title="Capacity",
            command="tpujob leaks" if left_over else "tpujob capacity",
            live=left_over is None and (lambda: shown),
            fragments=shown,
            may_look=may(api, "leaks"),
        )

    def live(api: JobsApi, at: Address) -> Fragments:
        Query.read(at.query, ())  # what is left over is looked for once
        return _fragments(api.capacity(), frame.now(app))

    views.add("/capacity", live, audience=same_role)
    _ = capacity


def _fragments(found: Mapping[str, Any], now: float) -> Fragments:
    return frame.fragments(
        "parts/capacity.html", LIVE, {"quota": None, **found}, path="/capacity", now=now
    )
