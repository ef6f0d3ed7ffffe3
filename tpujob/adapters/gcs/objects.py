"""Objects of Cloud Storage for copying: implements `data.objects.Objects`."""

# Google's libraries have no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingModuleSource=false

from __future__ import annotations

import contextlib
import io
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from tpujob.adapters.gcs.bucket import ABORT_PARTS, facts_of
from tpujob.adapters.gcs.client import (
    DamagedBytes,
    NewToken,
    StorageClient,
    bucket_path,
    resource_of,
    translated,
)
from tpujob.data.checksums import decode
from tpujob.data.objects import MustRestart, NewObject, ObjectContent, ObjectFacts
from tpujob.domain.model import Cause
from tpujob.errors import NotFound, Refused, Transient
from tpujob.lib.tries import Deadline
from tpujob.ports import BucketFacts

#: metadata key of the identity that an object was copied from
_SOURCE = "tpujob-source"
_FACTS = f"name,size,crc32c,generation,metadata/{_SOURCE}"
_READ = 256 << 10
SMALL = 8 << 20  #: most bytes of an object that is uploaded in one request, by Google's client, too


class JsonObjects(StorageClient):
    """Implements `data.objects.Objects`. Thread-safe."""

    def __init__(
        self,
        endpoint: str = "",
        *,
        patience: float = 120.0,
        timeout: float = 60.0,
        token: NewToken | None = None,
    ) -> None:
        """`patience`: seconds for which a call is retried. `timeout`: seconds for one answer. `token`: see
        `StorageClient`."""
        super().__init__(endpoint=endpoint, timeout=timeout, token=token)
        self._patience = patience

    def pages(self, bucket: str, prefix: str, start: str = "") -> Iterator[list[ObjectFacts]]:
        path, offset = f"gs://{bucket}/{prefix}", {"start_offset": start} if start else {}
        for page in self.blob_pages(path, self._deadline, _FACTS, **offset):
            yield [_facts(item) for item in page]

    def look(self, bucket: str, name: str) -> ObjectFacts | None:
        def once(timeout: float) -> ObjectFacts | None:
            blob = self.google_bucket(bucket).get_blob(name, timeout=timeout, retry=None)
            return _facts(resource_of(blob)) if blob else None

        return self.retry(f"look at {name}", self._deadline(), once)

    def write(self, new: NewObject, chunks: Iterator[bytes]) -> ObjectFacts:
        from google.cloud.storage.retry import DEFAULT_RETRY

        operation, large = f"write gs://{new.bucket}/{new.name}", new.size > SMALL
        content = _ChunkReader(chunks) if large else io.BytesIO(b"".join(chunks))
        # Google's client sends a piece again, as the pieces before it are in memory no more
        again = DEFAULT_RETRY.with_timeout(self._patience) if large else None

        def once(timeout: float) -> ObjectFacts:
            blob = self.blob(new.bucket, new.name)
            if new.source:
                blob.metadata = {_SOURCE: new.source}
            try:
                with translated():
                    blob.upload_from_file(
                        content,
                        rewind=not large,
                        size=new.size,
                        if_generation_match=new.generation,
                        timeout=timeout,
                        retry=again,
                    )
            except (DamagedBytes, NotFound):
                if large and content.tell():  # the bytes or the begun upload were lost
                    raise MustRestart from None
                raise
            except ValueError as error:  # of Google's client, after a strange answer
                raise Transient("the storage has not taken all that was sent") from error
            return _facts(resource_of(blob))

        try:
            return self.retry(operation, self._deadline(), once, safe=not large)
        except Refused as error:
            if large or error.cause != Cause.BAD_SPEC:
                raise
            # the request around the data may have arrived damaged
            return self.retry(operation, self._deadline(), once)

    @contextlib.contextmanager
    def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:
        # gzip: the storage sends compressed objects as they are stored, which is what their checksums are of
        headers = {"Accept-Encoding": "gzip"} | ({"Range": f"bytes={start}-"} if start else {})
        query = {"alt": "media", "generation": str(facts.generation)}
        path = f"{bucket_path(bucket)}/o/{quote(facts.name, safe='')}"
        send = partial(self.send, "GET", path, stream=True, headers=headers, params=query)
        operation = f"read gs://{bucket}/{facts.name}"
        with self.retry(operation, self._deadline(), send, safe=False) as response:
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
        def once(timeout: float) -> str | ObjectFacts:
            copy = self.blob(to_bucket, name)
            next_token, _, _ = copy.rewrite(
                self.blob(bucket, facts.name, facts.generation),
                token=token or None,
                if_generation_match=generation,
                if_source_generation_match=facts.generation,
                timeout=timeout,
                retry=None,
            )
            return next_token or _facts(resource_of(copy))

        try:
            verb = "continue to copy" if token else "copy"
            return self.retry(f"{verb} gs://{bucket}/{facts.name}", self._deadline(), once)
        except Refused as error:
            if token and error.cause == Cause.BAD_SPEC:
                text = f"the copy of {facts.name} that was begun has ended"
                raise NotFound(text) from error
            raise

    def location(self, bucket: str) -> str:
        # the right to list objects is enough for the layout, but not for the bucket itself (documented)
        try:
            layout = self.read_bucket(bucket, self._deadline(), "/storageLayout", "location")
        except Refused:
            return ""
        return str(layout.get("location", "")).lower()

    def settings(self, bucket: str) -> BucketFacts | None:
        """Return how a bucket is set up, for one class B operation; None: refused. Raises NotFound, Transient."""
        try:
            return facts_of(self.read_bucket(bucket, self._deadline()))
        except Refused:
            return None

    def end_stale_parts(self, bucket: str, days: int) -> None:
        """Add a lifecycle rule that aborts multipart uploads after `days`; other rules stay. Costs a class B and a
        class A operation. Each call adds a rule. Raises NotFound, Refused, Transient, and Conflict when the bucket was
        changed meanwhile."""
        resource = self.read_bucket(bucket, self._deadline(), fields="lifecycle,metageneration")
        rule = {"action": {"type": ABORT_PARTS}, "condition": {"age": days}}
        rules = [*resource.get("lifecycle", {}).get("rule", ()), rule]
        unchanged = {"ifMetagenerationMatch": resource["metageneration"]}
        change = {"params": unchanged, "json": {"lifecycle": {"rule": rules}}}
        send = partial(self.json, "PATCH", bucket_path(bucket), **change)
        self.retry(f"change gs://{bucket}", self._deadline(), send)

    def _deadline(self) -> Deadline:
        return Deadline(self._patience)


class _ChunkReader:
    """Chunks as a file that is read once."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest, self._position = chunks, b"", 0

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        piece = io.BytesIO()  # holds the chunks once, which a joined list of them does not
        piece.write(self._rest)
        while piece.tell() < size and (chunk := next(self._chunks, b"")):
            piece.write(chunk)
        piece.seek(size)
        self._rest = piece.read()
        piece.truncate(size)
        data = piece.getvalue()
        self._position += len(data)
        return data


def _chunks(response: Any) -> Iterator[bytes]:
    with translated():
        yield from response.raw.stream(_READ, decode_content=False)


def _facts(resource: Mapping[str, Any]) -> ObjectFacts:
    try:
        return ObjectFacts(
            name=str(resource["name"]),
            size=int(resource["size"]),
            crc32c=decode(resource.get("crc32c")),
            generation=int(resource["generation"]),
            source=str(resource.get("metadata", {}).get(_SOURCE, "")),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Transient(f"an answer of Cloud Storage lacks a fact: {error}") from error
