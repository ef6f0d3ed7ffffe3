"""What copying needs of a storage: `SourceReader` of any, `Objects` of Cloud Storage. Facts only, no calls here.

`adapters/gcs/objects.py` implements both, `adapters/s3_objects.py` and `web_files.py` implement `SourceReader`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self

from tpujob.data.checksums import Hash
from tpujob.data.locations import Traffic
from tpujob.errors import Transient

_PROBLEMS = 1_000  #: that are kept with their names


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """One object as a list or an answer describes it."""

    name: str
    size: int
    #: None: the storage does not say (documented for keys that the customer keeps; always outside Cloud Storage)
    crc32c: int | None
    generation: int  #: 0 outside Cloud Storage
    #: outside Cloud Storage: changes with every write; empty: nothing there does
    identity: str = ""
    hash: Hash | None = None  #: outside Cloud Storage, where a request for this one object had it
    source: str = ""  #: in Cloud Storage: the identity of what it was copied from

    def same_bytes(self, other: Self | None) -> bool:
        """Return whether both have the same content. False where the storage says no checksum."""
        if other is None or self.crc32c is None:
            return False
        return (self.size, self.crc32c) == (other.size, other.crc32c)


@dataclass(slots=True)
class Operations:
    """Requests as they are billed, repeats included."""

    class_a: int = 0
    class_b: int = 0


class NotCopied(Exception):
    """This one object cannot be copied; others may. `str(error)` is the reason."""


class WrongBytes(NotCopied):
    """Its bytes do not have the size or the checksum that its source gives, in two reads that agree with each other, or
    in many."""

    def __init__(self, received: int, size: int) -> None:
        short = f"its source sends {received} of the {size} bytes that it announced"
        wrong = "its bytes do not have the checksum that its source gives"
        super().__init__(short if received < size else wrong)


class Changed(NotCopied):
    """The file was written to while it was being copied."""

    def __init__(self) -> None:
        super().__init__("it was written to while it was being copied")


class MustRestart(Exception):
    """What has arrived of an object is lost, as its upload session is gone, or cannot be continued, as its source sends
    no parts: its copy starts again."""


class SourceEnded(Transient):
    """The source sent fewer bytes than it announced, and ended its answer well."""


@dataclass(slots=True)
class ObjectContent:
    """The bytes of an object as they arrive. `chunks` raises Transient when they end early."""

    chunks: Iterator[bytes]
    hash: Hash | None = None  #: of all bytes, where the answer has one


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a bucket keeps beyond its objects."""

    #: seconds for which what is deleted or overwritten is kept, and billed; 0: not at all
    soft_delete_s: int
    #: days after which a rule ends uploads in parts; None: never, and they are billed
    parts_days: int | None


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `start` to `end` of `size`."""

    start: int
    end: int
    size: int


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
    """An object or a file that is not copied."""

    name: str
    reason: str


@dataclass(slots=True)
class Problems:
    """What was not copied. `problems` has the first of them; `left_out` and `conflicts` count all."""

    left_out: int = 0
    conflicts: int = 0  #: something else is there, or came meanwhile, and stays
    problems: list[LeftOut] = field(default_factory=list[LeftOut])

    def note(self, one: LeftOut, *, conflict: bool = False) -> None:
        self.conflicts += conflict
        self.left_out += not conflict
        if len(self.problems) < _PROBLEMS:
            self.problems.append(one)


@dataclass(slots=True)
class CopyOutcome(Problems):
    """What a sync did."""

    copied: int = 0
    copied_bytes: int = 0
    sent_bytes: int = 0  #: over the wire in either direction, repeats included
    same: int = 0
    same_bytes: int = 0
    unverified: int = 0  #: of the copied: nothing but their length and TLS says that they are right
    traffic: Traffic = field(default_factory=Traffic)


class SourceReader(Protocol):
    """The objects of a storage, to be read. Threads share it.

    `pages` repeats what may be repeated. Raises NotFound, Refused, Transient (it was repeated and the time is up).
    """

    def pages(self, bucket: str, prefix: str) -> Iterator[Sequence[ObjectFacts | LeftOut]]:
        """Every object below the prefix, in the order of the names' UTF-8 bytes. In Cloud Storage one class A operation
        a page."""
        ...

    def open(
        self, bucket: str, facts: ObjectFacts, start: int
    ) -> AbstractContextManager[ObjectContent]:
        """The bytes of exactly that object from `start`, requested once. Raises NotFound when these bytes cannot be had
        any more, MustRestart, NotCopied when this object is refused, Transient. What arrives is right as far as it
        goes, and unverified."""
        ...


class Objects(SourceReader, Protocol):
    """The objects of Cloud Storage. Threads share it.

    Each method repeats what may be repeated. Raises NotFound, Conflict (a condition does not hold), Refused, Transient
    (it was repeated and the time is up).
    """

    def close(self) -> None:
        """Close its connections; a later call opens new ones."""
        ...

    operations: Operations

    def pages(self, bucket: str, prefix: str, start: str = "") -> Iterator[Sequence[ObjectFacts]]:
        """As a `SourceReader` does; of the names, those from `start` on."""
        ...

    def look(self, bucket: str, name: str) -> ObjectFacts | None:
        """Return the object as it is now; None: there is none."""
        ...

    def put(
        self, bucket: str, name: str, data: bytes, crc32c: int, generation: int, source: str = ""
    ) -> ObjectFacts:
        """Write a small object, if the generation there is this one (0: none). The storage refuses other bytes.
        `source`: kept with it, and shown by lists."""
        ...

    def begin(self, bucket: str, name: str, size: int, generation: int, source: str = "") -> str:
        """Begin an upload session, under the same condition. It lives for a week (documented)."""
        ...

    def offset(self, session: str, size: int) -> int | ObjectFacts:
        """How many bytes the session has; the object when it is complete. Raises MustRestart."""
        ...

    def send(
        self, session: str, data: bytes | Iterable[bytes], piece: Piece, crc32c: int | None
    ) -> int | ObjectFacts:
        """Send one piece, once; the answer is that of `offset`. `crc32c`: of the whole object, with its last piece.
        After a Transient error `offset` tells how much arrived. What `data` raises rises as it is."""
        ...

    def drop(self, session: str) -> None:
        """End the session. Absent is success."""
        ...

    def rewrite(
        self,
        bucket: str,
        facts: ObjectFacts,
        to_bucket: str,
        name: str,
        generation: int,
        token: str,
    ) -> str | ObjectFacts:
        """Copy that generation of an object within Cloud Storage, under the condition of `put`. A token: it is not
        complete; the same call with the token goes on (it holds for a week, documented), another process's too. One
        class A operation however many calls. Raises NotFound when the source or the token has gone."""
        ...

    def location(self, bucket: str) -> str:
        """Return the region or continent of a bucket, in lower case; empty: this account may not read it."""
        ...
