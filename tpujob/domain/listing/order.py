"""Which jobs match, and the order in which they come."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, cast

from tpujob.domain import access
from tpujob.domain.listing.asked import Wanted
from tpujob.domain.listing.keys import TEXTS, Key, Value
from tpujob.domain.model import State
from tpujob.domain.money import ledger

#: characters of a name that count for its place
COMPARED = 100
#: seconds for which the lists that people begin with keep a job that has ended
RECENT = 24 * 3600.0
_PLACE = {state: n for n, state in enumerate(State)}


@dataclass(slots=True)
class Listed:
    """What a list asks of one job."""

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
    text: str  #: what is searched: id, name and user, folded
    used: int | None  #: micro-dollars of the slices that are not billed any more; None: not known
    billed: tuple[tuple[int, int], ...]  #: of the others: micro-dollars an hour, microseconds since
    step: int | None = None
    left: float | None = None
    loss: float | None = None
    ended_at: float = 0.0  #: 0: it goes on

    def spent(self, now: float) -> float | None:
        """US dollars; None: not known."""
        if self.used is None:
            return None
        moment = ledger.moment(now)
        going = (ledger.accrued(rate, max(0, moment - since)) for rate, since in self.billed)
        return (self.used + sum(going)) / ledger.US


def alike(rows: Sequence[Listed], asked: Wanted) -> Sequence[Listed]:
    """Those that match everything but the state: what the states are counted of."""
    if asked.mine is not None:
        who = asked.mine
        rows = [row for row in rows if access.is_own(who, row.owner)]
    if asked.user:
        rows = [row for row in rows if row.user == asked.user]
    if asked.types is not None:
        rows = [row for row in rows if row.type in asked.types]
    if asked.zones is not None:
        rows = [row for row in rows if row.zone in asked.zones]
    if asked.causes is not None:
        rows = [row for row in rows if row.cause in asked.causes]
    if asked.text:
        rows = [row for row in rows if asked.text in row.text]
    return rows


def narrowed(rows: Sequence[Listed], asked: Wanted, now: float) -> Sequence[Listed]:
    """Of those that are alike, the ones that are wanted."""
    if asked.states is not None:
        rows = [row for row in rows if row.state in asked.states]
    if asked.recent:
        rows = [row for row in rows if not row.ended_at or now - row.ended_at <= RECENT]
    return rows


def value(row: Listed, order: str, now: float) -> Value:
    """By which a row has its place in that order; None: it comes last, whichever way round."""
    return _VALUES[order](row, now)


def _finite(number: float | None) -> float | None:
    return number if number is not None and isfinite(number) else None


_VALUES: Mapping[str, Callable[[Listed, float], Value]] = {
    "id": lambda row, _: row.number,
    "name": lambda row, _: row.name[:COMPARED],
    "user": lambda row, _: row.user[:COMPARED],
    "state": lambda row, _: _PLACE[row.state],
    "active": lambda row, _: row.state.final + (row.state.final and row.state is not State.FAILED),
    "type": lambda row, _: row.type,
    "zone": lambda row, _: row.zone or None,
    "step": lambda row, _: row.step,
    "left": lambda row, _: _finite(row.left),
    "loss": lambda row, _: _finite(row.loss),
    "attempts": lambda row, _: row.attempts,
    "spent": lambda row, now: _finite(row.spent(now)),
    "age": lambda row, _: row.created_at,
}


def ordered(rows: Sequence[Listed], asked: Wanted, now: float) -> list[Listed]:
    """`rows` come newest first, and so do those of equal value."""
    if asked.order == "id":
        return list(rows) if asked.descending else list(reversed(rows))
    of, last = _VALUES[asked.order], _last(asked)

    def key(row: Listed) -> Any:
        found = of(row, now)
        return last if found is None else found

    return sorted(rows, key=key, reverse=asked.descending)


def _last(asked: Wanted) -> Value:
    """What stands behind every value, in the way that the list goes."""
    if asked.order in TEXTS:
        return "" if asked.descending else chr(sys.maxunicode)
    return -inf if asked.descending else inf


def comes_after(row: Listed, key: Key, asked: Wanted, now: float) -> bool:
    """Whether it has its place behind the job at which a page ended, as things are now."""
    own = value(row, asked.order, now)
    if own == key.value:
        return row.number < key.number
    if own is None or key.value is None:
        return own is None
    larger = cast(Any, own) > cast(Any, key.value)
    return larger is not asked.descending
