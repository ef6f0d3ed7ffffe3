"""The first page: a filtered list of jobs, in pages of 50."""

import shlex
from collections.abc import Mapping
from typing import Any, cast

from tpujob.api import JobOrder, ListQuery
from tpujob.domain.model import Cause, State
from tpujob.domain.text import unreadable
from tpujob.service.authorization import may
from tpujob.service.job_index import query as listing
from tpujob.web.pages.actions import ACTIONS
from tpujob.web.pages.frame import PageContent, PageRequest
from tpujob.web.pages.query import PageQuery

ROWS = 50
#: names in the query: filters, order and cursor
FILTERS = (
    "who", "show", "state", "cause", "type", "zone", "tag", "user", "q", "order", "reverse", "after",
)  # fmt: skip
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
DOWN = frozenset(name for name, column in listing.COLUMNS.items() if column.largest_first) - {"age"}


def load_jobs(request: PageRequest) -> PageContent:
    query = request.query
    page = request.api.list(wanted(query))
    return PageContent(
        cast("Mapping[str, Any]", page),
        "Jobs",
        command(query),
        live="",
        shown={
            "asked": query,
            "unclear": unreadable(page["unreadable"]),
            "columns": COLUMNS,
            "down": DOWN,
            "causes": list(Cause),
            "every_state": list(State),
            "steers": [action for action in ACTIONS if may(request.caller, action)],
        },
    )


#: what the parts of an address are called in a `ListQuery`: those with several values, and those with one
_LISTS = {"state": "states", "cause": "causes", "type": "types", "zone": "zones", "tag": "tags"}
_WORDS = {"user": "user", "q": "text", "order": "order", "after": "after"}


def wanted(query: PageQuery) -> ListQuery:
    """Return the query to the API: the caller's own recent jobs, unless the address says otherwise."""
    listing_query: dict[str, Any] = {"limit": ROWS}
    if not query.many("user") and query.one("who") != "everyone":
        listing_query["mine"] = True
    if query.one("show") != "all":
        listing_query["recent"] = True
    listing_query |= {
        name: list(query.many(part)) for part, name in _LISTS.items() if query.many(part)
    }
    # an order that is none is refused by the API
    listing_query |= {name: query.one(part) for part, name in _WORDS.items() if query.one(part)}
    if query.one("reverse"):
        listing_query["reverse"] = True
    return cast(ListQuery, listing_query)


def command(query: PageQuery) -> str:
    """Return the command that lists the same."""
    listing_query = wanted(query)
    parts = [
        "tpujob list",
        "--mine" if listing_query.get("mine") else "",
        "" if listing_query.get("recent") else "--all",
    ]
    for option in ("user", "state", "cause", "type", "zone", "tag"):
        parts += [f"--{option} {shlex.quote(value)}" for value in query.many(option)]
    if text := query.one("q"):
        parts.append(f"--text {shlex.quote(text)}")
    if order := query.one("order"):
        parts.append(f"--order {shlex.quote(order)}")
    return " ".join(filter(None, [*parts, "--reverse" if query.one("reverse") else ""]))
