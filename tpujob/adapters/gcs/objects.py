"""Objects of Cloud Storage for copying: implements `data.objects.Objects`."""

# Google's libraries have no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingModuleSource=false

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from tpujob.adapters.calling import Deadline
from tpujob.adapters.gcs.client import (
    KIND,
    PIECE,
    DamagedBytes,
    StorageClient,
    our_error,
    translated,
)
from tpujob.data.checksums import decode
from tpujob.data.objects import MustRestart, NewObject, ObjectContent, ObjectFacts, Upkeep
from tpujob.domain.model import Cause
from tpujob.errors import NotFound, Refused, Transient

if TYPE_CHECKING:
    import requests
    from google.cloud import storage

T = TypeVar("T")

#: metadata key of the identity that an object was copied from
_SOURCE = "tpujob-source"
_FACTS = f"name,size,crc32c,generation,metadata/{_SOURCE}"
_READ = 256 << 10


class JsonObjects(StorageClient):
    """Implements `data.objects.Objects`. Thread-safe."""

    def __init__(
        self, endpoint: str = "", *, patience: float = 120.0, timeout: float = 60.0
    ) -> None:
        """`patience`: seconds for which a call is retried. `timeout`: seconds for one answer."""
        super().__init__(endpoint=endpoint)
        self._patience, self._timeout = patience, timeout

    def pages(self, bucket: str, prefix: str, start: str = "") -> Iterator[list[ObjectFacts]]:
        query = {"prefix": prefix, "start_offset": start or None}
        token: str | None = None
        while True:
            read = partial(self.page, bucket, token, self._timeout, _FACTS, **query)
            blobs, token = self._attempt(f"list gs://{bucket}/{prefix}", read, a=1)
            yield [_facts(blob) for blob in blobs]
            if not token:
                return

    def look(self, bucket: str, name: str) -> ObjectFacts | None:
        def once() -> storage.Blob | None:
            return self.bucket(bucket).get_blob(name, timeout=self._timeout, retry=None)

        blob = self._attempt(f"look at {name}", once, b=1)
        return _facts(blob) if blob else None

    def write(self, new: NewObject, chunks: Iterator[bytes]) -> ObjectFacts:
        operation = f"write gs://{new.bucket}/{new.name}"
        if new.size > PIECE:
            return self._write_pieces(operation, new, _ChunkReader(chunks))
        data = b"".join(chunks)

        def once() -> ObjectFacts:
            return self._upload(new, io.BytesIO(data))

        try:
            return self._attempt(operation, once, a=1)
        except Refused as error:
            if error.cause != Cause.BAD_SPEC:
                raise
            # the request around the data may have arrived damaged
            return self._attempt(operation, once, a=1)

    @contextlib.contextmanager
    def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:
        # Google's client writes a download to a file, but here the reader sets the pace.
        # gzip: the storage sends compressed objects as they are stored, which is what their checksums are of
        headers = {"Accept-Encoding": "gzip"} | ({"Range": f"bytes={start}-"} if start else {})
        query = {"alt": "media", "generation": str(facts.generation)}
        options: dict[str, Any] = {"headers": headers, "params": query, "stream": True}
        self.count_operations(b=1)
        with translated():
            path = f"/o/{quote(facts.name, safe='')}"
            response = self.send("GET", bucket, path, self._timeout, **options)
        with response:
            if start and response.status_code != 206:
                raise Transient(f"cannot continue to read {facts.name}: the storage sent all of it")
            yield ObjectContent(_chunks(response))

    def rewrite(
        self,
        bucket: str,
        facts: ObjectFacts,
        to_bucket: str,
        name: str,
        generation: int,
        token: str,
    ) -> str | ObjectFacts:
        def once() -> str | ObjectFacts:
            copy = self.blob(to_bucket, name)
            next_token, _, _ = copy.rewrite(
                self.blob(bucket, facts.name, facts.generation),
                token=token or None,
                if_generation_match=generation,
                if_source_generation_match=facts.generation,
                timeout=self._timeout,
                retry=None,
            )
            return next_token or _facts(copy)

        try:
            return self._attempt(f"copy gs://{bucket}/{facts.name}", once, a=int(not token))
        except Refused as error:
            if token and error.cause == Cause.BAD_SPEC:
                text = f"the copy of {facts.name} that was begun has ended"
                raise NotFound(text) from error
            raise

    def location(self, bucket: str) -> str:
        # the right to list objects is enough for the layout, but not for the bucket itself (documented)
        try:
            layout = self._bucket(bucket, "location", "/storageLayout")
        except Refused:
            return ""
        return str(layout.get("location", "")).lower()

    def upkeep(self, bucket: str) -> Upkeep | None:
        """Return the bucket's settings, for one class B operation; None: refused. Raises NotFound, Transient."""
        try:
            resource = self._bucket(bucket, "softDeletePolicy,lifecycle,metageneration")
        except Refused:
            return None
        ages = [
            int(rule.get("condition", {}).get("age", 0))
            for rule in resource.get("lifecycle", {}).get("rule", ())
            if rule.get("action", {}).get("type") == "AbortIncompleteMultipartUpload"
        ]
        soft_delete_s = int(resource.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))
        return Upkeep(soft_delete_s, min(ages, default=None))

    def end_stale_parts(self, bucket: str, days: int) -> None:
        """Add a lifecycle rule that aborts multipart uploads after `days`; other rules stay. Costs a class B and a
        class A operation. Each call adds a rule. Raises NotFound, Refused, Transient, and Conflict when the bucket was
        changed meanwhile."""
        resource = self._bucket(bucket, "lifecycle,metageneration")
        action = {"type": "AbortIncompleteMultipartUpload"}
        rule = {"action": action, "condition": {"age": days}}
        rules = [*resource.get("lifecycle", {}).get("rule", ()), rule]
        change = {
            "params": {"ifMetagenerationMatch": resource["metageneration"]},
            "json": {"lifecycle": {"rule": rules}},
        }
        send = partial(self.send, "PATCH", bucket, "", self._timeout, **change)
        self._attempt(f"change gs://{bucket}", send, a=1)

    def _bucket(self, bucket: str, fields: str, below: str = "") -> dict[str, Any]:
        read = partial(self.json, "GET", bucket, below, self._timeout, params={"fields": fields})
        return self._attempt(f"look at gs://{bucket}", read, b=1)

    def _write_pieces(self, operation: str, new: NewObject, content: _ChunkReader) -> ObjectFacts:
        """Write a large object. Google's client sends single pieces again, as only one of them is in memory."""
        from google.cloud.storage.retry import DEFAULT_RETRY

        again = DEFAULT_RETRY.with_predicate(_is_lost_piece).with_timeout(self._patience)
        self.count_operations(a=1)
        try:
            with translated():
                return self._upload(new, content, again.with_delay(initial=0.1, maximum=10.0))
        except DamagedBytes:
            raise MustRestart from None
        except NotFound:
            if content.tell():  # the storage has lost the begun upload
                raise MustRestart from None
            raise
        except ValueError as error:  # Google's client, after an answer without an error
            text = f"cannot {operation}: the storage has not taken all that was sent"
            raise Transient(text) from error

    def _upload(self, new: NewObject, content: Any, retry: Any = None) -> ObjectFacts:
        blob = self.blob(new.bucket, new.name)
        if new.source:
            blob.metadata = {_SOURCE: new.source}
        blob.upload_from_file(
            content,
            size=new.size,
            content_type=KIND,
            if_generation_match=new.generation,
            checksum="crc32c",
            timeout=self._timeout,
            retry=retry,
        )
        return _facts(blob)

    def _attempt(self, operation: str, call: Callable[[], T], a: int = 0, b: int = 0) -> T:
        deadline = Deadline(self._patience)
        return self.retry(operation, deadline, lambda _left, _failures: call(), a=a, b=b)


class _ChunkReader:
    """Chunks as a file that is read once."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest, self._position = chunks, b"", 0

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        parts, length = [self._rest], len(self._rest)
        while length < size and (chunk := next(self._chunks, b"")):
            parts.append(chunk)
            length += len(chunk)
        data = b"".join(parts)
        data, self._rest = data[:size], data[size:]
        self._position += len(data)
        return data


def _is_lost_piece(error: Exception) -> bool:
    ours = our_error(error)
    return isinstance(ours, Transient) and not isinstance(ours, DamagedBytes)


def _chunks(response: requests.Response) -> Iterator[bytes]:
    with translated():
        yield from response.raw.stream(_READ, decode_content=False)


def _facts(blob: storage.Blob) -> ObjectFacts:
    if blob.size is None or blob.generation is None:
        raise Transient("an answer of Cloud Storage lacks the size or generation of an object")
    return ObjectFacts(
        name=str(blob.name),
        size=blob.size,
        crc32c=decode(blob.crc32c),
        generation=blob.generation,
        source=str((blob.metadata or {}).get(_SOURCE, "")),
    )
