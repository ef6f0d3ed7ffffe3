"""What copying needs of a storage. `adapters/gcs/objects.py` implements it; facts only, no calls here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """One object as a list or an answer describes it."""

    name: str
    size: int
    crc32c: (
        int | None
    )  #: None: the storage does not say (documented for keys that the customer keeps)
    generation: int


@dataclass(slots=True)
class Operations:
    """Requests as they are billed, repeats included."""

    class_a: int = 0
    class_b: int = 0


class Objects(Protocol):
    """The objects of a storage. Threads share it.

    Each method repeats what may be repeated. Raises NotFound, Conflict (a condition does not hold), Refused, Transient
    (it was repeated and the time is up).
    """

    operations: Operations

    def pages(self, bucket: str, prefix: str) -> Iterator[list[ObjectFacts]]:
        """Every object below the prefix, in the order of the names' UTF-8 bytes. One class A operation a page."""
        ...

    def look(self, bucket: str, name: str) -> ObjectFacts | None:
        """None: there is no such object."""
        ...

    def put(self, bucket: str, name: str, data: bytes, crc32c: int, generation: int) -> ObjectFacts:
        """Write a small object, if the generation there is this one (0: none). The storage refuses other bytes."""
        ...

    def begin(self, bucket: str, name: str, size: int, generation: int) -> str:
        """The address of a new upload session, under the same condition. It lives for a week (documented)."""
        ...

    def offset(self, session: str, size: int) -> int | ObjectFacts:
        """How many bytes the session has; the object when it is complete. Raises NotFound when it has ended."""
        ...

    def send(
        self, session: str, data: Iterable[bytes], piece: Piece, crc32c: int | None
    ) -> int | ObjectFacts:
        """One piece, sent once and not repeated; the answer is that of `offset`. `crc32c`: of the whole object, with
        its last piece. After a Transient error `offset` tells how much arrived."""
        ...

    def drop(self, session: str) -> None:
        """Afterwards the session has ended. Absent is success."""
        ...

    def get(
        self, bucket: str, facts: ObjectFacts, start: int, take: Callable[[bytes], object]
    ) -> None:
        """Give `take` the bytes of that generation from `start`, asked for once. Raises NotFound when the generation is
        gone, Transient when the answer ends early: what `take` had is right as far as it goes, and unverified."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `end` of `size`."""

    start: int
    end: int
    size: int

    @property
    def last(self) -> bool:
        return self.end == self.size


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of the folder as it was found. The identity changes with every write to it (ctime cannot be set back)."""

    key: str  #: its path below the folder, as the name of an object
    path: bytes
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def identity(self) -> tuple[int, int, int, int]:
        return self.size, self.mtime_ns, self.ctime_ns, self.inode


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that is not copied, by name."""

    name: str
    reason: str


@dataclass(slots=True)
class Outcome:
    """What a sync did. `problems` has the first of them; `left_out` and `conflicts` count all."""

    copied: int = 0
    copied_bytes: int = 0
    sent_bytes: int = (
        0  #: over the wire in either direction, repeats included; not what a resumed file had
    )
    same: int = 0
    same_bytes: int = 0
    left_out: int = 0
    conflicts: int = 0
    problems: list[LeftOut] = field(default_factory=list[LeftOut])
