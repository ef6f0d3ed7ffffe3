"""Multipart uploads of the XML API, with which several processes of the official client upload one file at once.

Uploads live in memory and end with the server, as resumable uploads do; an incomplete upload leaves no object.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape

from starlette.responses import Response

from tpujob.emulator.http_server import Request
from tpujob.emulator.storage.answers import COPY_SOURCE, etag_of, fields_of, xml_response
from tpujob.emulator.storage.disk import Incoming, ObjectStore
from tpujob.emulator.storage.json_api import concatenate
from tpujob.emulator.storage.model import (
    Json,
    Preconditions,
    StorageApiError,
    check_object_name,
    no_bucket,
    not_emulated,
)
from tpujob.emulator.storage.upload import declared_hashes, receive

_PART = re.compile(r"<Part>(.*?)</Part>", re.DOTALL)
_MAX_PARTS = 10_000
_LEAST_PART = 5 << 20  # bytes of each part but the last (documented: XML API multipart uploads)


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

    def close(self) -> None:
        while self._uploads:
            _discard(self._uploads.popitem()[1])

    async def handle(self, request: Request, bucket: str, name: str) -> Response:
        """Answer a request with `uploads` or `uploadId` in its query."""
        if request.method == "POST" and "uploads" in request.query_params:
            return self._begin(request, bucket, name)
        key = request.query_params.get("uploadId", "")
        upload = self._uploads.get(key)
        if upload is None or (upload.bucket, upload.name) != (bucket, name):
            raise _refused(404, "NoSuchUpload", "The requested upload was not found.")
        match request.method:
            case "PUT":
                return await self._take(request, upload)
            case "POST":
                return await self._complete(request, key, upload)
            case "DELETE":
                _discard(self._uploads.pop(key))
                return Response(status_code=204)
            case method:
                raise not_emulated(f"{method} of an upload")

    def _begin(self, request: Request, bucket: str, name: str) -> Response:
        if self._disk.bucket(bucket) is None:
            raise no_bucket()
        key, fields = uuid.uuid4().hex, fields_of(request.headers)
        self._uploads[key] = _Upload(bucket, check_object_name(name), fields)
        named = [("Bucket", bucket), ("Key", name), ("UploadId", key)]
        return xml_response("InitiateMultipartUploadResult", named)

    async def _take(self, request: Request, upload: _Upload) -> Response:
        """Store one part, in place of an earlier part of the same number."""
        text = request.query_params.get("partNumber", "")
        if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= _MAX_PARTS:
            raise _refused(400, "InvalidArgument", f"Part numbers are 1 to {_MAX_PARTS}.")
        if COPY_SOURCE in request.headers:
            raise not_emulated("A part that is copied from an object")
        incoming = await receive(self._disk, request.stream(), declared_hashes(request))
        if old := upload.parts.pop(int(text), None):
            old.discard()
        upload.parts[int(text)] = incoming
        hashes = f"crc32c={incoming.crc32c},md5={incoming.md5}"
        return Response(headers={"ETag": f'"{incoming.md5}"', "X-Goog-Hash": hashes})

    async def _complete(self, request: Request, key: str, upload: _Upload) -> Response:
        """Make the object of the parts that the client names; drop the other parts."""
        parts = [
            _find_part(text, upload) for text in _PART.findall((await request.read()).decode())
        ]
        if not parts:
            raise _refused(400, "MalformedXML", "The request names no part.")
        if any(part.size < _LEAST_PART for part in parts[:-1]):
            raise _refused(400, "EntityTooSmall", f"A part has at least {_LEAST_PART} bytes.")
        del self._uploads[key]
        try:
            files = [part.path.open("rb") for part in parts]
            stored = await concatenate(
                self._disk, files, upload.bucket, upload.name, upload.fields, Preconditions(), 0
            )
        finally:
            _discard(upload)
        named = [("Bucket", upload.bucket), ("Key", upload.name), ("ETag", f'"{etag_of(stored)}"')]
        return xml_response("CompleteMultipartUploadResult", named)


def _refused(status: int, code: str, message: str) -> StorageApiError:
    return StorageApiError(status, "invalid", message, code)


def _find_part(text: str, upload: _Upload) -> Incoming:
    number = re.search(r"<PartNumber>\s*(\d+)\s*</PartNumber>", text)
    etag = re.search(r"<ETag>\s*(.*?)\s*</ETag>", text)
    part = upload.parts.get(int(number[1])) if number else None
    if part is None or etag is None or unescape(etag[1]).strip('"') != part.md5:
        raise _refused(400, "InvalidPart", "A part was not found, or has another ETag.")
    return part


def _discard(upload: _Upload) -> None:
    for part in upload.parts.values():
        part.discard()
