"""Runs side by side: the page `/compare`, and the part of a sweep's page about its elements. Their table is ordered by
any parameter or metric, and the runs at its top are drawn."""

from collections.abc import Sequence
from typing import Any

from tpujob.api import CurvesView, JobRow
from tpujob.errors import BadRequest
from tpujob.web.pages import charts, parallel
from tpujob.web.pages.charts import ChartOptions
from tpujob.web.pages.frame import PageContent, PageRequest
from tpujob.web.pages.run_table import ORDER, order_rows, row_of_job, row_of_run

FILTERS = ("jobs", "job", *charts.FILTERS, *ORDER)
DRAWN = 10  #: elements of a sweep whose curves its page shows


def load_compare(request: PageRequest) -> PageContent:
    query = request.query
    jobs = [
        job.strip() for text in query.many("jobs") + query.many("job") for job in text.split(",")
    ]
    if not any(jobs):
        raise BadRequest(
            "a comparison needs jobs",
            hint="Name them: /compare?jobs=000041,000042, or select rows of the list.",
        )
    view = request.api.curves(list(dict.fromkeys(filter(None, jobs))))
    ids = [run["id"] for run in view["runs"]]
    styles = charts.styles(ids)
    rows = [row_of_run(run, style) for run, style in zip(view["runs"], styles, strict=True)]
    pair = ids if len(ids) == 2 and not view["left_out"] else []
    return PageContent(
        {**view},
        f"Compare {len(ids)} jobs" if len(ids) != 1 else f"Curves of {ids[0]}",
        f"tpujob diff {' '.join(pair)}" if pair else "",
        live=" ".join(ids),
        shown={
            "asked": query,
            "table": order_rows(rows, view["keys"], query),
            "options": (options := ChartOptions.read(query)),
            "drawn": charts.draw(view["charts"], ids, options),
            "curve_runs": list(zip(view["runs"], styles, strict=True)),
            "pair": pair,
        },
    )


def load_sweep(request: PageRequest, grid: Sequence[JobRow]) -> dict[str, Any]:
    """Return what the page of a group shows of its elements: their table, and the curves of the first of its rows."""
    query = request.query
    params = list(grid[0].get("params", {})) if grid else []
    table = order_rows([row_of_job(row) for row in grid], params, query, usual="loss")
    ids = [row.id for row in table.rows[:DRAWN] if row.step is not None]
    view: CurvesView | None = request.api.curves(ids) if ids else None
    drawn: list[Any] = []
    styles = dict(zip(ids, charts.styles(ids), strict=True))
    options = ChartOptions.read(query)
    if view:
        named = [chart for chart in view["charts"] if chart["name"] == table.order]
        drawn = charts.draw(named or view["charts"][:1], ids, options)
    rows = [row._replace(style=styles.get(row.id)) for row in table.rows]
    return {
        "asked": query,
        "table": table._replace(rows=rows),
        "options": options,
        "drawn": drawn,
        "curve_runs": [(run, styles[run["id"]]) for run in view["runs"]] if view else [],
        "curves_why": view["why"] if view else "",
        "parallel": parallel.draw(rows, table.params, table.metric),
    }
