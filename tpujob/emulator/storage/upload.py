"""Uploads of the JSON API: media, multipart and resumable. An interrupted upload leaves no object.

Resumable sessions live in memory and end with the server; clients then start again, as for a lost session in the cloud.
"""

import json
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from starlette.responses import Response

from tpujob.emulator.http_server import Request
from tpujob.emulator.storage.answers import answer, json_body
from tpujob.emulator.storage.disk import Incoming, ObjectStore
from tpujob.emulator.storage.faults import OVERRIDE
from tpujob.emulator.storage.model import (
    EmulatedObject,
    Json,
    Preconditions,
    StorageApiError,
    check_object_fields,
    check_object_name,
    invalid,
    no_bucket,
    object_json,
)

_PREAMBLE_LIMIT = 1 << 20  # bytes before the content of a multipart upload
_SESSIONS = 10_000  #: newest sessions that are remembered, finished and abandoned ones too
_PATH = re.compile(r"/(?:resumable/)?upload/storage/v1/b/([^/]+)/o/?")


@dataclass(slots=True)
class Session:
    """A resumable upload."""

    bucket: str
    name: str
    fields: Mapping[str, Json]
    declared: Mapping[str, str]  #: checksums that the client announced
    conditions: Preconditions
    incoming: Incoming
    turn: int = 0  #: grows with each request, to stop an older request whose client gave up
    stored: EmulatedObject | None = None


class Uploads:
    def __init__(self, disk: ObjectStore) -> None:
        self._disk = disk
        self._sessions: dict[str, Session] = {}

    async def handle(self, request: Request) -> Response | None:
        """Answer an upload; return None for a path of another API."""
        match = _PATH.fullmatch(request.path)
        if not match:
            return None
        if "upload_id" in request.query_params:
            return await self._resume(request, request.query_params["upload_id"])
        bucket = unquote(match[1])
        if self._disk.bucket(bucket) is None:
            raise no_bucket()
        kind = request.query_params.get("uploadType", "")
        if request.method != "POST" or kind not in ("media", "multipart", "resumable"):
            raise invalid(f"{request.method} with uploadType {kind[:40]!r} is not an upload.")
        if kind == "resumable":
            return await self._begin(request, bucket)
        return await self._upload_at_once(request, bucket, multipart=kind == "multipart")

    def close(self) -> None:
        while self._sessions:
            self._sessions.popitem()[1].incoming.discard()

    async def _upload_at_once(self, request: Request, bucket: str, *, multipart: bool) -> Response:
        resource: dict[str, Json] = {}
        content_type = request.headers.get("content-type", "")
        chunks = request.stream()
        if multipart:
            resource, content_type, chunks = await split_related(content_type, chunks)
        name, fields = _name_and_fields(request, resource, content_type)
        conditions = Preconditions.from_query(request.query_params)
        declared = {**_resource_hashes(resource), **declared_hashes(request)}
        incoming = await receive(self._disk, chunks, declared)
        stored = self._disk.commit(bucket, name, incoming, fields, conditions)
        return answer(request, object_json(stored, request.base))

    async def _begin(self, request: Request, bucket: str) -> Response:
        resource = await json_body(request)
        content_type = request.headers.get("x-upload-content-type", "")
        name, fields = _name_and_fields(request, resource, content_type)
        conditions = Preconditions.from_query(request.query_params)
        conditions.check(self._disk.get(bucket, name))  # early, to spare the client the upload
        key = uuid.uuid4().hex
        declared = _resource_hashes(resource)
        session = Session(bucket, name, fields, declared, conditions, self._disk.incoming())
        session.incoming.close()
        self._sessions[key] = session
        if len(self._sessions) > _SESSIONS:
            self._sessions.pop(next(iter(self._sessions))).incoming.discard()
        query = f"uploadType=resumable&upload_id={key}"
        location = f"{request.base}/upload/storage/v1/b/{bucket}/o?{query}"
        return Response(headers={"Location": location, "X-GUploader-UploadID": key})

    async def _resume(self, request: Request, key: str) -> Response:
        session = self._sessions.get(key)
        if session is None:
            raise StorageApiError(
                404, "notFound", "No such upload session: it has ended or never existed."
            )
        if request.method == "DELETE":
            self._sessions.pop(key).incoming.discard()
            return Response(status_code=499)
        if session.stored:  # the answer to the last piece was lost: repeat it
            return answer(request, object_json(session.stored, request.base))
        header = request.headers.get("content-range", "")
        start, total = content_range(header)
        try:
            await self._take(session, request, start)
        except OSError:  # a full disk: an unknown part of the last chunk was written
            self._sessions.pop(key, session).incoming.discard()
            raise
        if not header:  # the whole content in one request
            total = session.incoming.size
        if total is None or session.incoming.size < total:
            return _incomplete(session, request)
        return self._finish(session, request, key, total)

    async def _take(self, session: Session, request: Request, start: int | None) -> None:
        """Write the body. Skip bytes that are already stored; refuse a gap."""
        session.turn += 1
        turn = session.turn
        if start is None:
            return
        skip = session.incoming.size - start
        if skip < 0:
            raise invalid(f"A gap: {session.incoming.size} bytes are here, not {start}.")
        try:
            async for chunk in request.stream():
                if session.turn != turn:
                    raise StorageApiError(409, "conflict", "Another request continues this upload.")
                session.incoming.write(chunk[skip:] if skip else chunk)
                skip = max(0, skip - len(chunk))
        finally:
            session.incoming.close()  # an abandoned upload has no descriptor

    def _finish(self, session: Session, request: Request, key: str, total: int) -> Response:
        try:
            if session.incoming.size != total:
                text = f"{session.incoming.size} bytes arrived, and {total} were announced."
                raise invalid(text)
            _verify(session.incoming, {**session.declared, **declared_hashes(request)})
            session.stored = self._disk.commit(
                session.bucket, session.name, session.incoming, session.fields, session.conditions
            )
        except StorageApiError:
            self._sessions.pop(key, None)
            raise
        finally:
            session.incoming.discard()
        return answer(request, object_json(session.stored, request.base))


async def receive(
    disk: ObjectStore, chunks: AsyncIterator[bytes], declared: Mapping[str, str]
) -> Incoming:
    """Return the upload of these bytes. Raise 400 when a checksum from the client does not match."""
    incoming = disk.incoming()
    try:
        async for chunk in chunks:
            incoming.write(chunk)
        incoming.close()
        _verify(incoming, declared)
    except BaseException:
        incoming.discard()
        raise
    return incoming


def _verify(incoming: Incoming, declared: Mapping[str, str]) -> None:
    """Raise 400 when a checksum from the client does not match."""
    computed = {"crc32c": incoming.crc32c, "md5": incoming.md5}
    for kind, value in declared.items():
        if value and value != computed[kind]:
            label = {"crc32c": "CRC32C", "md5": "MD5 hash"}[kind]
            text = f'Provided {label} "{value[:40]}" doesn\'t match calculated {label} "{computed[kind]}".'
            raise StorageApiError(400, "invalid", text, "BadDigest")


def content_range(header: str) -> tuple[int | None, int | None]:
    """Return the start of the body (None: no body, only a query of the state) and the total (None: not known yet)."""
    if not header:
        return 0, None
    match = re.fullmatch(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(?:(\d{1,18})|\*)", header.strip())
    if not match:
        raise invalid(f"Invalid Content-Range: {header[:60]!r}.")
    return (int(match[1]) if match[1] else None, int(match[3]) if match[3] else None)


_MAX_BOUNDARY = 70  #: characters (RFC 2046)


async def split_related(
    content_type: str, chunks: AsyncIterator[bytes]
) -> tuple[dict[str, Json], str, AsyncIterator[bytes]]:
    """Split a `multipart/related` body into the resource, the content's type, and the content, still streaming. Clients
    differ in line ends (CRLF or LF) and in the quotes of the boundary."""
    match = re.search(r"""boundary=["']?([^"';,]{1,200})""", content_type)
    if not match or len(match[1].strip()) > _MAX_BOUNDARY:
        raise invalid("A multipart upload names its boundary, of at most 70 characters.")
    mark = b"--" + match[1].strip().encode("latin-1")
    buffer, parts = b"", None
    async for chunk in chunks:
        buffer += chunk
        if parts := _two_parts(buffer, mark):
            break
        if len(buffer) > _PREAMBLE_LIMIT:
            break
    if not parts:
        raise invalid("The multipart body has no metadata part and content part.")
    newline, metadata, header, rest = parts
    try:
        resource = json.loads(metadata or b"{}")
    except (ValueError, RecursionError) as error:
        raise StorageApiError(400, "parseError", "The metadata part is not JSON.") from error
    if not isinstance(resource, dict):
        raise StorageApiError(400, "parseError", "The metadata part is not a JSON object.")
    typed = re.search(rb"(?im)^content-type:[ \t]*([^\r\n]+)", header)
    part_type = typed[1].decode("latin-1").strip() if typed else ""
    return resource, part_type, _until(rest, chunks, newline + mark)  # pyright: ignore[reportUnknownVariableType]


def _two_parts(buffer: bytes, mark: bytes) -> tuple[bytes, bytes, bytes, bytes] | None:
    """Return line end, first part, and header and beginning of the second part; None: the buffer is too short."""
    start = buffer.find(mark)
    if start < 0:
        return None
    newline = b"\r\n" if buffer[start + len(mark) :][:2] == b"\r\n" else b"\n"
    middle = buffer.find(newline + mark + newline, start + 1)
    if middle < 0:
        return None
    head_end = buffer.find(newline * 2, middle + len(mark))
    if head_end < 0:
        return None
    _, _, metadata = buffer[start:middle].partition(newline * 2)
    return newline, metadata, buffer[middle:head_end], buffer[head_end + 2 * len(newline) :]


async def _until(first: bytes, chunks: AsyncIterator[bytes], mark: bytes) -> AsyncIterator[bytes]:
    """Yield all bytes before the closing `mark`."""
    keep = len(mark) + 16  # the mark, `--`, and a few line ends
    held = first
    async for chunk in chunks:
        held += chunk
        if len(held) > keep:
            yield held[:-keep]
            held = held[-keep:]
    end = held.rfind(mark + b"--")
    if end < 0:
        raise invalid("The multipart body does not end with its boundary.")
    yield held[:end]


def _name_and_fields(
    request: Request, resource: dict[str, Json], content_type: str
) -> tuple[str, dict[str, Json]]:
    name = check_object_name(str(request.query_params.get("name") or resource.get("name") or ""))
    fields = check_object_fields(resource)
    if content_type:
        fields.setdefault("contentType", content_type)
    if "contentEncoding" in request.query_params:
        fields["contentEncoding"] = request.query_params["contentEncoding"]
    return name, fields


def _resource_hashes(resource: Mapping[str, Json]) -> dict[str, str]:
    return {"crc32c": str(resource.get("crc32c") or ""), "md5": str(resource.get("md5Hash") or "")}


def declared_hashes(request: Request) -> dict[str, str]:
    """Return the checksums in the headers `X-Goog-Hash: crc32c=…,md5=…` and `Content-MD5`."""
    hashes = ",".join(request.headers.getlist("x-goog-hash"))
    pairs = re.findall(r"(crc32c|md5)=([\w+/=]+)", hashes)
    declared: dict[str, str] = dict(pairs)
    if "content-md5" in request.headers:
        declared["md5"] = request.headers["content-md5"]
    return declared


def _incomplete(session: Session, request: Request) -> Response:
    """Return a 308. Google's Go library, where 308 is a redirect, requests a 200 with the status in a header."""
    size = session.incoming.size
    headers = {"Range": f"bytes=0-{size - 1}"} if size else {}
    if request.headers.get("x-guploader-no-308") == "yes":
        return Response(headers={**headers, OVERRIDE: "308"})
    return Response(status_code=308, headers=headers)
