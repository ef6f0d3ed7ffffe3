"""The part of the XML API that clients of the JSON API use beside it: multipart uploads, and plain objects.

`transfer_manager.upload_chunks_concurrently` uploads with it; obstore does everything with it.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote
from xml.sax.saxutils import escape

from tpujob.emulator.storage_disk import Disk
from tpujob.emulator.storage_files import Incoming
from tpujob.emulator.storage_http import Request, Response
from tpujob.emulator.storage_json import concatenate, media, media_headers
from tpujob.emulator.storage_model import (
    ApiError,
    Conditions,
    Json,
    Stored,
    check_object_fields,
    check_object_name,
    invalid,
    no_bucket,
    no_object,
    number,
    precondition_failed,
)
from tpujob.emulator.storage_upload import verify

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_LEAST_PART = 5 << 20  # bytes of each part but the last
_MOST_PARTS = 10_000
_CODES = {
    400: "InvalidArgument",
    403: "AccessDenied",
    404: "NoSuchKey",
    405: "MethodNotAllowed",
    409: "Conflict",
    412: "PreconditionFailed",
    416: "InvalidRange",
}
_FIELDS = {
    "content-type": "contentType",
    "content-encoding": "contentEncoding",
    "content-disposition": "contentDisposition",
    "content-language": "contentLanguage",
    "cache-control": "cacheControl",
    "x-goog-storage-class": "storageClass",
}


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
    def __init__(self, disk: Disk) -> None:
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
        except ApiError as error:
            return error_response(error)

    def close(self) -> None:
        for upload in self._uploads.values():
            upload.discard()

    # plain objects

    async def _object(self, request: Request, bucket: str, name: str) -> Response:
        conditions = _conditions(request)
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
            raise ApiError(405, "methodNotAllowed", f"{request.method} is not known here.")
        conditions.check(stored)
        if _same_etag(request.headers.get("if-none-match", ""), stored):
            return Response(304, media_headers(stored))
        wanted = request.headers.get("if-match", "")
        if wanted and not _same_etag(wanted, stored):
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
            stored = self._disk.commit(bucket, name, incoming, _fields(request), conditions)
        finally:
            incoming.discard()
        return _written(stored)

    def _copy(self, request: Request, bucket: str, name: str, conditions: Conditions) -> Response:
        path = unquote(request.headers["x-goog-copy-source"], errors="strict").lstrip("/")
        from_bucket, _, from_name = path.partition("/")
        source = self._disk.get(from_bucket, from_name)
        if source is None:
            raise no_object(from_bucket, from_name)
        stored = self._disk.copy(source, bucket, name, source.fields, conditions)
        return _xml(
            "CopyObjectResult",
            ("ETag", f'"{stored.etag}"'),
            ("LastModified", stored.updated),
            headers=_written(stored).headers,
        )

    async def _receive(self, request: Request) -> Incoming:
        incoming = self._disk.incoming()
        try:
            async for chunk in request.body.chunks():
                incoming.write(chunk)
            verify(incoming, _hashes(request))
        except BaseException:
            incoming.discard()
            raise
        return incoming

    # multipart uploads

    async def _multipart(self, request: Request, bucket: str, name: str) -> Response:
        if "uploads" in request.query and request.method == "POST":
            key = uuid.uuid4().hex
            self._uploads[key] = MultipartUpload(bucket, name, _fields(request))
            values = (("Bucket", bucket), ("Key", name), ("UploadId", key))
            return _xml("InitiateMultipartUploadResult", *values)
        key = request.query.get("uploadId", "")
        upload = self._uploads.get(key)
        if upload is None or (upload.bucket, upload.name) != (bucket, name):
            raise ApiError(404, "NoSuchUpload", "No such multipart upload.")
        if request.method == "PUT":
            return await self._part(request, upload)
        if request.method == "DELETE":
            self._uploads.pop(key).discard()
            return Response(204)
        if request.method == "POST":
            return await self._complete(request, key, upload)
        raise ApiError(405, "methodNotAllowed", f"{request.method} is not known here.")

    async def _part(self, request: Request, upload: MultipartUpload) -> Response:
        which = number(request.query, "partNumber") or 0
        if not 1 <= which <= _MOST_PARTS:
            raise invalid(f"A part's number is between 1 and {_MOST_PARTS}.")
        part = await self._receive(request)
        if upload not in self._uploads.values():  # completed or aborted in the meantime
            part.discard()
            raise ApiError(404, "NoSuchUpload", "No such multipart upload.")
        part.close()
        old = upload.parts.get(which)
        upload.parts[which] = part
        if old:
            old.discard()
        hashes = f"crc32c={part.crc32c},md5={part.md5}"
        return Response(200, {"ETag": _part_etag(part), "X-Goog-Hash": hashes})

    async def _complete(self, request: Request, key: str, upload: MultipartUpload) -> Response:
        body = (await request.body.read()).decode("utf-8")
        parts: list[Incoming] = []
        last = 0
        for text in re.findall(r"<Part>(.*?)</Part>", body, re.DOTALL):
            which, etag = _tag(text, "PartNumber"), _tag(text, "ETag")
            part = upload.parts.get(int(which) if which.isascii() and which.isdigit() else 0)
            if part is None or etag.strip('"') != _part_etag(part).strip('"'):
                raise ApiError(400, "InvalidPart", f"Part {which[:10]!r} was not uploaded so.")
            if int(which) <= last:
                raise ApiError(400, "InvalidPartOrder", "Parts are not in ascending order.")
            last = int(which)
            parts.append(part)
        if not parts:
            raise invalid("No parts are named.")
        if any(part.size < _LEAST_PART for part in parts[:-1]):
            text = f"Every part but the last has at least {_LEAST_PART} bytes."
            raise ApiError(400, "EntityTooSmall", text)
        del self._uploads[key]
        try:
            files = (part.path.open("rb") for part in parts)
            place, conditions = (upload.bucket, upload.name), _conditions(request)
            stored = await concatenate(self._disk, files, *place, upload.fields, conditions, 0)
        finally:
            upload.discard()
        values = (("Bucket", stored.bucket), ("Key", stored.name), ("ETag", f'"{stored.etag}"'))
        headers = _written(stored).headers
        return _xml("CompleteMultipartUploadResult", *values, headers=headers)

    # lists

    def _list(self, request: Request, bucket: str) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise ApiError(405, "methodNotAllowed", "Buckets are made with the JSON API.")
        query = request.query
        start = query.get("start-after") or query.get("marker") or ""
        page = self._disk.page(
            bucket,
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start=start,
            token=query.get("continuation-token", ""),
            limit=min(number(query, "max-keys") or 1000, 1000),
        )
        items = [stored for stored in page.items if stored.name != start]
        values: list[tuple[str, str]] = [
            ("Name", bucket),
            ("Prefix", query.get("prefix", "")),
            ("KeyCount", str(len(items) + len(page.prefixes))),
            ("IsTruncated", "true" if page.next else "false"),
        ]
        if page.next:
            values.append(("NextContinuationToken", page.next))
        inner = [_element("Contents", _elements(_entry(stored))) for stored in items]
        inner += [_element("CommonPrefixes", _elements([("Prefix", p)])) for p in page.prefixes]
        return _xml("ListBucketResult", *values, inner="".join(inner))


def error_response(error: ApiError) -> Response:
    code = error.reason if error.reason[:1].isupper() else _CODES.get(error.status, "InternalError")
    if error.message == no_bucket().message:
        code = "NoSuchBucket"
    return _xml("Error", ("Code", code), ("Message", error.message), status=error.status)


def _xml(
    name: str,
    *values: tuple[str, str],
    inner: str = "",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    space = "" if name == "Error" else f' xmlns="{_NAMESPACE}"'
    text = f"<?xml version='1.0' encoding='UTF-8'?>\n<{name}{space}>{_elements(values)}{inner}</{name}>"
    kind = {"Content-Type": "application/xml; charset=UTF-8"}
    return Response(status, {**kind, **(headers or {})}, text.encode())


def _elements(values: Iterable[tuple[str, str]]) -> str:
    return "".join(_element(name, _clean(value)) for name, value in values)


def _element(name: str, inner: str) -> str:
    return f"<{name}>{inner}</{name}>"


def _clean(text: str) -> str:
    """Escaped; characters that XML cannot carry are replaced."""
    return escape(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text))


def _entry(stored: Stored) -> list[tuple[str, str]]:
    return [
        ("Key", stored.name),
        ("Generation", str(stored.generation)),
        ("MetaGeneration", str(stored.metageneration)),
        ("LastModified", stored.updated),
        ("ETag", f'"{stored.etag}"'),
        ("Size", str(stored.size)),
    ]


def _tag(text: str, name: str) -> str:
    found = re.search(rf"<{name}>\s*(.*?)\s*</{name}>", text, re.DOTALL)
    return found[1].replace("&quot;", '"').replace("&#34;", '"') if found else ""


def _written(stored: Stored) -> Response:
    kept = ("ETag", "X-Goog-Hash", "X-Goog-Generation", "X-Goog-Metageneration")
    return Response(200, {k: v for k, v in media_headers(stored).items() if k in kept})


def _conditions(request: Request) -> Conditions:
    headers = request.headers
    generation = number(headers, "x-goog-if-generation-match")
    if headers.get("if-none-match", "").strip() == "*" and request.method in ("PUT", "POST"):
        generation = 0
    metageneration = number(headers, "x-goog-if-metageneration-match")
    return Conditions(generation=generation, metageneration=metageneration)


def _fields(request: Request) -> dict[str, Json]:
    headers = request.headers
    fields: dict[str, Json] = {new: headers[old] for old, new in _FIELDS.items() if old in headers}
    start = "x-goog-meta-"
    metadata = {k[len(start) :]: v for k, v in headers.items() if k.startswith(start)}
    return check_object_fields({**fields, "metadata": metadata})


def _hashes(request: Request) -> dict[str, str]:
    pairs = re.findall(r"(crc32c|md5)=([\w+/=]+)", request.headers.get("x-goog-hash", ""))
    declared: dict[str, str] = dict(pairs)
    if "content-md5" in request.headers:
        declared["md5"] = request.headers["content-md5"]
    return declared


def _same_etag(header: str, stored: Stored) -> bool:
    return header.strip() == "*" or stored.etag in (e.strip(' "') for e in header.split(","))


def _part_etag(part: Incoming) -> str:
    return f'"{binascii.hexlify(base64.b64decode(part.md5)).decode()}"'
