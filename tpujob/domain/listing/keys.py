"""The columns that a list can be ordered by, and the key of a page in such an order."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from tpujob.errors import BadRequest

#: columns, and whether a list by one of them begins with its largest value
COLUMNS: Mapping[str, bool] = {
    "id": True,
    "name": False,
    "user": False,
    "state": False,
    "active": False,  #: those that go on, then those that failed, then the others
    "type": False,
    "zone": False,
    "step": True,
    "left": False,
    "loss": False,
    "attempts": True,
    "spent": True,
    "age": True,  #: by the time of submission: the youngest first
}
#: columns whose values never change: a value and a number say where a page ended, whatever happens meanwhile
FIXED = frozenset({"id", "name", "user", "age"})
#: columns whose values grow while nothing happens to a job
PASSING = frozenset({"spent"})
#: columns that move while a program runs, without a change of the job's record
MOVING = frozenset({"step", "left", "loss"})
#: columns of words
TEXTS = frozenset({"name", "user", "type", "zone"})

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Key:
    """Where a page ended."""

    order: str
    reverse: bool
    kept: str  #: of the order that was kept; empty: none is needed
    at: int  #: the place in it where the next page begins
    value: Value  #: of the last job that was shown, in the column of the order
    number: int  #: of that job

    def text(self) -> str:
        parts = [self.order, self.reverse, self.kept, self.at, self.value, self.number]
        said = json.dumps(parts, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(said).decode().rstrip("=")


def key(text: str, order: str, reverse: bool) -> Key:
    """Raises BadRequest when it is none, or one of another list."""
    found = _decoded(text)
    if found is None:
        raise BadRequest(
            f"after: {text[:80]!r} is no key of a page",
            hint="pass `next` of the page before as it is; leave it out for the first page",
        )
    if (found.order, found.reverse) != (order, reverse):
        way = ", reversed" if found.reverse else ""
        raise BadRequest(
            f"after: it is of a list by {found.order}{way}, this one is by {order}",
            hint="begin another order with its first page",
        )
    return found


def _decoded(text: str) -> Key | None:
    try:
        padded = text + "=" * (-len(text) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        order, reverse, kept, at, value, number = parts
    except (ValueError, TypeError, RecursionError, binascii.Error):
        return None
    whole = isinstance(at, int) and isinstance(number, int) and min(at, number) >= 0
    if not (isinstance(order, str) and isinstance(reverse, bool) and isinstance(kept, str)):
        return None
    if not whole or order not in COLUMNS or not _fits(value, order):
        return None
    return Key(order, reverse, kept, at, value, number)


def _fits(value: object, order: str) -> bool:
    if value is None:
        return order not in FIXED
    if order in TEXTS:
        return isinstance(value, str)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and (not isinstance(value, float) or isfinite(value))
