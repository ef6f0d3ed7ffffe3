"""What a list is asked for: filters and an order that make sense, or the reason why they do not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from tpujob.domain.access import Principal
from tpujob.domain.hardware import accelerators
from tpujob.domain.listing.keys import COLUMNS, Key, key
from tpujob.domain.model import Cause, State
from tpujob.errors import BadRequest, BadSpec

#: characters of what is searched for, and values in one filter
LONGEST, MOST = 200, 100
_FINAL = frozenset(state for state in State if state.final)
_LIVE = frozenset(State) - _FINAL


@dataclass(frozen=True, slots=True)
class Wanted:
    """A list that makes sense. None: whatever there is."""

    user: str = ""
    mine: Principal | None = None  #: whose own alone
    states: frozenset[State] | None = None
    recent: bool = False  #: without the jobs that ended more than `order.RECENT` ago
    causes: frozenset[str] | None = None
    types: frozenset[str] | None = None
    zones: frozenset[str] | None = None
    text: str = ""  #: folded
    order: str = "id"
    reverse: bool = False
    after: Key | None = None
    limit: int = 0  #: rows at most; 0: all
    fields: frozenset[str] | None = None

    @property
    def same(self) -> Wanted:
        """What all pages of one list have in common."""
        return replace(self, after=None, limit=0, fields=None)

    @property
    def descending(self) -> bool:
        return COLUMNS[self.order] is not self.reverse


def wanted(asked: Mapping[str, Any], who: Principal, fields: Collection[str]) -> Wanted:
    """What `ListAsked` asks for. `fields`: those that a row has. Raises BadRequest for what makes no sense, with what
    does."""
    unknown = sorted(asked.keys() - _ASKED.keys())
    if unknown:
        raise _refused(f"{str(unknown[0])[:80]!r} is no filter of a list", _ASKED)
    for name, kind in _ASKED.items():
        if name in asked and not isinstance(asked[name], kind):
            raise BadRequest(f"{name} of a list is no {kind.__name__}")
    recent, reverse = asked.get("recent", False), asked.get("reverse", False)
    order = asked.get("order") or ("active" if recent else "id")
    if order not in COLUMNS:
        raise _refused(f"order: a list has no column {str(order)[:80]!r}", COLUMNS)
    text: str = asked.get("text", "")
    if len(text) > LONGEST:
        raise BadRequest(f"text: {LONGEST} characters at most are searched for")
    limit = asked.get("limit", 0)
    if isinstance(limit, bool) or limit < 0:
        raise BadRequest("limit: 0 or more rows", hint="0: all")
    after = asked.get("after", "")
    return Wanted(
        user=asked.get("user", ""),
        mine=who if asked.get("mine") else None,
        states=_states(asked),
        recent=recent,
        causes=_several(asked, "causes", tuple(Cause)),
        types=_types(asked),
        zones=_several(asked, "zones"),
        text=text.casefold(),
        order=order,
        reverse=reverse,
        after=key(after, order, reverse) if after else None,
        limit=limit,
        fields=_several(asked, "fields", fields),
    )


_ASKED: Mapping[str, type] = {
    "user": str,
    "mine": bool,
    "active": bool,
    "recent": bool,
    "states": list,
    "causes": list,
    "types": list,
    "zones": list,
    "text": str,
    "order": str,
    "reverse": bool,
    "after": str,
    "limit": int,
    "fields": list,
}


def _states(asked: Mapping[str, Any]) -> frozenset[State] | None:
    named = _several(asked, "states", tuple(State))
    states = None if named is None else frozenset(map(State, named))
    if "active" in asked:
        those = _LIVE if asked["active"] else _FINAL
        states = those if states is None else states & those
    return states


def _several(
    asked: Mapping[str, Any], name: str, allowed: Collection[str] | None = None
) -> frozenset[str] | None:
    values = cast("list[Any]", asked.get(name, []))
    if len(values) > MOST:
        raise BadRequest(f"{name}: {MOST} values at most")
    for value in values:
        if not isinstance(value, str) or (allowed is not None and value not in allowed):
            raise _refused(f"{name}: there is no {str(value)[:80]!r}", allowed or ())
    return frozenset(values) or None


def _types(asked: Mapping[str, Any]) -> frozenset[str] | None:
    """By the names that jobs have them under: `v5e-8` is `v5litepod-8`."""
    named = _several(asked, "types")
    try:
        return None if named is None else frozenset(accelerators.find(t).type for t in named)
    except BadSpec as error:
        raise BadRequest(f"types: {error.message}", hint="such as v4-16") from None


def _refused(said: str, allowed: Iterable[str]) -> BadRequest:
    choice = ", ".join(allowed)
    return BadRequest(said, hint=f"one of: {choice}" if choice else "")
