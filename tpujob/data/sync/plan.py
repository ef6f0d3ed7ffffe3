"""What differs between two places: one pass over two sorted streams. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

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
        if (
            not begun
        ):  # the source first: what is missing there is said before what is wrong with the target
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
