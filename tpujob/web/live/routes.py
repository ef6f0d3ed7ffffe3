"""The address of every live view: `/live?view=/jobs/000042`, as a stream or, asked for as JSON, as it is now."""

from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Header, Query, Request
from fastapi.responses import JSONResponse, Response

from tpujob.domain.text import rfc3339
from tpujob.errors import Busy, Transient
from tpujob.service import Changes
from tpujob.service.job_index import Failing
from tpujob.web.live.fragments import digest_in, everything
from tpujob.web.live.hub import Hub, Pace, View, Watcher
from tpujob.web.live.stream import Stream
from tpujob.web.live.views import LONGEST, Views

PATH = "/live"


def add(app: FastAPI, changes: Changes, stopping: Callable[[], bool], pace: Pace) -> Hub:
    """Serves the views of `app.state.views`."""
    hub = app.state.hub = Hub(changes, stopping, pace)
    views: Views = app.state.views

    @app.get(PATH, include_in_schema=False)
    async def live(
        request: Request,
        view: Annotated[str, Query(max_length=LONGEST)],
        accept: Annotated[str, Header()] = "",
        last_event_id: Annotated[str, Header(max_length=200)] = "",
        if_none_match: Annotated[str, Header(max_length=200)] = "",
    ) -> Response:
        """Whoever comes with the newest id gets nothing until there is news; whoever has just loaded the page gets what
        differs; everybody else gets all fragments once."""
        state = request.scope["state"]
        asked = views.find(view, state["principal"])
        watcher = Watcher(None)
        found = await hub.watch(asked, watcher)
        if found.error or "text/event-stream" not in accept:
            hub.leave(found, watcher)
            return _as_it_is(found, hub.failing, if_none_match.strip('W/"'))
        known = found.now and digest_in(last_event_id) == found.now.digest
        watcher.sent = found.now if known else views.as_loaded(last_event_id)
        return Stream(hub, found, watcher, state)

    _ = live
    return hub


def _as_it_is(view: View, failing: Failing | None, known: str) -> Response:
    if view.error:
        raise view.error
    if failing:
        since = rfc3339(failing.since)
        raise Transient(f"the store has not answered since {since}", hint="The page asks again.")
    if view.now is None:
        raise Busy("the page takes long to make", retry_after=2)
    etag = {"etag": f'"{view.now.id}"'}
    if digest_in(known) == view.now.digest:
        return Response(status_code=304, headers=etag)
    return JSONResponse(everything(view.now), headers=etag)
