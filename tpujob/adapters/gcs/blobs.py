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
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any

from tpujob.adapters.gcs import bucket as gcs_bucket
from tpujob.adapters.gcs.client import StorageClient, bucket_path, resource_of, translated
from tpujob.errors import BadRequest, Conflict, NotFound, TpujobError, Transient
from tpujob.lib.tries import Deadline
from tpujob.ports import Blob, BucketFacts, BucketPlace

_FACTS = "name,size,generation,metageneration,updated,metadata"
_PAGE = 1000  #: most objects of a page (documented)
#: metadata key by which a conditional write recognises its own earlier try; hidden from callers
_WRITE_ID = "tpujob-write"


class GcsBlobs(StorageClient):
    """Implements `ports.Blobs`. Thread-safe. Reads, deletes and conditional writes are retried until they succeed or
    the time is up. An unconditional write is not, because a late retry could undo another writer's. After a wrong
    checksum any call is retried."""

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
        conditional = if_generation is not None
        write_id = uuid.uuid4().hex
        custom = {**(metadata or {}), **({_WRITE_ID: write_id} if conditional else {})}
        deadline = Deadline(timeout)
        file = _BoundedFile(io.BytesIO(data) if isinstance(data, bytes) else data, deadline)
        size, tries = file.seek(0, os.SEEK_END), 0

        def once(left: float) -> Blob:
            nonlocal tries
            tries += 1
            blob = self.blob(bucket, name)
            blob.metadata = custom
            try:
                with translated():
                    blob.upload_from_file(
                        file,
                        rewind=True,
                        size=size,
                        if_generation_match=if_generation,
                        timeout=left,
                        retry=None,
                    )
            except Conflict:
                # an earlier try may have succeeded, although its answer was lost
                stored = blob.bucket.get_blob(name, timeout=left, retry=None) if tries > 1 else None
                if stored is None or (stored.metadata or {}).get(_WRITE_ID) != write_id:
                    raise
                blob = stored
            return _facts(bucket, resource_of(blob))

        return self.retry(f"write {path}", deadline, once, safe=conditional)

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        bucket, name = split_path(path)
        deadline = Deadline(timeout)

        def once(left: float) -> bytes:
            from google.api_core.exceptions import RequestRangeNotSatisfiable

            blob = self.blob(bucket, name)
            if end is not None and end <= start:
                blob.reload(timeout=left, retry=None)  # nothing to read, but the object must exist
                return b""
            blob.chunk_size = None  # one request, so that the checksum of the whole is compared
            content = io.BytesIO()
            try:
                blob.download_to_file(
                    _BoundedFile(content, deadline),
                    start=start or None,
                    end=None if end is None else end - 1,
                    raw_download=True,
                    timeout=left,
                    retry=None,
                )
            except RequestRangeNotSatisfiable:  # the object ends before `start`
                return b""
            return content.getvalue()

        return self.retry(f"read {path}", deadline, once)

    def list(self, prefix: str, *, most: int | None = None, timeout: float) -> list[Blob]:
        bucket, _ = split_path(prefix, empty=True)
        blobs: builtins.list[Blob] = []
        deadline = Deadline(timeout)
        for page in self.blob_pages(
            prefix, lambda: deadline, _FACTS, page_size=most and min(most, _PAGE)
        ):
            blobs += [_facts(bucket, item) for item in page]
            if most is not None and len(blobs) >= most:
                break
        return blobs[:most]

    def touch(self, path: str, *, timeout: float) -> None:
        bucket, name = split_path(path)

        def once(left: float) -> None:
            blob = self.blob(bucket, name)
            blob.metadata = {_WRITE_ID: uuid.uuid4().hex}  # a patch keeps the other keys
            blob.patch(timeout=left, retry=None)

        self.retry(f"touch {path}", Deadline(timeout), once)

    def delete(self, path: str, *, unchanged: Blob | None = None, timeout: float) -> None:
        bucket, name = split_path(path)

        def once(left: float) -> None:
            self.blob(bucket, name).delete(
                if_generation_match=unchanged.generation if unchanged else None,
                if_metageneration_match=unchanged.touched if unchanged else None,
                timeout=left,
                retry=None,
            )

        with contextlib.suppress(NotFound):
            self.retry(f"delete {path}", Deadline(timeout), once)

    def clock(self, *, timeout: float) -> float:
        def once(left: float) -> float:
            problem = "its answers have no Date header"
            try:
                with translated():
                    self.send("GET", "/tpujob-clock", left, params={"fields": "name"})
            except TpujobError as error:  # even a refusal has the time
                problem = error.message
            if (now := self.server_clock.now()) is None:
                raise Transient(problem)
            return now

        if (now := self.server_clock.now()) is not None:
            return now
        return self.retry("ask the storage for its time", Deadline(timeout), once)

    def ensure_bucket(self, bucket: str, region: str, *, timeout: float) -> None:
        name, _ = split_path(bucket, empty=True)
        new = {"name": name, "location": region, **gcs_bucket.needed_changes({"name": name}, None)}

        def once(left: float) -> dict[str, Any]:
            try:
                return self.json("GET", bucket_path(name), left)
            except NotFound:
                # Transient when another caller was faster or the name is taken: the next try reads the bucket again
                return self.json("POST", "", left, params={"project": self.project}, json=new)

        resource = self.retry(f"use bucket gs://{name}", Deadline(timeout), once)
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
            resource = self.json("GET", bucket_path(name), left)
            if not adopt:
                gcs_bucket.check_ours(resource)
            if changes := gcs_bucket.needed_changes(resource, log_days):
                query = {"ifMetagenerationMatch": resource["metageneration"], "projection": "full"}
                resource = self.json("PATCH", bucket_path(name), left, params=query, json=changes)
            return gcs_bucket.facts_of(resource)

        return self.retry(f"set up bucket gs://{name}", Deadline(timeout), once)

    def bucket(self, bucket: str, *, timeout: float) -> BucketFacts:
        """Return how the bucket is set up. Raises NotFound; Refused when it belongs to another project."""
        name, _ = split_path(bucket, empty=True)
        return gcs_bucket.facts_of(self.read_bucket(name, Deadline(timeout)))

    def place(self, bucket: str, *, timeout: float) -> BucketPlace:
        # an account that may only use objects cannot read the bucket itself, but may read its layout
        name, _ = split_path(bucket, empty=True)
        return gcs_bucket.place_of(self.read_bucket(name, Deadline(timeout), "/storageLayout"))


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


def _facts(bucket: str, resource: Mapping[str, Any]) -> Blob:
    metadata = {k: v for k, v in resource.get("metadata", {}).items() if k != _WRITE_ID}
    return Blob(
        path=f"gs://{bucket}/{resource['name']}",
        size=int(resource["size"]),
        generation=int(resource["generation"]),
        updated=datetime.fromisoformat(resource["updated"]).timestamp(),
        metadata=metadata,
        touched=int(resource["metageneration"]),
    )
