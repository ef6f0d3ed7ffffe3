"""What the handlers of both APIs share: bodies and answers in JSON, the selection of fields, and XML documents."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from xml.sax.saxutils import escape

from tpujob.emulator.http_messages import Request, Response, json_response
from tpujob.emulator.storage.model import (
    EmulatedObject,
    Json,
    StorageApiError,
    check_object_fields,
    invalid,
)


def answer(request: Request, value: Json, **headers: str) -> Response:
    """A JSON answer, reduced to the `fields` that the client asks for."""
    if "fields" in request.query:
        value = select(request.query["fields"])(value)
    return json_response(value, 200, **headers)


async def json_body(request: Request) -> dict[str, Json]:
    """The request's body, an object; an empty one when there is no body."""
    try:
        return await request.json_object()
    except ValueError as error:
        raise StorageApiError(400, "parseError", str(error)) from error


def select(expression: str) -> Callable[[Json], Json]:
    """The `fields` parameter: `items(name,size),nextPageToken` keeps just those. `a/b` is `a(b)`."""
    tree, rest = _parse_fields(expression)
    if rest:
        raise invalid(f"Invalid field selection {expression[:80]!r}.")
    return lambda value: _prune(value, tree)


def _parse_fields(text: str) -> tuple[dict[str, Json], str]:
    tree: dict[str, Json] = {}
    while text:
        name, inner, text = _parse_field(text)
        tree[name] = _both(tree[name], inner) if name in tree else inner
        if not text.startswith(","):
            break
        text = text[1:]
    return tree, text


def _parse_field(text: str) -> tuple[str, dict[str, Json], str]:
    """The first field, what is wanted of it, and the rest. Keys of custom metadata may have any letters but `,()/`."""
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


def _both(one: Mapping[str, Json], other: Mapping[str, Json]) -> dict[str, Json]:
    """The union: `items/name,items/size` is `items(name,size)`; an empty selection is everything."""
    if not one or not other:
        return {}
    shared = {name: _both(one[name], other[name]) for name in one if name in other}
    return {**one, **other, **shared}


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
