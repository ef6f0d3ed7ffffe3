"""Multipart uploads of the XML API, with which the official client uploads one file by several processes at once. The
rest of that API is missing.

Uploads live in memory and end with the server, as resumable ones do; an upload that is not completed leaves no object.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from urllib.parse import unquote
from xml.sax.saxutils import escape

from tpujob.emulator.http import Request, Response
from tpujob.emulator.storage.disk import ObjectStore
from tpujob.emulator.storage.files import Incoming
from tpujob.emulator.storage.json_api import concatenate
from tpujob.emulator.storage.model import (
    Conditions,
    Json,
    StorageApiError,
    check_object_fields,
    check_object_name,
    no_bucket,
)
from tpujob.emulator.storage.upload import WrongChecksum, declared_hashes, verify

_PATH = re.compile(r"/([^/]+)/(.+)")
_PART = re.compile(r"<Part>(.*?)</Part>", re.DOTALL)
_MOST_PARTS = 10_000
_LEAST_PART = 5 << 20  # bytes, of each but the last (documented: XML API multipart uploads)
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
#: the fields of an object that headers carry, beside `x-goog-meta-…`
_HEADERS = {
    "cache-control": "cacheControl",
    "content-disposition": "contentDisposition",
    "content-encoding": "contentEncoding",
    "content-language": "contentLanguage",
    "content-type": "contentType",
    "x-goog-custom-time": "customTime",
    "x-goog-storage-class": "storageClass",
}


class _Refused(Exception):
    """`code` is the XML API's word for it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(slots=True)
class _Upload:
    bucket: str
    name: str
    fields: Mapping[str, Json]
    parts: dict[int, Incoming] = field(default_factory=dict[int, Incoming])


class PartUploads:
    def __init__(self, disk: ObjectStore) -> None:
        self._disk = disk
        self._uploads: dict[str, _Upload] = {}

    async def handle(self, request: Request) -> Response | None:
        """None: not a request for a multipart upload."""
        match = _PATH.fullmatch(request.path)
        if not match or not {"uploads", "uploadId"} & set(request.query):
            return None
        try:
            return await self._handle(request, unquote(match[1]), unquote(match[2]))
        except _Refused as error:
            return _error(error)
        except WrongChecksum as error:
            return _error(_Refused(400, "BadDigest", error.message))
        except StorageApiError as error:
            code = "NoSuchBucket" if error.status == 404 else "InvalidArgument"
            return _error(_Refused(error.status, code, error.message))

    def close(self) -> None:
        while self._uploads:
            _discard(self._uploads.popitem()[1])

    async def _handle(self, request: Request, bucket: str, name: str) -> Response:
        if request.method == "POST" and "uploads" in request.query:
            return self._begin(request, bucket, name)
        key = request.query.get("uploadId", "")
        upload = self._uploads.get(key)
        if upload is None or (upload.bucket, upload.name) != (bucket, name):
            raise _Refused(404, "NoSuchUpload", "The requested upload was not found.")
        match request.method:
            case "PUT":
                return await self._take(request, upload)
            case "POST":
                return await self._complete(request, key, upload)
            case "DELETE":
                _discard(self._uploads.pop(key))
                return Response(204)
            case method:
                raise _Refused(501, "NotImplemented", f"{method} of an upload is not emulated.")

    def _begin(self, request: Request, bucket: str, name: str) -> Response:
        if self._disk.bucket(bucket) is None:
            raise no_bucket()
        given: dict[str, Json] = {
            field: request.headers[header]
            for header, field in _HEADERS.items()
            if header in request.headers
        }
        prefix = "x-goog-meta-"
        custom = [header for header in request.headers if header.startswith(prefix)]
        given["metadata"] = {h.removeprefix(prefix): request.headers[h] for h in custom}
        key = uuid.uuid4().hex
        fields = check_object_fields(given)
        self._uploads[key] = _Upload(bucket, check_object_name(name), fields)
        return _xml("InitiateMultipartUploadResult", Bucket=bucket, Key=name, UploadId=key)

    async def _take(self, request: Request, upload: _Upload) -> Response:
        """One part; a repeat replaces the earlier one."""
        text = request.query.get("partNumber", "")
        if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= _MOST_PARTS:
            raise _Refused(400, "InvalidArgument", f"Part numbers are 1 to {_MOST_PARTS}.")
        incoming = self._disk.incoming()
        try:
            async for chunk in request.body.chunks():
                incoming.write(chunk)
            incoming.close()
            verify(incoming, declared_hashes(request))
        except BaseException:
            incoming.discard()
            raise
        if old := upload.parts.pop(int(text), None):
            old.discard()
        upload.parts[int(text)] = incoming
        hashes = f"crc32c={incoming.crc32c},md5={incoming.md5}"
        return Response(200, {"ETag": f'"{incoming.md5}"', "X-Goog-Hash": hashes})

    async def _complete(self, request: Request, key: str, upload: _Upload) -> Response:
        """Make the object of the parts that the client names; the others are dropped."""
        parts = [
            _named(text, upload) for text in _PART.findall((await request.body.read()).decode())
        ]
        if not parts:
            raise _Refused(400, "MalformedXML", "The request names no part.")
        if any(part.size < _LEAST_PART for part in parts[:-1]):
            raise _Refused(400, "EntityTooSmall", f"A part has at least {_LEAST_PART} bytes.")
        del self._uploads[key]
        try:
            files = [part.path.open("rb") for part in parts]
            made = await concatenate(
                self._disk, files, upload.bucket, upload.name, upload.fields, Conditions(), 0
            )
        finally:
            _discard(upload)
        return _xml(
            "CompleteMultipartUploadResult", Bucket=upload.bucket, Key=upload.name, ETag=made.etag
        )


def _named(text: str, upload: _Upload) -> Incoming:
    number = re.search(r"<PartNumber>\s*(\d+)\s*</PartNumber>", text)
    etag = re.search(r"<ETag>\s*(.*?)\s*</ETag>", text)
    part = upload.parts.get(int(number[1])) if number else None
    if part is None or etag is None or unescape(etag[1]).strip('"') != part.md5:
        raise _Refused(400, "InvalidPart", "A part was not found, or has another ETag.")
    return part


def _discard(upload: _Upload) -> None:
    for part in upload.parts.values():
        part.discard()


def _xml(root: str, **values: str) -> Response:
    inner = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in values.items())
    return _document(200, f'<{root} xmlns="{_NAMESPACE}">{inner}</{root}>')


def _error(error: _Refused) -> Response:
    message = f"<Message>{escape(error.message)}</Message><Details></Details>"
    return _document(error.status, f"<Error><Code>{error.code}</Code>{message}</Error>")


def _document(status: int, text: str) -> Response:
    body = f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode()
    return Response(status, {"Content-Type": "application/xml; charset=UTF-8"}, body)
