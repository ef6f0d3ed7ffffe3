"""Events: what happened to all jobs, the newest first; no kind is hidden."""

import shlex
from collections.abc import Mapping
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import EventsPage, JobsApi
from tpujob.domain.events import EventKind
from tpujob.web.live import Address, Fragments, Views, same_role
from tpujob.web.pages import frame
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller

KNOWN = ("kind", "before")


def add(app: FastAPI) -> None:
    views: Views = app.state.views

    @frame.page(app, "/events")
    def events(api: Caller, request: Request) -> Response:
        _ = api.happened  # refused to whoever may not look, whatever they ask for
        asked = Query.read(request.url.query, KNOWN)
        kinds = " ".join(f"--kind {shlex.quote(kind)}" for kind in asked.many("kind"))
        found = _page(api, asked)
        shown = fragments(found, asked, frame.now(app))
        return frame.answer(
            request,
            "events.html",
            cast("Mapping[str, Any]", found),
            title="Events",
            command=f"tpujob events {kinds}".rstrip(),
            live=not asked.one("before") and (lambda: shown),
            fragments=shown,
            asked=asked,
            kinds=list(EventKind),
        )

    def live(api: JobsApi, at: Address) -> Fragments:
        """The rows of the first page."""
        asked = Query.read(at.query, KNOWN)
        return fragments(_page(api, asked), asked, frame.now(app))

    views.add("/events", live, audience=same_role)
    _ = events


def fragments(found: EventsPage, asked: Query, now: float) -> Fragments:
    """As the page shows them when it is loaded, and from there on."""
    made = frame.parts("parts/events.html", path="/events", now=now)
    rows = {f"event-{one['job']}-{one['seq']}": str(made.row(one)) for one in found["events"]}
    pager = frame.pager(asked, found["next"], "events", path="/events")
    return Fragments({"pager": pager}, rows, [*rows], still=True)


def _page(api: JobsApi, asked: Query) -> EventsPage:
    return api.happened(before=asked.one("before"), kinds=asked.many("kind"))
