"""The JSON API of Cloud Storage: its paths, and objects, except for uploads (`upload.py`).

Each handler reads the request, calls `ObjectStore` and builds the response.
"""

import asyncio
import hashlib
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http.client import responses
from typing import BinaryIO
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import Message

from tpujob.emulator.http_server import FilePart, Handler, Request
from tpujob.emulator.storage.answers import answer, json_body
from tpujob.emulator.storage.bucket_api import BucketApi, known_bucket
from tpujob.emulator.storage.disk import ObjectStore
from tpujob.emulator.storage.listing import Listing
from tpujob.emulator.storage.media import media, media_headers, not_modified
from tpujob.emulator.storage.model import (
    EmulatedObject,
    Json,
    Preconditions,
    StorageApiError,
    check_object_fields,
    check_object_name,
    invalid,
    no_object,
    not_emulated,
    number,
    object_json,
    patched_object_fields,
)

#: Parameters that are not emulated but would change a response: refused, not ignored.
_MISSING = ("softDeleted", "filter", "matchGlob")
#: Parts of the API that are not emulated, by the last names of their paths.
_UNKNOWN = re.compile(
    r"(?:/storage/v1|/b/).*/(acl|defaultObjectAcl|notificationConfigs|folders|anywhereCaches|restore|lockRetentionPolicy|hmacKeys)"
    r"(?:/[^/]+)?"
)
_COMPOSE_LIMIT = 32
#: bytes that one call of a rewrite copies between buckets of different places or classes; the cloud's number is not
#: documented, only that large objects need several calls
REWRITE_BYTES = 1 << 30


class JsonApi:
    def __init__(self, disk: ObjectStore) -> None:
        self.disk = disk
        buckets = BucketApi(disk)
        bucket, name = r"(?:/storage/v1)?/b/([^/]+)", r"/o/([^/]+)"
        routes: list[tuple[str, str, Callable[..., Awaitable[Response]]]] = [
            ("GET", r"(?:/storage/v1)?/b/?", buckets.list_buckets),
            ("POST", r"(?:/storage/v1)?/b/?", buckets.insert_bucket),
            ("GET", bucket, buckets.get_bucket),
            ("PATCH", bucket, buckets.patch_bucket),
            ("PUT", bucket, buckets.patch_bucket),
            ("DELETE", bucket, buckets.delete_bucket),
            ("GET", bucket + "/storageLayout", buckets.layout),
            ("GET", bucket + "/managedFolders", buckets.list_folders),
            ("GET", bucket + "/iam", buckets.get_policy),
            ("PUT", bucket + "/iam", buckets.set_policy),
            ("GET", bucket + "/iam/testPermissions", buckets.test_permissions),
            ("GET", bucket + "/o/?", self.list_objects),
            ("GET", "(?:/download)?" + bucket + name, self.get_object),
            ("PATCH", bucket + name, self.patch_object),
            ("PUT", bucket + name, self.patch_object),
            ("DELETE", bucket + name, self.delete_object),
            ("POST", bucket + name + "/compose", self.compose),
            ("POST", bucket + name + "/(?:copyTo|rewriteTo)/b/([^/]+)/o/([^/]+)", self.copy),
            ("POST", bucket + name + "/moveTo/o/([^/]+)", self.move),
        ]
        self._routes = [(m, re.compile(p), handler) for m, p, handler in routes]

    async def handle(self, request: Request) -> Response | None:
        """Answer a request; return None for a path of another API."""
        path_exists = False
        for method, pattern, handler in self._routes:
            match = pattern.fullmatch(request.path)
            if match and method == request.method:
                for name in _MISSING:
                    if request.query_params.get(name):
                        raise not_emulated(name)
                return await handler(
                    request, *(unquote(part, errors="strict") for part in match.groups())
                )
            path_exists = path_exists or bool(match)
        if match := _UNKNOWN.fullmatch(request.path):
            raise not_emulated(match[1])
        if path_exists:
            raise StorageApiError(405, "methodNotAllowed", f"{request.method} is not known here.")
        return None

    # objects

    async def list_objects(self, request: Request, bucket: str) -> Response:
        known_bucket(self.disk, bucket)
        query = request.query_params
        listing = Listing(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start=query.get("startOffset", ""),
            end=query.get("endOffset", ""),
            token=query.get("pageToken", ""),
            limit=min(number(query, "maxResults") or 1000, 1000),
            versions=query.get("versions", "").lower() == "true",
            trailing=query.get("includeTrailingDelimiter", "").lower() == "true",
        )
        page = self.disk.page(bucket, listing)
        result: dict[str, Json] = {"kind": "storage#objects"}
        if page.items:
            result["items"] = [object_json(stored, request.base) for stored in page.items]
        if page.prefixes:
            result["prefixes"] = page.prefixes
        if page.next:
            result["nextPageToken"] = page.next
        return answer(request, result)

    async def get_object(self, request: Request, bucket: str, name: str) -> Response:
        query = request.query_params
        stored = self._object(bucket, name, query)
        if not_modified(request, stored, Preconditions.from_query(query), stored.etag):
            return Response(status_code=304, headers={"ETag": stored.etag})
        if query.get("alt") == "media":
            return media(request, self.disk, stored, media_headers(stored, stored.etag))
        return answer(request, object_json(stored, request.base), ETag=stored.etag)

    async def patch_object(self, request: Request, bucket: str, name: str) -> Response:
        patch = await json_body(request)
        stored = self._object(bucket, name, request.query_params)
        Preconditions.from_query(request.query_params).check(stored)
        old: Mapping[str, Json] = stored.fields if request.method == "PATCH" else {}
        fields = patched_object_fields(old, patch)
        return answer(request, object_json(self.disk.update(stored, fields), request.base))

    async def delete_object(self, request: Request, bucket: str, name: str) -> Response:
        known_bucket(self.disk, bucket)
        conditions = Preconditions.from_query(request.query_params)
        self.disk.delete(bucket, name, conditions, number(request.query_params, "generation"))
        return Response(status_code=204)

    async def compose(self, request: Request, bucket: str, name: str) -> Response:
        body = await json_body(request)
        known_bucket(self.disk, bucket)
        check_object_name(name)
        parts = [self._part(bucket, source) for source in _sources(body)]
        fields = check_object_fields(body.get("destination") or {})
        fields.setdefault("contentType", parts[0].content_type)
        conditions = Preconditions.from_query(request.query_params)
        # Open the sources first: they may be replaced during the copy.
        files = [self.disk.open(part) for part in parts]
        count = sum(part.components or 1 for part in parts)
        stored = await concatenate(self.disk, files, bucket, name, fields, conditions, count)
        return answer(request, object_json(stored, request.base))

    async def copy(
        self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str
    ) -> Response:
        """Answer copyTo and rewriteTo. Copies share the bytes, so a rewrite's last call makes the whole copy."""
        body = await json_body(request)
        source = self._source(request, bucket, name)
        known_bucket(self.disk, to_bucket)
        check_object_name(to_name)
        fields = check_object_fields(body) or dict(source.fields)
        fields.setdefault("contentType", source.content_type)
        conditions = Preconditions.from_query(request.query_params)
        size = str(source.size)
        if "/rewriteTo/" in request.path:
            token = self._next_rewrite_token(request, source, to_bucket, to_name, fields)
            if token:
                conditions.check(self.disk.get(to_bucket, to_name))
                part = {"kind": "storage#rewriteResponse", "done": False, "rewriteToken": token}
                done = token.partition("-")[0]
                progress = {**part, "objectSize": size, "totalBytesRewritten": done}
                return answer(request, progress)
        stored = self.disk.copy(source, to_bucket, to_name, fields, conditions)
        resource = object_json(stored, request.base)
        if "/copyTo/" in request.path:
            return answer(request, resource)
        done = {"kind": "storage#rewriteResponse", "done": True, "resource": resource}
        return answer(request, {**done, "objectSize": size, "totalBytesRewritten": size})

    def _next_rewrite_token(
        self,
        request: Request,
        source: EmulatedObject,
        to_bucket: str,
        to_name: str,
        fields: Mapping[str, Json],
    ) -> str:
        """Return the token of a rewrite's next call: the number of bytes so far, and a hash of the copy's parameters.
        Return an empty token when the rewrite is complete."""
        query = request.query_params
        names = (source.bucket, source.name, source.generation, to_bucket, to_name, fields)
        digest = hashlib.sha256(repr(names).encode()).hexdigest()
        before, _, token_digest = (query.get("rewriteToken") or f"0-{digest}").partition("-")
        if token_digest != digest or not before.isdigit():
            raise invalid("Invalid rewriteToken.")
        limit = number(query, "maxBytesRewrittenPerCall") or REWRITE_BYTES
        if "maxBytesRewrittenPerCall" in query and limit % (1 << 20):
            raise invalid("maxBytesRewrittenPerCall must be a multiple of 1 MiB.")
        from_place = (known_bucket(self.disk, source.bucket)["location"], source.storage_class)
        target = known_bucket(self.disk, to_bucket)
        to_place = (target["location"], str(fields.get("storageClass") or target["storageClass"]))
        done = int(before) + limit
        # within one location and storage class, one call is enough (documented)
        complete = from_place == to_place or done >= source.size
        return "" if complete else f"{done}-{digest}"

    async def move(self, request: Request, bucket: str, name: str, to_name: str) -> Response:
        source = self._source(request, bucket, name)
        check_object_name(to_name)
        conditions = Preconditions.from_query(request.query_params)
        stored = self.disk.copy(source, bucket, to_name, source.fields, conditions)
        if to_name != name:
            self.disk.delete(bucket, name, Preconditions())
        return answer(request, object_json(stored, request.base))

    # helpers

    def _object(self, bucket: str, name: str, query: Mapping[str, str]) -> EmulatedObject:
        known_bucket(self.disk, bucket)
        stored = self.disk.get(bucket, name, number(query, "generation"))
        if stored is None:
            raise no_object(bucket, name)
        return stored

    def _part(self, bucket: str, source: Mapping[str, Json]) -> EmulatedObject:
        """Return one source of a compose."""
        chosen = _query_of(source, "generation")
        part = self._object(bucket, str(source.get("name", "")), chosen)
        Preconditions.from_query(_query_of(source.get("objectPreconditions") or {})).check(part)
        return part

    def _source(self, request: Request, bucket: str, name: str) -> EmulatedObject:
        query = request.query_params
        chosen = {"generation": query["sourceGeneration"]} if "sourceGeneration" in query else {}
        source = self._object(bucket, name, chosen)
        Preconditions.from_query(query, "ifSource").check(source)
        return source


async def concatenate(
    disk: ObjectStore,
    files: Iterable[BinaryIO],
    bucket: str,
    name: str,
    fields: Mapping[str, Json],
    conditions: Preconditions,
    components: int,
) -> EmulatedObject:
    """Make one object of many files, and close them. Copy in a thread: the server can answer other requests."""
    incoming = disk.incoming(md5=False)
    try:
        await asyncio.to_thread(incoming.append, files)
    except BaseException:
        incoming.discard()
        raise
    return disk.commit(bucket, name, incoming, fields, conditions, components=components)


def _sources(body: Mapping[str, Json]) -> list[dict[str, Json]]:
    sources: Json = body.get("sourceObjects")
    if not isinstance(sources, list) or not 1 <= len(sources) <= _COMPOSE_LIMIT:  # pyright: ignore[reportUnknownArgumentType]
        raise invalid(f"A compose takes 1 to {_COMPOSE_LIMIT} objects.")
    return sources  # pyright: ignore[reportUnknownVariableType]


def _query_of(values: Mapping[str, Json], *names: str) -> dict[str, str]:
    """Return values of JSON as a query has them, without nulls: the official client sends null for unset values."""
    chosen = names or tuple(values)
    return {name: str(values[name]) for name in chosen if values.get(name) is not None}


# Batch requests ------------------------------------------------------------------------------------------------------


_LIMIT = 100


async def handle_batch(request: Request, handler: Handler) -> Response:
    """Answer a batch, whose parts are HTTP requests as text; the response has a part for each, in the same order."""
    match = re.search(r'boundary="?([^";,]{1,200})"?', request.headers.get("content-type", ""))
    if not match:
        raise invalid("A batch request names its boundary.")
    body = await request.read()
    parts = re.split(rb"(?:^|\r?\n)--" + re.escape(match[1].strip().encode("latin-1")), body)[1:-1]
    if not 1 <= len(parts) <= _LIMIT:
        raise invalid(f"A batch has 1 to {_LIMIT} requests.")
    mark = f"batch_{uuid.uuid4().hex}"
    answers = [await _answer_part(part, request, handler) for part in parts]
    text = b"".join(b"--" + mark.encode() + b"\r\n" + answer + b"\r\n" for answer in answers)
    headers = {"Content-Type": f"multipart/mixed; boundary={mark}"}
    return Response(text + b"--" + mark.encode() + b"--\r\n", headers=headers)


async def _answer_part(part: bytes, outer: Request, handler: Handler) -> bytes:
    outer_head, _, inner = part.replace(b"\r\n", b"\n").lstrip(b"\n").partition(b"\n\n")
    start, _, body = inner.partition(b"\n\n")
    line, *lines = start.decode("latin-1").split("\n")
    match = re.fullmatch(r"([A-Z]+) (\S+)(?: HTTP/1\.[01])?", line.strip())
    if not match:
        raise invalid("A part of the batch is not a request.")
    pairs = ([part.strip() for part in line.encode("latin-1").split(b":", 1)] for line in lines)
    headers = [(name.lower(), *value) for name, *value in pairs if value]
    headers.append((b"host", outer.headers.get("host", "localhost").encode()))
    path, _, query = re.sub(r"^https?://[^/]+", "", match[2]).encode("latin-1").partition(b"?")
    scope = {
        "type": "http",
        "scheme": outer.scope["scheme"],
        "method": match[1],
        "raw_path": path,
        "query_string": query,
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    response = await handler(Request({**scope, "headers": headers}, receive))
    if isinstance(response, FilePart):
        response.file.close()
        raise invalid("A batch carries no media.")
    content_id = re.search(rb"(?im)^content-id:[ \t]*<?([^>\n]+)", outer_head)
    identity = b"Content-ID: <response-" + content_id[1].strip() + b">\r\n" if content_id else b""
    lines = [f"HTTP/1.1 {response.status_code} {responses.get(response.status_code, '-')}".encode()]
    lines += [b"%b: %b" % pair for pair in response.raw_headers]
    text = b"\r\n".join([*lines, b"", bytes(response.body)])
    return b"Content-Type: application/http\r\n" + identity + b"\r\n" + text
