"""The page `/spend`: what TPU slices have cost in a period, by one or two groups, and by day."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple, cast, get_args

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import CostGroup, CostRowView, CostView, JobsApi
from tpujob.domain.money.period import Period, day_of, month_of
from tpujob.service.authorization import authorize
from tpujob.service.money.cost_csv import cost_csv
from tpujob.web.pages.frame import PageContent, PageRequest
from tpujob.web.pages.query import PageQuery
from tpujob.web.schemas import Caller, caller_of

FILTERS = ("by", "then", "user", "since", "until", "month")  #: names in the query
ROWS = 100  #: that are shown; all are in the JSON and in the CSV
COLUMNS = 31  #: of a table of two groups, at most
DAYS = 92  #: that have a bar, the newest
GROUPS = cast("tuple[CostGroup, ...]", get_args(CostGroup))


class DayBar(NamedTuple):
    """A day of the chart, in percent of its width and height."""

    x: float
    width: float
    height: float
    day: str
    micros: int
    label: bool  #: its day stands below it


class Pivot(NamedTuple):
    """Amounts of two groups, in micro-dollars by list price."""

    columns: list[str]
    rows: list[
        tuple[str, str, list[int | None], int]
    ]  #: key, name, an amount for each column, sum of all columns
    sums: list[int]  #: of each column
    left_out: int  #: columns that are not shown; their amounts are in the sums of rows


def load_spend(request: PageRequest) -> PageContent:
    """Load the cost of TPU slices by group, the use of their time, and the cost of each day."""
    query, api = request.query, request.api
    period = read_period(query)
    cost = _ask(api, query, period)
    rows = _order_rows(cost["rows"], cost["by"])
    by_day = cost
    if (cost["by"], cost["then"]) != ("day", ""):
        bounds = {"since": period.since, "until": period.until}
        by_day = api.cost(by="day", user=query.one("user"), **bounds)
    today = day_of(request.now)
    return PageContent(
        {**cost, "rows": rows, "days": _amounts(by_day["rows"]), "budgets": api.budgets()},
        "Spend",
        _command(query, period),
        live="",
        shown={
            "asked": query,
            "groups": GROUPS,
            "most": ROWS,
            "period": period,
            "periods": _periods(today),
            "bars": day_bars(_amounts(by_day["rows"]), period, today),
            "pivot": pivot(rows) if cost["then"] else None,
        },
    )


def add_csv(app: FastAPI) -> None:
    """Serve the report of the page as CSV."""

    @app.get("/spend.csv", include_in_schema=False)
    def serve_csv(api: Caller, request: Request) -> Response:
        authorize(caller_of(request), "cost")
        query = PageQuery.read(request.url.query, FILTERS)
        text = cost_csv(_ask(api, query, read_period(query)))
        headers = {"content-disposition": 'attachment; filename="tpujob-spend.csv"'}
        return Response(f"{text}\n", media_type="text/csv; charset=utf-8", headers=headers)

    _ = serve_csv


def read_period(query: PageQuery) -> Period:
    """Return the period of the query: its month, else its bounds. Raises BadRequest for a month that is none."""
    if month := query.one("month"):
        return month_of(month)
    return Period(query.one("since"), query.one("until"))


def _ask(api: JobsApi, query: PageQuery, period: Period) -> CostView:
    return api.cost(
        by=query.one("by", "user"),
        then=query.one("then"),
        user=query.one("user"),
        since=period.since,
        until=period.until,
    )


def _command(query: PageQuery, period: Period) -> str:
    options = {
        "by": query.one("by", "user"),
        "then": query.one("then"),
        "month": query.one("month"),
        "since": "" if query.one("month") else period.since,
        "until": "" if query.one("month") else period.until,
        "user": query.one("user"),
    }
    given = (f"--{name} {shlex.quote(value)}" for name, value in options.items() if value)
    return " ".join(("tpujob cost report", *given))


def _periods(today: str) -> list[tuple[str, dict[str, str]]]:
    """Return the periods that are one click away, with what each changes in the query."""
    this = date.fromisoformat(today)
    last = this.replace(day=1) - timedelta(days=1)
    week = {"since": (this - timedelta(days=6)).isoformat(), "until": today}
    always = {"since": "", "until": "", "month": ""}
    return [
        ("All time", always),
        ("7 days", {**always, **week}),
        ("This month", {**always, "month": today[:7]}),
        ("Last month", {**always, "month": last.isoformat()[:7]}),
    ]


def _order_rows(rows: Sequence[CostRowView], by: str) -> list[CostRowView]:
    """Return the rows with the most expensive first, as the backend does; days with the newest first."""
    return sorted(rows, key=lambda row: row["key"], reverse=True) if by == "day" else [*rows]


def _amounts(rows: Sequence[CostRowView]) -> dict[str, int]:
    """Return micro-dollars by list price of each day."""
    return {row["key"]: row["list_micros"] for row in rows}


def day_bars(amounts: Mapping[str, int], period: Period, today: str) -> list[DayBar]:
    """Return a bar for each day of the period up to today, also where nothing was spent; at most the newest `DAYS`.
    Empty: there are fewer than two."""
    if not any(amounts.values()):
        return []
    first = date.fromisoformat(period.since or min(amounts))
    last = date.fromisoformat(min(period.until or today, max(today, max(amounts))))
    first = max(first, last - timedelta(days=DAYS - 1))
    count = (last - first).days + 1
    if count < 2:
        return []
    days = [(first + timedelta(days=n)).isoformat() for n in range(count)]
    most = max(amounts.get(day, 0) for day in days) or 1
    step = -(-count // 8)
    return [
        DayBar(
            x=100 * n / count,
            width=80 / count,
            height=100 * amounts.get(day, 0) / most,
            day=day,
            micros=amounts.get(day, 0),
            label=n % step == 0,
        )
        for n, day in enumerate(days)
    ]


def pivot(rows: Sequence[CostRowView]) -> Pivot:
    """Return the table of rows of two groups, in the order of the rows; its columns in order, the last `COLUMNS` of
    them."""
    columns = sorted({row["then"] for row in rows})
    shown = columns[-COLUMNS:]
    amounts = {(row["key"], row["then"]): row["list_micros"] for row in rows}
    names = {row["key"]: row["name"] for row in rows}
    table = [
        (
            key,
            name,
            [amounts.get((key, column)) for column in shown],
            sum(amounts.get((key, column), 0) for column in columns),
        )
        for key, name in names.items()
    ]
    sums = [sum(amounts.get((key, column), 0) for key in names) for column in shown]
    return Pivot(shown, table, sums, len(columns) - len(shown))
