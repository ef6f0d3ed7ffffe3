"""Threads that copy what one thread plans. Memory does not grow with the number of files."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tpujob.data.keys import explained
from tpujob.errors import TpujobError

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair(Generic[S, T]):
    """A key of the source, with what is there and what is at the target."""

    key: str
    source: S
    target: T | None


def pairs(source: Iterable[tuple[str, S]], target: Iterable[tuple[str, T]]) -> Iterator[Pair[S, T]]:
    """Every key of the source once. Both streams must come in the order of the keys' UTF-8 bytes: raises TpujobError
    where one does not, as keys would be missed."""
    right = _in_order(target)
    there, begun = None, False
    for mine, key, item in _in_order(source):
        if not begun:  # the source first: what is missing there is reported before what is wrong with the target
            there, begun = next(right, None), True
        while there and there[0] < mine:
            there = next(right, None)
        yield Pair(key, item, there[2] if there and there[0] == mine else None)
    if not begun:
        next(right, None)  # a target that is not there is named for an empty source, too


def _in_order(stream: Iterable[tuple[str, S]]) -> Iterator[tuple[bytes, str, S]]:
    before = b""
    for key, item in stream:
        now = key.encode()
        if now < before:
            raise TpujobError(
                f"a list is not in the order of its names: {key!r} comes after {before.decode()!r}",
                hint="this kind of storage cannot be compared without reading all names first",
            )
        before = now
        yield now, key, item


#: files that are copied at once
THREADS = 16
_WAITING = 1000  #: files that may wait for a thread

AnyPair = Pair[Any, Any]


def copy_all(planned: Iterable[AnyPair], copy: Callable[[AnyPair], None]) -> None:
    """Copy all pairs. Raises the first error of any of them, after which no new file is begun. The threads do not hold
    up an interrupted process."""
    tasks: queue.Queue[AnyPair | None] = queue.Queue(_WAITING)
    errors: list[Exception] = []

    def work() -> None:
        while pair := tasks.get():
            if errors:
                continue  # the queue is emptied, or the planning thread would wait for ever
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
        with explained():
            raise errors[0]
