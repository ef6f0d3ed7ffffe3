"""The first page: all jobs, or those that are asked for, in pages of 50."""

import shlex
from collections.abc import Mapping
from typing import Any, cast

from tpujob.api import JobOrder, ListAsked
from tpujob.domain.model import Cause, State
from tpujob.service.job_index import query as listing
from tpujob.web.pages.actions import ACTIONS
from tpujob.web.pages.frame import PageContent, PageRequest
from tpujob.web.pages.query import PageQuery
from tpujob.web.schemas import may

ROWS = 50
#: what an address may say: whose, which, and how they are ordered
FILTERS = ("who", "show", "state", "cause", "type", "zone", "user", "q", "order", "reverse", "after")  # fmt: skip
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


def load_jobs(asked: PageRequest) -> PageContent:
    query = asked.query
    return PageContent(
        cast("Mapping[str, Any]", asked.api.list(wanted(query))),
        "Jobs",
        command(query),
        live="",
        shown={
            "asked": query,
            "columns": COLUMNS,
            "down": DOWN,
            "causes": list(Cause),
            "every_state": list(State),
            "steers": [action for action in ACTIONS if may(asked.api, action)],
        },
    )


#: what the parts of an address are called in a `ListAsked`: those with several values, and those with one
_LISTS = {"state": "states", "cause": "causes", "type": "types", "zone": "zones"}
_WORDS = {"user": "user", "q": "text", "order": "order", "after": "after"}


def wanted(asked: PageQuery) -> ListAsked:
    """Return the query to the API: the caller's own recent jobs, unless the address says otherwise."""
    wish: dict[str, Any] = {"limit": ROWS}
    if not asked.many("user") and asked.one("who") != "everyone":
        wish["mine"] = True
    if not asked.many("state") and asked.one("show") != "all":
        wish["recent"] = True
    wish |= {name: list(asked.many(part)) for part, name in _LISTS.items() if asked.many(part)}
    # an order that is none is refused by the API
    wish |= {name: asked.one(part) for part, name in _WORDS.items() if asked.one(part)}
    if asked.one("reverse"):
        wish["reverse"] = True
    return cast(ListAsked, wish)


def command(asked: PageQuery) -> str:
    """Return the command that lists the same."""
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
