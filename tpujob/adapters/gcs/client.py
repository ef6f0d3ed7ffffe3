"""Google's client of Cloud Storage, with our deadlines, counters and errors.

It sends each request once: `retry` repeats requests, so that every try is counted, and ends by the deadline of the
call. Its import takes half a second of CPU time, so the first call makes it.
"""

# Google's libraries have no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingModuleSource=false

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

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
from tpujob.adapters.connections import proxy_for
from tpujob.data.objects import Operations
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Conflict, NotFound, Refused, TpujobError, Transient

if TYPE_CHECKING:
    import requests
    from google.auth.transport.requests import AuthorizedSession
    from google.cloud import storage

T = TypeVar("T")

KIND = "application/octet-stream"
PIECE = 8 << 20  #: bytes of one request of a large upload
_GOOGLE = "https://storage.googleapis.com"
_BACKOFF = Backoff(first=0.1, longest=10.0)
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


class StorageClient:
    """Calls to Cloud Storage. Thread-safe."""

    def __init__(self, project: str = "", endpoint: str = "", *, count: Count = uncounted) -> None:
        """`project`: of new buckets. `endpoint`: the URL of an emulated storage, called without credentials."""
        self._project, self._count = project, count
        self._emulated, self._url = bool(endpoint), endpoint or _GOOGLE
        self._lock = threading.Lock()
        self._connection: tuple[storage.Client, AuthorizedSession] | None = None
        self.clock = ServerClock()  #: notes the time of each answer
        self.operations = Operations()

    def close(self) -> None:
        """Close every connection. Safe to repeat; a later call opens new ones."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection:
            client, session = connection
            # a session leaves its connections to the collector, and an error's answer may refer to them
            for adapter in session.adapters.values():
                for manager in (adapter.poolmanager, *adapter.proxy_manager.values()):
                    for key in manager.pools.keys():
                        manager.pools[key].close()
            client.close()

    def blob(self, bucket: str, name: str, generation: int | None = None) -> storage.Blob:
        return self.bucket(bucket).blob(name, chunk_size=PIECE, generation=generation)

    def bucket(self, name: str) -> storage.Bucket:
        """Return Google's object of a bucket. Raises Refused for an invalid name, and without credentials."""
        try:
            return self._connected()[0].bucket(name)
        except ValueError as error:
            raise Refused(f"Invalid bucket name: {name!r}", cause=Cause.BAD_SPEC) from error

    def page(
        self, bucket: str, token: str | None, timeout: float, fields: str, **query: Any
    ) -> tuple[list[storage.Blob], str | None]:
        """Return one page of a list, and the token of the next one; None: it is the last."""
        blobs = self.bucket(bucket).list_blobs(
            page_token=token,
            fields=f"items({fields}),nextPageToken",
            timeout=timeout,
            retry=None,
            **query,
        )
        return list(next(blobs.pages, ())), blobs.next_page_token

    def json(
        self, method: str, bucket: str, below: str, timeout: float, **options: Any
    ) -> dict[str, Any]:
        """Return the JSON document of an answer about a bucket. Google's client has no method for the layout of a
        bucket, and drops lifecycle rules of kinds that it does not know."""
        return self.send(method, bucket, below, timeout, **options).json()

    def send(
        self, method: str, bucket: str, below: str, timeout: float, **options: Any
    ) -> requests.Response:
        """Send a request about a bucket; return the answer. `options`: as of requests. Raises our error for a refusal,
        and the errors of requests."""
        path = f"/b/{quote(bucket, safe='')}{below}" if bucket else "/b"
        _, session = self._connected()
        url = f"{self._url}/storage/v1{path}"
        response = session.request(method, url, timeout=timeout, **options)
        if not response.ok:
            raise refusal(response.status_code, response.content)
        return response

    def retry(
        self,
        operation: str,
        deadline: Deadline,
        call: Callable[[float, int], T],
        *,
        safe: bool = True,
        a: int = 0,
        b: int = 0,
    ) -> T:
        """Call `call(seconds left, failures so far)` until it succeeds, and return its result. `safe`: the call may be
        applied twice. `a`, `b`: billed operations of a try. The error's message begins with "cannot" and `operation`,
        whose first word `Count` gets."""
        damaged = 0

        def once(left: float, failures: int) -> T:
            self.count_operations(a, b)
            with counted(self._count, operation.partition(" ")[0]), translated():
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

    def count_operations(self, a: int = 0, b: int = 0) -> None:
        """Count billed operations of class A and B."""
        with self._lock:
            self.operations.class_a += a
            self.operations.class_b += b

    def _connected(self) -> tuple[storage.Client, AuthorizedSession]:
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> tuple[storage.Client, AuthorizedSession]:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.transport.requests import AuthorizedSession
        from google.cloud import storage
        from requests.adapters import HTTPAdapter

        # else it asks for each bucket's metadata in a thread, for traces that nothing here reads
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        credentials: Any = AnonymousCredentials()
        if not self._emulated:
            credentials = google.auth.default(scopes=[_SCOPE])[0]
        session = AuthorizedSession(credentials)
        # requests would read the environment again for each request, which is a fifth of its CPU time
        session.trust_env = False
        session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
        url = urlsplit(self._url)
        if url.scheme == "https" and (proxy := proxy_for("https", url.hostname or "")):
            session.proxies = {"https": proxy}
        session.mount(f"{url.scheme}://", HTTPAdapter(pool_maxsize=_IDLE))
        session.hooks["response"].append(self._note_time)
        options = {"api_endpoint": self._url}
        client = storage.Client(self._project or None, credentials, session, client_options=options)
        return client, session

    def _note_time(self, response: requests.Response, **_: object) -> None:
        sent = time.monotonic() - response.elapsed.total_seconds()
        self.clock.note(response.headers.get("Date", ""), sent)


# Errors ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def translated() -> Generator[None]:
    """Translate the errors of Google's client, requests and urllib3 to ours. Others pass."""
    try:
        yield
    except Exception as error:
        if ours := our_error(error):
            raise ours from error
        raise


def our_error(error: Exception) -> TpujobError | None:
    """Return our error for one of the libraries below; None: it is of none."""
    import requests
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from urllib3.exceptions import HTTPError

    if isinstance(error, TpujobError):
        return error
    if isinstance(error, RetryError):
        return our_error(error.cause) or Transient(first_line(error))
    if isinstance(error, DataCorruption):
        return DamagedBytes("the bytes do not have the CRC32C of the object")
    if isinstance(error, GoogleAPICallError | InvalidResponse):
        response = error.response
        return refusal(response.status_code, response.content)
    if isinstance(error, GoogleAuthError):
        return credentials_error(error)
    if isinstance(error, requests.RequestException | HTTPError | ConnectionError):
        return _network_error(error)
    return None


def refusal(status: int, body: bytes) -> TpujobError:
    """Return our error for an answer."""
    text, reason = f"HTTP {status}", ""
    try:
        error: Mapping[str, Any] = json.loads(body)["error"]
        text = first_line(error["message"])
        reason = str(error["errors"][0]["reason"])
    except (ValueError, KeyError, TypeError, IndexError):
        if body:
            text = first_line(body.decode("utf-8", "replace")[:200])
    if status == 412:
        return Conflict(text)
    if status in (404, 410):
        return NotFound(text)
    if status == 400 and "doesn't match calculated" in text:
        return DamagedBytes(text)
    slow_down = reason in ("rateLimitExceeded", "userRateLimitExceeded")
    unexpected = status < 400 or (status >= 500 and status != 507)
    if slow_down or unexpected or status in (408, 409, 429):
        return Transient(text)
    if status in (401, 403):
        hint = f"run `{LOGIN}`" if status == 401 else _FORBIDDEN
        return Refused(text, cause=Cause.PERMISSION, hint=hint)
    return Refused(text, cause=Cause.BAD_SPEC)


def credentials_error(error: Any) -> TpujobError:
    """Return our error for one of google-auth. An unanswered request to the metadata server is wrapped in another."""
    from google.auth.exceptions import TransportError

    text = first_line(error)
    if error.retryable or any(isinstance(e, TransportError) for e in (error, *error.args)):
        return Transient(text)
    return Refused(text, cause=Cause.PERMISSION, hint=f"run `{LOGIN}`")


def _network_error(error: BaseException) -> Transient:
    """Return our error for a request without a complete answer, with the text of the innermost error."""
    while inner := getattr(error, "reason", None) or next(iter(error.args), None):
        if not isinstance(inner, BaseException):
            break
        error = inner
    refused = isinstance(error.__cause__, ConnectionRefusedError)
    text = "" if refused else f": {first_line(error.args[-1] if error.args else error)}"
    return Transient(f"Cloud Storage does not answer{text}")
