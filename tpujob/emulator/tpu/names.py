"""Full resource names, and the pages of a list."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import TypeVar

from tpujob.emulator.tpu.records import ApiError

_NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)(?:/([^/]+)/([^/]+))?")

_Item = TypeVar("_Item")


def zone_of(parent: str) -> tuple[str, str]:
    """Project and zone of `projects/P/locations/Z` or of anything below it."""
    match = _NAME.fullmatch(parent)
    if match is None:
        raise ApiError("INVALID_ARGUMENT", f"Invalid resource name {parent[:200]!r}")
    return match[1], match[2]


def id_of(name: str) -> str:
    return name.rpartition("/")[2]


def page(
    items: Sequence[tuple[str, _Item]], *, size: int, most: int, token: str
) -> tuple[list[_Item], str]:
    """The items after `token`, and the token of the next page. `items` are (key, item), sorted by key; a token is a
    key, so items added or removed between two pages shift no others."""
    size = min(size or most, most)
    first = bisect_right(items, token, key=itemgetter(0)) if token else 0
    found = items[first : first + size]
    more = found[-1][0] if first + size < len(items) else ""
    return [item for _, item in found], more
