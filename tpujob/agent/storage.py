"""The storage that an agent keeps its report, log and data in, over the JSON API of Cloud Storage."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Collection, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from tpujob.agent.metadata import DIRECT, MetadataClient

PIECE = 1024 * 1024  #: bytes that are read at once
#: bytes that one request of an upload sends; a multiple of 256 KiB, as resumable uploads want it
UPLOAD_PIECE = 32 * 1024 * 1024
PATIENCE = 60.0  #: seconds for which `insist` tries, unless it is given another time
TIMEOUT = 15.0  #: seconds that the storage may be silent

LINK = "tpujob-link"  #: the metadata of an empty object that stands for a symbolic link
LISTED = "items(name,size,generation,md5Hash,metadata),nextPageToken"


class StorageError(Exception):
    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  #: of HTTP; 0: no answer

    @property
    def lasts(self) -> bool:
        """The same answer would come again: a retry is no use."""
        return self.status in (400, 401, 403, 404)


class WrongContent(StorageError):
    """An object has other bytes than it may have."""

    @property
    def lasts(self) -> bool:
        return True


class StoredObject(NamedTuple):
    """What a list says of an object."""

    name: str  #: what follows the prefix that was listed
    size: int
    generation: str
    md5: str  #: base64; empty: the storage has none, as for an object that was composed of others
    metadata: Mapping[str, str]

    @property
    def link(self) -> str:
        """Of an empty object that stands for a symbolic link: where the link leads."""
        return self.metadata.get(LINK, "")

    @property
    def is_path(self) -> bool:
        """Its name is one that a file below a folder can have."""
        return "\0" not in self.name and not {"", ".", ".."} & set(self.name.split("/"))


def insist(
    do: Callable[[], Any],
    patience: float = PATIENCE,
    wait: Callable[[float], object] = time.sleep,
) -> Any:
    """Return what `do` returns. It is tried for `patience` seconds, of which one try uses up at most a quarter (or
    TIMEOUT, if that is more): a transfer that is cut off after minutes is tried again. With infinity it is tried until
    it succeeds, whatever the error. `wait` pauses; if it returns true, it was the last try. Raises StorageError."""
    left, delay, most = patience, 0.5, max(TIMEOUT, patience / 4)
    while True:
        began = time.monotonic()
        try:
            return do()
        except StorageError as error:
            left -= min(time.monotonic() - began, most) + delay
            lasts = patience < float("inf") and error.lasts
            if lasts or left < 0 or wait(delay):
                raise
            delay = min(2 * delay, 8)


def fetch(
    storage: Storage, path: str, one: StoredObject, file: str, sha256s: Collection[str]
) -> str:
    """Write an object, as it was listed, to a file, which may be used only when this has returned; no more bytes are
    read than were listed. Return its SHA-256, one of those given. Raises WrongContent, StorageError, OSError."""
    found, left = hashlib.sha256(), one.size
    with open(file, "wb") as written:

        def take(piece: bytes) -> None:
            nonlocal left
            left -= len(piece)
            if left < 0:
                raise WrongContent("%s has more bytes than were listed" % path)
            found.update(piece)
            written.write(piece)

        storage.read(path, take, one.generation)
    if found.hexdigest() not in sha256s:
        raise WrongContent("%s has another SHA-256 than it may have" % path)
    return found.hexdigest()


def digests_of(path: str) -> Tuple[str, str]:
    """Return the SHA-256 of a file in hex, and its MD5 as `md5_of` does. Raises OSError."""
    sha256 = hashlib.sha256()
    md5 = md5_of(path, sha256.update)
    return sha256.hexdigest(), md5


def md5_of(path: str, *takes: Callable[[bytes], object]) -> str:
    """Return the MD5 of a file in base64, as the storage says it; `takes` get its bytes, too. Raises OSError."""
    md5 = hashlib.new("md5")  # noqa: S324, the bucket keeps that one
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(PIECE), b""):
            for take in (md5.update, *takes):
                take(piece)
    return base64.b64encode(md5.digest()).decode()


class Storage:
    """Objects by `gs://` path, over the JSON API."""

    def __init__(self, metadata: MetadataClient) -> None:
        emulated = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
        if emulated and "://" not in emulated:
            emulated = "http://" + emulated
        self._base = emulated or "https://storage.googleapis.com"
        self._opener = DIRECT if emulated else urllib.request.build_opener()
        self._metadata = None if emulated else metadata
        self._token, self._token_until = "", 0.0
        self._refused = ""  #: the newest token that the storage refused
        self._lock = threading.Lock()
        #: seconds that this host's clock is ahead of the storage's
        self.skew: Optional[float] = None
        self._ahead: Optional[float] = None  #: the same of the clock that never goes back

    def put(
        self,
        path: str,
        data: bytes,
        metadata: Optional[Dict[str, str]] = None,
        md5: str = "",
        over: str = "",
    ) -> None:
        """Write whole or not at all. `md5`: the storage refuses other bytes; `over`: only over that generation, `0`:
        if there is none. Raises StorageError, with status 412 when there is another."""
        bucket, name = _bucket_and_name(path)
        facts: Dict[str, Any] = {"name": name, "contentType": "text/plain"}
        if metadata:
            facts["metadata"] = metadata
        if md5:
            facts["md5Hash"] = md5
        # nothing holds its own hash; RFC 2046 allows 70 characters
        line = "tpujob-%s" % hashlib.sha256(data).hexdigest()[:40]
        head = "--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n--%s\r\n\r\n"
        body = (head % (line, json.dumps(facts), line)).encode() + data
        kind = "multipart/related; boundary=%s" % line
        where = "/upload/storage/v1/b/%s/o?uploadType=multipart" % bucket + _only_over(over)
        self._open("POST", where, body + ("\r\n--%s--" % line).encode(), kind).close()

    def put_file(
        self,
        path: str,
        file: str,
        md5: str = "",
        metadata: Optional[Dict[str, str]] = None,
        over: str = "",
    ) -> None:
        """Write a file; the rest as `put`. The storage compares its MD5, in base64, before the object is there: a file
        that has changed since is refused. Raises StorageError, OSError."""
        size = os.path.getsize(file)
        with open(file, "rb") as content:
            if size <= UPLOAD_PIECE:
                self.put(path, content.read(size), metadata, md5, over)
                return
            session = self._session(path, md5, metadata, over)
            for start in range(0, size, UPLOAD_PIECE):
                end = min(start + UPLOAD_PIECE, size)
                piece = content.read(end - start)
                if len(piece) < end - start:
                    raise StorageError("%s was cut while it was read" % file)
                span = {"Content-Range": "bytes %d-%d/%d" % (start, end - 1, size)}
                try:
                    self._open("PUT", session, piece, more=span).close()
                except StorageError as error:
                    # "resume incomplete": send the next piece
                    if error.status != 308 or end == size:
                        raise

    def _session(self, path: str, md5: str, metadata: Optional[Dict[str, str]], over: str) -> str:
        bucket, name = _bucket_and_name(path)
        facts: Dict[str, Any] = {"name": name, "metadata": metadata or {}}
        if md5:
            facts["md5Hash"] = md5
        body = json.dumps(facts).encode()
        where = "/upload/storage/v1/b/%s/o?uploadType=resumable" % bucket + _only_over(over)
        with self._open("POST", where, body, "application/json") as response:
            return str(response.headers.get("Location") or "")

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """The objects whose path begins with `prefix`, one page of 1,000 after the other. Raises StorageError."""
        bucket, start = _bucket_and_name(prefix)
        asked = {"prefix": start, "fields": LISTED}
        while True:
            where = "/storage/v1/b/%s/o?%s" % (bucket, urllib.parse.urlencode(asked))
            try:
                with self._open("GET", where) as response:
                    page: Dict[str, Any] = json.loads(response.read())
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise StorageError("listing %s: %s" % (prefix, error)) from error
            for one in page.get("items", []):
                name, metadata = str(one["name"])[len(start) :], one.get("metadata", {})
                md5, generation = str(one.get("md5Hash", "")), str(one["generation"])
                yield StoredObject(name, int(one["size"]), generation, md5, metadata)
            if not page.get("nextPageToken"):
                return
            asked["pageToken"] = page["nextPageToken"]

    def delete(self, path: str) -> None:
        """Absent is success. Raises StorageError."""
        try:
            self._open("DELETE", "/storage/v1/b/%s/o/%s" % _quoted(path)).close()
        except StorageError as error:
            if error.status != 404:
                raise

    def read(
        self,
        path: str,
        take: Callable[[bytes], object],
        generation: str = "",
        span: Optional[Tuple[int, int]] = None,
    ) -> None:
        """Give the object to `take`, piece by piece, as it is stored. `generation`: of no other version; `span`: from
        the first of these bytes to before the second. Raises StorageError."""
        where = "/storage/v1/b/%s/o/%s?alt=media" % _quoted(path)
        where += "&generation=%s" % generation if generation else ""
        # else the storage unpacks what is stored as gzip, and its size is not the listed one
        more = {"Accept-Encoding": "gzip"}
        if span:
            more["Range"] = "bytes=%d-%d" % (span[0], span[1] - 1)
        with self._open("GET", where, more=more) as response:
            try:
                for piece in iter(lambda: response.read(PIECE), b""):
                    take(piece)
                if response.length:  # what was announced and did not come
                    raise StorageError("reading %s: the answer was cut off" % path)
            except (OSError, http.client.HTTPException) as error:
                raise StorageError("reading %s: %s" % (path, error)) from error

    def _open(
        self,
        method: str,
        where: str,
        body: Any = None,
        kind: str = "",
        more: Optional[Dict[str, str]] = None,
    ) -> Any:
        """`where`: a path, or the address of an upload's session."""
        headers = dict(more or {}, **({"Content-Type": kind} if kind else {}))
        token = self._bearer()
        if token:
            headers["Authorization"] = "Bearer " + token
        url = where if where.startswith("http") else self._base + where
        request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310, http(s)
        try:
            response = self._opener.open(request, timeout=TIMEOUT)
            with contextlib.suppress(TypeError, ValueError, IndexError):
                there = parsedate_to_datetime(response.headers.get("Date") or "").timestamp()
                self.skew, self._ahead = time.time() - there, time.monotonic() - there
            return response
        except urllib.error.HTTPError as error:
            text = ""
            with contextlib.suppress(OSError, http.client.HTTPException), error:
                text = error.read(300).decode("utf-8", "replace")
            status = 0 if error.code == 401 and self._drop(token) else error.code
            raise StorageError("HTTP %d: %s" % (error.code, text), status) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise StorageError("no answer from the storage: %s" % error) from error

    def time(self) -> Optional[float]:
        """The storage's own, to a second, whatever the clock of this host says; None: it has not answered as yet."""
        return None if self._ahead is None else time.monotonic() - self._ahead

    def _bearer(self) -> str:
        """Empty for an emulator, and on a host without an account. Raises StorageError when the metadata server is
        silent, as the storage would refuse a call without a token for good."""
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
                    return self._token  # asked for a minute before it runs out
                try:
                    grant = json.loads(answer or "{}")
                    self._token = grant["access_token"]
                    self._token_until = time.monotonic() + float(grant["expires_in"]) - 60
                except (ValueError, KeyError, TypeError):
                    self._token = ""
            return self._token

    def _drop(self, token: str) -> bool:
        """Forget a token that was refused. Return whether another may be taken: not if the metadata server has given
        this one again."""
        with self._lock:
            if token != self._token:  # another thread has dropped it
                return bool(token)
            hope = token not in ("", self._refused)
            self._refused, self._token, self._token_until = token, "", 0.0
            return hope


def _bucket_and_name(path: str) -> Tuple[str, str]:
    bucket, _, name = path[len("gs://") :].partition("/")
    return bucket, name


def _only_over(generation: str) -> str:
    return "&ifGenerationMatch=" + generation if generation else ""


def _quoted(path: str) -> Tuple[str, str]:
    bucket, name = _bucket_and_name(path)
    return bucket, urllib.parse.quote(name, safe="")
