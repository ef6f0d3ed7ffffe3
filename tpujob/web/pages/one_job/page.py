"""`/jobs/{id}`: what a job does now and why, what comes next, where its time went, its hosts, what happened to it."""

from dataclasses import replace
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import EventView, JobsApi, JobView, MetricsView
from tpujob.errors import BadRequest
from tpujob.web.live import Address, Fragments
from tpujob.web.pages import frame
from tpujob.web.pages.one_job import drawing
from tpujob.web.pages.one_job.curves import drawn, over
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller

EVENTS = 25  #: of one page
KNOWN = ("before",)
#: the parts of the page that change while it is open: its macros in `parts/job.html`, by the ids of what they make
LIVE = {
    "job-head": "head",
    "job-facts": "facts",
    "job-time": "time",
    "job-stretches": "stretches",
    "job-curves": "curves",
    "job-tries": "tries",
    "job-hosts": "hosts",
    "job-events": "events",
}


def add(app: FastAPI) -> None:
    @frame.page(app, "/jobs/{job}")
    def one_job(api: Caller, request: Request, job: str) -> Response:
        found = api.get(job)
        before = _before(Query.read(request.url.query, KNOWN))
        curves, events = api.metrics(found["id"]), happened(api, found, before)
        data = {"job": found, "events": events, "metrics": curves}
        now, path = frame.now(app), frame.route_path(request.scope)
        return frame.answer(
            request,
            "job.html",
            cast("dict[str, Any]", data),
            title=f"{found['name']} · {found['id']}",
            command=f"tpujob show {found['id']}",
            live=lambda: fragments(found, events, curves, before, path, now),
        )

    def live(api: JobsApi, at: Address) -> Fragments:
        before = _before(Query.read(at.query, KNOWN))
        found = api.get(at.parts["job"])
        events, curves = happened(api, found, before), api.metrics(found["id"])
        return fragments(found, events, curves, before, at.path, frame.now(app))

    app.state.views.add("/jobs/{job}", live, job="job")
    _ = one_job


def fragments(
    job: JobView,
    events: list[EventView],
    curves: MetricsView,
    before: int,
    path: str,
    now: float,
) -> Fragments:
    """As the page at `path` shows them when it is loaded, and from there on."""
    timeline = drawing.timeline(job, now)
    shown = {"job": job, "events": events, "before": before, "timeline": timeline}
    shown |= {"metrics": curves, "plots": drawn(curves)}
    made = frame.fragments("parts/job.html", LIVE, shown, path=path, now=now)
    return replace(made, still=over(job, now))


def happened(api: JobsApi, job: JobView, before: int) -> list[EventView]:
    """A page of events, the newest first: those before that number; 0: the newest of all."""
    last = before - 1 if before else job["version"]
    found = api.events(job["id"], after=max(0, last - EVENTS), limit=EVENTS)
    return [event for event in reversed(found) if event["seq"] <= last]


def _before(asked: Query) -> int:
    number = asked.one("before", "0")
    if not number.isdecimal() or len(number) > 9:
        raise BadRequest(f"{number[:40]!r} is not an event number", hint="leave `before` out")
    return int(number)
