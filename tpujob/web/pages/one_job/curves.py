"""`/jobs/{id}/metrics`: the curves of what a job's program told of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import ChartView, MetricsView
from tpujob.web.pages import frame
from tpujob.web.pages.one_job import drawing
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller


def add(app: FastAPI) -> None:
    @frame.page(app, "/jobs/{job}/metrics")
    def metrics(api: Caller, request: Request, job: str) -> Response:
        """The twin is what scripts draw."""
        found = api.get(job)
        Query.read(request.url.query, ())
        told = api.metrics(found["id"])
        return frame.answer(
            request,
            "job_metrics.html",
            cast("Mapping[str, Any]", told),
            title=f"Curves · {found['name']}",
            command=f"tpujob show {found['id']}",
            job=found,
            metrics=told,
            plots=drawn(told),
        )

    _ = metrics


def drawn(found: MetricsView) -> list[tuple[ChartView, drawing.Plot]]:
    """Each chart of more than one step, and how it is drawn without scripts. What was told once is no curve."""
    plots = [(chart, drawing.plot(chart)) for chart in found["charts"]]
    return [(chart, plot) for chart, plot in plots if plot.first < plot.last]
