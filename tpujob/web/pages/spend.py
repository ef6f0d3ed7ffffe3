"""Spend: what TPU slices have cost, by user, job, day or hardware, and where the time went."""

from collections.abc import Mapping
from typing import Any, cast, get_args

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import CostGroup, CostRowView, JobsApi
from tpujob.web.live import Address, Fragments, Views, same_role
from tpujob.web.pages import frame
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller

KNOWN = ("by", "user")
#: the macros of `parts/spend.html`, by the ids of what they make
LIVE = {"spend-rest": "rest", "spend-budgets": "budgets"}
ROWS = 100  #: that are shown; all are in the JSON
GROUPS = cast("tuple[CostGroup, ...]", get_args(CostGroup))


def add(app: FastAPI) -> None:
    views: Views = app.state.views

    @frame.page(app, "/spend")
    def spend(api: Caller, request: Request) -> Response:
        _ = api.cost  # refused to whoever may not look, whatever they ask for
        asked = Query.read(request.url.query, KNOWN)
        data = _found(api, asked)
        here = Address("/spend", request.url.query, {})
        return frame.answer(
            request,
            "spend.html",
            data,
            title="Spend",
            command=f"tpujob cost report --by {_by(asked)}",
            live=lambda: fragments(data, here, frame.now(app)),
            asked=asked,
            by=_by(asked),
            groups=GROUPS,
        )

    def live(api: JobsApi, at: Address) -> Fragments:
        return fragments(_found(api, Query.read(at.query, KNOWN)), at, frame.now(app))

    views.add("/spend", live, audience=same_role)
    _ = spend


def fragments(found: Mapping[str, Any], at: Address, now: float) -> Fragments:
    """As the page shows them when it is loaded, and from there on."""
    asked = Query.read(at.query, KNOWN)
    by, rows = _by(asked), found["rows"]
    shown = {**found, "asked": asked, "most": ROWS, "more": max(0, len(rows) - ROWS)}
    template = "parts/spend.html"
    parts = frame.fragments(template, LIVE, shown, path=at.path, now=now).parts
    if not rows:
        return Fragments({"spend-budgets": parts["spend-budgets"]})
    made = frame.parts(template, path=at.path, now=now)
    told = {"spend-": str(made.row(found["total"], "", asked))}
    for row in rows[:ROWS]:
        name = f"spend-{row['key']}"
        told[name] = at.kept.row(name, row, lambda row=row: str(made.row(row, by, asked)))
    return Fragments(parts, told, [*told])


def _found(api: JobsApi, asked: Query) -> dict[str, Any]:
    by = _by(asked)
    found = api.cost(by=by, user=asked.one("user"))
    return {**found, "rows": _ordered(found["rows"], by), "budgets": api.budgets()}


def _by(asked: Query) -> str:
    return asked.one("by", "user")


def _ordered(rows: list[CostRowView], by: str) -> list[CostRowView]:
    """The dearest first; days as they come."""
    if by == "day":
        return sorted(rows, key=lambda row: row["key"], reverse=True)
    return sorted(rows, key=lambda row: (-row["list_micros"], -row["chip_hours"], row["key"]))
