"""Pairs of source and target items, and the threads that copy them. Memory does not grow with the number of files."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tpujob.data.keys import raising_tpujob_error
from tpujob.errors import TpujobError

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair(Generic[S, T]):
    """A source item with the target's item of the same key."""

    key: str
    source: S
    target: T | None


def pairs(source: Iterable[tuple[str, S]], target: Iterable[tuple[str, T]]) -> Iterator[Pair[S, T]]:
    """Yield a pair for every source key. Raises TpujobError unless both streams are in the order of UTF-8 keys."""
    targets = _check_order(target)
    candidate: tuple[bytes, str, T] | None = None
    is_first = True
    for encoded, key, item in _check_order(source):
        if is_first:  # after the source's first item, so that errors of the source come first
            candidate = next(targets, None)
            is_first = False
        while candidate and candidate[0] < encoded:
            candidate = next(targets, None)
        yield Pair(key, item, candidate[2] if candidate and candidate[0] == encoded else None)
    if is_first:
        next(targets, None)  # raises for a missing target even if the source is empty


def _check_order(stream: Iterable[tuple[str, S]]) -> Iterator[tuple[bytes, str, S]]:
    """Yield the items with their encoded keys. Raises TpujobError for a key out of order."""
    before = b""
    for key, item in stream:
        encoded = key.encode()
        if encoded < before:
            raise TpujobError(
                f"a list is not in the order of its names: {key!r} comes after {before.decode()!r}",
                hint="this kind of storage cannot be compared without reading all names first",
            )
        before = encoded
        yield encoded, key, item


THREADS = 16  #: files that are copied at once
_WAITING = 1000  #: files that may wait for a thread

AnyPair = Pair[Any, Any]


def copy_all(planned: Iterable[AnyPair], copy: Callable[[AnyPair], None]) -> None:
    """Copy all pairs, until the first error, which is raised. An interrupted process does not wait for the threads."""
    tasks: queue.Queue[AnyPair | None] = queue.Queue(_WAITING)
    errors: list[Exception] = []

    def work() -> None:
        while pair := tasks.get():
            if errors:
                continue  # empties the queue, in which the planning thread waits for room
            try:
                copy(pair)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        for pair in planned:
            tasks.put(pair)
            if errors:
                break
    except Exception as error:
        errors.append(error)
    for _ in threads:
        tasks.put(None)
    for thread in threads:
        thread.join()
    if errors:
        with raising_tpujob_error():
            raise errors[0]
