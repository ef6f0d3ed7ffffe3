"""What the handlers of the XML API share: documents, errors, and the fields of an object in headers."""

import base64
from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape

from tpujob.emulator.http_messages import Response
from tpujob.emulator.storage.model import EmulatedObject, Json, StorageApiError, check_object_fields

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
META = "x-goog-meta-"
COPY_SOURCE = "x-goog-copy-source"
#: the fields of an object that headers carry, beside those that begin with META
_HEADERS = {
    "cache-control": "cacheControl",
    "content-disposition": "contentDisposition",
    "content-encoding": "contentEncoding",
    "content-language": "contentLanguage",
    "content-type": "contentType",
    "x-goog-custom-time": "customTime",
    "x-goog-storage-class": "storageClass",
}
#: an element: its name, and its text or the elements in it
Element = tuple[str, "str | Iterable[Element]"]


def fields_of(headers: Mapping[str, str]) -> dict[str, Json]:
    """The fields of an object, from the headers of the request that makes it. Raises 400."""
    given: dict[str, Json] = {
        field: headers[header] for header, field in _HEADERS.items() if header in headers
    }
    given["metadata"] = {
        header.removeprefix(META): value
        for header, value in headers.items()
        if header.startswith(META)
    }
    return check_object_fields(given)


def etag_of(stored: EmulatedObject) -> str:
    """Without quotes: the MD5 in hexadecimal digits, where the object has one."""
    return base64.b64decode(stored.md5).hex() if stored.md5 else stored.etag


def xml_response(root: str, elements: Iterable[Element]) -> Response:
    return _document(200, f'<{root} xmlns="{_NAMESPACE}">{_text(elements)}</{root}>')


def error_response(error: StorageApiError) -> Response:
    text = _text([("Code", error.code), ("Message", error.message), ("Details", "")])
    return _document(error.status, f"<Error>{text}</Error>")


def _text(elements: Iterable[Element]) -> str:
    return "".join(
        f"<{name}>{escape(value) if isinstance(value, str) else _text(value)}</{name}>"
        for name, value in elements
    )


def _document(status: int, text: str) -> Response:
    body = f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode()
    return Response(status, {"Content-Type": "application/xml; charset=UTF-8"}, body)
