"""Paging of long lists: the size of a page, and how all pages are read. Pure."""

from collections.abc import Callable
from typing import TypeVar

#: maximum number of records in one answer of the backend
PAGE = 1000
#: default number of events in one answer about all jobs
EVENTS = 100

T = TypeVar("T")


def all_of(page: Callable[[int, T | None], list[T]], limit: int = 0) -> list[T]:
    """Return all items, or the first `limit`. `page` returns at most that many items after the given last one."""
    items: list[T] = []
    while True:
        count = min(limit - len(items), PAGE) if limit else PAGE
        batch = page(count, items[-1] if items else None)
        items += batch
        if len(batch) < count or len(items) == limit:
            return items


def newest(page: Callable[[int, str], tuple[list[T], str]], limit: int) -> list[T]:
    """Return the newest `limit` items, the oldest first. `page` returns at most so many items before a key (empty: the
    newest), and the key of the next page (empty: none)."""
    items: list[T] = []
    before = ""
    while len(items) < limit:
        batch, before = page(min(limit - len(items), PAGE), before)
        items += batch
        if not before:
            break
    return items[::-1]
