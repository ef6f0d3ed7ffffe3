"""Full resource names, and the pages of a list."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    rest = [(key, item) for key, item in items if not token or key > token]
    size = min(size or most, most)
    more = rest[size - 1][0] if len(rest) > size else ""
    return [item for _, item in rest[:size]], more
