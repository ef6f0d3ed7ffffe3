"""`/jobs/{id}/metrics`: the curves of what a job's program told of its steps."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import ChartView, JobsApi, JobView, MetricsView
from tpujob.domain.text import seconds
from tpujob.service.series import FRESH
from tpujob.web.live import Address, Fragments
from tpujob.web.pages import frame
from tpujob.web.pages.one_job import drawing
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller


def add(app: FastAPI) -> None:
    @frame.page(app, "/jobs/{job}/metrics")
    def metrics(api: Caller, request: Request, job: str) -> Response:
        found = api.get(job)
        Query.read(request.url.query, ())
        told = api.metrics(found["id"])
        return frame.answer(
            request,
            "job_metrics.html",
            cast("Mapping[str, Any]", told),
            title=f"Curves · {found['name']}",
            command=f"tpujob show {found['id']}",
            live=lambda: fragments(found, told, frame.route_path(request.scope), frame.now(app)),
            job=found,
        )

    def live(api: JobsApi, at: Address) -> Fragments:
        found = api.get(at.parts["job"])
        return fragments(found, api.metrics(found["id"]), at.path, frame.now(app))

    app.state.views.add("/jobs/{job}/metrics", live, job="job")
    _ = metrics


def fragments(job: JobView, told: MetricsView, path: str, now: float) -> Fragments:
    """As the page at `path` shows them when it is loaded, and from there on."""
    shown = {"metrics": told, "plots": drawn(told)}
    made = frame.fragments("parts/job.html", {"job-curves": "curves"}, shown, path=path, now=now)
    return replace(made, still=over(job, now))


def over(job: JobView, now: float) -> bool:
    """Whether the job has ended, and its last curves were read since."""
    ended = seconds(job["finished_at"])
    return ended is not None and now - ended > 2 * FRESH


def drawn(found: MetricsView) -> list[tuple[ChartView, drawing.Plot]]:
    """Each chart of more than one step, and how it is drawn without scripts. What was told once is no curve."""
    plots = [(chart, drawing.plot(chart)) for chart in found["charts"]]
    return [(chart, plot) for chart, plot in plots if plot.first < plot.last]
