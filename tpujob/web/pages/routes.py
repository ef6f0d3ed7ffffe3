"""Every page and every form, as data: a new one is a new row."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import JobsApi
from tpujob.service.authorization import authorize
from tpujob.web.pages import actions, charts, compare, frame, job, jobs, lab, logs, spend
from tpujob.web.pages.frame import PageRow, add_page
from tpujob.web.pages.query import Form, PageQuery
from tpujob.web.schemas import Caller, caller_of


class FormTarget(NamedTuple):
    """The path of a form, and the function that handles it."""

    path: str
    act: Callable[[Request, JobsApi, PageQuery], Response]
    method: str  #: of `JobsApi`: a caller who may not call it is refused, whatever they send


PAGES = (
    PageRow("/", "jobs.html", jobs.load_jobs, "list", jobs.FILTERS),
    *(
        PageRow(
            f"/confirm/{name}",
            "confirm.html",
            partial(actions.load_confirmation, name),
            name,
            ("job",),
        )
        for name in actions.ACTIONS
    ),
    PageRow("/jobs/{job}", "job.html", job.load_job, "get", job.FILTERS),
    PageRow("/jobs/{job}/metrics", "job_metrics.html", job.load_curves, "metrics", charts.FILTERS),
    PageRow("/jobs/{job}/spec", "job_spec.html", job.load_spec, "get"),
    PageRow("/jobs/{job}/code", "job_code.html", job.load_code, "patch"),
    PageRow("/compare", "compare.html", compare.load_compare, "curves", compare.FILTERS),
    PageRow("/diff", "diff.html", job.load_diff, "diff", ("a", "b")),
    *(
        PageRow(f"/jobs/{{job}}/{name}", "job_steer.html", partial(actions.load_action, name), name)
        for name in actions.ACTIONS
    ),
    PageRow("/jobs/{job}/logs", "logs.html", logs.load_logs, "log_window", logs.FILTERS),
    PageRow("/queue", "queue.html", lab.load_queue, "queue"),
    PageRow("/capacity", "capacity.html", lab.load_capacity, "capacity", ("leaks",)),
    PageRow("/hosts", "hosts.html", lab.load_hosts, "hosts"),
    PageRow("/spend", "spend.html", spend.load_spend, "cost", spend.FILTERS),
    PageRow("/events", "events.html", lab.load_events, "happened", ("kind", "before")),
    PageRow("/notifications", "notifications.html", lab.load_notifications, "channels"),
    PageRow("/backend", "backend.html", lab.load_backend, "health"),
)
FORMS = (
    *(
        FormTarget(f"/do/{name}", partial(actions.act_on_all, name), name)
        for name in actions.ACTIONS
    ),
    *(
        FormTarget(f"/jobs/{{job}}/{name}", partial(actions.act, name), name)
        for name in actions.ACTIONS
    ),
    FormTarget("/hosts", lab.judge_host, "pin_host"),
    FormTarget("/notifications/test", lab.test_channel, "test_channel"),
)


def add(app: FastAPI) -> None:
    frame.add_assets(app)
    for page in PAGES:
        add_page(app, page)
    logs.add_text(app)
    spend.add_csv(app)
    for form in FORMS:
        _add_form(app, form)


def _add_form(app: FastAPI, target: FormTarget) -> None:
    @app.post(target.path, include_in_schema=False)
    def do(api: Caller, request: Request, form: Form) -> Response:
        authorize(caller_of(request), target.method)
        return target.act(request, api, form)

    _ = do
