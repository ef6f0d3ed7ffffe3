"""Lists of jobs: which jobs match, in which order they come, and the key by which a page says where it ended. Pure.

Filters and orders act over all jobs. A key says by value and number where the next page begins: a job whose value moves
meanwhile may come twice, or not at all. What a row shows is made in `rows.py`.
"""

import base64
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, cast

from tpujob.api import ListQuery
from tpujob.domain import access
from tpujob.domain.access import Principal
from tpujob.domain.hardware import accelerators
from tpujob.domain.members import folded
from tpujob.domain.model import Cause, State
from tpujob.domain.money import ledger
from tpujob.domain.money.ledger import BilledSlice
from tpujob.errors import BadRequest, BadSpec

#: columns that move while a program runs, without a change of the job's record
MOVING = frozenset({"step", "left", "loss"})
#: columns of words
TEXTS = frozenset({"name", "user", "type", "zone"})

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class PageKey:
    """The sort key of the last row of a page."""

    order: str
    reverse: bool
    #: when the list began; values that grow with time are compared as they were then
    at: float
    value: Value  #: of the last job that was shown, in the column of the order
    number: int  #: of that job

    def text(self) -> str:
        parts = [self.order, self.reverse, self.at, self.value, self.number]
        data = json.dumps(parts, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(data).decode().rstrip("=")


def parse_key(text: str, order: str, reverse: bool) -> PageKey:
    """Return the key in a text. Raises BadRequest when it is not a key, or belongs to another list."""
    page_key = _decoded(text)
    if page_key is None:
        raise BadRequest(
            f"after: {text[:80]!r} is not a key of a page",
            hint="pass `next` of the page before as it is; leave it out for the first page",
        )
    if (page_key.order, page_key.reverse) != (order, reverse):
        way = ", reversed" if page_key.reverse else ""
        raise BadRequest(
            f"after: it is of a list by {page_key.order}{way}, this one is by {order}",
            hint="begin another order with its first page",
        )
    return page_key


def _decoded(text: str) -> PageKey | None:
    try:
        padded = text + "=" * (-len(text) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        order, reverse, at, value, number = parts
    except (ValueError, TypeError, RecursionError):
        return None
    whole = _is_number(at) and 0 <= at < 1e11 and isinstance(number, int) and number >= 0
    if not (whole and isinstance(reverse, bool) and isinstance(order, str) and order in COLUMNS):
        return None
    fits = isinstance(value, str) if order in TEXTS else _is_number(value)
    return PageKey(order, reverse, at, value, number) if fits or value is None else None


def _is_number(value: object) -> bool:
    return type(value) is int or (isinstance(value, float) and isfinite(value))


#: characters of what is searched for, and values in one filter
MAX_TEXT, MAX_VALUES = 200, 100


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """Valid filters and a valid order. None: any."""

    user: str = ""
    mine: Principal | None = None  #: whose own alone
    states: frozenset[State] | None = None
    recent: bool = False  #: without the jobs that ended more than `RECENT` ago
    causes: frozenset[str] | None = None
    types: frozenset[str] | None = None
    zones: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    text: str = ""  #: folded
    group: str = ""  #: number or name of a group whose elements alone are wanted
    order: str = "id"
    reverse: bool = False
    after: PageKey | None = None
    limit: int = 0  #: rows at most; 0: all
    fields: frozenset[str] | None = None

    @property
    def descending(self) -> bool:
        return COLUMNS[self.order].largest_first is not self.reverse


def parse_query(raw: Mapping[str, Any], caller: Principal, fields: Collection[str]) -> ParsedQuery:
    """Return what `ListQuery` asks for, with values of the right types. `fields`: those that a row has. Raises
    BadRequest that says what is allowed."""
    allowed = ListQuery.__annotations__
    if unknown := sorted(raw.keys() - allowed.keys()):
        raise _refused(f"{unknown[0][:80]!r} is not a filter of a list", allowed)
    recent, reverse = is_recent(raw), raw.get("reverse", False)
    order = raw.get("order") or ("active" if recent else "id")
    if order not in COLUMNS:
        raise _refused(f"order: a list has no column {order[:80]!r}", COLUMNS)
    text: str = raw.get("text", "")
    if len(text) > MAX_TEXT:
        raise BadRequest(f"text: {MAX_TEXT} characters at most are searched for")
    limit = raw.get("limit", 0)
    if limit < 0:
        raise BadRequest("limit: 0 or more rows", hint="0: all")
    after = raw.get("after", "")
    return ParsedQuery(
        user=folded(raw.get("user", "")),
        mine=caller if raw.get("mine") else None,
        states=_states(raw),
        recent=recent,
        causes=_several(raw, "causes", tuple(Cause)),
        types=_types(raw),
        zones=_several(raw, "zones"),
        tags=_several(raw, "tags"),
        text=text.casefold(),
        group=raw.get("group", ""),
        order=order,
        reverse=reverse,
        after=parse_key(after, order, reverse) if after else None,
        limit=limit,
        fields=_several(raw, "fields", fields),
    )


def is_recent(raw: Mapping[str, Any]) -> bool:
    """Return whether the list leaves out jobs that ended long ago. A query for states, causes or a group includes them:
    most of those jobs have ended."""
    return bool(raw.get("recent")) and not any(map(raw.get, ("states", "causes", "group")))


def _states(raw: Mapping[str, Any]) -> frozenset[State] | None:
    named = _several(raw, "states", tuple(State))
    states = None if named is None else frozenset(map(State, named))
    if "active" in raw:
        selected = frozenset(state for state in State if state.final is not raw["active"])
        states = selected if states is None else states & selected
    return states


def _several(
    raw: Mapping[str, Any], name: str, allowed: Collection[str] | None = None
) -> frozenset[str] | None:
    values: list[str] = raw.get(name, [])
    if len(values) > MAX_VALUES:
        raise BadRequest(f"{name}: {MAX_VALUES} values at most")
    for value in values:
        if allowed is not None and value not in allowed:
            raise _refused(f"{name}: there is no {value[:80]!r}", allowed)
    return frozenset(values) or None


def _types(raw: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the types by the names that jobs use: `v5e-8` is `v5litepod-8`."""
    named = _several(raw, "types")
    try:
        return None if named is None else frozenset(accelerators.find(t).type for t in named)
    except BadSpec as error:
        raise BadRequest(f"types: {error.message}", hint="such as v4-16") from None


def _refused(message: str, allowed: Iterable[str]) -> BadRequest:
    choice = ", ".join(allowed)
    return BadRequest(message, hint=f"one of: {choice}" if choice else "")


#: characters of a name that count for its place
COMPARED = 100
#: seconds for which the lists that people begin with keep a job that has ended
RECENT = 24 * 3600.0
_PLACE = {state: n for n, state in enumerate(State)}


@dataclass(slots=True)
class IndexedJob:
    """The facts of one job for filters, order and counts of a list."""

    number: int
    name: str
    user: str
    owner: str  #: a `Principal.id`
    state: State
    type: str
    zone: str
    cause: str  #: empty: none
    attempts: int
    created_at: float
    text: str  #: what is searched: id, name, user, note and tags, folded
    used: int | None  #: micro-dollars of the slices that are not billed any more; None: not known
    billed: tuple[BilledSlice, ...]  #: the others
    step: int | None = None
    left: float | None = None
    loss: float | None = None
    ended_at: float = 0.0  #: 0: active
    group: int = 0  #: number of the group that it is an element of; 0: of none
    is_group: bool = False
    tags: tuple[str, ...] = ()

    def spent(self, now: float) -> float | None:
        """Return US dollars; None: unknown."""
        going = ledger.cost(self.billed, ledger.moment(now))
        return None if self.used is None or going is None else (self.used + going) / ledger.US


def alike(rows: Sequence[IndexedJob], query: ParsedQuery) -> Sequence[IndexedJob]:
    """Return the jobs that match everything but the state: the states are counted over these."""
    if query.group:
        group = query.group.lstrip("0")  # the name of a job begins with a letter
        groups = {r.number for r in rows if r.is_group and group in (r.name, str(r.number))}
        rows = [row for row in rows if row.group in groups]
    if query.mine is not None:
        caller = query.mine
        rows = [row for row in rows if access.is_own(caller, row.owner)]
    if query.user:
        rows = [row for row in rows if row.user == query.user]
    if query.types is not None:
        rows = [row for row in rows if row.type in query.types]
    if query.zones is not None:
        rows = [row for row in rows if row.zone in query.zones]
    if query.causes is not None:
        rows = [row for row in rows if row.cause in query.causes]
    if query.tags is not None:
        rows = [row for row in rows if not query.tags.isdisjoint(row.tags)]
    if query.text:
        rows = [row for row in rows if query.text in row.text]
    return rows


def narrowed(rows: Sequence[IndexedJob], query: ParsedQuery, now: float) -> Sequence[IndexedJob]:
    """Return the rows in the states of the query; for a recent list, without jobs that ended long ago."""
    if query.states is not None:
        rows = [row for row in rows if row.state in query.states]
    if query.recent and not query.text:
        rows = [row for row in rows if not row.group]  # its group stands for it
    if query.recent:
        rows = [row for row in rows if not row.ended_at or now - row.ended_at <= RECENT]
    return rows


def _finite(number: float | None) -> float | None:
    return number if number is not None and isfinite(number) else None


@dataclass(frozen=True, slots=True)
class JobColumn:
    largest_first: bool  #: a list by it begins with its largest value
    #: by which a row has its place; None: it comes last, whichever way round
    value: Callable[[IndexedJob, float], Value]


COLUMNS: Mapping[str, JobColumn] = {
    "id": JobColumn(True, lambda row, _: row.number),
    "name": JobColumn(False, lambda row, _: row.name[:COMPARED]),
    "user": JobColumn(False, lambda row, _: row.user[:COMPARED]),
    "state": JobColumn(False, lambda row, _: _PLACE[row.state]),
    #: active, then failed, then the others
    "active": JobColumn(
        False, lambda row, _: row.state.final + (row.state.final and row.state is not State.FAILED)
    ),
    "type": JobColumn(False, lambda row, _: row.type),
    "zone": JobColumn(False, lambda row, _: row.zone or None),
    "step": JobColumn(True, lambda row, _: row.step),
    "left": JobColumn(False, lambda row, _: _finite(row.left)),
    "loss": JobColumn(False, lambda row, _: _finite(row.loss)),
    "attempts": JobColumn(True, lambda row, _: row.attempts),
    "spent": JobColumn(True, lambda row, now: _finite(row.spent(now))),
    #: by the time of submission: the youngest first
    "age": JobColumn(True, lambda row, _: row.created_at),
}


def ordered(rows: Sequence[IndexedJob], query: ParsedQuery, now: float) -> list[IndexedJob]:
    """Return the rows in the order of the query. `rows`, and rows of equal value, are newest first."""
    if query.order == "id":
        return list(rows) if query.descending else list(reversed(rows))
    value_of, last = COLUMNS[query.order].value, _last(query)

    def key(row: IndexedJob) -> Any:
        value = value_of(row, now)
        return last if value is None else value

    return sorted(rows, key=key, reverse=query.descending)


def _last(query: ParsedQuery) -> Value:
    """Return a key behind every value, in the direction of the list."""
    if query.order in TEXTS:
        return "" if query.descending else chr(sys.maxunicode)
    return -inf if query.descending else inf


def comes_after(row: IndexedJob, key: PageKey, query: ParsedQuery, now: float) -> bool:
    """Return whether the row comes after `key`, the last row of a page."""
    own = COLUMNS[query.order].value(row, now)
    if own == key.value:
        return row.number < key.number
    if own is None or key.value is None:
        return own is None
    larger = cast(Any, own) > cast(Any, key.value)
    return larger is not query.descending
