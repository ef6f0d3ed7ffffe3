"""Interfaces of storages for copying, and their records: `SourceReader` for any source, `Objects` for Cloud Storage.

`adapters/gcs/objects.py` implements both; `adapters/s3_objects.py` and `web_files.py` implement `SourceReader`.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self

from tpujob.data.checksums import Hash
from tpujob.data.locations import Traffic
from tpujob.errors import Transient
from tpujob.protocol.left_out import LeftOut

_PROBLEMS = 1_000  #: most problems that are kept with names


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """The facts of one object."""

    name: str
    size: int
    #: None: unknown, as for keys of the customer (documented) and outside Cloud Storage
    crc32c: int | None
    generation: int  #: 0 outside Cloud Storage
    identity: str = ""  #: outside Cloud Storage: a text that differs after every write, if known
    hash: Hash | None = None  #: outside Cloud Storage: the hash in the answer for this object
    source: str = ""  #: in Cloud Storage: the identity of the object's source

    def same_bytes(self, other: Self | None) -> bool:
        """Return whether both have the same content; False without a checksum."""
        if other is None or self.crc32c is None:
            return False
        return (self.size, self.crc32c) == (other.size, other.crc32c)


@dataclass(slots=True)
class Operations:
    """The billed requests, retries included."""

    class_a: int = 0
    class_b: int = 0


class NotCopied(Exception):
    """This object cannot be copied; other objects can. `str(error)` is the reason."""


class WrongBytes(NotCopied):
    """The source sends bytes of another size or checksum than it declares, in two equal reads or in many."""

    def __init__(self, received: int, size: int) -> None:
        truncated = f"its source sends {received} of the {size} bytes that it announced"
        wrong = "its bytes do not have the checksum that its source gives"
        super().__init__(truncated if received < size else wrong)


class Changed(NotCopied):
    """The file changed during its copy."""

    def __init__(self) -> None:
        super().__init__("it was written to while it was being copied")


class MustRestart(Exception):
    """The copy must restart from the first byte: the upload was lost, or the source has no ranges."""


class SourceEnded(Transient):
    """The source sent fewer bytes than it announced, and closed its answer without an error."""


@dataclass(slots=True)
class ObjectContent:
    """The content of an object. `chunks` raises Transient if the transfer ends early."""

    chunks: Iterator[bytes]
    hash: Hash | None = None  #: the hash of the whole object, if the answer has one


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object to be written, if the present generation of its name is `generation`."""

    bucket: str
    name: str
    size: int
    generation: int  #: 0: the name is free
    source: str = ""  #: becomes `ObjectFacts.source`


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of a folder. Its identity differs after every write (ctime cannot be set back)."""

    key: str  #: the path below the folder, as the name of an object
    path: bytes
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def identity(self) -> tuple[int, int, int, int]:
        return self.size, self.mtime_ns, self.ctime_ns, self.inode


@dataclass(slots=True)
class Problems:
    """The objects and files that are not copied. `problems` has the first of them; the counts are complete."""

    left_out: int = 0
    conflicts: int = 0  #: the target has other content, which stays
    problems: list[LeftOut] = field(default_factory=list[LeftOut])

    def note(self, problem: LeftOut, *, conflict: bool = False) -> None:
        self.conflicts += conflict
        self.left_out += not conflict
        if len(self.problems) < _PROBLEMS:
            self.problems.append(problem)


@dataclass(slots=True)
class CopyOutcome(Problems):
    """The result of a sync."""

    copied: int = 0
    copied_bytes: int = 0
    sent_bytes: int = 0  #: over the network in either direction, retries included
    same: int = 0
    same_bytes: int = 0
    unverified: int = 0  #: copied objects without a hash, verified by size and TLS alone
    traffic: Traffic = field(default_factory=Traffic)


class SourceReader(Protocol):
    """A reader of a storage's objects. Threads share it.

    `pages` retries, and raises NotFound, Refused, Transient (the last retry failed).
    """

    def pages(self, bucket: str, prefix: str) -> Iterator[Sequence[ObjectFacts | LeftOut]]:
        """Yield pages of objects, in the order of UTF-8 names; in Cloud Storage each is a class A operation."""
        ...

    def open(
        self, bucket: str, facts: ObjectFacts, start: int
    ) -> AbstractContextManager[ObjectContent]:
        """Open exactly that version of an object from byte `start`, without retries; the bytes are not verified. Raises
        NotFound if the version is gone, NotCopied if the storage refuses it, MustRestart, Transient."""
        ...


class Objects(SourceReader, Protocol):
    """A client of Cloud Storage. Threads share it.

    Methods retry where that is safe. They raise NotFound, Conflict (a precondition failed), Refused, Transient (the
    last retry failed).
    """

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        ...

    operations: Operations

    def pages(self, bucket: str, prefix: str, start: str = "") -> Iterator[Sequence[ObjectFacts]]:
        """Yield pages as a `SourceReader` does, of the names from `start` on."""
        ...

    def look(self, bucket: str, name: str) -> ObjectFacts | None:
        """Return the object's present facts, or None if it does not exist."""
        ...

    def write(self, new: NewObject, chunks: Iterator[bytes]) -> ObjectFacts:
        """Write an object; return the facts that the storage confirms. `chunks` has all bytes, and is read once: its
        errors are passed on, and leave no object. The storage refuses bytes that were damaged on their way. Raises
        MustRestart when the bytes are lost."""
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
        """Copy that generation of an object within Cloud Storage, if the present generation of the new name is
        `generation` (0: none). Return the new object, or a token with which the next call, of any process, continues
        within a week (documented). All calls together are one class A operation. Raises NotFound if the source or the
        token is gone."""
        ...

    def location(self, bucket: str) -> str:
        """Return the region or continent of a bucket, in lower case; empty: this account has no permission."""
        ...
