"""The first page: all jobs, or those that are asked for, in pages of 50."""

import shlex
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any, cast, get_args

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tpujob.api import ActionName, JobOrder, JobPage, JobRow, JobsApi, ListAsked
from tpujob.domain.access import Principal, Role
from tpujob.domain.model import Cause, State
from tpujob.service.job_index import query as listing
from tpujob.web.live import Address, Fragments, Views
from tpujob.web.pages import frame
from tpujob.web.pages.query import Query
from tpujob.web.routes.caller import Caller, may

ROWS = 50
#: what an address may say: whose, which, and how they are ordered
KNOWN = ("who", "show", "state", "cause", "type", "zone", "user", "q", "order", "reverse", "after")  # fmt: skip
#: of the table: its class, and the titles in its head with the order that each leads to
COLUMNS: tuple[tuple[str, tuple[tuple[str, JobOrder], ...]], ...] = (
    ("id", (("Job", "id"),)),
    ("name", (("Name", "name"),)),
    ("user", (("User", "user"),)),
    ("in", (("State", "state"),)),
    ("why", ()),
    ("type", (("Type", "type"), ("Zone", "zone"))),
    ("step", (("Step", "step"), ("Time left", "left"))),
    ("num loss", (("Loss", "loss"),)),
    ("num tries", (("Attempts", "attempts"),)),
    ("num spent", (("Spent", "spent"),)),
    ("num age", (("Age", "age"),)),
)
#: columns that begin with the largest; jobs by age begin with the youngest, whose age is the smallest
DOWN = frozenset(name for name, largest in listing.COLUMNS.items() if largest) - {"age"}


def add(app: FastAPI) -> None:
    views: Views = app.state.views

    def made(api: JobsApi, at: Address) -> Fragments:
        return live(as_all(api, Query.read(at.query, KNOWN)), at, frame.now(app))

    def as_all(api: JobsApi, asked: Query) -> JobsApi:
        """Everyone's jobs as somebody reads them who owns none, so that they do look the same to all of a role."""
        role = Role(api.whoami()["role"])
        shared = role is not Role.ADMIN and not wanted(asked).get("mine", False)
        return app.state.jobs(Principal("anybody", "anybody", role)) if shared else api

    views.add("/", made, audience=audience)

    @frame.page(app, "/", twin="/jobs.json")
    def jobs(api: Caller, request: Request) -> Response:
        _ = api.list  # refused to whoever may not list, whatever they ask for
        asked = Query.read(request.url.query, KNOWN)
        found, may = as_all(api, asked).list(wanted(asked)), steers(api)
        here = Address("/", request.url.query, {})
        return frame.answer(
            request,
            "jobs.html",
            cast("Mapping[str, Any]", found),
            title="Jobs",
            command=command(asked),
            live=lambda: fragments(found, may, here, frame.now(app)),
            asked=asked,
            columns=COLUMNS,
            down=DOWN,
            causes=list(Cause),
            steers=may,
        )

    _ = jobs


def audience(who: Principal, at: Address) -> Hashable:
    """Everyone's jobs look the same to all who may do the same; mine do not."""
    mine = wanted(Query.read(at.query, KNOWN)).get("mine", False)
    return who.role, who.id if mine else ""


def live(api: JobsApi, at: Address, now: float) -> Fragments:
    """What of the page changes while it is open."""
    found = api.list(wanted(Query.read(at.query, KNOWN)))
    return fragments(found, steers(api), at, now)


def fragments(found: JobPage, may: Sequence[ActionName], at: Address, now: float) -> Fragments:
    """As the page shows them when it is loaded, and from there on."""
    asked, kept = Query.read(at.query, KNOWN), at.kept
    made = cache(lambda: frame.parts("parts/jobs.html", path=at.path, now=now))
    rows: dict[str, str] = {}
    for row in found["rows"]:
        name = row_id(row["id"])
        rows[name] = kept.row(name, _told(row), lambda row=row: str(made().row(row, may)))
    states, pages = found["states"], (found["next"], found["matching"], found.get("first", 1))
    parts = {
        "chips": kept.row("chips", states, lambda: str(made().chips(asked, list(State), states)))
    }
    if rows:
        parts["pager"] = kept.row(
            "pager",
            (len(rows), *pages),
            lambda: str(made().pager(asked, len(rows), *pages)),
        )
    ended = all(row["finished_at"] for row in found["rows"])
    return Fragments(parts, rows, [*rows], ended and asked.one("order") != "spent")


def row_id(job: str) -> str:
    return f"job-{job}"


def _told(row: JobRow) -> object:
    """All that the row depends on. What has ended shows nothing but its record; money runs on, and cents are shown."""
    if row["finished_at"]:
        return row["version"]
    spent = row["usd_spent"]
    return {**row, "usd_spent": spent and round(spent, 2)}


def steers(api: JobsApi) -> list[ActionName]:
    """What the caller may do with jobs at all; which jobs, each of them says."""
    every = cast("tuple[ActionName, ...]", get_args(ActionName))
    return [action for action in every if may(api, action)]


def wanted(asked: Query) -> ListAsked:
    """What the API is asked for. Mine, and no old ones, unless the address says otherwise."""
    wish = ListAsked(limit=ROWS)
    if not asked.many("user") and asked.one("who") != "everyone":
        wish["mine"] = True
    if not asked.many("state") and asked.one("show") != "all":
        wish["recent"] = True
    if states := asked.many("state"):
        wish["states"] = list(states)
    if causes := asked.many("cause"):
        wish["causes"] = list(causes)
    if types := asked.many("type"):
        wish["types"] = list(types)
    if zones := asked.many("zone"):
        wish["zones"] = list(zones)
    if user := asked.one("user"):
        wish["user"] = user
    if text := asked.one("q"):
        wish["text"] = text
    if order := asked.one("order"):
        wish["order"] = cast("JobOrder", order)  # what is none is refused by the API
    if asked.one("reverse"):
        wish["reverse"] = True
    if after := asked.one("after"):
        wish["after"] = after
    return wish


def command(asked: Query) -> str:
    """What lists the same in a terminal."""
    wish = wanted(asked)
    ended = not wish.get("recent") and not wish.get("states") and not wish.get("causes")
    parts = ["tpujob list", "--mine" if wish.get("mine") else "", "--all" if ended else ""]
    for option in ("user", "state", "cause", "type", "zone"):
        parts += [f"--{option} {shlex.quote(value)}" for value in asked.many(option)]
    if text := asked.one("q"):
        parts.append(f"--text {shlex.quote(text)}")
    if order := asked.one("order"):
        parts.append(f"--order {shlex.quote(order)}")
    return " ".join(filter(None, [*parts, "--reverse" if asked.one("reverse") else ""]))
