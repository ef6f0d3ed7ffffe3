"""Objects by the JSON API, for copying many of them: `data.objects.Objects`."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tpujob.adapters.gcs.json_calls import JsonCalls
from tpujob.adapters.gcs.wire import Answer
from tpujob.data.checksum import decode, encode
from tpujob.data.objects import ObjectFacts, Piece, Upkeep
from tpujob.domain.model import Cause
from tpujob.errors import NotFound, Refused, TpujobError, Transient

#: what an object was copied from, in its custom metadata
_SOURCE = "tpujob-source"
_FACTS = f"name,size,crc32c,generation,metadata/{_SOURCE}"


class JsonObjects(JsonCalls):
    """Implements `data.objects.Objects`. Threads share it, and its connections: as many as there are calls at once."""

    def pages(self, bucket: str, prefix: str, start: str = "") -> Iterator[list[ObjectFacts]]:
        asked = {"prefix": prefix, "fields": f"items({_FACTS}),nextPageToken"}
        asked |= {"startOffset": start} if start else {}
        while True:
            target = f"/storage/v1/b/{quote(bucket, safe='')}/o?{urlencode(asked)}"
            page = self._repeat(
                f"list gs://{bucket}/{prefix}", lambda t=target: self._json("GET", t, a=1)
            )
            yield [_facts(item) for item in page.get("items", ())]
            if not page.get("nextPageToken"):
                return
            asked["pageToken"] = page["nextPageToken"]

    def look(self, bucket: str, name: str) -> ObjectFacts | None:
        target = f"{_object(bucket, name)}?fields={_FACTS}"
        try:
            return _facts(self._repeat(f"look at {name}", lambda: self._json("GET", target, b=1)))
        except NotFound:
            return None

    def put(
        self, bucket: str, name: str, data: bytes, crc32c: int, generation: int, source: str = ""
    ) -> ObjectFacts:
        mark = f"tpujob-{crc32c:08x}-{id(data):x}".encode()
        while mark in data:
            mark += b"-"
        facts = json.dumps({**_resource(name, source), "crc32c": encode(crc32c)})
        body = b"--%b\r\nContent-Type: application/json\r\n\r\n%b\r\n--%b\r\n\r\n%b\r\n--%b--" % (
            mark, facts.encode(), mark, data, mark,
        )  # fmt: skip
        kind = {"Content-Type": f"multipart/related; boundary={mark.decode()}"}
        target = _upload(bucket, "multipart", generation)

        def once() -> ObjectFacts:
            found = _facts(self._json("POST", target, kind, body, a=1, write=bucket))
            return _checked(found, name, len(data), crc32c)

        doing = f"write gs://{bucket}/{name}"
        try:
            return self._repeat(doing, once)
        except Refused as error:
            if error.cause != Cause.BAD_SPEC:
                raise
            return self._repeat(doing, once)  # the frame of the request may have arrived changed

    def begin(
        self,
        bucket: str,
        name: str,
        size: int,
        generation: int,
        source: str = "",
        md5: bytes | None = None,
    ) -> str:
        declared = {"md5Hash": base64.b64encode(md5).decode()} if md5 else {}
        body = json.dumps({**_resource(name, source), **declared}).encode()
        headers = {"Content-Type": "application/json", "X-Upload-Content-Length": str(size)}
        target = _upload(bucket, "resumable", generation)
        answer = self._repeat(
            f"write gs://{bucket}/{name}",
            lambda: self._ask("POST", target, headers, body, a=1, write=bucket),
        )
        return answer.headers["location"]

    def offset(self, session: str, size: int) -> int | ObjectFacts:
        headers = {"Content-Range": f"bytes */{size}"}
        return self._repeat(
            "continue an upload", lambda: _progress(self._ask("PUT", _path(session), headers))
        )

    def send(
        self, session: str, data: Iterable[bytes], piece: Piece, crc32c: int | None
    ) -> int | ObjectFacts:
        span = f"{piece.start}-{piece.end - 1}" if piece.end > piece.start else "*"
        headers = {
            "Content-Range": f"bytes {span}/{piece.size}",
            "Content-Length": str(piece.end - piece.start),
        }
        if crc32c is not None:
            headers["X-Goog-Hash"] = f"crc32c={encode(crc32c)}"
        return _progress(self._ask("PUT", _path(session), headers, data))

    def drop(self, session: str) -> None:
        try:
            self._repeat("end an upload", lambda: self._ask("DELETE", _path(session), {}))
        except TpujobError:
            return  # it ends by itself within a week

    def get(
        self, bucket: str, facts: ObjectFacts, start: int, take: Callable[[bytes], object]
    ) -> None:
        # without gzip the storage would unpack what is stored packed, and the checksum is of what is stored
        headers = {"Accept-Encoding": "gzip"} | ({"Range": f"bytes={start}-"} if start else {})
        target = f"{_object(bucket, facts.name)}?alt=media&generation={facts.generation}"
        answer = self._ask("GET", target, headers, take=take, b=1)
        if start and answer.status != 206:
            raise Transient(f"cannot continue to read {facts.name}: the storage sent all of it")

    def rewrite(
        self,
        bucket: str,
        facts: ObjectFacts,
        to_bucket: str,
        name: str,
        generation: int,
        token: str,
    ) -> str | ObjectFacts:
        asked = {
            "ifGenerationMatch": str(generation),
            "ifSourceGenerationMatch": str(facts.generation),
            "fields": f"done,rewriteToken,resource({_FACTS})",
        } | ({"rewriteToken": token} if token else {})
        to = f"/rewriteTo/b/{quote(to_bucket, safe='')}/o/{quote(name, safe='')}"
        target = f"{_object(bucket, facts.name)}{to}?{urlencode(asked)}"
        first = not token

        def once() -> dict[str, Any]:
            try:
                return self._json("POST", target, a=int(first), write=to_bucket if first else "")
            except Refused as error:
                if token and error.cause == Cause.BAD_SPEC:
                    text = f"the copy of {facts.name} that was begun has ended"
                    raise NotFound(text) from error
                raise

        answer = self._repeat(f"copy gs://{bucket}/{facts.name}", once)
        if answer.get("done"):
            return _facts(answer["resource"])
        return str(answer["rewriteToken"])

    def location(self, bucket: str) -> str:
        # needs no more than the right to list objects, unlike the bucket itself (documented)
        target = f"/storage/v1/b/{quote(bucket, safe='')}/storageLayout?fields=location"
        try:
            found = self._repeat(f"look at gs://{bucket}", lambda: self._json("GET", target, b=1))
        except Refused:
            return ""
        return str(found.get("location", "")).lower()

    def upkeep(self, bucket: str) -> Upkeep | None:
        """None: this account may not know. One class B operation. Raises NotFound, Transient."""
        fields = "softDeletePolicy,lifecycle,metageneration"
        try:
            return _upkeep(
                self._repeat(f"look at gs://{bucket}", lambda: self._bucket(bucket, fields))
            )
        except Refused:
            return None

    def end_stale_parts(self, bucket: str, days: int) -> None:
        """Afterwards a rule of the bucket ends uploads in parts that are older. Other rules stay. Not to be repeated:
        each time adds one. One class A operation. Raises NotFound, Refused, Transient, and Conflict when somebody
        changes the bucket meanwhile."""
        found = self._repeat(
            f"look at gs://{bucket}", lambda: self._bucket(bucket, "lifecycle,metageneration")
        )
        rules = [*found.get("lifecycle", {}).get("rule", ()), _stale_parts(days)]
        body = json.dumps({"lifecycle": {"rule": rules}}).encode()
        condition = urlencode({"ifMetagenerationMatch": found["metageneration"]})
        target = f"/storage/v1/b/{quote(bucket, safe='')}?{condition}"
        kind = {"Content-Type": "application/json"}
        self._repeat(f"change gs://{bucket}", lambda: self._json("PATCH", target, kind, body, a=1))

    def _bucket(self, bucket: str, fields: str) -> dict[str, Any]:
        return self._json("GET", f"/storage/v1/b/{quote(bucket, safe='')}?fields={fields}", b=1)


def _object(bucket: str, name: str) -> str:
    return f"/storage/v1/b/{quote(bucket, safe='')}/o/{quote(name, safe='')}"


def _upload(bucket: str, kind: str, generation: int) -> str:
    asked = {"uploadType": kind, "ifGenerationMatch": str(generation), "fields": _FACTS}
    return f"/upload/storage/v1/b/{quote(bucket, safe='')}/o?{urlencode(asked)}"


def _stale_parts(days: int) -> dict[str, Any]:
    return {"action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": days}}


def _upkeep(resource: Mapping[str, Any]) -> Upkeep:
    rules = resource.get("lifecycle", {}).get("rule", ())
    ages = [
        int(rule.get("condition", {}).get("age", 0))
        for rule in rules
        if rule.get("action", {}).get("type") == "AbortIncompleteMultipartUpload"
    ]
    kept = resource.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0)
    return Upkeep(int(kept), min(ages, default=None))


def _resource(name: str, source: str) -> dict[str, Any]:
    kept = {"metadata": {_SOURCE: source}} if source else {}
    return {"name": name, "contentType": "application/octet-stream", **kept}


def _path(session: str) -> str:
    """A session lives on the server that we talk to; the rest of its address is a secret."""
    place = urlsplit(session)
    return f"{place.path}?{place.query}"


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


def _checked(found: ObjectFacts, name: str, size: int, crc32c: int) -> ObjectFacts:
    """Raises Transient when the answer speaks of other bytes: the next try meets what is there, and reports it."""
    if (found.name, found.size, found.crc32c) != (name, size, crc32c):
        raise Transient(f"the storage confirms other bytes than were sent for {name}")
    return found


def _progress(answer: Answer) -> int | ObjectFacts:
    if answer.status != 308:
        try:
            return _facts(json.loads(answer.body))
        except ValueError as error:
            raise Transient(f"an answer of Cloud Storage is no JSON: {error}") from error
    _, _, last = answer.headers.get("range", "").partition("-")
    return int(last) + 1 if last.isdigit() else 0
