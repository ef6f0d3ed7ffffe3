"""The objects of buckets, and copies that the storage makes itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from tpujob.domain.copies import Copy, CopyProgress

# Blobs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blob:
    """An object without its content."""

    path: str  #: `gs://bucket/…`
    size: int
    generation: int
    updated: float  #: by the storage's clock
    metadata: Mapping[str, str]
    touched: int = 0  #: grows with each touch of the generation


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """The location of a bucket, in lower case."""

    location: str  #: a region; a pair of regions such as `nam4`; or a continent such as `us`
    regions: frozenset[str]  #: regions that read it without charge; empty for a continent


@dataclass(frozen=True, slots=True)
class BucketFacts:
    """The settings of a bucket that matter to jobs."""

    name: str
    location: str  #: a region, or a continent such as `us`, in lower case
    location_type: str  #: `region`, `dual-region` or `multi-region`
    uniform_access: bool  #: only IAM controls access
    public_access: str  #: `enforced`: it cannot be made public
    soft_delete_s: int  #: seconds for which deleted objects are kept, and billed
    versioning: bool  #: overwritten objects are kept, and billed
    log_days: int | None  #: days after which logs of jobs are removed; None: never
    ours: bool  #: the bucket has tpujob's label: tpujob made or adopted it
    #: days until unfinished multipart uploads are deleted; None: never
    parts_days: int | None = None


class Blobs(Protocol):
    """Objects by `gs://` path."""

    def put(
        self,
        path: str,
        data: bytes | IO[bytes],
        *,
        metadata: Mapping[str, str] | None = None,
        if_generation: int | None = None,
        timeout: float,
    ) -> Blob:
        """Write an object, completely or not at all. A file is streamed from its beginning. `if_generation`: 0: only if
        the object is absent; n: only if n is its generation; else raise Conflict."""
        ...

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        """Return the bytes from `start` up to, not including, `end`. Raise NotFound."""
        ...

    def list(self, prefix: str, *, most: int | None = None, timeout: float) -> list[Blob]:
        """Return the objects whose path starts with `prefix`, by path, with their metadata; at most `most`."""
        ...

    def touch(self, path: str, *, timeout: float) -> None:
        """Mark the object as used, so that a `delete` with an older `unchanged` fails. Raise NotFound."""
        ...

    def delete(self, path: str, *, unchanged: Blob | None = None, timeout: float) -> None:
        """Delete the object. Absent is success. `unchanged`: raise Conflict if it was written or touched since then."""
        ...

    def clock(self, *, timeout: float) -> float:
        """Return the storage's own time, so that ages are computed on one clock."""
        ...

    def ensure_bucket(self, bucket: str, region: str, *, timeout: float) -> None:
        """Create the bucket in the region unless it exists. Raise Refused if it is in another region."""
        ...

    def place(self, bucket: str, *, timeout: float) -> BucketPlace:
        """Return the location of a `gs://` path's bucket. Raise NotFound, or Refused for another owner's bucket."""
        ...


# Copies --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """The size of the objects below a source, and the part of them that a target lacks."""

    objects: int
    bytes: int
    missing: int  #: number of objects that the target lacks, or has with another content
    missing_bytes: int
    counted: bool  #: False: the source has more objects than were counted


class Copies(Protocol):
    """Copies of objects that the storage makes itself: no byte passes through this process."""

    def compare(self, source: str, target: str, *, timeout: float) -> Comparison:
        """Count both sides within `timeout`; the target "" is empty. Raise NotFound (no bucket), Refused, Transient."""
        ...

    def advance(self, copy: Copy, *, timeout: float) -> CopyProgress:
        """Continue a copy and return its progress; begin no call after `timeout`. Objects are copied under the
        condition that they have not changed since they were listed, and compared by size and CRC32C. Safe to repeat
        from any earlier progress, and beside another process. Raise Refused (also for an empty source), Transient."""
        ...


# Tokens for people ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StorageToken:
    """A token for some objects alone, which a person's machine can use."""

    token: str  #: empty: the storage takes none
    endpoint: str = ""  #: URL of an emulated storage; empty: Google's
    expires_at: float | None = None  #: None: never


class TokenLender(Protocol):
    """Makes tokens for parts of a bucket."""

    def lend(self, folder: str, writable: Sequence[str]) -> StorageToken:
        """Return a token that may list and read the objects below `folder`, a `gs://` path that ends in a slash, and
        write and delete those below `writable`, which are below it. Raises Refused, Transient."""
        ...
