"""Batch requests of the JSON API: many small requests in one body, answered in order."""

import re
import uuid

from tpujob.emulator.http_messages import Body, FilePart, Handler, Request, Response, head
from tpujob.emulator.storage.model import invalid

_LIMIT = 100


async def handle_batch(request: Request, handler: Handler) -> Response:
    """Each part is an HTTP request as text; the answer has one part for each, in the same order."""
    match = re.search(r'boundary="?([^";,]{1,200})"?', request.headers.get("content-type", ""))
    if not match:
        raise invalid("A batch request names its boundary.")
    body = await request.body.read()
    parts = re.split(rb"(?:^|\r?\n)--" + re.escape(match[1].strip().encode("latin-1")), body)[1:-1]
    if not 1 <= len(parts) <= _LIMIT:
        raise invalid(f"A batch has 1 to {_LIMIT} requests.")
    mark = f"batch_{uuid.uuid4().hex}"
    answers = [await _one(part, request, handler) for part in parts]
    text = b"".join(b"--" + mark.encode() + b"\r\n" + answer + b"\r\n" for answer in answers)
    headers = {"Content-Type": f"multipart/mixed; boundary={mark}"}
    return Response(200, headers, text + b"--" + mark.encode() + b"--\r\n")


async def _one(part: bytes, outer: Request, handler: Handler) -> bytes:
    outer_head, _, inner = part.replace(b"\r\n", b"\n").lstrip(b"\n").partition(b"\n\n")
    start, _, body = inner.partition(b"\n\n")
    line, *lines = start.decode("latin-1").split("\n")
    match = re.fullmatch(r"([A-Z]+) (\S+)(?: HTTP/1\.[01])?", line.strip())
    if not match:
        raise invalid("A part of the batch is no request.")
    headers = {k.strip().lower(): v.strip() for k, _, v in (each.partition(":") for each in lines)}
    headers["host"] = outer.headers.get("host", "localhost")
    target = re.sub(r"^https?://[^/]+", "", match[2])
    response = await handler(Request.parse(match[1], target, headers, Body.of(body)))
    content = response.body
    if isinstance(content, FilePart):
        content.file.close()
        raise invalid("A batch carries no media.")
    if response.status != 204:
        response.headers["Content-Length"] = str(len(content))
    found = re.search(rb"(?im)^content-id:[ \t]*<?([^>\n]+)", outer_head)
    identity = b"Content-ID: <response-" + found[1].strip() + b">\r\n" if found else b""
    return b"Content-Type: application/http\r\n" + identity + b"\r\n" + head(response) + content
