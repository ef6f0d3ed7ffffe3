"""The part of the XML API that clients need: plain objects, lists and multipart uploads.

obstore uses all of it, `transfer_manager.upload_chunks_concurrently` the multipart uploads.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from tpujob.emulator.http import Request, Response
from tpujob.emulator.storage.disk import ObjectStore
from tpujob.emulator.storage.files import Incoming
from tpujob.emulator.storage.json_api import concatenate
from tpujob.emulator.storage.listing import Listing
from tpujob.emulator.storage.media import media, media_headers
from tpujob.emulator.storage.model import (
    Conditions,
    Json,
    StorageApiError,
    check_object_name,
    invalid,
    no_bucket,
    no_object,
    number,
    precondition_failed,
)
from tpujob.emulator.storage.upload import declared_hashes, verify
from tpujob.emulator.storage.xml_text import (
    conditions_of,
    element,
    elements,
    entry,
    error_response,
    fields_of,
    part_etag,
    same_etag,
    tag,
    written,
    xml,
)

_LEAST_PART = 5 << 20  # bytes of each part but the last
_MOST_PARTS = 10_000


@dataclass(slots=True)
class MultipartUpload:
    bucket: str
    name: str
    fields: Mapping[str, Json]
    parts: dict[int, Incoming] = field(default_factory=dict[int, Incoming])

    def discard(self) -> None:
        for part in self.parts.values():
            part.discard()


class XmlApi:
    def __init__(self, disk: ObjectStore) -> None:
        self._disk = disk
        self._uploads: dict[str, MultipartUpload] = {}

    async def handle(self, request: Request) -> Response:
        bucket, _, name = unquote(request.path[1:], errors="strict").partition("/")
        try:
            if not bucket or self._disk.bucket(bucket) is None:
                raise no_bucket()
            if not name:
                return self._list(request, bucket)
            check_object_name(name)
            if "uploads" in request.query or "uploadId" in request.query:
                return await self._multipart(request, bucket, name)
            return await self._object(request, bucket, name)
        except StorageApiError as error:
            return error_response(error)

    def close(self) -> None:
        for upload in self._uploads.values():
            upload.discard()

    # plain objects

    async def _object(self, request: Request, bucket: str, name: str) -> Response:
        conditions = conditions_of(request)
        if request.method == "PUT":
            if "x-goog-copy-source" in request.headers:
                return self._copy(request, bucket, name, conditions)
            return await self._put(request, bucket, name, conditions)
        stored = self._disk.get(bucket, name, number(request.query, "generation"))
        if stored is None:
            raise no_object(bucket, name)
        if request.method == "DELETE":
            self._disk.delete(bucket, name, conditions, number(request.query, "generation"))
            return Response(204)
        if request.method not in ("GET", "HEAD"):
            raise StorageApiError(405, "methodNotAllowed", f"{request.method} is not known here.")
        conditions.check(stored)
        if same_etag(request.headers.get("if-none-match", ""), stored):
            return Response(304, media_headers(stored))
        wanted = request.headers.get("if-match", "")
        if wanted and not same_etag(wanted, stored):
            raise precondition_failed()
        response = media(request, self._disk, stored)
        metadata: dict[str, str] = stored.fields.get("metadata") or {}
        for key, value in metadata.items():
            if re.fullmatch(r"[\w.-]+", key, re.ASCII):
                response.headers[f"X-Goog-Meta-{key}"] = value
        return response

    async def _put(
        self, request: Request, bucket: str, name: str, conditions: Conditions
    ) -> Response:
        incoming = await self._receive(request)
        try:
            stored = self._disk.commit(bucket, name, incoming, fields_of(request), conditions)
        finally:
            incoming.discard()
        return written(stored)

    def _copy(self, request: Request, bucket: str, name: str, conditions: Conditions) -> Response:
        path = unquote(request.headers["x-goog-copy-source"], errors="strict").lstrip("/")
        from_bucket, _, from_name = path.partition("/")
        source = self._disk.get(from_bucket, from_name)
        if source is None:
            raise no_object(from_bucket, from_name)
        stored = self._disk.copy(source, bucket, name, source.fields, conditions)
        return xml(
            "CopyObjectResult",
            ("ETag", f'"{stored.etag}"'),
            ("LastModified", stored.updated),
            headers=written(stored).headers,
        )

    async def _receive(self, request: Request, *, md5: bool = True) -> Incoming:
        declared = declared_hashes(request)
        incoming = self._disk.incoming(md5=md5 or "md5" in declared)
        try:
            async for chunk in request.body.chunks():
                incoming.write(chunk)
            verify(incoming, declared)
        except BaseException:
            incoming.discard()
            raise
        return incoming

    # multipart uploads

    async def _multipart(self, request: Request, bucket: str, name: str) -> Response:
        if "uploads" in request.query and request.method == "POST":
            key = uuid.uuid4().hex
            self._uploads[key] = MultipartUpload(bucket, name, fields_of(request))
            values = (("Bucket", bucket), ("Key", name), ("UploadId", key))
            return xml("InitiateMultipartUploadResult", *values)
        key = request.query.get("uploadId", "")
        upload = self._uploads.get(key)
        if upload is None or (upload.bucket, upload.name) != (bucket, name):
            raise _no_upload()
        if request.method == "PUT":
            return await self._part(request, upload)
        if request.method == "DELETE":
            self._uploads.pop(key).discard()
            return Response(204)
        if request.method == "POST":
            return await self._complete(request, key, upload)
        raise StorageApiError(405, "methodNotAllowed", f"{request.method} is not known here.")

    async def _part(self, request: Request, upload: MultipartUpload) -> Response:
        which = number(request.query, "partNumber") or 0
        if not 1 <= which <= _MOST_PARTS:
            raise invalid(f"A part's number is between 1 and {_MOST_PARTS}.")
        part = await self._receive(request, md5=False)
        if upload not in self._uploads.values():  # completed or aborted in the meantime
            part.discard()
            raise _no_upload()
        part.close()
        old = upload.parts.get(which)
        upload.parts[which] = part
        if old:
            old.discard()
        headers = {"ETag": part_etag(part), "X-Goog-Hash": f"crc32c={part.crc32c}"}
        return Response(200, headers)

    async def _complete(self, request: Request, key: str, upload: MultipartUpload) -> Response:
        body = (await request.body.read()).decode("utf-8")
        parts: list[Incoming] = []
        last = 0
        for text in re.findall(r"<Part>(.*?)</Part>", body, re.DOTALL):
            which, etag = tag(text, "PartNumber"), tag(text, "ETag")
            part = upload.parts.get(int(which) if which.isascii() and which.isdigit() else 0)
            if part is None or etag.strip('"') != part_etag(part).strip('"'):
                raise StorageApiError(
                    400,
                    "invalid",
                    f"Part {which[:10]!r} was not uploaded with this ETag.",
                    "InvalidPart",
                )
            if int(which) <= last:
                raise StorageApiError(
                    400, "invalid", "Parts are not in ascending order.", "InvalidPartOrder"
                )
            last = int(which)
            parts.append(part)
        if not parts:
            raise invalid("No parts are named.")
        if any(part.size < _LEAST_PART for part in parts[:-1]):
            text = f"Every part but the last has at least {_LEAST_PART} bytes."
            raise StorageApiError(400, "invalid", text, "EntityTooSmall")
        del self._uploads[key]
        try:
            files = (part.path.open("rb") for part in parts)
            place, conditions = (upload.bucket, upload.name), conditions_of(request)
            stored = await concatenate(self._disk, files, *place, upload.fields, conditions, 0)
        finally:
            upload.discard()
        values = (("Bucket", stored.bucket), ("Key", stored.name), ("ETag", f'"{stored.etag}"'))
        headers = written(stored).headers
        return xml("CompleteMultipartUploadResult", *values, headers=headers)

    # lists

    def _list(self, request: Request, bucket: str) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise StorageApiError(405, "methodNotAllowed", "Buckets are made with the JSON API.")
        query = request.query
        start = query.get("start-after", "")
        wanted = Listing(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start=start,
            token=query.get("continuation-token", ""),
            limit=min(number(query, "max-keys") or 1000, 1000),
        )
        page = self._disk.page(bucket, wanted)
        items = [stored for stored in page.items if stored.name != start]
        values: list[tuple[str, str]] = [
            ("Name", bucket),
            ("Prefix", query.get("prefix", "")),
            ("KeyCount", str(len(items) + len(page.prefixes))),
            ("IsTruncated", "true" if page.next else "false"),
        ]
        if page.next:
            values.append(("NextContinuationToken", page.next))
        inner = [element("Contents", elements(entry(stored))) for stored in items]
        inner += [element("CommonPrefixes", elements([("Prefix", p)])) for p in page.prefixes]
        return xml("ListBucketResult", *values, inner="".join(inner))


def _no_upload() -> StorageApiError:
    return StorageApiError(404, "notFound", "No such multipart upload.", "NoSuchUpload")
