"""Headers and XML of the XML API: requests are read from headers, answers are written as XML."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape

from tpujob.emulator.http import Request, Response
from tpujob.emulator.storage.files import Incoming
from tpujob.emulator.storage.media import media_headers
from tpujob.emulator.storage.model import (
    Conditions,
    Json,
    StorageApiError,
    StoredObject,
    check_object_fields,
    number,
)

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
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


def error_response(error: StorageApiError) -> Response:
    code = error.xml_code or _CODES.get(error.status, "InternalError")
    return xml("Error", ("Code", code), ("Message", error.message), status=error.status)


def xml(
    name: str,
    *values: tuple[str, str],
    inner: str = "",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    space = "" if name == "Error" else f' xmlns="{_NAMESPACE}"'
    text = (
        f"<?xml version='1.0' encoding='UTF-8'?>\n<{name}{space}>{elements(values)}{inner}</{name}>"
    )
    kind = {"Content-Type": "application/xml; charset=UTF-8"}
    return Response(status, {**kind, **(headers or {})}, text.encode())


def elements(values: Iterable[tuple[str, str]]) -> str:
    return "".join(element(name, _clean(value)) for name, value in values)


def element(name: str, inner: str) -> str:
    return f"<{name}>{inner}</{name}>"


def _clean(text: str) -> str:
    """Escaped; characters that are illegal in XML are replaced."""
    return escape(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", text))


def entry(stored: StoredObject) -> list[tuple[str, str]]:
    return [
        ("Key", stored.name),
        ("Generation", str(stored.generation)),
        ("MetaGeneration", str(stored.metageneration)),
        ("LastModified", stored.updated),
        ("ETag", f'"{stored.etag}"'),
        ("Size", str(stored.size)),
    ]


def tag(text: str, name: str) -> str:
    found = re.search(rf"<{name}>\s*(.*?)\s*</{name}>", text, re.DOTALL)
    return found[1].replace("&quot;", '"').replace("&#34;", '"') if found else ""


def written(stored: StoredObject) -> Response:
    kept = ("ETag", "X-Goog-Hash", "X-Goog-Generation", "X-Goog-Metageneration")
    return Response(200, {k: v for k, v in media_headers(stored).items() if k in kept})


def conditions_of(request: Request) -> Conditions:
    return Conditions(generation=number(request.headers, "x-goog-if-generation-match"))


def fields_of(request: Request) -> dict[str, Json]:
    headers = request.headers
    fields: dict[str, Json] = {new: headers[old] for old, new in _FIELDS.items() if old in headers}
    start = "x-goog-meta-"
    metadata = {k[len(start) :]: v for k, v in headers.items() if k.startswith(start)}
    return check_object_fields({**fields, "metadata": metadata})


def same_etag(header: str, stored: StoredObject) -> bool:
    return header.strip() == "*" or stored.etag in (e.strip(' "') for e in header.split(","))


def part_etag(part: Incoming) -> str:
    return f'"{part.size:x}-{base64.b64decode(part.crc32c).hex()}"'
