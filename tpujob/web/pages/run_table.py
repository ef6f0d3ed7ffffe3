"""The table of runs of a comparison or a sweep, in the order of any parameter or metric. Pure."""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple, cast

from tpujob.api import JobRow, RunView
from tpujob.web.pages.charts import RunStyle
from tpujob.web.pages.query import PageQuery

ORDER = ("order", "reverse")  #: names in the query of a page with such a table
METRICS = 6  #: columns, at most
PARAM = "param."  #: before the name of a parameter, in an order
#: words in the names of metrics of which a low value is a good one
_LOW_IS_GOOD = re.compile(
    r"loss|(^|[^a-z])(err(or)?|perplexity|ppl|bpb|ms|seconds|time|mae|r?mse|nll|fid)([^a-z]|$)"
)


class TableRow(NamedTuple):
    id: str
    name: str
    state: str
    step: int | None
    steps: int | None
    values: Mapping[str, str]  #: of parameters
    metrics: Mapping[str, float | None]
    run: RunView | None = None
    style: RunStyle | None = None  #: of its curves; None: they are not drawn


class RunColumn(NamedTuple):
    order: str  #: in the query
    title: str
    falls: bool  #: by default it begins with its largest value


class RunTable(NamedTuple):
    rows: list[TableRow]
    params: list[str]
    metrics: list[str]
    columns: list[RunColumn]
    order: str  #: by which it is sorted; empty: as the runs were given
    falling: bool  #: the largest value is first
    best: str  #: id of the first row, where the order is a metric; else empty

    @property
    def metric(self) -> str:
        """The metric that the page is about: that of the order, else the first; empty: there is none."""
        return self.order if self.order in self.metrics else next(iter(self.metrics), "")


def order_rows(
    rows: Sequence[TableRow], params: Sequence[str], query: PageQuery, *, usual: str = ""
) -> RunTable:
    """Return the table in the order of the query, else by the metric `usual`, if there is one. A row without a value
    comes last in both directions. An order that is no column counts as none."""
    names = dict.fromkeys(name for row in rows for name in row.metrics)
    metrics = sorted(names, key=lambda name: name != "loss")[:METRICS]
    columns = [
        *(RunColumn(PARAM + name, name, falls=False) for name in params),
        RunColumn("step", "Step", falls=True),
        *(RunColumn(name, name.replace("_", " "), falls=not low_is_good(name)) for name in metrics),
    ]
    known = {column.order: column for column in columns}
    column = known.get(query.one("order") or usual)
    if column is None:
        return RunTable([*rows], [*params], metrics, columns, "", falling=False, best="")
    values = {row.id: _value(row, column.order) for row in rows}
    texts = [value for value in values.values() if isinstance(value, str)]
    if texts:  # words among numbers: all are compared as text
        values = {id: None if v is None else str(v) for id, v in values.items()}
    falling = column.falls is not bool(query.one("reverse"))
    having = [row for row in rows if values[row.id] is not None]
    ordered = sorted(having, key=lambda row: cast(Any, values[row.id]), reverse=falling)
    lacking = [row for row in rows if values[row.id] is None]
    best = ordered[0].id if ordered and column.order in metrics else ""
    return RunTable(
        [*ordered, *lacking], [*params], metrics, columns, column.order, falling=falling, best=best
    )


def low_is_good(metric: str) -> bool:
    """Return whether the best value of the metric is its least one, by its name."""
    return _LOW_IS_GOOD.search(metric.lower()) is not None


def _value(row: TableRow, order: str) -> float | str | None:
    if order == "step":
        return row.step
    if not order.startswith(PARAM):
        value = row.metrics.get(order)
        return value if value is not None and isfinite(value) else None
    return as_number(row.values.get(order.removeprefix(PARAM)))


def as_number(text: str | None) -> float | str | None:
    """Return the number that the text is, else the text."""
    try:
        number = float(text or "")
    except ValueError:
        return text
    return number if isfinite(number) else text


def row_of_run(run: RunView, style: RunStyle) -> TableRow:
    return TableRow(
        run["id"],
        run["name"],
        run["state"],
        run["step"],
        run["steps"],
        run["values"],
        run["metrics"],
        run,
        style,
    )


def row_of_job(row: JobRow) -> TableRow:
    bad = row.get("nonfinite")
    loss = {"loss": row["loss"]} if row["loss"] is not None or bad else {}
    metrics = {**loss, **row.get("metrics", {})}
    params = row.get("params", {})
    return TableRow(
        row["id"], row["name"], row["state"], row["step"], row["steps"], params, metrics
    )
