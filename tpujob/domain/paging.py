"""Long lists in pages: how long one is, and how all of them are read. Pure."""

from collections.abc import Callable
from typing import TypeVar

#: records that one answer of the backend has at most; the next page has more
PAGE = 1000
#: events of all jobs of one answer, unless more or fewer are asked for
EVENTS = 100

T = TypeVar("T")


def all_of(page: Callable[[int, T | None], list[T]], limit: int = 0) -> list[T]:
    """Everything, or the first `limit` of it. `page` is asked for so many at most, after the last one that is known."""
    found: list[T] = []
    while True:
        most = min(limit - len(found), PAGE) if limit else PAGE
        more = page(most, found[-1] if found else None)
        found += more
        if len(more) < most or len(found) == limit:
            return found


def newest(page: Callable[[int, str], tuple[list[T], str]], limit: int) -> list[T]:
    """The newest `limit`, the oldest first. `page` is asked for so many at most, before that key (empty: the newest),
    and gives the key of the next page with them; empty: there is nothing older."""
    found: list[T] = []
    before = ""
    while len(found) < limit:
        more, before = page(min(limit - len(found), PAGE), before)
        found += more
        if not before:
            break
    return found[::-1]
