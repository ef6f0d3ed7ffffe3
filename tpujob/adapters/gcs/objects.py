"""Objects by the JSON API, for copying many of them: `data.objects.Objects`.

Not Google's client: its uploads cannot be continued by another process, and each costs as much CPU time as a dozen
here. Its list would do; one way to the storage is simpler than two.
"""

# google-auth has no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from tpujob.adapters.calling import Backoff, Deadline, first_line, repeated
from tpujob.adapters.gcs.wire import Answer, Wire, WireError
from tpujob.data.checksum import decode, encode
from tpujob.data.objects import ObjectFacts, Operations, Piece
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Conflict, NotFound, Refused, TpujobError, Transient

T = TypeVar("T")

GOOGLE = "https://storage.googleapis.com"
#: seconds for which a call is repeated, and that one answer may take
_PATIENCE = 120.0
_TIMEOUT = 60.0
_BACKOFF = Backoff(first=0.2, longest=16.0)
_FACTS = "name,size,crc32c,generation"
_FORBIDDEN = (
    "the account needs a role on that bucket, such as roles/storage.objectUser; or the bucket is somebody else's, as "
    "names of buckets are global"
)


class JsonObjects:
    """Implements `data.objects.Objects`. Threads share it, and its connections: as many as there are calls at once."""

    def __init__(
        self,
        endpoint: str = "",
        token: Callable[[bool], str] = lambda _: "",
        patience: float = _PATIENCE,
    ) -> None:
        """`token(new)`: what the storage shall see; `new`: the last one was refused."""
        self._url = endpoint or GOOGLE
        self._token = token
        self._patience = patience
        self._idle: list[Wire] = []
        self._lock = threading.Lock()
        self._last_refused = ""
        self.operations = Operations()

    def close(self) -> None:
        """Afterwards every connection that no call uses is closed. Safe to repeat."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def pages(self, bucket: str, prefix: str) -> Iterator[list[ObjectFacts]]:
        asked = {"prefix": prefix, "fields": f"items({_FACTS}),nextPageToken"}
        while True:
            target = f"/storage/v1/b/{quote(bucket, safe='')}/o?{urlencode(asked)}"
            page = self._repeat(
                f"list gs://{bucket}/{prefix}", lambda t=target: self._json("GET", t, a=1)
            )
            yield [_facts(item) for item in page.get("items", ())]
            if not page.get("nextPageToken"):
                return
            asked["pageToken"] = page["nextPageToken"]

    def look(self, bucket: str, name: str) -> ObjectFacts | None:
        target = f"{_object(bucket, name)}?fields={_FACTS}"
        try:
            return _facts(self._repeat(f"look at {name}", lambda: self._json("GET", target, b=1)))
        except NotFound:
            return None

    def put(self, bucket: str, name: str, data: bytes, crc32c: int, generation: int) -> ObjectFacts:
        mark = f"tpujob-{crc32c:08x}-{id(data):x}".encode()
        while mark in data:
            mark += b"-"
        facts = json.dumps(
            {"name": name, "crc32c": encode(crc32c), "contentType": "application/octet-stream"}
        )
        body = b"--%b\r\nContent-Type: application/json\r\n\r\n%b\r\n--%b\r\n\r\n%b\r\n--%b--" % (
            mark, facts.encode(), mark, data, mark,
        )  # fmt: skip
        kind = {"Content-Type": f"multipart/related; boundary={mark.decode()}"}
        target = _upload(bucket, "multipart", generation)

        def once() -> ObjectFacts:
            found = _facts(self._json("POST", target, kind, body, a=1))
            return _checked(found, name, len(data), crc32c)

        doing = f"write gs://{bucket}/{name}"
        try:
            return self._repeat(doing, once)
        except Refused as error:
            if error.cause != Cause.BAD_SPEC:
                raise
            return self._repeat(doing, once)  # the frame of the request may have arrived changed

    def begin(self, bucket: str, name: str, size: int, generation: int) -> str:
        body = json.dumps({"name": name, "contentType": "application/octet-stream"}).encode()
        headers = {"Content-Type": "application/json", "X-Upload-Content-Length": str(size)}
        target = _upload(bucket, "resumable", generation)
        answer = self._repeat(
            f"write gs://{bucket}/{name}", lambda: self._ask("POST", target, headers, body, a=1)
        )
        return answer.headers["location"]

    def offset(self, session: str, size: int) -> int | ObjectFacts:
        headers = {"Content-Range": f"bytes */{size}"}
        return self._repeat(
            "continue an upload", lambda: _progress(self._ask("PUT", _path(session), headers))
        )

    def send(
        self, session: str, data: Iterable[bytes], piece: Piece, crc32c: int | None
    ) -> int | ObjectFacts:
        span = f"{piece.start}-{piece.end - 1}" if piece.end > piece.start else "*"
        headers = {
            "Content-Range": f"bytes {span}/{piece.size}",
            "Content-Length": str(piece.end - piece.start),
        }
        if crc32c is not None:
            headers["X-Goog-Hash"] = f"crc32c={encode(crc32c)}"
        return _progress(self._ask("PUT", _path(session), headers, data))

    def drop(self, session: str) -> None:
        try:
            self._repeat("end an upload", lambda: self._ask("DELETE", _path(session), {}))
        except TpujobError:
            return  # it ends by itself within a week

    def get(
        self, bucket: str, facts: ObjectFacts, start: int, take: Callable[[bytes], object]
    ) -> None:
        # without gzip the storage would unpack what is stored packed, and the checksum is of what is stored
        headers = {"Accept-Encoding": "gzip"} | ({"Range": f"bytes={start}-"} if start else {})
        target = f"{_object(bucket, facts.name)}?alt=media&generation={facts.generation}"
        answer = self._ask("GET", target, headers, take=take, b=1)
        if start and answer.status != 206:
            raise Transient(f"cannot continue to read {facts.name}: the storage sent all of it")

    # own

    def _json(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        a: int = 0,
        b: int = 0,
    ) -> dict[str, Any]:
        answer = self._ask(method, target, headers or {}, body, a=a, b=b)
        try:
            return json.loads(answer.body)
        except ValueError as error:
            raise Transient(f"an answer of Cloud Storage is no JSON: {error}") from error

    def _ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] = b"",
        *,
        take: Callable[[bytes], object] | None = None,
        a: int = 0,
        b: int = 0,
    ) -> Answer:
        """A good answer: 2xx, 308, or 499 (a session that ended on request, documented)."""
        token = self._token(False)
        signed = {**headers, "Authorization": f"Bearer {token}"} if token else headers
        with self._lock:
            self.operations.class_a += a
            self.operations.class_b += b
            wire = self._idle.pop() if self._idle else Wire(self._url, _TIMEOUT)
        try:
            answer = wire.ask(method, target, signed, body, take=take)
        except WireError as error:
            raise Transient(f"Cloud Storage does not answer: {error}") from error
        finally:
            with self._lock:
                self._idle.append(wire)
        if answer.status == 401 and token:
            self._token(True)
        if answer.status // 100 == 2 or answer.status in (308, 499):
            return answer
        raise _refusal(answer, retry_401=bool(token) and not self._refused(token))

    def _refused(self, token: str) -> bool:
        """Whether this very token was refused before: a new one would be, too."""
        with self._lock:
            before, self._last_refused = self._last_refused, token
        return before == token

    def _repeat(self, doing: str, call: Callable[[], T]) -> T:
        try:
            return repeated(lambda _left, _failures: call(), Deadline(self._patience), _BACKOFF)
        except TpujobError as error:
            error.args = (f"cannot {doing}: {error.message}",)
            error.message = error.args[0]
            raise


def google_token() -> Callable[[bool], str]:
    """The tokens of this machine's credentials. Raises Refused when it has none."""
    import google.auth
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request

    lock = threading.Lock()
    try:
        credentials: Any = google.auth.default(
            scopes=["https://www.googleapis.com/auth/devstorage.read_write"]
        )[0]
    except GoogleAuthError as error:
        raise Refused(first_line(error), cause=Cause.PERMISSION, hint=f"run `{LOGIN}`") from error

    def token(new: bool) -> str:
        with lock:
            if new or not credentials.valid:
                try:
                    credentials.refresh(Request())
                except GoogleAuthError as error:
                    hint = f"run `{LOGIN}`"
                    raise Refused(first_line(error), cause=Cause.PERMISSION, hint=hint) from error
            return str(credentials.token)

    return token


def _object(bucket: str, name: str) -> str:
    return f"/storage/v1/b/{quote(bucket, safe='')}/o/{quote(name, safe='')}"


def _upload(bucket: str, kind: str, generation: int) -> str:
    asked = {"uploadType": kind, "ifGenerationMatch": str(generation), "fields": _FACTS}
    return f"/upload/storage/v1/b/{quote(bucket, safe='')}/o?{urlencode(asked)}"


def _path(session: str) -> str:
    """A session lives on the server that we talk to; the rest of its address is a secret."""
    place = urlsplit(session)
    return f"{place.path}?{place.query}"


def _facts(resource: Mapping[str, Any]) -> ObjectFacts:
    try:
        return ObjectFacts(
            name=str(resource["name"]),
            size=int(resource["size"]),
            crc32c=decode(resource.get("crc32c")),
            generation=int(resource["generation"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Transient(f"an answer of Cloud Storage lacks a fact: {error}") from error


def _checked(found: ObjectFacts, name: str, size: int, crc32c: int) -> ObjectFacts:
    """Raises Transient when the answer speaks of other bytes: the next try meets what is there, and reports it."""
    if (found.name, found.size, found.crc32c) != (name, size, crc32c):
        raise Transient(f"the storage confirms other bytes than were sent for {name}")
    return found


def _progress(answer: Answer) -> int | ObjectFacts:
    if answer.status != 308:
        try:
            return _facts(json.loads(answer.body))
        except ValueError as error:
            raise Transient(f"an answer of Cloud Storage is no JSON: {error}") from error
    _, _, last = answer.headers.get("range", "").partition("-")
    return int(last) + 1 if last.isdigit() else 0


def _refusal(answer: Answer, *, retry_401: bool) -> TpujobError:
    status, text, reason = answer.status, f"HTTP {answer.status}", ""
    try:
        error = json.loads(answer.body)["error"]
        text = first_line(error["message"])
        reason = str(error["errors"][0]["reason"])
    except (ValueError, KeyError, TypeError, IndexError):
        text = first_line(answer.body.decode("utf-8", "replace")[:200]) if answer.body else text
    if status == 412:
        return Conflict(text)
    if status in (404, 410):
        return NotFound(text)
    corrupted = status == 400 and "doesn't match calculated" in text
    slow_down = reason in ("rateLimitExceeded", "userRateLimitExceeded")
    if corrupted or slow_down or status in (408, 409, 429) or (status >= 500 and status != 507):
        return Transient(text)
    if status == 401 and retry_401:
        return Transient(text)
    if status in (401, 403):
        hint = f"run `{LOGIN}`" if status == 401 else _FORBIDDEN
        return Refused(text, cause=Cause.PERMISSION, hint=hint)
    return Refused(text, cause=Cause.BAD_SPEC)
