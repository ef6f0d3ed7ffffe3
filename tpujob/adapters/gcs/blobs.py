"""Blobs on Google Cloud Storage, or on any server of its API at another address.

How calls are made is in `calls.py`, what errors mean in `errors.py`, how buckets are set up in `bucket.py`.
"""
# The library has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import builtins
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any

from tpujob.adapters.calling import Count, Deadline, uncounted
from tpujob.adapters.gcs import bucket as gcs_bucket
from tpujob.adapters.gcs.calls import Calls, FileUntil, Until
from tpujob.errors import BadRequest, NotFound, Transient
from tpujob.ports import Blob, BucketFacts, BucketPlace

_FIELDS = "items(name,size,generation,metageneration,updated,metadata),nextPageToken"
CHUNK = 8 * 1024**2  #: bytes that are sent at once, and held in memory
#: metadata key by which a conditional write recognises its own first try; not shown to callers
_WRITE_ID = "tpujob-write"


class GcsBlobs:
    """Implements `ports.Blobs`. Threads may share it.

    Reads, deletes and conditional writes are repeated until they succeed or the time is up. An unconditional write is
    not: a late repeat could undo somebody else's. After a wrong checksum any call is repeated once.
    """

    def __init__(self, project: str, endpoint: str = "", *, count: Count = uncounted) -> None:
        """`count`: told of each call."""
        self._calls = Calls(project, endpoint, count)  # no endpoint: Google Cloud's

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
        given = dict(metadata or {})
        if if_generation is not None:
            given[_WRITE_ID] = write_id

        def once(left: float, failures: int) -> Blob:
            from google.api_core.exceptions import NotFound as Missing
            from google.api_core.exceptions import PreconditionFailed

            blob = self._calls.client().bucket(bucket).blob(name)
            blob.metadata = given
            blob.chunk_size = CHUNK  # of what is larger than 8 MiB; else 100 MiB
            body = Until(deadline, data) if isinstance(data, bytes) else FileUntil(deadline, data)
            try:
                blob.upload_from_file(
                    body,
                    size=body.size,
                    content_type="application/octet-stream",
                    if_generation_match=if_generation,
                    timeout=left,
                    checksum="crc32c",
                    retry=None,
                )
            except PreconditionFailed as conflict:
                if failures == 0:
                    raise
                # an earlier try may have been applied although its answer was lost
                try:
                    blob.reload(timeout=left, retry=None)
                except Missing:  # the object that won was deleted since
                    raise conflict from None
                if (blob.metadata or {}).get(_WRITE_ID) != write_id:
                    raise
            return _blob(bucket, blob)

        return self._calls.repeat(f"write {path}", deadline, once, safe=if_generation is not None)

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        bucket, name = split_path(path)
        deadline = Deadline(timeout)
        whole = start == 0 and end is None

        def once(left: float, _: int) -> bytes:
            from google.api_core.exceptions import RequestRangeNotSatisfiable

            blob = self._calls.client().bucket(bucket).blob(name)
            if end is not None and end <= start:
                blob.reload(timeout=left, retry=None)  # nothing to read, but is it there?
                return b""
            into = Until(deadline)
            try:
                blob.download_to_file(
                    into,
                    start=None if whole else start,
                    end=None if end is None else end - 1,
                    raw_download=True,
                    timeout=left,
                    checksum="crc32c",
                    retry=None,
                )
            except RequestRangeNotSatisfiable:  # the object ends before `start`
                return b""
            return into.getvalue()

        return self._calls.repeat(f"read {path}", deadline, once)

    def stat(self, path: str, *, timeout: float) -> Blob:
        bucket, name = split_path(path)

        def once(left: float, _: int) -> Blob:
            blob = self._calls.client().bucket(bucket).blob(name)
            blob.reload(timeout=left, retry=None)
            return _blob(bucket, blob)

        return self._calls.repeat(f"look at {path}", Deadline(timeout), once)

    def list(
        self, prefix: str, *, after: str = "", most: int | None = None, timeout: float
    ) -> list[Blob]:
        bucket, start = split_path(prefix, empty=True)
        deadline = Deadline(timeout)
        root = f"gs://{bucket}/"
        token: str | None = None
        found: builtins.list[Blob] = []

        def page(left: float, _: int) -> Any:
            pages = self._calls.client().list_blobs(
                bucket,
                prefix=start,
                start_offset=after.removeprefix(root) if after.startswith(root) else None,
                fields=_FIELDS,
                page_token=token,
                timeout=left,
                retry=None,
            )
            return next(pages.pages, ()), pages

        while True:
            blobs, pages = self._calls.repeat(f"list {prefix}", deadline, page)
            found += [_blob(bucket, blob) for blob in blobs]
            token = pages.next_page_token
            if not token or (most is not None and len(found) > most):  # `after` itself may be there
                return [blob for blob in found if blob.path > after][:most]

    def touch(self, path: str, *, timeout: float) -> None:
        bucket, name = split_path(path)

        def once(left: float, _: int) -> None:
            blob = self._calls.client().bucket(bucket).blob(name)
            blob.metadata = {_WRITE_ID: uuid.uuid4().hex}  # a patch leaves the other keys alone
            blob.patch(timeout=left, retry=None)

        self._calls.repeat(f"touch {path}", Deadline(timeout), once)

    def delete(self, path: str, *, unchanged: Blob | None = None, timeout: float) -> None:
        bucket, name = split_path(path)

        def once(left: float, _: int) -> None:
            self._calls.client().bucket(bucket).blob(name).delete(
                timeout=left,
                retry=None,
                if_generation_match=unchanged and unchanged.generation,
                if_metageneration_match=unchanged and unchanged.touched,
            )

        try:
            self._calls.repeat(f"delete {path}", Deadline(timeout), once)
        except NotFound:
            return

    def clock(self, *, timeout: float) -> float:
        now = self._calls.server.now()
        if now is not None:
            return now

        def once(left: float, _: int) -> float:
            # any answer carries the time, even a refusal
            client = self._calls.client()
            address = f"{client.api_endpoint}/storage/v1/b/tpujob-clock?fields=name"
            client._http.get(address, timeout=left)
            now = self._calls.server.now()
            if now is None:
                raise Transient("cannot read the storage's time: its answers have no Date header")
            return now

        return self._calls.repeat("ask the storage for its time", Deadline(timeout), once)

    def ensure_bucket(self, bucket: str, region: str, *, timeout: float) -> None:
        name, _ = split_path(bucket, empty=True)

        def once(left: float, _: int) -> Any:
            from google.api_core.exceptions import Conflict as Exists
            from google.api_core.exceptions import NotFound as Missing

            client = self._calls.client()
            try:
                return client.get_bucket(name, timeout=left, retry=None)
            except Missing:
                new = client.bucket(name)
            gcs_bucket.dress(new, log_days=None)
            try:
                return client.create_bucket(new, location=region, timeout=left, retry=None)
            except Exists:  # somebody was faster, or the name is somebody else's: look again
                return client.get_bucket(name, timeout=left, retry=None)

        found = self._calls.repeat(f"use bucket gs://{name}", Deadline(timeout), once)
        gcs_bucket.check_location(found, region)

    def make_bucket(
        self, bucket: str, region: str, *, log_days: int | None, adopt: bool, timeout: float
    ) -> BucketFacts:
        """Afterwards the bucket exists in that region, closed to the public, without soft delete, and removes logs of
        jobs after `log_days` (None: never); other lifecycle rules stay. Safe to repeat. Raises Refused when it lies
        elsewhere, is somebody else's, or was not made by tpujob and `adopt` is not set."""
        self.ensure_bucket(bucket, region, timeout=timeout)
        name, _ = split_path(bucket, empty=True)

        def once(left: float, _: int) -> BucketFacts:
            found = self._calls.client().get_bucket(name, timeout=left, retry=None)
            if not adopt:
                gcs_bucket.check_ours(found)
            if gcs_bucket.dress(found, log_days=log_days):
                found.patch(timeout=left, retry=None, if_metageneration_match=found.metageneration)
            return gcs_bucket.facts(found)

        return self._calls.repeat(f"set up bucket gs://{name}", Deadline(timeout), once)

    def bucket(self, bucket: str, *, timeout: float) -> BucketFacts:
        """How it is set up. Raises NotFound; Refused when it is somebody else's."""
        name, _ = split_path(bucket, empty=True)

        def once(left: float, _: int) -> BucketFacts:
            return gcs_bucket.facts(self._calls.client().get_bucket(name, timeout=left, retry=None))

        return self._calls.repeat(f"look at bucket gs://{name}", Deadline(timeout), once)

    def place(self, bucket: str, *, timeout: float) -> BucketPlace:
        name, _ = split_path(bucket, empty=True)

        def once(left: float, _: int) -> BucketPlace:
            # an account that may only use objects cannot read the bucket itself, but this part of it
            found = self._calls.client()._connection.api_request(
                method="GET", path=f"/b/{name}/storageLayout", timeout=left, retry=None
            )
            return gcs_bucket.place_of(found)

        return self._calls.repeat(f"look at bucket gs://{name}", Deadline(timeout), once)

    def close(self) -> None:
        """Close its connections; a later call opens new ones. Safe to repeat."""
        self._calls.close()


def split_path(path: str, *, empty: bool = False) -> tuple[str, str]:
    """Bucket and name of a `gs://` path. Raises BadRequest for anything else."""
    bucket, _, name = path.removeprefix("gs://").partition("/")
    if not path.startswith("gs://") or not bucket or not (name or empty):
        raise BadRequest(f"{path!r} is not the gs:// path of an object")
    return bucket, name


def _blob(bucket: str, blob: Any) -> Blob:
    said = blob._properties
    metadata = {k: v for k, v in (said.get("metadata") or {}).items() if k != _WRITE_ID}
    return Blob(
        path=f"gs://{bucket}/{said['name']}",
        size=int(said["size"]),
        generation=int(said["generation"]),
        updated=datetime.fromisoformat(said["updated"]).timestamp(),
        metadata=metadata,
        touched=int(said["metageneration"]),
    )
