"""Objects of Cloud Storage for copying: implements `data.objects.Objects`."""

import contextlib
import io
import json
import os
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import IO, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from tpujob.adapters.calling import Deadline
from tpujob.adapters.gcs.client import RETRY_TIMEOUT, TIMEOUT, Reply, StorageClient, parse_json
from tpujob.data.checksums import decode, encode
from tpujob.data.objects import MustRestart, ObjectContent, ObjectFacts, Piece, Upkeep
from tpujob.domain.model import Cause
from tpujob.errors import NotFound, Refused, Transient

T = TypeVar("T")

#: metadata key of the identity that an object was copied from
_SOURCE = "tpujob-source"
_READ = 1 << 20
_FACTS = f"name,size,crc32c,generation,metadata/{_SOURCE}"


class JsonObjects(StorageClient):
    """Implements `data.objects.Objects`. Thread-safe."""

    def __init__(
        self, endpoint: str = "", *, patience: float = RETRY_TIMEOUT, timeout: float = TIMEOUT
    ) -> None:
        """`patience`: seconds for which a call is retried."""
        super().__init__(endpoint, timeout=timeout)
        self._patience = patience

    def pages(self, bucket: str, prefix: str, start: str = "") -> Iterator[list[ObjectFacts]]:
        query = {"prefix": prefix, "fields": f"items({_FACTS}),nextPageToken"}
        if start:
            query["startOffset"] = start
        while True:
            target = f"{bucket_path(bucket)}/o?{urlencode(query)}"
            operation = f"list gs://{bucket}/{prefix}"
            page = self._retry(operation, lambda target=target: self.json("GET", target, a=1))
            yield [_facts(item) for item in page.get("items", ())]
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    def look(self, bucket: str, name: str) -> ObjectFacts | None:
        target = f"{object_path(bucket, name)}?fields={_FACTS}"
        try:
            return _facts(self._retry(f"look at {name}", lambda: self.json("GET", target, b=1)))
        except NotFound:
            return None

    def put(
        self, bucket: str, name: str, data: bytes, crc32c: int, generation: int, source: str = ""
    ) -> ObjectFacts:
        resource = {**_resource(name, source), "crc32c": encode(crc32c)}
        target = _upload_target(bucket, "multipart", generation)

        headers, chunks = multipart(resource, io.BytesIO(data), Deadline(self._patience))
        body = b"".join(chunks)

        def once() -> ObjectFacts:
            stored = _facts(parse_json(self.request("POST", target, headers, body, a=1)))
            if (stored.name, stored.size, stored.crc32c) != (name, len(data), crc32c):
                # the next try gets a Conflict with the object that is stored
                raise Transient(f"the storage confirms other bytes than were sent for {name}")
            return stored

        operation = f"write gs://{bucket}/{name}"
        try:
            return self._retry(operation, once)
        except Refused as error:
            if error.cause != Cause.BAD_SPEC:
                raise
            # the request around the data may have arrived damaged
            return self._retry(operation, once)

    def begin(self, bucket: str, name: str, size: int, generation: int, source: str = "") -> str:
        body = json.dumps(_resource(name, source)).encode()
        headers = {"Content-Type": "application/json", "X-Upload-Content-Length": str(size)}
        target = _upload_target(bucket, "resumable", generation)
        reply = self._retry(
            f"write gs://{bucket}/{name}", lambda: self.request("POST", target, headers, body, a=1)
        )
        # the session is on the server that we call; its path and query are a secret
        url = urlsplit(reply.headers["Location"])
        return f"{url.path}?{url.query}"

    def offset(self, session: str, size: int) -> int | ObjectFacts:
        headers = {"Content-Range": f"bytes */{size}"}
        return self._retry("continue an upload", lambda: self._send_part(session, headers, b""))

    def send(
        self, session: str, data: bytes | Iterable[bytes], piece: Piece, crc32c: int | None
    ) -> int | ObjectFacts:
        span = f"{piece.start}-{piece.end - 1}" if piece.end > piece.start else "*"
        headers = {
            "Content-Range": f"bytes {span}/{piece.size}",
            "Content-Length": str(piece.end - piece.start),
        }
        if crc32c is not None:
            headers["X-Goog-Hash"] = f"crc32c={encode(crc32c)}"
        return self._send_part(session, headers, data)

    def drop(self, session: str) -> None:
        # a session that stays open expires within a week
        with contextlib.suppress(NotFound, Refused, Transient):
            self._retry(
                "end an upload", lambda: self.request("DELETE", session, {}, accept=(404, 499))
            )

    @contextlib.contextmanager
    def open(self, bucket: str, facts: ObjectFacts, start: int) -> Generator[ObjectContent]:
        # gzip: the storage sends compressed objects as they are stored, which is what their checksums are of
        headers = {"Accept-Encoding": "gzip"} | ({"Range": f"bytes={start}-"} if start else {})
        target = f"{object_path(bucket, facts.name)}?alt=media&generation={facts.generation}"
        with self.opened("GET", target, headers, b=1) as (reply, chunks):
            if start and reply.status != 206:
                raise Transient(f"cannot continue to read {facts.name}: the storage sent all of it")
            yield ObjectContent(chunks)

    def rewrite(
        self,
        bucket: str,
        facts: ObjectFacts,
        to_bucket: str,
        name: str,
        generation: int,
        token: str,
    ) -> str | ObjectFacts:
        query = {
            "ifGenerationMatch": str(generation),
            "ifSourceGenerationMatch": str(facts.generation),
            "fields": f"done,rewriteToken,resource({_FACTS})",
        }
        if token:
            query["rewriteToken"] = token
        to = f"/rewriteTo/b/{quote(to_bucket, safe='')}/o/{quote(name, safe='')}"
        target = f"{object_path(bucket, facts.name)}{to}?{urlencode(query)}"

        def once() -> dict[str, Any]:
            try:
                return self.json("POST", target, a=int(not token))
            except Refused as error:
                if token and error.cause == Cause.BAD_SPEC:
                    text = f"the copy of {facts.name} that was begun has ended"
                    raise NotFound(text) from error
                raise

        answer = self._retry(f"copy gs://{bucket}/{facts.name}", once)
        return _facts(answer["resource"]) if answer.get("done") else str(answer["rewriteToken"])

    def location(self, bucket: str) -> str:
        # the right to list objects is enough for the layout, but not for the bucket itself (documented)
        target = f"{bucket_path(bucket)}/storageLayout?fields=location"
        try:
            layout = self._retry(f"look at gs://{bucket}", lambda: self.json("GET", target, b=1))
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
        target = f"{bucket_path(bucket)}?ifMetagenerationMatch={resource['metageneration']}"
        document = {"lifecycle": {"rule": rules}}
        self._retry(f"change gs://{bucket}", lambda: self.json("PATCH", target, document, a=1))

    def _bucket(self, bucket: str, fields: str) -> dict[str, Any]:
        target = f"{bucket_path(bucket)}?fields={fields}"
        return self._retry(f"look at gs://{bucket}", lambda: self.json("GET", target, b=1))

    def _send_part(
        self, session: str, headers: Mapping[str, str], data: bytes | Iterable[bytes]
    ) -> int | ObjectFacts:
        """Return how many bytes the session has stored; the facts of the object when it is complete."""
        reply: Reply = self.request("PUT", session, headers, data, accept=(308, 404, 410))
        if reply.status in (404, 410):
            raise MustRestart
        if reply.status != 308:
            return _facts(parse_json(reply))
        _, _, last = reply.headers.get("Range", "").partition("-")
        return int(last) + 1 if last.isdigit() else 0

    def _retry(self, operation: str, call: Callable[[], T]) -> T:
        return self.retry(operation, Deadline(self._patience), lambda _left, _failures: call())


def bucket_path(bucket: str) -> str:
    return f"/storage/v1/b/{quote(bucket, safe='')}"


def object_path(bucket: str, name: str) -> str:
    return f"{bucket_path(bucket)}/o/{quote(name, safe='')}"


def multipart(
    resource: Mapping[str, Any], file: IO[bytes], deadline: Deadline
) -> tuple[dict[str, str], Iterator[bytes]]:
    """Return headers and body of an upload in one request: the resource, then the file, which is read while sending."""
    boundary = f"tpujob-{uuid.uuid4().hex}"
    facts = json.dumps(resource)
    head = f"--{boundary}\r\nContent-Type: application/json\r\n\r\n{facts}\r\n--{boundary}\r\n\r\n".encode()
    tail = f"\r\n--{boundary}--".encode()

    def body() -> Iterator[bytes]:
        yield head
        file.seek(0)
        while data := file.read(_READ):
            deadline.left()
            yield data
        yield tail

    length = len(head) + file.seek(0, os.SEEK_END) + len(tail)
    kind = f"multipart/related; boundary={boundary}"
    return {"Content-Type": kind, "Content-Length": str(length)}, body()


def _upload_target(bucket: str, kind: str, generation: int) -> str:
    target = f"/upload{bucket_path(bucket)}/o?uploadType={kind}"
    return f"{target}&ifGenerationMatch={generation}&fields={_FACTS}"


def _resource(name: str, source: str) -> dict[str, Any]:
    metadata = {"metadata": {_SOURCE: source}} if source else {}
    return {"name": name, "contentType": "application/octet-stream", **metadata}


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
