"""Pages of a list of objects: prefixes, delimiters, page tokens. Pure; `disk.py` reads the rows."""

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tpujob.emulator.storage.model import EmulatedObject, invalid

_Place = tuple[str, int]  #: name and generation

#: returns, in order, up to `limit` objects after a place, with names less than `stop` (empty: no bound)
Rows = Callable[[_Place, str, int], Iterable[EmulatedObject]]


@dataclass(frozen=True, slots=True)
class Listing:
    """A request for a list: names from `start` up to, not including, `end`, in the order of their UTF-8 bytes."""

    prefix: str = ""
    delimiter: str = ""  #: names that have it after the prefix are folded into `prefixes`
    start: str = ""
    end: str = ""
    token: str = ""
    limit: int = 1000
    versions: bool = False
    trailing: bool = False  #: objects whose names end with the delimiter are items, too


@dataclass(frozen=True, slots=True)
class Page:
    items: list[EmulatedObject]
    prefixes: list[str]
    next: str  #: the token of the next page; empty: this is the last page


def page(request: Listing, rows: Rows) -> Page:
    """Return the page that a client requests. Read the rows in batches, and skip names below a common prefix."""
    prefix, delimiter = request.prefix, request.delimiter
    after = _read_token(request.token) if request.token else (max(prefix, request.start), -1)
    stop = min(filter(None, (request.end, successor(prefix))), default="")
    items: list[EmulatedObject] = []
    prefixes: list[str] = []
    while True:
        room = max(request.limit - len(items) - len(prefixes), 0)
        batch = list(rows(after, stop, room + 1))
        folded = ""
        for stored in batch:
            if len(items) + len(prefixes) >= request.limit:
                return Page(items, prefixes, _token(after))
            cut = stored.name.find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                folded = stored.name[: cut + len(delimiter)]
                prefixes.append(folded)
                if request.trailing and stored.name == folded:
                    items.append(stored)
                break
            items.append(stored)
            after = (stored.name, stored.generation)
        if folded:  # skip all other names below this prefix
            after = (successor(folded), -1)
        if not after[0] or (not folded and len(batch) <= room):
            return Page(items, prefixes, "")


def successor(prefix: str) -> str:
    """Return the least text that sorts after every text that starts with `prefix`; empty: there is none."""
    while prefix:
        last = ord(prefix[-1]) + 1
        prefix = prefix[:-1]
        if last <= 0x10FFFF:
            return prefix + chr(0xE000 if 0xD800 <= last <= 0xDFFF else last)
    return ""


def _token(after: _Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(after).encode()).decode()


def _read_token(token: str) -> _Place:
    try:
        name, generation = json.loads(base64.urlsafe_b64decode(token))
        return str(name), int(generation)
    except (ValueError, TypeError) as error:
        raise invalid("Invalid page token.") from error
