"""Calls to Cloud Storage's JSON API: authorization, retries until a deadline, and translation of errors.

Uses urllib3, because Google's own client takes more than twice the CPU time for a small object. TLS goes through the
proxy of the environment (HTTPS_PROXY, NO_PROXY).
"""

# google-auth has no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from tpujob.adapters.calling import (
    Backoff,
    Count,
    Deadline,
    ServerClock,
    counted,
    first_line,
    repeated,
    uncounted,
)
from tpujob.adapters.connections import pool_manager, proxy_for
from tpujob.data.objects import Operations
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Conflict, NotFound, Refused, TpujobError, Transient

T = TypeVar("T")

GOOGLE = "https://storage.googleapis.com"
RETRY_TIMEOUT = 120.0  #: seconds for which a call is retried
TIMEOUT = 60.0  #: seconds for one answer
_BACKOFF = Backoff(first=0.1, longest=10.0)
_READ = 256 << 10
#: connections that stay open for later calls; there are as many connections as calls at once
_IDLE = 128
_SCOPE = "https://www.googleapis.com/auth/devstorage.full_control"
#: retries of one call after damaged bytes
_DAMAGED = 3
_FORBIDDEN = (
    "the account needs a role on that bucket, such as roles/storage.objectUser, or roles/storage.admin to make or "
    "change it; or the bucket belongs to another project, as names of buckets are global"
)


class DamagedBytes(Transient):
    """Bytes arrived with another checksum than they were sent with."""


@dataclass(slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]  #: names in any case
    body: bytes = b""


class CallOptions(TypedDict, total=False):
    timeout: float  #: seconds for the whole answer
    accept: tuple[int, ...]  #: statuses beside 2xx that do not raise
    a: int  #: billed class A operations
    b: int  #: billed class B operations


class StorageClient:
    """A pool of connections to Cloud Storage. Thread-safe."""

    def __init__(
        self, endpoint: str = "", *, timeout: float = TIMEOUT, count: Count = uncounted
    ) -> None:
        """`endpoint`: the URL of an emulated storage, called without credentials. `timeout`: seconds for an answer."""
        url = urlsplit(endpoint or GOOGLE)
        self._tls = url.scheme == "https"
        self._host = url.hostname or ""
        self._port = url.port or (443 if self._tls else 80)
        self._google_token = None if endpoint else GoogleToken()
        self._timeout, self._count = timeout, count
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._lock = threading.Lock()
        self._last_refused = ""
        self.clock = ServerClock()  #: notes the time of each answer
        self.operations = Operations()

    def close(self) -> None:
        """Close every connection that no call uses. Safe to repeat; a later call opens new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool:
            pool.close()

    def retry(
        self,
        operation: str,
        deadline: Deadline,
        call: Callable[[float, int], T],
        *,
        safe: bool = True,
    ) -> T:
        """Call `call(seconds left, failures so far)` until it succeeds, and return its result. `safe`: the call may be
        applied twice. The error's message begins with "cannot" and `operation`, whose first word `Count` gets."""
        damaged = 0

        def once(left: float, failures: int) -> T:
            with counted(self._count, operation.partition(" ")[0]):
                return call(left, failures)

        def worth_it(error: Transient) -> bool:
            nonlocal damaged
            damaged += isinstance(error, DamagedBytes)
            return damaged <= _DAMAGED if isinstance(error, DamagedBytes) else safe

        try:
            return repeated(once, deadline, _BACKOFF, worth_it=worth_it)
        except TpujobError as error:
            error.args = (f"cannot {operation}: {error.message}",)
            error.message = error.args[0]
            raise

    def json(
        self,
        method: str,
        target: str,
        document: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> dict[str, Any]:
        """Send a JSON document, unless it is None, and return the document of the answer."""
        headers = {} if document is None else {"Content-Type": "application/json"}
        body = b"" if document is None else json.dumps(document).encode()
        return parse_json(self.request(method, target, headers, body, **options))

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] = b"",
        **options: Unpack[CallOptions],
    ) -> Reply:
        """Send one request and return the answer with its body. Raises as `opened` does."""
        with self.opened(method, target, headers, body, **options) as (reply, chunks):
            reply.body = b"".join(chunks)
        return reply

    @contextlib.contextmanager
    def opened(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] = b"",
        **options: Unpack[CallOptions],
    ) -> Generator[tuple[Reply, Iterator[bytes]]]:
        """Send one request; give the block the answer and the chunks of its body. A body in chunks needs its
        Content-Length in `headers`. Raises our error for a status that is neither 2xx nor in `accept`, Transient for an
        incomplete answer, and the error that iterating `body` raises."""
        timeout = options.get("timeout")
        token = self._google_token(False) if self._google_token else ""
        signed = {**headers, "Authorization": f"Bearer {token}"} if token else headers
        deadline = Deadline(timeout) if timeout else None
        pool = self._count_operations(options)
        response = self._send(pool, method, target, signed, body, timeout or self._timeout)
        try:
            reply = Reply(response.status, response.headers)
            chunks = _chunks(response, deadline)
            if response.status // 100 == 2 or response.status in options.get("accept", ()):
                yield reply, chunks
                return
            reply.body = b"".join(chunks)
        finally:
            response.close()  # unread bytes would be taken for the next answer
        if reply.status == 401 and self._google_token:
            self._google_token(True)
        raise refusal(reply, retry_401=bool(token) and not self._was_refused_before(token))

    def _count_operations(self, options: CallOptions) -> urllib3.HTTPConnectionPool:
        """Count the billed operations of a request; return the pool that sends it."""
        with self._lock:
            self.operations.class_a += options.get("a", 0)
            self.operations.class_b += options.get("b", 0)
            self._pool = self._pool or self._make_pool()
            return self._pool

    def _make_pool(self) -> urllib3.HTTPConnectionPool:
        proxy = proxy_for("https", self._host) if self._tls else ""
        return pool_manager(proxy, _IDLE).connection_from_host(
            self._host, self._port, "https" if self._tls else "http"
        )

    def _send(
        self,
        pool: urllib3.HTTPConnectionPool,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes],
        timeout: float,
    ) -> urllib3.BaseHTTPResponse:
        source = body or None if isinstance(body, bytes) else _Body(body)
        sent = time.monotonic()
        try:
            response = pool.urlopen(
                method, target, source, headers, retries=False, redirect=False, timeout=timeout,
                assert_same_host=False, preload_content=False, decode_content=False,
            )  # fmt: skip
        except HTTPError as error:
            if isinstance(source, _Body) and source.error:
                raise source.error from error
            refused = isinstance(error.__cause__, ConnectionRefusedError)
            text = "" if refused else f": {first_line(error.args[-1] if error.args else error)}"
            raise Transient(f"Cloud Storage does not answer{text}") from error
        self.clock.note(response.headers.get("Date", ""), sent)
        return response

    def _was_refused_before(self, token: str) -> bool:
        """Return whether the same token was refused before: then a retry would be refused, too."""
        with self._lock:
            before, self._last_refused = self._last_refused, token
        return before == token


class _Body:
    """A body in chunks that remembers the error of its source."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._chunks
        except Exception as error:
            self.error = error
            raise


def _chunks(response: urllib3.BaseHTTPResponse, deadline: Deadline | None) -> Iterator[bytes]:
    """Yield the body as it arrives. Raises Transient when it is cut short or the time is up."""
    try:
        while data := response.read1(_READ):
            yield data
            if deadline:
                deadline.left()
    except HTTPError as error:
        raise Transient(f"an answer of Cloud Storage was cut off: {first_line(error)}") from error


def parse_json(reply: Reply) -> dict[str, Any]:
    """Return the JSON document of an answer; empty for an answer without a body."""
    try:
        return json.loads(reply.body) if reply.body else {}
    except ValueError as error:
        raise Transient(f"an answer of Cloud Storage is not JSON: {error}") from error


def refusal(reply: Reply, *, retry_401: bool = False) -> TpujobError:
    """Return our error for an answer. `retry_401`: an unauthorized call may succeed with a new token."""
    status = reply.status
    text, reason = f"HTTP {status}", ""
    try:
        error = json.loads(reply.body)["error"]
        text = first_line(error["message"])
        reason = str(error["errors"][0]["reason"])
    except (ValueError, KeyError, TypeError, IndexError):
        if reply.body:
            text = first_line(reply.body.decode("utf-8", "replace")[:200])
    if status == 412:
        return Conflict(text)
    if status in (404, 410):
        return NotFound(text)
    if status == 400 and "doesn't match calculated" in text:
        return DamagedBytes(text)
    slow_down = reason in ("rateLimitExceeded", "userRateLimitExceeded")
    if slow_down or status in (408, 409, 429) or (status >= 500 and status != 507):
        return Transient(text)
    if status == 401 and retry_401:
        return Transient(text)
    if status in (401, 403):
        hint = f"run `{LOGIN}`" if status == 401 else _FORBIDDEN
        return Refused(text, cause=Cause.PERMISSION, hint=hint)
    return Refused(text, cause=Cause.BAD_SPEC)


# Credentials ---------------------------------------------------------------------------------------------------------


class GoogleToken:
    """Access tokens from this machine's credentials, which are searched at the first call. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: Any = None

    def __call__(self, new: bool) -> str:
        """Return a valid token; a `new` one after a refusal. Raises Refused when this machine has no credentials or
        they have expired, Transient when the token server does not answer."""
        import google.auth
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        with self._lock:
            try:
                if self._credentials is None:
                    self._credentials = google.auth.default(scopes=[_SCOPE])[0]
                if new or not self._credentials.valid:
                    self._credentials.refresh(Request())
            except GoogleAuthError as error:
                raise credentials_error(error) from error
            return str(self._credentials.token)


def credentials_error(error: Any) -> TpujobError:
    """Return our error for one of google-auth. An unanswered request to the metadata server is wrapped in another."""
    from google.auth.exceptions import TransportError

    text = first_line(error)
    if error.retryable or any(isinstance(e, TransportError) for e in (error, *error.args)):
        return Transient(text)
    return Refused(text, cause=Cause.PERMISSION, hint=f"run `{LOGIN}`")
