"""Blobs on Google Cloud Storage, or on anything that speaks its API at another address.

The vendor's library is imported at the first use, as most commands need no storage. Its own retries are off: they know
neither our deadlines nor whether a repeat is safe here.
"""
# The library has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import builtins
import io
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from tpujob.adapters import gcs_bucket
from tpujob.adapters.gcs_bucket import BucketFacts
from tpujob.domain.model import Cause
from tpujob.errors import LOGIN, BadRequest, Conflict, NotFound, Refused, TpujobError, Transient
from tpujob.ports import Blob

T = TypeVar("T")

_FIELDS = "items(name,size,generation,updated,metadata),nextPageToken"
_CLOCK_AGE = 60.0  # seconds for which the offset between two clocks is trusted
_PAUSES = (0.1, 5.0)  # the first and the longest pause between two tries
#: Metadata key by which a conditional write finds out whether it was its own first try that won. Not shown to callers.
_WRITE_ID = "tpujob-write"


class GcsBlobs:
    """Implements `ports.Blobs`. Safe to use from several threads.

    Reads, deletes and conditional writes are repeated until they succeed or time is up; an unconditional write is not,
    as a late repeat could undo somebody else's. A checksum that does not match is repeated once.
    """

    def __init__(self, project: str, endpoint: str = "") -> None:
        self._project = project
        self._endpoint = endpoint  # empty: Google Cloud's
        self._lock = threading.Lock()
        self._made: Any = None  # the library's client
        self._offset = Offset()

    def put(
        self,
        path: str,
        data: bytes,
        *,
        metadata: Mapping[str, str] | None = None,
        if_generation: int | None = None,
        timeout: float,
    ) -> Blob:
        bucket, name = split_path(path)
        deadline = time.monotonic() + timeout
        write_id = uuid.uuid4().hex
        given = dict(metadata or {})
        if if_generation is not None:
            given[_WRITE_ID] = write_id

        def once(left: float, attempt: int) -> Blob:
            from google.api_core.exceptions import PreconditionFailed

            blob = self._client().bucket(bucket).blob(name)
            blob.metadata = given
            try:
                blob.upload_from_file(
                    _Until(deadline, data),
                    size=len(data),
                    content_type="application/octet-stream",
                    if_generation_match=if_generation,
                    timeout=left,
                    checksum="crc32c",
                    retry=None,
                )
            except PreconditionFailed:
                if attempt == 0:
                    raise
                # An earlier try may have been applied although its answer was lost.
                blob.reload(timeout=left, retry=None)
                if (blob.metadata or {}).get(_WRITE_ID) != write_id:
                    raise
            return _blob(bucket, blob)

        return self._repeat(f"write {path}", deadline, once, safe=if_generation is not None)

    def get(self, path: str, *, start: int = 0, end: int | None = None, timeout: float) -> bytes:
        bucket, name = split_path(path)
        deadline = time.monotonic() + timeout
        whole = start == 0 and end is None

        def once(left: float, _: int) -> bytes:
            from google.api_core.exceptions import RequestRangeNotSatisfiable

            blob = self._client().bucket(bucket).blob(name)
            if end is not None and end <= start:
                blob.reload(timeout=left, retry=None)  # nothing to read, but is it there?
                return b""
            into = _Until(deadline)
            try:
                blob.download_to_file(
                    into,
                    start=None if whole else start,
                    end=None if end is None else end - 1,
                    raw_download=True,
                    timeout=left,
                    checksum="crc32c",
                    retry=None,
                )
            except RequestRangeNotSatisfiable:  # it has no more than `start` bytes
                return b""
            return into.getvalue()

        return self._repeat(f"read {path}", deadline, once)

    def list(self, prefix: str, *, after: str = "", timeout: float) -> list[Blob]:
        bucket, start = split_path(prefix, empty=True)
        deadline = time.monotonic() + timeout
        root = f"gs://{bucket}/"
        token: str | None = None
        found: builtins.list[Blob] = []

        def page(left: float, _: int) -> Any:
            pages = self._client().list_blobs(
                bucket,
                prefix=start,
                start_offset=after.removeprefix(root) if after.startswith(root) else None,
                fields=_FIELDS,
                page_token=token,
                timeout=left,
                retry=None,
            )
            return next(pages.pages, ()), pages

        while True:
            blobs, pages = self._repeat(f"list {prefix}", deadline, page)
            found += [_blob(bucket, blob) for blob in blobs]
            token = pages.next_page_token
            if not token:
                return [blob for blob in found if blob.path > after]

    def delete(self, path: str, *, timeout: float) -> None:
        bucket, name = split_path(path)

        def once(left: float, _: int) -> None:
            self._client().bucket(bucket).blob(name).delete(timeout=left, retry=None)

        try:
            self._repeat(f"delete {path}", time.monotonic() + timeout, once)
        except NotFound:
            return

    def clock(self, *, timeout: float) -> float:
        now = self._offset.apply(time.monotonic())
        if now is not None:
            return now

        def once(left: float, _: int) -> float:
            # Any answer carries the time, a refusal too.
            client = self._client()
            address = f"{client.api_endpoint}/storage/v1/b/tpujob-clock?fields=name"
            client._http.get(address, timeout=left)
            now = self._offset.apply(time.monotonic())
            if now is None:
                raise Transient("cannot ask the storage for its time: its answers carry none")
            return now

        return self._repeat("ask the storage for its time", time.monotonic() + timeout, once)

    def ensure_bucket(self, bucket: str, region: str, *, timeout: float) -> None:
        name, _ = split_path(bucket, empty=True)

        def once(left: float, _: int) -> Any:
            from google.api_core.exceptions import Conflict as Exists
            from google.api_core.exceptions import NotFound as Missing

            client = self._client()
            try:
                return client.get_bucket(name, timeout=left, retry=None)
            except Missing:
                new = client.bucket(name)
            gcs_bucket.dress(new, log_days=None)
            try:
                return client.create_bucket(new, location=region, timeout=left, retry=None)
            except Exists:  # somebody was faster, or the name is taken elsewhere: look again
                return client.get_bucket(name, timeout=left, retry=None)

        found = self._repeat(f"use bucket gs://{name}", time.monotonic() + timeout, once)
        gcs_bucket.check_location(found, region)

    def make_bucket(
        self, bucket: str, region: str, *, log_days: int | None, adopt: bool, timeout: float
    ) -> BucketFacts:
        """Afterwards the bucket is there, in that region, closed to the public, without soft delete, and removes logs
        of jobs after `log_days` (None: never); rules of others are left alone. Safe to repeat. Raises Refused when it
        lies elsewhere, is somebody else's, or was made by other means and is not to be adopted."""
        self.ensure_bucket(bucket, region, timeout=timeout)
        name, _ = split_path(bucket, empty=True)

        def once(left: float, _: int) -> BucketFacts:
            found = self._client().get_bucket(name, timeout=left, retry=None)
            if not adopt:
                gcs_bucket.check_ours(found)
            if gcs_bucket.dress(found, log_days=log_days):
                found.patch(timeout=left, retry=None, if_metageneration_match=found.metageneration)
            return gcs_bucket.facts(found)

        return self._repeat(f"set up bucket gs://{name}", time.monotonic() + timeout, once)

    def bucket(self, bucket: str, *, timeout: float) -> BucketFacts:
        """What is set of it. Raises NotFound; Refused when it is somebody else's."""
        name, _ = split_path(bucket, empty=True)

        def once(left: float, _: int) -> BucketFacts:
            return gcs_bucket.facts(self._client().get_bucket(name, timeout=left, retry=None))

        return self._repeat(f"look at bucket gs://{name}", time.monotonic() + timeout, once)

    def region(self, bucket: str, *, timeout: float) -> str:
        name, _ = split_path(bucket, empty=True)

        def once(left: float, _: int) -> str:
            # who may only use the objects may not read the bucket itself, but may read this of it
            found = self._client()._connection.api_request(
                method="GET", path=f"/b/{name}/storageLayout", timeout=left, retry=None
            )
            return str(found["location"]).lower()

        return self._repeat(f"look at bucket gs://{name}", time.monotonic() + timeout, once)

    def close(self) -> None:
        """End its connections. Safe to repeat; a later call opens new ones."""
        with self._lock:
            made, self._made = self._made, None
        if made:
            made.close()

    # own

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._new_client()
            return self._made

    def _new_client(self) -> Any:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage
        from requests.adapters import HTTPAdapter

        client: Any
        if self._endpoint:
            client = storage.Client(
                self._project,
                credentials=AnonymousCredentials(),
                client_options={"api_endpoint": self._endpoint},
            )
            client._http.trust_env = False  # a proxy of the environment cannot reach loopback
        else:
            client = storage.Client(self._project)
        # It would ask for every bucket's metadata from threads of its own, for traces that nobody has switched on.
        client._bucket_metadata_cache = None
        for scheme in ("http://", "https://"):
            client._http.mount(scheme, HTTPAdapter(pool_maxsize=32))
        client._http.hooks["response"].append(self._note_time)
        return client

    def _note_time(self, response: Any, *_: object, **__: object) -> None:
        now, date = time.monotonic(), response.headers.get("Date")
        if date:
            server = parsedate_to_datetime(date).timestamp()
            self._offset.observe(server, now - response.elapsed.total_seconds(), now)

    def _repeat(
        self, doing: str, deadline: float, call: Callable[[float, int], T], *, safe: bool = True
    ) -> T:
        """`call(seconds left, number of the try)` until it succeeds. Raises this project's errors only."""
        attempt, pause, corrupt = 0, _PAUSES[0], False
        while True:
            try:
                return call(max(deadline - time.monotonic(), 0.001), attempt)
            except Exception as error:
                translated = translate(error, doing)
                if translated is None:
                    raise
                again = isinstance(translated, Transient) and safe
                if isinstance(translated, Corrupted):
                    again, corrupt = not corrupt, True
                wait = pause * random.uniform(0.5, 1)  # noqa: S311, spreads tries
                if not again or time.monotonic() + wait >= deadline:
                    raise translated from error
            time.sleep(wait)
            attempt, pause = attempt + 1, min(pause * 2, _PAUSES[1])


_LOGIN = f"run `{LOGIN}`"
_FORBIDDEN = (
    "the account needs a role on that bucket, such as roles/storage.admin of the project; "
    "or the name is of somebody else's bucket, as all the world shares them"
)


class Corrupted(Transient):
    """What arrived is not what was sent."""


class Offset:
    """The difference between the storage's clock and ours. A `Date` has whole seconds only, so each answer narrows it
    down to an interval, and several to their common part."""

    def __init__(self) -> None:
        self._low, self._high = 0.0, 0.0
        self._until = float("-inf")

    def observe(self, date: float, sent: float, received: float) -> None:
        """An answer that was made between `sent` and `received`, by our clock, says `date`."""
        low, high = date - received, date + 1 - sent
        if received < self._until:
            common = max(low, self._low), min(high, self._high)
            if common[0] <= common[1]:  # otherwise one of the clocks was set: begin anew
                low, high = common
        self._low, self._high, self._until = low, high, received + _CLOCK_AGE

    def apply(self, now: float) -> float | None:
        """The storage's time; None when the last answer is too long ago."""
        return now + (self._low + self._high) / 2 if now < self._until else None


def split_path(path: str, *, empty: bool = False) -> tuple[str, str]:
    """Bucket and name of a `gs://` path. Raises BadRequest for what is none."""
    bucket, _, name = path.removeprefix("gs://").partition("/")
    if not path.startswith("gs://") or not bucket or not (name or empty):
        raise BadRequest(f"{path!r} is no gs:// path of an object")
    return bucket, name


def translate(error: Exception, doing: str) -> TpujobError | None:
    """Our error for one of the vendor's, or of the network's; None: it is a bug, let it rise."""
    import requests
    import urllib3
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.cloud.storage import exceptions as storage

    said = "Cloud Storage does not answer" if _unreachable(error) else _first_line(error)
    text = f"cannot {doing}: {said}"
    if isinstance(error, TpujobError):
        return error
    if isinstance(error, storage.DataCorruption) or (
        isinstance(error, api.BadRequest) and "doesn't match calculated" in str(error)
    ):
        return Corrupted(text)
    if isinstance(error, api.NotFound):
        return NotFound(text)
    if isinstance(error, api.PreconditionFailed):
        return Conflict(text)
    if isinstance(error, api.Forbidden):
        return Refused(text, cause=Cause.PERMISSION, hint=_FORBIDDEN)
    if isinstance(error, api.Unauthorized):
        return Refused(text, cause=Cause.PERMISSION, hint=_LOGIN)
    if isinstance(error, auth.GoogleAuthError) and not (
        error.retryable or isinstance(error, auth.TransportError)
    ):
        return Refused(text, cause=Cause.PERMISSION, hint=_LOGIN)
    if isinstance(error, api.ServerError | api.TooManyRequests) or getattr(error, "code", 0) == 408:
        return Transient(text)
    if isinstance(error, api.ClientError):
        return Refused(text, cause=Cause.BAD_SPEC)
    network = requests.RequestException | urllib3.exceptions.HTTPError | auth.GoogleAuthError
    if isinstance(error, network | storage.InvalidResponse | OSError):
        return Transient(text)
    return None


def _unreachable(error: Exception) -> bool:
    """Nothing listens there; the library's own text for that is a whole URL with its query."""
    import requests
    import urllib3

    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, requests.ConnectionError) and isinstance(
        reason, urllib3.exceptions.NewConnectionError
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _blob(bucket: str, blob: Any) -> Blob:
    metadata = {k: v for k, v in (blob.metadata or {}).items() if k != _WRITE_ID}
    return Blob(
        path=f"gs://{bucket}/{blob.name}",
        size=int(blob.size),
        generation=int(blob.generation),
        updated=blob.updated.timestamp(),
        metadata=metadata,
    )


class _Until(io.BytesIO):
    """Bytes on their way up or down, until a deadline: the library's own limit is for each piece, not for all."""

    def __init__(self, deadline: float, data: bytes = b"") -> None:
        super().__init__(data)
        self._deadline = deadline

    def read(self, size: int | None = -1, /) -> bytes:
        self._check()
        return super().read(size)

    def write(self, data: Any, /) -> int:
        self._check()
        return super().write(data)

    def _check(self) -> None:
        if time.monotonic() > self._deadline:
            raise TimeoutError("time is up")
