"""The page of a job, `/jobs/{id}`: state and cause, next step, timeline, hosts, events and curves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tpujob.api import EventView, JobRow, JobsApi, JobView, ListQuery, MetricsView
from tpujob.errors import BadRequest
from tpujob.web.pages import charts, compare, drawing
from tpujob.web.pages.charts import ChartOptions
from tpujob.web.pages.frame import PageContent, PageRequest
from tpujob.web.pages.templating import is_group

EVENTS = 25  #: of one page
CELLS = 1000  #: elements of a group that its page shows
FILTERS = ("before", *charts.FILTERS, *compare.ORDER)


def load_job(request: PageRequest) -> PageContent:
    before = _read_before(request.query.one("before", "0"))
    job = request.api.get(request.job)
    grid = read_elements(request.api, job)
    curves = request.api.metrics(job["id"])
    drawn = (
        compare.load_sweep(request, grid) if is_group(job) else draw_charts(request, job, curves)
    )
    return PageContent(
        {
            "job": job,
            "events": read_events(request.api, job, before),
            "metrics": curves,
            "grid": grid,
        },
        f"{job['name']} · {job['id']}",
        f"tpujob show {job['id']}",
        live="" if grid else job["id"],
        shown={
            "before": before,
            "timeline": drawing.timeline(job, request.now),
            **drawn,
        },
    )


def read_elements(api: JobsApi, job: JobView) -> Sequence[JobRow]:
    """Return the first elements of an array or a sweep; none for any other job."""
    if not is_group(job):
        return ()
    fields = ["name", "state", "step", "steps", "loss", "nonfinite", "params", "metrics"]
    fields += ["last_error", "why"]
    query = ListQuery(group=job["id"], order="id", reverse=True, fields=fields)
    return api.list({**query, "limit": CELLS})["rows"]


def load_curves(request: PageRequest) -> PageContent:
    """Load the page `/jobs/{id}/metrics`: the curves alone."""
    job = request.api.get(request.job)
    curves = request.api.metrics(job["id"])
    shown = {"job": job, "metrics": curves, **draw_charts(request, job, curves)}
    title, command = f"Curves · {job['name']}", f"tpujob show {job['id']}"
    return PageContent({**curves}, title, command, live=job["id"], shown=shown)


def draw_charts(request: PageRequest, job: JobView, metrics: MetricsView) -> dict[str, Any]:
    """Return what `parts/chart.html` shows of one job."""
    options = ChartOptions.read(request.query)
    return {
        "asked": request.query,
        "options": options,
        "drawn": charts.draw(metrics["charts"], [job["id"]], options),
        "curve_runs": [(job, charts.PLAIN)],
    }


def read_events(api: JobsApi, job: JobView, before: int) -> list[EventView]:
    """Return a page of events before that number, the newest first; 0: the newest of all."""
    last = before - 1 if before else job["version"]
    events = api.events(job["id"], after=max(0, last - EVENTS), limit=EVENTS)
    return [event for event in reversed(events) if event["seq"] <= last]


def _read_before(number: str) -> int:
    if not number.isdecimal() or len(number) > 9:
        raise BadRequest(f"{number[:40]!r} is not an event number", hint="leave `before` out")
    return int(number)


# What was submitted, and how it differs from another job -------------------------------------------------------------


class DiffLine(NamedTuple):
    kind: str  #: `add`, `del`, `head`, `at` or empty
    text: str


def load_spec(request: PageRequest) -> PageContent:
    job = request.api.get(request.job)
    return PageContent(
        {"id": job["id"], "name": job["name"], "spec": job["spec"]},
        f"Spec · {job['name']}",
        f"tpujob show {job['id']} --json",
        shown={"job": job, "text": as_yaml(job["spec"])},
    )


def load_code(request: PageRequest) -> PageContent:
    job = request.api.get(request.job)
    code = request.api.patch(job["id"])
    return PageContent(
        {**code},
        f"Code · {job['name']}",
        f"tpujob show {job['id']}",
        shown={"job": job, "lines": list(diff_lines(code["text"]))},
    )


def load_diff(request: PageRequest) -> PageContent:
    a, b = request.query.one("a"), request.query.one("b")
    if not a or not b:
        raise BadRequest("a comparison needs two jobs", hint="Name them: /diff?a=000041&b=000042")
    comparison = request.api.diff(a, b)
    first, second = comparison["a"]["id"], comparison["b"]["id"]
    changed = [(file, list(diff_lines(file["diff"]))) for file in comparison["files"]]
    return PageContent(
        {**comparison},
        f"{first} and {second}",
        f"tpujob diff {first} {second}",
        shown={"changed": changed},
    )


def as_yaml(spec: Mapping[str, Any]) -> str:
    """Return the spec as text in the form of a job file."""
    import yaml

    return yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True, width=100)


def diff_lines(text: str) -> Iterator[DiffLine]:
    for line in text.splitlines():
        if line.startswith(("+++", "---", "diff ", "index ", "new file", "deleted file")):
            yield DiffLine("head", line)
        elif line.startswith("@@"):
            yield DiffLine("at", line)
        else:
            yield DiffLine({"+": "add", "-": "del"}.get(line[:1], ""), line)
