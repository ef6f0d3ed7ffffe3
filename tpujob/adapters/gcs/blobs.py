"""Blobs on Cloud Storage, or on another server of its JSON API.

`client.py` makes the calls, `bucket.py` describes the setup of buckets.
"""

# Google's libraries have no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import builtins
import contextlib
import io
import os
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, TYPE_CHECKING, Any, TypeVar

from tpujob.adapters.calling import Count, Deadline, uncounted
from tpujob.adapters.gcs import bucket as gcs_bucket
from tpujob.adapters.gcs.client import KIND, StorageClient
from tpujob.errors import BadRequest, NotFound, TpujobError, Transient
from tpujob.ports import Blob, BucketFacts, BucketPlace

if TYPE_CHECKING:
    from google.cloud import storage

T = TypeVar("T")

_FACTS = "name,size,generation,metageneration,updated,metadata"
#: metadata key by which a conditional write recognises its own earlier try; hidden from callers
_WRITE_ID = "tpujob-write"


class GcsBlobs:
    """Implements `ports.Blobs`. Thread-safe. Reads, deletes and conditional writes are retried until they succeed or
    the time is up. An unconditional write is not, because a late retry could undo another writer's. After a wrong
    checksum any call is retried."""

    def __init__(self, project: str, endpoint: str = "", *, count: Count = uncounted) -> None:
        self._project = project
        self._client = StorageClient(project, endpoint, count=count)

    def put(
        self,
        path: str,
        data: bytes | IO[bytes],
        *,
        metadata: Mapping[str, str] | None = None,
        if_generation: int | None = None,
        timeout: float,
    ) -> Blob:
        bucket, name = split_path(path)
        deadline = Deadline(timeout)
        write_id = uuid.uuid4().hex
        custom = dict(metadata or {})
        if if_generation is not None:
            custom[_WRITE_ID] = write_id
        file = _BoundedFile(io.BytesIO(data) if isinstance(data, bytes) else data, deadline)
        size = file.seek(0, os.SEEK_END)

        def once(left: float, failures: int) -> Blob:
            from google.api_core.exceptions import PreconditionFailed

            blob = self._client.blob(bucket, name)
            blob.metadata = custom
            try:
                blob.upload_from_file(
                    file,
                    rewind=True,
                    size=size,
                    content_type=KIND,
                    if_generation_match=if_generation,
                    checksum="crc32c",
                    timeout=left,
                    retry=None,
                )
            except PreconditionFailed:
                if failures == 0:
                    raise
                # an earlier try may have succeeded, although its answer was lost
                stored = blob.bucket.get_blob(name, timeout=left, retry=None)
                if stored is None or (stored.metadata or {}).get(_WRITE_ID) != write_id:
                    raise
                blob = stored
            return _facts(bucket, blob)

        return self._client.retry(f"write {path}", deadline, once, safe=if_generation is not None)

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        bucket, name = split_path(path)
        whole = start == 0 and end is None
        deadline = Deadline(timeout)

        def once(left: float, _: int) -> bytes:
            from google.api_core.exceptions import RequestRangeNotSatisfiable

            blob = self._client.blob(bucket, name)
            blob.chunk_size = None  # one request, so that the checksum of the whole is compared
            if end is not None and end <= start:
                blob.reload(timeout=left, retry=None)  # nothing to read, but the object must exist
                return b""
            content = io.BytesIO()
            try:
                blob.download_to_file(
                    _BoundedFile(content, deadline),
                    start=start or None,
                    end=None if end is None else end - 1,
                    raw_download=True,
                    checksum="crc32c" if whole else None,
                    timeout=left,
                    retry=None,
                )
            except RequestRangeNotSatisfiable:  # the object ends before `start`
                return b""
            return content.getvalue()

        return self._client.retry(f"read {path}", deadline, once)

    def list(self, prefix: str, *, most: int | None = None, timeout: float) -> list[Blob]:
        bucket, start = split_path(prefix, empty=True)
        deadline = Deadline(timeout)
        blobs: builtins.list[Blob] = []
        token: str | None = None

        def page(left: float, _: int) -> Any:
            return self._client.page(bucket, token, left, _FACTS, prefix=start, page_size=most)

        while True:
            items, token = self._client.retry(f"list {prefix}", deadline, page)
            blobs += [_facts(bucket, item) for item in items]
            if not token or (most is not None and len(blobs) >= most):
                return blobs[:most]

    def touch(self, path: str, *, timeout: float) -> None:
        bucket, name = split_path(path)

        def once(left: float) -> None:
            blob = self._client.blob(bucket, name)
            blob.metadata = {_WRITE_ID: uuid.uuid4().hex}  # a patch keeps the other keys
            blob.patch(timeout=left, retry=None)

        self._retry(f"touch {path}", timeout, once)

    def delete(self, path: str, *, unchanged: Blob | None = None, timeout: float) -> None:
        bucket, name = split_path(path)

        def once(left: float) -> None:
            self._client.bucket(bucket).delete_blob(
                name,
                if_generation_match=unchanged.generation if unchanged else None,
                if_metageneration_match=unchanged.touched if unchanged else None,
                timeout=left,
                retry=None,
            )

        with contextlib.suppress(NotFound):
            self._retry(f"delete {path}", timeout, once)

    def clock(self, *, timeout: float) -> float:
        def once(left: float) -> float:
            problem = "its answers have no Date header"
            try:
                self._client.send("GET", "tpujob-clock", "", left, params={"fields": "name"})
            except TpujobError as error:  # even a refusal has the time
                problem = error.message
            if (now := self._client.clock.now()) is None:
                raise Transient(problem)
            return now

        if (now := self._client.clock.now()) is not None:
            return now
        return self._retry("ask the storage for its time", timeout, once)

    def ensure_bucket(self, bucket: str, region: str, *, timeout: float) -> None:
        name, _ = split_path(bucket, empty=True)
        new = {"name": name, "location": region, **gcs_bucket.needed_changes({"name": name}, None)}
        project = {"project": self._project}

        def once(left: float) -> dict[str, Any]:
            try:
                return self._client.json("GET", name, "", left)
            except NotFound:
                # Transient when another caller was faster or the name is taken: the next try reads the bucket again
                return self._client.json("POST", "", "", left, params=project, json=new)

        resource = self._retry(f"use bucket gs://{name}", timeout, once)
        gcs_bucket.check_location(resource, region)

    def make_bucket(
        self, bucket: str, region: str, *, log_days: int | None, adopt: bool, timeout: float
    ) -> BucketFacts:
        """Create or set up a bucket: in that region, closed to the public, without soft delete. Logs of jobs are
        removed after `log_days` (None: never); other lifecycle rules stay. Safe to repeat. Raises Refused when the
        bucket lies elsewhere, belongs to another project, or was not made by tpujob and `adopt` is not set."""
        self.ensure_bucket(bucket, region, timeout=timeout)
        name, _ = split_path(bucket, empty=True)

        def once(left: float) -> BucketFacts:
            resource = self._client.json("GET", name, "", left)
            if not adopt:
                gcs_bucket.check_ours(resource)
            if changes := gcs_bucket.needed_changes(resource, log_days):
                unchanged = {"ifMetagenerationMatch": resource["metageneration"]}
                query = {"projection": "full", **unchanged}
                resource = self._client.json("PATCH", name, "", left, params=query, json=changes)
            return gcs_bucket.facts_of(resource)

        return self._retry(f"set up bucket gs://{name}", timeout, once)

    def bucket(self, bucket: str, *, timeout: float) -> BucketFacts:
        """Return how the bucket is set up. Raises NotFound; Refused when it belongs to another project."""
        name, _ = split_path(bucket, empty=True)
        read = partial(self._client.json, "GET", name, "")
        return gcs_bucket.facts_of(self._retry(f"look at bucket gs://{name}", timeout, read))

    def place(self, bucket: str, *, timeout: float) -> BucketPlace:
        name, _ = split_path(bucket, empty=True)
        # an account that may only use objects cannot read the bucket itself, but may read its layout
        read = partial(self._client.json, "GET", name, "/storageLayout")
        return gcs_bucket.place_of(self._retry(f"look at bucket gs://{name}", timeout, read))

    def close(self) -> None:
        """Close the connections; a later call opens new ones. Safe to repeat."""
        self._client.close()

    def _retry(self, operation: str, timeout: float, once: Callable[[float], T]) -> T:
        """Return the result of the first `once(seconds left)` that succeeds."""
        return self._client.retry(operation, Deadline(timeout), lambda left, _: once(left))


class _BoundedFile:
    """A file whose reads and writes raise Transient after the deadline, as Google's client bounds single waits only."""

    def __init__(self, file: IO[bytes], deadline: Deadline) -> None:
        self.seek, self.tell = file.seek, file.tell
        self._file, self._deadline = file, deadline

    def read(self, size: int = -1) -> bytes:
        self._deadline.left()
        return self._file.read(size)

    def write(self, data: bytes) -> int:
        self._deadline.left()
        return self._file.write(data)


def split_path(path: str, *, empty: bool = False) -> tuple[str, str]:
    """Return bucket and name of a `gs://` path. Raises BadRequest for anything else, and for an empty name unless
    `empty`."""
    bucket, _, name = path.removeprefix("gs://").partition("/")
    if not path.startswith("gs://") or not bucket or not (name or empty):
        raise BadRequest(f"{path!r} is not the gs:// path of an object")
    return bucket, name


def _facts(bucket: str, blob: storage.Blob) -> Blob:
    metadata = {k: v for k, v in (blob.metadata or {}).items() if k != _WRITE_ID}
    return Blob(
        path=f"gs://{bucket}/{blob.name}",
        size=blob.size or 0,
        generation=blob.generation or 0,
        updated=blob.updated.timestamp(),
        metadata=metadata,
        touched=blob.metageneration or 0,
    )
