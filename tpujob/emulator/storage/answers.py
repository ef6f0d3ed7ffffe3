"""Shared by the handlers of both APIs: bodies and responses in JSON, the selection of fields, and XML documents."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from xml.sax.saxutils import escape

from starlette.responses import Response

from tpujob.emulator.http_server import Request, json_response
from tpujob.emulator.storage.model import (
    EmulatedObject,
    Json,
    StorageApiError,
    check_object_fields,
    invalid,
)


def answer(request: Request, value: Json, **headers: str) -> Response:
    """Return a JSON response, reduced to the `fields` that the client requests."""
    if "fields" in request.query_params:
        value = select(request.query_params["fields"])(value)
    return json_response(value, headers=headers)


async def json_body(request: Request) -> dict[str, Json]:
    """Return the request's body, an object; empty when there is no body. Raise 400."""
    try:
        return await request.json_object()
    except ValueError as error:
        raise StorageApiError(400, "parseError", str(error)) from error


def select(expression: str) -> Callable[[Json], Json]:
    """Return the filter of a `fields` parameter: `items(name,size),nextPageToken` keeps these. `a/b` is `a(b)`."""
    tree, rest = _parse_fields(expression)
    if rest:
        raise invalid(f"Invalid field selection {expression[:80]!r}.")
    return lambda value: _prune(value, tree)


def _parse_fields(text: str) -> tuple[dict[str, Json], str]:
    tree: dict[str, Json] = {}
    while text:
        name, inner, text = _parse_field(text)
        tree[name] = _union(tree[name], inner) if name in tree else inner
        if not text.startswith(","):
            break
        text = text[1:]
    return tree, text


def _parse_field(text: str) -> tuple[str, dict[str, Json], str]:
    """Return the first field, the selection within the field, and the rest of the text. Keys of custom metadata may
    have any letters but `,()/`."""
    match = re.match(r"\s*([^\s,()/]+)\s*", text)
    if not match:
        raise invalid(f"Invalid field selection near {text[:40]!r}.")
    name, text = match[1], text[match.end() :]
    if text.startswith("/"):
        below, inner, text = _parse_field(text[1:])
        return name, {below: inner}, text
    if not text.startswith("("):
        return name, {}, text
    tree, text = _parse_fields(text[1:])
    if not text.startswith(")"):
        raise invalid("Invalid field selection: a parenthesis is not closed.")
    return name, tree, text[1:].lstrip()


def _union(first: Mapping[str, Json], second: Mapping[str, Json]) -> dict[str, Json]:
    """Return the union: `items/name,items/size` is `items(name,size)`; an empty selection is everything."""
    if not first or not second:
        return {}
    shared = {name: _union(first[name], second[name]) for name in first if name in second}
    return {**first, **second, **shared}


def _prune(value: Json, tree: Mapping[str, Json]) -> Json:
    if not tree or "*" in tree:
        return value
    if isinstance(value, list):
        return [_prune(v, tree) for v in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {k: _prune(value[k], inner) for k, inner in tree.items() if k in value}
    return value


# The XML API: documents, errors, and the fields of an object in headers ----------------------------------------------


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
#: an element: its name, and its text or its inner elements
Element = tuple[str, "str | Iterable[Element]"]


def fields_of(headers: Mapping[str, str]) -> dict[str, Json]:
    """Return the fields of an object from the headers of the request that writes the object. Raise 400."""
    fields: dict[str, Json] = {
        field: headers[header] for header, field in _HEADERS.items() if header in headers
    }
    fields["metadata"] = {
        header.removeprefix(META): value
        for header, value in headers.items()
        if header.startswith(META)
    }
    return check_object_fields(fields)


def etag_of(stored: EmulatedObject) -> str:
    """Return the ETag without quotes: the MD5 in hexadecimal digits, where the object has an MD5."""
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
    return Response(body, status, media_type="application/xml; charset=UTF-8")
