"""Blobs on Cloud Storage, or on another server of its JSON API.

`client.py` makes the calls, `bucket.py` describes the setup of buckets.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import IO, Any, TypeVar
from urllib.parse import urlencode

from tpujob.adapters.calling import Count, Deadline, uncounted
from tpujob.adapters.gcs import bucket as gcs_bucket
from tpujob.adapters.gcs.client import DamagedBytes, StorageClient, parse_json
from tpujob.adapters.gcs.objects import bucket_path, multipart, object_path
from tpujob.data.checksums import decode, encode, extend, of_file
from tpujob.errors import BadRequest, Conflict, NotFound, TpujobError, Transient
from tpujob.ports import Blob, BucketFacts, BucketPlace

T = TypeVar("T")

_FACTS = "name,size,generation,metageneration,updated,metadata,crc32c"
#: metadata key by which a conditional write recognises its own earlier try; hidden from callers
_WRITE_ID = "tpujob-write"


class GcsBlobs:
    """Implements `ports.Blobs`. Thread-safe. Reads, deletes and conditional writes are retried until they succeed or
    the time is up. An unconditional write is not, because a late retry could undo another writer's. After a wrong
    checksum any call is retried."""

    def __init__(self, project: str, endpoint: str = "", *, count: Count = uncounted) -> None:
        self._project = project
        self._client = StorageClient(endpoint, count=count)

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
        query = {"uploadType": "multipart", "fields": _FACTS}
        if if_generation is not None:
            custom[_WRITE_ID] = write_id
            query["ifGenerationMatch"] = str(if_generation)
        target = f"/upload{bucket_path(bucket)}/o?{urlencode(query)}"
        file = io.BytesIO(data) if isinstance(data, bytes) else data
        crc32c = of_file(file)[1]
        kind = "application/octet-stream"
        resource = {"name": name, "contentType": kind, "metadata": custom, "crc32c": encode(crc32c)}

        def once(left: float, failures: int) -> Blob:
            headers, body = multipart(resource, file, deadline)
            try:
                reply = self._client.request("POST", target, headers, body, timeout=left)
            except Conflict as conflict:
                if failures == 0:
                    raise
                # an earlier try may have succeeded, although its answer was lost
                try:
                    stored = self._resource(bucket, name, left)
                except NotFound:  # the object that caused the conflict was deleted
                    raise conflict from None
                if stored.get("metadata", {}).get(_WRITE_ID) != write_id:
                    raise
                return _blob(bucket, stored)
            stored = parse_json(reply)
            if decode(stored.get("crc32c")) != crc32c:
                raise DamagedBytes("the storage has another CRC32C than was sent")
            return _blob(bucket, stored)

        return self._client.retry(f"write {path}", deadline, once, safe=if_generation is not None)

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        bucket, name = split_path(path)
        whole = start == 0 and end is None
        # gzip: the storage sends compressed objects as they are stored
        headers = {"Accept-Encoding": "gzip"}
        if not whole:
            headers["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        target = f"{object_path(bucket, name)}?alt=media"

        def once(left: float) -> bytes:
            if end is not None and end <= start:
                self._resource(bucket, name, left)  # nothing to read, but the object must exist
                return b""
            reply = self._client.request("GET", target, headers, timeout=left, accept=(416,))
            if reply.status == 416:  # the object ends before `start`
                return b""
            declared = reply.headers.get("x-goog-hash", "").partition("crc32c=")[2]
            crc32c = decode(declared.partition(",")[0])
            if whole and crc32c not in (None, extend(0, reply.body)):
                raise DamagedBytes("the bytes do not have the CRC32C of the object")
            return reply.body

        return self._retry(f"read {path}", timeout, once)

    def list(self, prefix: str, *, most: int | None = None, timeout: float) -> list[Blob]:
        bucket, start = split_path(prefix, empty=True)
        deadline = Deadline(timeout)
        query = {"prefix": start, "fields": f"items({_FACTS}),nextPageToken"}
        blobs: builtins.list[Blob] = []

        while True:
            page = partial(self._get, f"{bucket_path(bucket)}/o?{urlencode(query)}")
            answer = self._retry(f"list {prefix}", deadline.remaining(), page)
            blobs += [_blob(bucket, item) for item in answer.get("items", ())]
            query["pageToken"] = answer.get("nextPageToken", "")
            if not query["pageToken"] or (most is not None and len(blobs) >= most):
                return blobs[:most]

    def touch(self, path: str, *, timeout: float) -> None:
        bucket, name = split_path(path)
        target = object_path(bucket, name)
        # a patch keeps the other keys
        mark = {"metadata": {_WRITE_ID: uuid.uuid4().hex}}
        self._retry(
            f"touch {path}",
            timeout,
            lambda left: self._client.json("PATCH", target, mark, timeout=left),
        )

    def delete(self, path: str, *, unchanged: Blob | None = None, timeout: float) -> None:
        bucket, name = split_path(path)
        target = object_path(bucket, name)
        if unchanged:
            target += f"?ifGenerationMatch={unchanged.generation}"
            target += f"&ifMetagenerationMatch={unchanged.touched}"
        with contextlib.suppress(NotFound):
            self._retry(
                f"delete {path}",
                timeout,
                lambda left: self._client.request("DELETE", target, {}, timeout=left),
            )

    def clock(self, *, timeout: float) -> float:
        def once(left: float) -> float:
            problem = "its answers have no Date header"
            try:
                target = f"{bucket_path('tpujob-clock')}?fields=name"
                self._client.request("GET", target, {}, timeout=left)
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
        query = urlencode({"project": self._project})
        new = {"name": name, "location": region, **gcs_bucket.needed_changes({"name": name}, None)}

        def once(left: float) -> dict[str, Any]:
            try:
                return self._get(bucket_path(name), left)
            except NotFound:
                # Transient when another caller was faster or the name is taken: the next try reads the bucket again
                return self._client.json("POST", f"/storage/v1/b?{query}", new, timeout=left)

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
            resource = self._get(bucket_path(name), left)
            if not adopt:
                gcs_bucket.check_ours(resource)
            if changes := gcs_bucket.needed_changes(resource, log_days):
                target = f"{bucket_path(name)}?projection=full"
                target += f"&ifMetagenerationMatch={resource['metageneration']}"
                resource = self._client.json("PATCH", target, changes, timeout=left)
            return gcs_bucket.facts_of(resource)

        return self._retry(f"set up bucket gs://{name}", timeout, once)

    def bucket(self, bucket: str, *, timeout: float) -> BucketFacts:
        """Return how the bucket is set up. Raises NotFound; Refused when it belongs to another project."""
        name, _ = split_path(bucket, empty=True)
        read = partial(self._get, bucket_path(name))
        return gcs_bucket.facts_of(self._retry(f"look at bucket gs://{name}", timeout, read))

    def place(self, bucket: str, *, timeout: float) -> BucketPlace:
        name, _ = split_path(bucket, empty=True)
        # an account that may only use objects cannot read the bucket itself, but may read its layout
        read = partial(self._get, f"{bucket_path(name)}/storageLayout")
        return gcs_bucket.place_of(self._retry(f"look at bucket gs://{name}", timeout, read))

    def close(self) -> None:
        """Close the connections; a later call opens new ones. Safe to repeat."""
        self._client.close()

    def _retry(self, operation: str, timeout: float, once: Callable[[float], T]) -> T:
        """Return the result of the first `once(seconds left)` that succeeds."""
        return self._client.retry(operation, Deadline(timeout), lambda left, _: once(left))

    def _resource(self, bucket: str, name: str, timeout: float) -> dict[str, Any]:
        return self._get(f"{object_path(bucket, name)}?fields={_FACTS}", timeout)

    def _get(self, target: str, timeout: float) -> dict[str, Any]:
        return self._client.json("GET", target, timeout=timeout)


def split_path(path: str, *, empty: bool = False) -> tuple[str, str]:
    """Return bucket and name of a `gs://` path. Raises BadRequest for anything else, and for an empty name unless
    `empty`."""
    bucket, _, name = path.removeprefix("gs://").partition("/")
    if not path.startswith("gs://") or not bucket or not (name or empty):
        raise BadRequest(f"{path!r} is not the gs:// path of an object")
    return bucket, name


def _blob(bucket: str, resource: Mapping[str, Any]) -> Blob:
    metadata = {k: v for k, v in resource.get("metadata", {}).items() if k != _WRITE_ID}
    return Blob(
        path=f"gs://{bucket}/{resource['name']}",
        size=int(resource["size"]),
        generation=int(resource["generation"]),
        updated=datetime.fromisoformat(resource["updated"]).timestamp(),
        metadata=metadata,
        touched=int(resource["metageneration"]),
    )
