"""Calls of Cloud Storage's JSON API: signed, repeated until a deadline, with its refusals as errors of ours.

Connections are those of urllib3: Google's own client takes more than twice its CPU time for a small object. The proxy
of the environment (HTTPS_PROXY, NO_PROXY) carries TLS.
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
    first_line,
    outcome_of,
    repeated,
    uncounted,
)
from tpujob.adapters.connections import pool_manager, proxy_for
from tpujob.data.objects import Operations
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Conflict, NotFound, Refused, TpujobError, Transient

T = TypeVar("T")

GOOGLE = "https://storage.googleapis.com"
#: seconds for which a call is repeated, and that one answer may take
PATIENCE = 120.0
TIMEOUT = 60.0
_BACKOFF = Backoff(first=0.1, longest=10.0)
_READ = 256 << 10
#: connections that are kept for later calls; there are as many as there are calls at once
_KEPT = 128
_SCOPE = "https://www.googleapis.com/auth/devstorage.full_control"
#: times that one call is repeated because bytes arrived damaged
_DAMAGED = 3
_FORBIDDEN = (
    "the account needs a role on that bucket, such as roles/storage.objectUser, or roles/storage.admin to make or "
    "change it; or the bucket belongs to another project, as names of buckets are global"
)


class DamagedBytes(Transient):
    """The checksum does not match."""


@dataclass(slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]  #: found by names in any case
    body: bytes = b""


class CallOptions(TypedDict, total=False):
    timeout: float  #: seconds for the whole answer
    accept: tuple[int, ...]  #: statuses that are an answer, too
    a: int  #: class A operations that it is billed as
    b: int  #: class B


class StorageClient:
    """One pool of connections. Threads share it."""

    def __init__(
        self,
        endpoint: str = "",
        *,
        token: Callable[[bool], str] | None = None,
        timeout: float = TIMEOUT,
        count: Count = uncounted,
    ) -> None:
        """`endpoint`: of an emulated storage, which needs no credentials. `token(new)`: of this machine, by default;
        `new`: the last one was refused. `timeout`: seconds for one answer."""
        place = urlsplit(endpoint or GOOGLE)
        self._tls, self._host = place.scheme == "https", place.hostname or ""
        self._port = place.port or (443 if self._tls else 80)
        self._token = token or (no_token if endpoint else GoogleToken())
        self._timeout, self._count = timeout, count
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._lock = threading.Lock()
        self._last_refused = ""
        #: gets the time of each answer
        self.clock: ServerClock | None = None
        self.operations = Operations()

    def close(self) -> None:
        """Close every connection that no call uses. Safe to repeat; a later call opens new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool:
            pool.close()

    def repeat(
        self,
        operation: str,
        deadline: Deadline,
        call: Callable[[float, int], T],
        *,
        safe: bool = True,
    ) -> T:
        """`call(seconds left, failures so far)` until it succeeds. `safe`: doing it twice is the same as once. Raises
        this project's errors, which begin with what could not be done. The first word of `operation` is counted."""
        damaged = 0

        def once(left: float, failures: int) -> T:
            failed: TpujobError | None = None
            try:
                return call(left, failures)
            except TpujobError as error:
                failed = error
                raise
            finally:
                self._count(operation.partition(" ")[0], outcome_of(failed))

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
        """Send a document, if there is one, and return that of the answer."""
        headers = {} if document is None else {"Content-Type": "application/json"}
        body = b"" if document is None else json.dumps(document).encode()
        return parsed(self.request(method, target, headers, body, **options))

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] = b"",
        **options: Unpack[CallOptions],
    ) -> Reply:
        """As `opened`; the answer with its body."""
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
        """Send one request and read its answer while the block runs: 2xx, or a status of `accept`. A body in pieces
        needs its Content-Length in `headers`. Raises Transient when no whole answer comes; what `body` raises rises as
        it is."""
        timeout = options.get("timeout")
        token = self._token(False)
        signed = {**headers, "Authorization": f"Bearer {token}"} if token else headers
        deadline = Deadline(timeout) if timeout else None
        pool = self._counted(options)
        response = self._sent(pool, method, target, signed, body, timeout or self._timeout)
        try:
            reply, chunks = Reply(response.status, response.headers), _chunks(response, deadline)
            if response.status // 100 == 2 or response.status in options.get("accept", ()):
                yield reply, chunks
                return
            reply.body = b"".join(chunks)
        finally:
            response.close()  # the rest of it would be taken for the next answer
        if reply.status == 401 and token:
            self._token(True)
        raise refusal(reply, retry_401=bool(token) and not self._refused(token))

    # own

    def _counted(self, options: CallOptions) -> urllib3.HTTPConnectionPool:
        """Count a call; return where it is sent."""
        with self._lock:
            self.operations.class_a += options.get("a", 0)
            self.operations.class_b += options.get("b", 0)
            self._pool = self._pool or self._connections()
            return self._pool

    def _connections(self) -> urllib3.HTTPConnectionPool:
        proxy = proxy_for("https", self._host) if self._tls else ""
        return pool_manager(proxy, _KEPT).connection_from_host(
            self._host, self._port, "https" if self._tls else "http"
        )

    def _sent(
        self,
        pool: urllib3.HTTPConnectionPool,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes],
        timeout: float,
    ) -> urllib3.BaseHTTPResponse:
        source = body or None if isinstance(body, bytes) else _Body(body)
        begun = time.monotonic()
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
        if self.clock:
            self.clock.note(response.headers.get("Date", ""), begun)
        return response

    def _refused(self, token: str) -> bool:
        """Return whether this very token was refused before: a new one would be, too."""
        with self._lock:
            before, self._last_refused = self._last_refused, token
        return before == token


class _Body:
    """A body in pieces that remembers the error which its source raised."""

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
    """The body as it arrives, to its end. Raises Transient when it is cut short or the time is up."""
    try:
        while data := response.read1(_READ):
            yield data
            if deadline:
                deadline.left()
    except HTTPError as error:
        raise Transient(f"an answer of Cloud Storage was cut off: {first_line(error)}") from error


def parsed(reply: Reply) -> dict[str, Any]:
    """The document of an answer; one without a body is empty."""
    try:
        return json.loads(reply.body) if reply.body else {}
    except ValueError as error:
        raise Transient(f"an answer of Cloud Storage is not JSON: {error}") from error


def refusal(reply: Reply, *, retry_401: bool = False) -> TpujobError:
    """What an answer that is not a success means."""
    status, text, reason = reply.status, f"HTTP {reply.status}", ""
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


# Credentials


def no_token(new: bool) -> str:
    del new
    return ""


class GoogleToken:
    """Tokens of this machine's credentials, which are looked for at the first call. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: Any = None

    def __call__(self, new: bool) -> str:
        """Raises Refused when this machine has no credentials or they have ended, Transient when its token server does
        not answer."""
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
    """Return what an error of google-auth means. An unanswered request to the metadata server comes wrapped."""
    from google.auth.exceptions import TransportError

    text = first_line(error)
    if error.retryable or any(isinstance(e, TransportError) for e in (error, *error.args)):
        return Transient(text)
    return Refused(text, cause=Cause.PERMISSION, hint=f"run `{LOGIN}`")
