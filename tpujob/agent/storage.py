"""A client of Cloud Storage's JSON API, for the reports, logs and data of an agent."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import threading
import time
import urllib.parse
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Collection, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from tpujob.agent.http_client import PIECE, HttpError, pieces, send
from tpujob.agent.metadata import MetadataClient

#: bytes of one request of an upload; a multiple of 256 KiB, as resumable uploads require
UPLOAD_PIECE = 32 * 1024 * 1024
RETRY_TIMEOUT = 60.0  #: seconds for which `retry` tries by default
TIMEOUT = 15.0  #: seconds without a byte after which a request fails

LINK = "tpujob-link"  #: the metadata of an empty object that stands for a symbolic link
LISTED = "items(name,size,generation,md5Hash,metadata),nextPageToken"


class StorageError(Exception):
    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  #: the HTTP status; 0: no answer

    @property
    def is_permanent(self) -> bool:
        """Whether a retry is useless."""
        return self.status in (400, 401, 403, 404)


class WrongContent(StorageError):
    """The object's content is not the expected one."""

    @property
    def is_permanent(self) -> bool:
        return True


class StoredObject(NamedTuple):
    """An object of a list call."""

    name: str  #: the rest of the path after the listed prefix
    size: int
    generation: str
    md5: str  #: base64; empty: the storage has none, as for a composed object
    metadata: Mapping[str, str]

    @property
    def link(self) -> str:
        """The target of the symbolic link that the object stands for; empty: the object is a file."""
        return self.metadata.get(LINK, "")

    @property
    def is_path(self) -> bool:
        """Whether `name` is a valid path of a file below a folder."""
        return "\0" not in self.name and not {"", ".", ".."} & set(self.name.split("/"))


def retry(
    call: Callable[[], Any],
    patience: float = RETRY_TIMEOUT,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Any:
    """Call `call` until it succeeds, and return its result. Raises its StorageError if that is permanent, after
    `patience` seconds, or if `wait` returns true. One try uses up at most a quarter of `patience`, or TIMEOUT, so a
    transfer that fails after minutes is retried. With infinite patience permanent errors are retried, too."""
    left, delay, longest_try = patience, 0.5, max(TIMEOUT, patience / 4)
    while True:
        began = clock()
        try:
            return call()
        except StorageError as error:
            left -= min(clock() - began, longest_try) + delay
            is_final = patience < float("inf") and error.is_permanent
            if is_final or left < 0 or wait(delay):
                raise
            delay = min(2 * delay, 8)


def fetch(
    storage: Storage, path: str, listed: StoredObject, file: str, sha256s: Collection[str]
) -> str:
    """Download the listed version of an object, never more bytes than were listed. Return its SHA-256, one of
    `sha256s`. Raises WrongContent, StorageError, OSError; the file is then unusable."""
    sha256, left = hashlib.sha256(), listed.size
    with open(file, "wb") as output:

        def write(piece: bytes) -> None:
            nonlocal left
            left -= len(piece)
            if left < 0:
                raise WrongContent("%s has more bytes than were listed" % path)
            sha256.update(piece)
            output.write(piece)

        storage.read(path, write, listed.generation)
    if sha256.hexdigest() not in sha256s:
        raise WrongContent("%s has another SHA-256 than it may have" % path)
    return sha256.hexdigest()


def digests_of(path: str) -> Tuple[str, str]:
    """Return the SHA-256 of a file in hex, and its MD5 in base64. Raises OSError."""
    sha256 = hashlib.sha256()
    md5 = md5_of(path, sha256.update)
    return sha256.hexdigest(), md5


def md5_of(path: str, *consumers: Callable[[bytes], object]) -> str:
    """Return the MD5 of a file in base64, as the storage has it. The consumers get the bytes, too. Raises OSError."""
    md5 = hashlib.new("md5")  # noqa: S324, the storage keeps MD5
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(PIECE), b""):
            for consume in (md5.update, *consumers):
                consume(piece)
    return base64.b64encode(md5.digest()).decode()


class Storage:
    """The objects of Cloud Storage, or of its emulator, by `gs://` path. Threads may share an instance."""

    def __init__(self, metadata: MetadataClient) -> None:
        emulated = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
        if emulated and "://" not in emulated:
            emulated = "http://" + emulated
        self._base = emulated or "https://storage.googleapis.com"
        self._direct = bool(emulated)
        self._metadata = None if emulated else metadata
        self._token, self._token_until = "", 0.0
        self._refused = ""  #: the newest token that the storage refused
        self._lock = threading.Lock()
        self.skew: Optional[float] = None  #: seconds that this host is ahead of the storage
        self._monotonic_skew: Optional[float] = None  #: the skew of the monotonic clock

    def put(
        self,
        path: str,
        data: bytes,
        metadata: Optional[Dict[str, str]] = None,
        md5: str = "",
        if_generation: str = "",
    ) -> None:
        """Write an object. The storage refuses content with another `md5`. `if_generation`: replace only that
        generation; `0`: create only. Raises StorageError, with status 412 if the generation is another."""
        bucket, name = _bucket_and_name(path)
        facts: Dict[str, Any] = {"name": name, "contentType": "text/plain"}
        if metadata:
            facts["metadata"] = metadata
        if md5:
            facts["md5Hash"] = md5
        # no content has its own hash in it; RFC 2046 allows 70 characters
        boundary = "tpujob-%s" % hashlib.sha256(data).hexdigest()[:40]
        head = "--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n--%s\r\n\r\n"
        body = (head % (boundary, json.dumps(facts), boundary)).encode() + data
        body += ("\r\n--%s--" % boundary).encode()
        content_type = "multipart/related; boundary=%s" % boundary
        target = "/upload/storage/v1/b/%s/o?uploadType=multipart" % bucket
        self._open("POST", target + _precondition(if_generation), body, content_type).close()

    def put_file(
        self,
        path: str,
        file: str,
        md5: str = "",
        metadata: Optional[Dict[str, str]] = None,
        if_generation: str = "",
    ) -> None:
        """Write an object from a file, in pieces if it is large. The parameters are those of `put`; `md5` makes the
        storage refuse a file that has changed. Raises StorageError, OSError."""
        size = os.path.getsize(file)
        with open(file, "rb") as content:
            if size <= UPLOAD_PIECE:
                self.put(path, content.read(size), metadata, md5, if_generation)
                return
            session = self._start_session(path, md5, metadata, if_generation)
            for start in range(0, size, UPLOAD_PIECE):
                end = min(start + UPLOAD_PIECE, size)
                piece = content.read(end - start)
                if len(piece) < end - start:
                    raise StorageError("%s was cut while it was read" % file)
                span = {"Content-Range": "bytes %d-%d/%d" % (start, end - 1, size)}
                try:
                    self._open("PUT", session, piece, headers=span).close()
                except StorageError as error:
                    # "resume incomplete": send the next piece
                    if error.status != 308 or end == size:
                        raise

    def _start_session(
        self, path: str, md5: str, metadata: Optional[Dict[str, str]], if_generation: str
    ) -> str:
        """Return the URL of a new resumable upload."""
        bucket, name = _bucket_and_name(path)
        facts: Dict[str, Any] = {"name": name, "metadata": metadata or {}}
        if md5:
            facts["md5Hash"] = md5
        body = json.dumps(facts).encode()
        target = "/upload/storage/v1/b/%s/o?uploadType=resumable%s"
        target %= (bucket, _precondition(if_generation))
        with self._open("POST", target, body, "application/json") as response:
            return str(response.headers.get("Location") or "")

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path begins with `prefix`, in pages of 1,000. Raises StorageError."""
        bucket, start = _bucket_and_name(prefix)
        query = {"prefix": start, "fields": LISTED}
        while True:
            target = "/storage/v1/b/%s/o?%s" % (bucket, urllib.parse.urlencode(query))
            try:
                with self._open("GET", target) as response:
                    page: Dict[str, Any] = json.loads(b"".join(pieces(response)))
            except (HttpError, ValueError) as error:
                raise StorageError("listing %s: %s" % (prefix, error)) from error
            for item in page.get("items", []):
                name, metadata = str(item["name"])[len(start) :], item.get("metadata", {})
                md5, generation = str(item.get("md5Hash", "")), str(item["generation"])
                yield StoredObject(name, int(item["size"]), generation, md5, metadata)
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    def delete(self, path: str) -> None:
        """Delete an object if it exists. Raises StorageError."""
        try:
            self._open("DELETE", "/storage/v1/b/%s/o/%s" % _quoted(path)).close()
        except StorageError as error:
            if error.status != 404:
                raise

    def read(
        self,
        path: str,
        consume: Callable[[bytes], object],
        generation: str = "",
        span: Optional[Tuple[int, int]] = None,
    ) -> None:
        """Pass the stored bytes of an object to `consume`, in pieces: of that generation only, and only from byte
        `span[0]` to before `span[1]`. Raises StorageError, and the errors of `consume`."""
        target = "/storage/v1/b/%s/o/%s?alt=media" % _quoted(path)
        target += "&generation=%s" % generation if generation else ""
        # without it the storage would decompress objects stored as gzip, beyond their listed size
        headers = {"Accept-Encoding": "gzip"}
        if span:
            headers["Range"] = "bytes=%d-%d" % (span[0], span[1] - 1)
        with self._open("GET", target, headers=headers) as response:
            try:
                for piece in pieces(response):
                    consume(piece)
            except HttpError as error:
                raise StorageError("reading %s: %s" % (path, error)) from error

    def _open(
        self,
        method: str,
        target: str,
        body: Optional[bytes] = None,
        content_type: str = "",
        headers: Optional[Dict[str, str]] = None,
    ) -> Any:
        """Return the response to a request; `target` is a path of the API or an upload's URL. Raises StorageError."""
        headers = dict(headers or {})
        if content_type:
            headers["Content-Type"] = content_type
        token = self._bearer_token()
        if token:
            headers["Authorization"] = "Bearer " + token
        url = target if target.startswith("http") else self._base + target
        try:
            response = send(url, method, body, headers, timeout=TIMEOUT, direct=self._direct)
        except HttpError as error:
            if not error.status:
                raise StorageError("no answer from the storage: %s" % error) from error
            status = 0 if error.status == 401 and self._drop_token(token) else error.status
            raise StorageError("%s: %s" % (error, error.text), status) from error
        with contextlib.suppress(TypeError, ValueError, IndexError):
            now = parsedate_to_datetime(response.headers.get("Date") or "").timestamp()
            self.skew = time.time() - now
            self._monotonic_skew = time.monotonic() - now
        return response

    def time(self) -> Optional[float]:
        """Return the time of the storage's clock, exact to a second; None before the storage's first answer."""
        return None if self._monotonic_skew is None else time.monotonic() - self._monotonic_skew

    def _bearer_token(self) -> str:
        """Return a token; empty for an emulator, and on a host without an account. Raises StorageError if the metadata
        server is silent: without a token the storage would answer with a permanent error."""
        if self._metadata is None:
            return ""
        with self._lock:
            if time.monotonic() >= self._token_until:
                answer = self._metadata.get("service-accounts/default/token")
                if answer is None and not self._token:
                    raise StorageError(
                        "no token for the storage: the metadata server does not answer"
                    )
                if answer is None:
                    return self._token  # renewed a minute before it expires
                try:
                    grant = json.loads(answer or "{}")
                    self._token = grant["access_token"]
                    self._token_until = time.monotonic() + float(grant["expires_in"]) - 60
                except (ValueError, KeyError, TypeError):
                    self._token = ""
            return self._token

    def _drop_token(self, token: str) -> bool:
        """Drop a refused token. Return whether a retry may succeed: not if the same token was refused before."""
        with self._lock:
            if token != self._token:  # another thread has dropped it
                return bool(token)
            may_succeed = token not in ("", self._refused)
            self._refused = token
            self._token, self._token_until = "", 0.0
            return may_succeed


def _bucket_and_name(path: str) -> Tuple[str, str]:
    bucket, _, name = path[len("gs://") :].partition("/")
    return bucket, name


def _precondition(generation: str) -> str:
    return "&ifGenerationMatch=" + generation if generation else ""


def _quoted(path: str) -> Tuple[str, str]:
    bucket, name = _bucket_and_name(path)
    return bucket, urllib.parse.quote(name, safe="")
