"""The bucket, and copies that the storage makes by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Protocol

from tpujob.domain.copies import Copy, CopyProgress

# Blobs ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blob:
    path: str  #: `gs://bucket/…`
    size: int
    generation: int
    updated: float  #: by the storage's clock
    metadata: Mapping[str, str]
    touched: int = 0  #: grows when it is touched; of one generation


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """Where a bucket lies, in small letters."""

    location: str  #: a region; a pair of regions such as `nam4`; or a continent such as `us`
    regions: frozenset[str]  #: from which it is read without charge; empty for a continent


@dataclass(frozen=True, slots=True)
class BucketFacts:
    """How a bucket is set up, as far as it matters to jobs."""

    name: str
    location: str  #: a region, or a continent such as `us`; small letters
    location_type: str  #: `region`, `dual-region` or `multi-region`
    uniform_access: bool  #: IAM alone says who may read it
    public_access: str  #: `enforced`: it cannot be made public
    soft_delete_s: int  #: seconds for which deleted objects are kept, and billed
    versioning: bool  #: overwritten objects are kept, and billed
    log_days: int | None  #: logs of jobs are removed after that many; None: never
    ours: bool  #: it has tpujob's label: tpujob made or adopted it


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
        """Write whole or not at all; a file from its beginning, and not as a whole in memory. `if_generation`: 0: only
        if absent; n: only over that one. Raises Conflict when that does not hold."""
        ...

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        """The bytes from `start` up to, not including, `end`. Raises NotFound."""
        ...

    def list(self, prefix: str, *, most: int | None = None, timeout: float) -> list[Blob]:
        """Every object whose path starts with `prefix`, by path, with its metadata; the first `most` of them."""
        ...

    def touch(self, path: str, *, timeout: float) -> None:
        """Change nothing but the mark that it is in use: who deletes it as it was before, fails. Raises NotFound."""
        ...

    def delete(self, path: str, *, unchanged: Blob | None = None, timeout: float) -> None:
        """Absent is success. `unchanged`: only if it still is as it was then, and was not touched since; raises
        Conflict."""
        ...

    def clock(self, *, timeout: float) -> float:
        """The storage's own time, so that ages are computed on one clock."""
        ...

    def ensure_bucket(self, bucket: str, region: str, *, timeout: float) -> None:
        """Afterwards `gs://name` exists, in that region. Raises Refused when it lies in another one."""
        ...

    def place(self, bucket: str, *, timeout: float) -> BucketPlace:
        """Return where the bucket of this `gs://` path lies. Raises NotFound; Refused when it is another owner's."""
        ...


# Copies --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """What lies below a prefix, and how much of it another one lacks."""

    objects: int
    bytes: int
    missing: int  #: objects that the other lacks, or has with another content
    missing_bytes: int
    counted: bool  #: False: there is more than was counted


class Copies(Protocol):
    """Copies of objects that the storage makes by itself: no byte passes through this process."""

    def compare(self, source: str, target: str, *, timeout: float) -> Comparison:
        """Count both sides, as far as the time allows; a target of "" has nothing. Raises NotFound for a bucket that
        is not there, Refused, Transient."""
        ...

    def advance(self, copy: Copy, *, timeout: float) -> CopyProgress:
        """Go on with a copy and return how far it has come; no call is begun after `timeout`. An object is copied as it
        was listed, under a condition, and compared by size and CRC32C. Safe to repeat from any earlier progress, and
        beside another process. Raises Refused (also when the source has nothing), Transient."""
        ...
