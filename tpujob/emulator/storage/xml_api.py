"""The XML API of Cloud Storage: objects and their lists; the objects are those of the JSON API.

Its clients are obstore, clients of S3 at this endpoint, and programs that use a signed URL. Signatures are not checked:
the server answers one user.
"""

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

from starlette.responses import Response

from tpujob.emulator.http_server import Request
from tpujob.emulator.storage.answers import (
    COPY_SOURCE,
    META,
    Element,
    etag_of,
    fields_of,
    xml_response,
)
from tpujob.emulator.storage.bucket_api import known_bucket
from tpujob.emulator.storage.disk import ObjectStore
from tpujob.emulator.storage.listing import Listing, successor
from tpujob.emulator.storage.media import media, media_headers, not_modified
from tpujob.emulator.storage.model import (
    EmulatedObject,
    Preconditions,
    check_object_name,
    invalid,
    no_object,
    not_emulated,
    number,
)
from tpujob.emulator.storage.parts import PartUploads
from tpujob.emulator.storage.upload import declared_hashes, receive

_OTHER_API = re.compile(r"/(?:storage/v1|upload|resumable|download|batch|b)(?:/.*)?")
_PATH = re.compile(r"/([^/]+)(?:/(.*))?")
_HEADER = re.compile(r"[a-zA-Z0-9_.-]+")  #: keys of metadata that headers can carry
_BUCKET_METHODS = ("GET", "HEAD")
_OBJECT_METHODS = ("GET", "HEAD", "PUT", "DELETE")
#: parts of the API that are not emulated, by their names in the query
_MISSING = frozenset(
    {
        "acl",
        "billing",
        "compose",
        "cors",
        "delete",
        "encryption",
        "lifecycle",
        "location",
        "logging",
    }
    | {"object-lock", "policy", "publicAccessBlock", "retention", "storageClass", "tagging"}
    | {"versioning", "versions", "website"}
)
#: response headers that the query of a signed URL may replace
_REPLACED = {
    "response-content-disposition": "Content-Disposition",
    "response-content-type": "Content-Type",
}


class XmlApi:
    def __init__(self, disk: ObjectStore) -> None:
        self._disk = disk
        self._parts = PartUploads(disk)

    def close(self) -> None:
        self._parts.close()

    async def handle(self, request: Request) -> Response | None:
        """Answer a request; return None for a path of another API."""
        match = _PATH.fullmatch(request.path)
        if not match or not is_xml(request):
            return None
        bucket, name = unquote(match[1]), unquote(match[2] or "", errors="strict")
        if missing := _MISSING & set(request.query_params):
            raise not_emulated(f"?{min(missing)} of the XML API")
        if {"uploads", "uploadId"} & set(request.query_params):
            return await self._parts.handle(request, bucket, name)
        if "aws-chunked" in request.headers.get("content-encoding", ""):
            text = "The aws-chunked encoding (boto3: request_checksum_calculation='when_required')"
            raise not_emulated(text)
        if request.method not in (_OBJECT_METHODS if name else _BUCKET_METHODS):
            raise not_emulated(f"{request.method} of {'an object' if name else 'a bucket'} in XML")
        known_bucket(self._disk, bucket)
        match request.method, bool(name):
            case "GET", False:
                return self._list(request, bucket)
            case "HEAD", False:
                return Response()
            case "GET" | "HEAD", True:
                return self._get(request, bucket, name)
            case "PUT", True:
                copies = COPY_SOURCE in request.headers
                return await (self._copy if copies else self._put)(request, bucket, name)
            case _:  # DELETE
                chosen = number(request.query_params, "generation")
                self._disk.delete(bucket, name, _conditions(request), chosen)
                return Response(status_code=204)

    def _get(self, request: Request, bucket: str, name: str) -> Response:
        stored = self._object(bucket, name, number(request.query_params, "generation"))
        etag = etag_of(stored)
        if not_modified(request, stored, _conditions(request), etag):
            return Response(status_code=304, headers={"ETag": f'"{etag}"'})
        headers = media_headers(stored, etag)
        # boto3 reads `x-amz-meta-` alone: a client that signs as for S3 is answered with those names.
        signed = request.headers.get("authorization", "").startswith("AWS")
        prefix = "x-amz-meta-" if signed or "X-Amz-Signature" in request.query_params else META
        custom: Mapping[str, str] = stored.fields.get("metadata") or {}
        named = {key: value for key, value in custom.items() if _HEADER.fullmatch(key)}
        headers |= {prefix + key: value for key, value in named.items()}
        for parameter, header in _REPLACED.items():
            if value := request.query_params.get(parameter):
                headers[header] = value
        return media(request, self._disk, stored, headers)

    async def _put(self, request: Request, bucket: str, name: str) -> Response:
        if {"if-match", "if-none-match"} & set(request.headers):
            text = "If-Match or If-None-Match of a write, beside x-goog-if-generation-match,"
            raise not_emulated(text)
        check_object_name(name)
        fields, conditions = fields_of(request.headers), _conditions(request)
        incoming = await receive(self._disk, request.stream(), declared_hashes(request))
        stored = self._disk.commit(bucket, name, incoming, fields, conditions)
        return Response(headers=_write_headers(stored))

    async def _copy(self, request: Request, bucket: str, name: str) -> Response:
        headers = request.headers
        source = re.fullmatch(r"/?([^/]+)/(.+)", unquote(headers[COPY_SOURCE], errors="strict"))
        if not source:
            raise invalid("The source of a copy is BUCKET/OBJECT.")
        known_bucket(self._disk, source[1])
        stored = self._object(source[1], source[2], number(headers, f"{COPY_SOURCE}-generation"))
        _conditions(request, f"{COPY_SOURCE}-if").check(stored)
        replaces = headers.get("x-goog-metadata-directive", "").upper() == "REPLACE"
        fields = fields_of(headers) if replaces else stored.fields
        check_object_name(name)
        copy = self._disk.copy(stored, bucket, name, fields, _conditions(request))
        answer = xml_response("CopyObjectResult", [_etag(copy), ("LastModified", copy.updated)])
        answer.headers["X-Goog-Generation"] = str(copy.generation)
        return answer

    def _list(self, request: Request, bucket: str) -> Response:
        """Answer both versions of a list, which differ in how a client requests the next page."""
        query, is_v2 = request.query_params, request.query_params.get("list-type") == "2"
        after = query.get("start-after" if is_v2 else "marker", "")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        limit = number(query, "max-keys")
        folded = not is_v2 and delimiter and after.endswith(delimiter)
        listing = Listing(
            prefix=prefix,
            delimiter=delimiter,
            # No name has a NUL; the marker of a page that ends with a common prefix is that prefix.
            start=(successor(after) if folded else f"{after}\0") if after else "",
            token=query.get("continuation-token", "") if is_v2 else "",
            limit=min(1000 if limit is None else limit, 1000),
        )
        page = self._disk.page(bucket, listing)
        shown = quote if query.get("encoding-type") == "url" else str
        last = max([*page.prefixes, *(stored.name for stored in page.items[-1:])], default="")
        elements: list[Element] = [("Name", bucket), ("Prefix", shown(prefix))]
        elements += [("Delimiter", shown(delimiter))] if delimiter else []
        elements += [("EncodingType", "url")] if shown is quote else []
        elements += [("MaxKeys", str(listing.limit)), ("IsTruncated", str(bool(page.next)).lower())]
        if is_v2:
            elements += [("KeyCount", str(len(page.items) + len(page.prefixes)))]
            elements += [("NextContinuationToken", page.next)] if page.next else []
        else:
            elements += [("Marker", shown(after))]
            elements += [("NextMarker", shown(last))] if page.next else []
        elements += [("Contents", _contents(stored, shown(stored.name))) for stored in page.items]
        elements += [("CommonPrefixes", [("Prefix", shown(folded))]) for folded in page.prefixes]
        return xml_response("ListBucketResult", elements)

    def _object(self, bucket: str, name: str, generation: int | None) -> EmulatedObject:
        stored = self._disk.get(bucket, name, generation)
        if stored is None:
            raise no_object(bucket, name)
        return stored


def is_xml(request: Request) -> bool:
    """Return whether a request is for the XML API, whose responses are XML."""
    return not _OTHER_API.fullmatch(request.path)


def _conditions(request: Request, prefix: str = "x-goog-if") -> Preconditions:
    generation = number(request.headers, f"{prefix}-generation-match")
    metageneration = number(request.headers, f"{prefix}-metageneration-match")
    return Preconditions(generation=generation, metageneration=metageneration)


def _etag(stored: EmulatedObject) -> Element:
    return ("ETag", f'"{etag_of(stored)}"')


def _write_headers(stored: EmulatedObject) -> dict[str, str]:
    """Return the response headers of a write; the body is empty."""
    shown = media_headers(stored, etag_of(stored))
    return {
        name: value
        for name, value in shown.items()
        if name.startswith("X-Goog-") or name in ("ETag", "Last-Modified")
    }


def _contents(stored: EmulatedObject, name: str) -> list[Element]:
    return [
        ("Key", name),
        ("Generation", str(stored.generation)),
        ("MetaGeneration", str(stored.metageneration)),
        ("LastModified", stored.updated),
        _etag(stored),
        ("Size", str(stored.size)),
        ("StorageClass", stored.storage_class),
    ]
