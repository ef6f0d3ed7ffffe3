"""The bytes of an object as an HTTP response: ranges, headers, "not modified"."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from starlette.responses import Response

from tpujob.emulator.http_server import FilePart, Request
from tpujob.emulator.storage.disk import ObjectStore
from tpujob.emulator.storage.model import (
    EmulatedObject,
    Preconditions,
    StorageApiError,
    precondition_failed,
)

_NO_DATE = datetime.max.replace(tzinfo=UTC)


def not_modified(
    request: Request, stored: EmulatedObject, conditions: Preconditions, etag: str
) -> bool:
    """Return whether a read gets 304, which a failed "not match" condition means. Raise 412 for any other failed
    condition. `etag`: the object's ETag in this API."""
    must_match = Preconditions(
        generation=conditions.generation, metageneration=conditions.metageneration
    )
    must_match.check(stored)
    if not _has_tag(request.headers.get("if-match", "*"), etag):
        raise precondition_failed()
    try:
        conditions.check(stored)
    except StorageApiError:
        return True
    changed = datetime.fromisoformat(stored.updated).replace(microsecond=0)
    if changed > _date(request.headers.get("if-unmodified-since", "")):
        raise precondition_failed()
    if "if-none-match" in request.headers:
        return _has_tag(request.headers["if-none-match"], etag)
    since = _date(request.headers.get("if-modified-since", ""))
    return since != _NO_DATE and changed <= since


def _date(header: str) -> datetime:
    """Return the date; `_NO_DATE` for an invalid date, which the RFC says to ignore."""
    try:
        return parsedate_to_datetime(header).astimezone(UTC)
    except ValueError:
        return _NO_DATE


def _has_tag(header: str, etag: str) -> bool:
    """Return whether a list of entity tags contains `etag`; clients differ in the quotes."""
    return bool({"*", etag} & {tag.strip().strip('"') for tag in header.split(",")})


def media(
    request: Request, disk: ObjectStore, stored: EmulatedObject, headers: Mapping[str, str]
) -> Response:
    """Return the response with the bytes, or the requested range of them."""
    headers = dict(headers)
    start, count, partial = byte_range(request.headers.get("range", ""), stored.size)
    if partial:
        headers["Content-Range"] = f"bytes {start}-{start + count - 1}/{stored.size}"
    # without characters that could end a line
    headers = {name: re.sub(r"[^ -~]", "?", value) for name, value in headers.items()}
    return FilePart(disk.open(stored), start, count, 206 if partial else 200, headers)


def media_headers(stored: EmulatedObject, etag: str) -> dict[str, str]:
    hashes = f"crc32c={stored.crc32c}" + (f",md5={stored.md5}" if stored.md5 else "")
    changed = datetime.fromisoformat(stored.updated).astimezone(UTC)
    headers = {
        "Content-Type": stored.content_type,
        "ETag": f'"{etag}"',
        "Last-Modified": format_datetime(changed, usegmt=True),
        "X-Goog-Hash": hashes,
        "X-Goog-Generation": str(stored.generation),
        "X-Goog-Metageneration": str(stored.metageneration),
        "X-Goog-Storage-Class": stored.storage_class,
        "X-Goog-Stored-Content-Length": str(stored.size),
        "X-Goog-Stored-Content-Encoding": stored.fields.get("contentEncoding") or "identity",
        "Accept-Ranges": "bytes",
    }
    for field, header in (
        ("contentEncoding", "Content-Encoding"),
        ("contentDisposition", "Content-Disposition"),
        ("contentLanguage", "Content-Language"),
        ("cacheControl", "Cache-Control"),
    ):
        if stored.fields.get(field):
            headers[header] = str(stored.fields[field])
    return headers


def byte_range(header: str, size: int) -> tuple[int, int, bool]:
    """Return start, count, and whether the header requests a range; invalid headers are ignored (RFC). Raise 416."""
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.strip())
    if not match or not (match[1] or match[2]):
        return 0, size, False
    if match[1] and match[2] and int(match[2]) < int(match[1]):
        return 0, size, False
    start = int(match[1]) if match[1] else max(size - int(match[2]), 0)
    end = min(int(match[2]) + 1, size) if match[1] and match[2] else size
    if start >= end:
        raise StorageApiError(416, "requestedRangeNotSatisfiable", "Request range not satisfiable")
    return start, end - start, True
