"""Google's client of Cloud Storage, with our deadlines, counters and errors.

It sends each request once, and `retry` repeats it: Google's own retries of uploads and downloads end at no deadline,
and repeat no damaged bytes. Its import takes half a second of CPU time, so the first call makes it.
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
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from tpujob.adapters.calling import (
    Count,
    ServerClock,
    counted,
    first_line,
    repeated,
    uncounted,
)
from tpujob.data.objects import Operations
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, Conflict, NotFound, Refused, TpujobError, Transient
from tpujob.lib.tries import Backoff, Deadline

if TYPE_CHECKING:
    import requests

T = TypeVar("T")
#: returns a token, and when it ends
NewToken = Callable[[], tuple[str, float]]

PIECE = 8 << 20  #: bytes of one request of a large upload
_GOOGLE = "https://storage.googleapis.com"
_BACKOFF = Backoff(first=0.1, longest=10.0)
_SCOPE = "https://www.googleapis.com/auth/devstorage.full_control"
#: retries of one call after damaged bytes
_DAMAGED = 3
#: connections that stay open for later calls; there are as many connections as calls at once
_IDLE = 128
#: billed operations of class A and B, by the first word of what `retry` does
_BILLED = {
    "list": (1, 0),
    "write": (1, 0),
    "copy": (1, 0),
    "change": (1, 0),
    "read": (0, 1),
    "look": (0, 1),
}
_FORBIDDEN = (
    "the account needs a role on that bucket, such as roles/storage.objectUser, or roles/storage.admin to make or "
    "change it; or the bucket belongs to another project, as names of buckets are global"
)


class DamagedBytes(Transient):
    """Bytes arrived with another checksum than they were sent with."""


class StorageClient:
    """Calls to Cloud Storage. Thread-safe."""

    def __init__(
        self,
        project: str = "",
        endpoint: str = "",
        *,
        timeout: float = 60.0,
        count: Count = uncounted,
        token: NewToken | None = None,
    ) -> None:
        """`endpoint`: the URL of an emulated storage, called without credentials. `timeout`: seconds for one answer.
        `token`: returns the token to use; None: this machine's credentials."""
        self.project, self.timeout, self._count, self._token = project, timeout, count, token
        self._emulated, self._url = bool(endpoint), endpoint.rstrip("/") or _GOOGLE
        self._lock = threading.Lock()
        self._client: Any = None
        self.server_clock = ServerClock()  #: notes the time of each answer
        self.operations = Operations()

    def close(self) -> None:
        """Close every connection. Safe to repeat; a later call opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client:
            # urllib3 leaves open connections to the garbage collector
            pools = client._http.get_adapter(self._url).poolmanager.pools
            for key in pools.keys():  # noqa: SIM118, it has no iterator
                pools[key].close()
            client.close()

    def client(self) -> Any:
        """Return Google's client. Raises google-auth's errors without credentials."""
        with self._lock:
            self._client = self._client or self.connect()
            return self._client

    def connect(self) -> Any:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.transport.requests import AuthorizedSession
        from google.cloud import storage
        from requests.adapters import HTTPAdapter

        # else the client reads each bucket's settings in a thread, for traces that nothing here records
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        credentials: Any = AnonymousCredentials()
        if not self._emulated:
            credentials = self._lent() or google.auth.default(scopes=[_SCOPE])[0]
        session = AuthorizedSession(credentials)
        # read once, as requests reads them for each request; with ~/.netrc, whose passwords replace tokens
        environment = session.merge_environment_settings(self._url, {}, None, None, None)
        session.proxies, session.verify = environment["proxies"], environment["verify"]
        session.trust_env = False
        session.mount(self._url, HTTPAdapter(pool_maxsize=_IDLE))
        session.hooks["response"].append(self._answered)
        options = {"api_endpoint": self._url}
        return storage.Client(self.project or None, credentials, session, client_options=options)

    def _lent(self) -> Any:
        """Return credentials of tokens that another process makes; None: there are none."""
        if self._token is None:
            return None
        from google.oauth2.credentials import Credentials

        new_token = self._token

        def renewed(_request: object, **_: object) -> tuple[str, datetime]:
            token, expires_at = new_token()
            return token, datetime.fromtimestamp(expires_at, UTC).replace(tzinfo=None)

        return Credentials(None, refresh_handler=renewed)

    def _answered(self, response: requests.Response, **_: object) -> None:
        sent = time.monotonic() - response.elapsed.total_seconds()
        self.server_clock.note(response.headers.get("Date", ""), sent)
        # of an upload, Google's client would hold this piece while it reads the next one
        response.request.body = None

    def google_bucket(self, name: str) -> Any:
        """Return Google's object of a bucket. Raises Refused for an invalid name."""
        client = self.client()
        try:
            return client.bucket(name)
        except ValueError as error:
            raise Refused(f"Invalid bucket name: {name!r}", cause=Cause.BAD_SPEC) from error

    def blob(self, bucket: str, name: str, generation: int | None = None) -> Any:
        """Return Google's object of an object. Raises as `google_bucket` does."""
        return self.google_bucket(bucket).blob(name, chunk_size=PIECE, generation=generation)

    def blob_pages(
        self, path: str, deadline: Callable[[], Deadline], fields: str, **query: Any
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield pages with the JSON resources of the objects whose `gs://` path starts with `path`. `deadline`: that of
        the next page."""
        bucket, _, prefix = path.removeprefix("gs://").partition("/")
        query |= {"prefix": prefix, "fields": f"items({fields}),nextPageToken", "retry": None}

        def page(left: float) -> dict[str, Any]:
            google_bucket = self.google_bucket(bucket)
            blobs = google_bucket.client.list_blobs(google_bucket, timeout=left, **query)
            return next(blobs.pages).raw_page

        while "page_token" not in query or query["page_token"]:
            resource = self.retry(f"list {path}", deadline(), page)
            yield resource.get("items", [])
            query["page_token"] = resource.get("nextPageToken")

    def read_bucket(
        self, bucket: str, deadline: Deadline, below: str = "", fields: str | None = None
    ) -> dict[str, Any]:
        """Return the JSON resource of a bucket, or what is `below` it."""
        read = partial(self.json, "GET", bucket_path(bucket) + below, params={"fields": fields})
        return self.retry(f"look at bucket gs://{bucket}", deadline, read)

    def send(
        self, method: str, path: str, timeout: float, *, stream: bool = False, **options: Any
    ) -> requests.Response:
        """Send a request for which Google's client has no method: it cannot read the layout of a bucket, it drops
        lifecycle rules of kinds that it does not know, and it writes downloads to files only."""
        session = self.client()._http
        url = f"{self._url}/storage/v1/b{path}"
        response = session.request(method, url, timeout=timeout, stream=stream, **options)
        if not response.ok:
            raise refusal(response.status_code, response.content)
        return response

    def json(self, method: str, path: str, timeout: float, **options: Any) -> dict[str, Any]:
        """Return the JSON document of an answer. Sends as `send` does."""
        return self.send(method, path, timeout, **options).json()

    def retry(
        self,
        operation: str,
        deadline: Deadline,
        call: Callable[[float], T],
        *,
        safe: bool = True,
    ) -> T:
        """Call `call(seconds for an answer)` until it succeeds, and return its result. `safe`: the call may be applied
        twice. The error's message begins with "cannot" and `operation`, whose first word `Count` gets and each try is
        billed by."""
        verb = operation.partition(" ")[0]
        class_a, class_b = _BILLED.get(verb, (0, 0))
        damaged = 0

        def once(left: float, _failures: int) -> T:
            with self._lock:
                self.operations.class_a += class_a
                self.operations.class_b += class_b
            with counted(self._count, verb), translated():
                return call(min(left, self.timeout))

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


def bucket_path(bucket: str) -> str:
    """Return the path of a bucket in the JSON API, below the path of all buckets."""
    return f"/{quote(bucket, safe='')}"


def resource_of(blob: Any) -> dict[str, Any]:
    """Return the JSON resource that Google's object of an object was read from. Its properties copy and parse, which
    counts in lists of all hosts' reports."""
    return blob._properties


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
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    from tpujob.adapters.session_http import own_error

    if isinstance(error, TpujobError):
        return error
    if isinstance(error, RetryError):
        return our_error(error.cause) or Transient(first_line(error))
    if isinstance(error, DataCorruption):
        return DamagedBytes("the bytes do not have the CRC32C of the object")
    if isinstance(error, GoogleAPICallError | InvalidResponse):
        response: Any = error.response
        return refusal(response.status_code, response.content)
    if isinstance(error, GoogleAuthError):
        return credentials_error(error)
    if not isinstance(error, RequestException | HTTPError | ConnectionError):
        return None
    own = error if isinstance(error, ConnectionError) else own_error(error)
    if isinstance(own, Refused):
        return own
    text = "" if isinstance(own, ConnectionRefusedError) else f": {first_line(own)}"
    return Transient(f"Cloud Storage does not answer{text}")


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
