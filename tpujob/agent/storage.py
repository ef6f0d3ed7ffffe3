"""The two servers that an agent talks to: the metadata server of its VM, and the storage."""

from __future__ import annotations

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
from typing import Any, Callable, Dict, Optional, Tuple

from tpujob.agent.base import parse_json
from tpujob.protocol import MAINTENANCE, PREEMPTED, MaintenanceDocument

PIECE = 1024 * 1024  #: bytes that are read at once

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class MetadataClient:
    """Asks the metadata server, which tells a VM about itself."""

    def __init__(self) -> None:
        host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
        self._base = "http://%s/computeMetadata/v1/instance/" % host

    def get(self, path: str) -> Optional[str]:
        """Empty: nothing of that name. None: no answer."""
        headers = {"Metadata-Flavor": "Google"}
        request = urllib.request.Request(self._base + path, headers=headers)  # noqa: S310
        try:
            with DIRECT.open(request, timeout=2) as response:
                return response.read(65536).decode("utf-8", "replace").strip()
        except urllib.error.HTTPError as error:
            error.close()
            return "" if error.code == 404 else None
        except (OSError, ValueError, http.client.HTTPException):
            return None

    def notice(self) -> Optional[str]:
        """Whether this host is about to be taken away. None: no answer."""
        preempted = self.get("preempted")
        if preempted == "TRUE":
            return PREEMPTED
        coming = self.get("maintenance-event")
        if preempted is None and coming is None:
            return None
        return "" if coming in ("NONE", "", None) else MAINTENANCE

    def upcoming(self) -> Optional[MaintenanceDocument]:
        """The maintenance that is announced for this host; None: none that can be read.

        Documented for TPU VMs, with a week's notice where it is scheduled. Without one the server answers
        `{"error": ...}` or 503; names are spelled with `_` here, and as in the API elsewhere."""
        said = parse_json((self.get("upcoming-maintenance?alt=json") or "").encode())

        def text(*names: str) -> str:
            found = (said[name] for name in names if isinstance(said.get(name), str))
            return str(next(found, ""))[:60]

        starts = text("window_start_time", "windowStartTime")
        if not starts:
            return None
        return {
            "starts": starts,
            "ends": text("window_end_time", "windowEndTime"),
            "latest": text("latest_window_start_time", "latestWindowStartTime"),
            "kind": text("type", "maintenanceType"),
            "status": text("maintenance_status", "maintenanceStatus"),
        }


class StorageError(Exception):
    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  #: of HTTP; 0: no answer

    @property
    def lasts(self) -> bool:
        """The same answer would come again: a retry is no use."""
        return self.status in (400, 401, 403, 404)


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

    def put(self, path: str, data: bytes, metadata: Optional[Dict[str, str]] = None) -> None:
        """Write whole or not at all. Raises StorageError."""
        bucket, name = _bucket_and_name(path)
        facts = {"name": name, "contentType": "text/plain", "metadata": metadata or {}}
        # nothing holds its own hash; RFC 2046 allows 70 characters
        line = "tpujob-%s" % hashlib.sha256(data).hexdigest()[:40]
        head = "--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n--%s\r\n\r\n"
        body = (head % (line, json.dumps(facts), line)).encode() + data
        kind = "multipart/related; boundary=%s" % line
        where = "/upload/storage/v1/b/%s/o?uploadType=multipart" % bucket
        with self._open("POST", where, body + ("\r\n--%s--" % line).encode(), kind):
            pass

    def put_new(self, path: str, file: str) -> bool:
        """Write a file's content whole or not at all, unless there is an object already; whether it was written. Raises
        StorageError, OSError."""
        bucket, name = _bucket_and_name(path)
        asked = {"uploadType": "media", "name": name, "ifGenerationMatch": "0"}
        where = "/upload/storage/v1/b/%s/o?%s" % (bucket, urllib.parse.urlencode(asked))
        size = os.path.getsize(file)
        try:
            with open(file, "rb") as content:
                body = content if size else b""
                with self._open("POST", where, body, "application/octet-stream", size):
                    return True
        except StorageError as error:
            if error.status == 412:
                return False
            raise

    def names(self, prefix: str) -> Dict[str, int]:
        """The objects whose path begins with `prefix`, by what follows it, with their bytes. Raises StorageError."""
        bucket, start = _bucket_and_name(prefix)
        found: Dict[str, int] = {}
        asked = {"prefix": start, "fields": "items(name,size),nextPageToken"}
        while True:
            where = "/storage/v1/b/%s/o?%s" % (bucket, urllib.parse.urlencode(asked))
            try:
                with self._open("GET", where) as response:
                    page: Dict[str, Any] = json.loads(response.read())
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise StorageError("listing %s: %s" % (prefix, error)) from error
            for one in page.get("items", []):
                found[str(one["name"])[len(start) :]] = int(one["size"])
            if not page.get("nextPageToken"):
                return found
            asked["pageToken"] = page["nextPageToken"]

    def delete(self, path: str) -> None:
        """Absent is success. Raises StorageError."""
        try:
            with self._open("DELETE", "/storage/v1/b/%s/o/%s" % _quoted(path)):
                pass
        except StorageError as error:
            if error.status != 404:
                raise

    def read(self, path: str, take: Callable[[bytes], object]) -> None:
        """Give the object to `take`, piece by piece. Raises StorageError."""
        with self._open("GET", "/storage/v1/b/%s/o/%s?alt=media" % _quoted(path)) as response:
            try:
                for piece in iter(lambda: response.read(PIECE), b""):
                    take(piece)
                if response.length:  # what was announced and did not come
                    raise StorageError("reading %s: the answer was cut off" % path)
            except (OSError, http.client.HTTPException) as error:
                raise StorageError("reading %s: %s" % (path, error)) from error

    def _open(
        self, method: str, where: str, body: Any = None, kind: str = "", size: Optional[int] = None
    ) -> Any:
        """`size`: of a body that is a file."""
        headers = {"Content-Type": kind} if kind else {}
        if size is not None:
            headers["Content-Length"] = str(size)
        token = self._bearer()
        if token:
            headers["Authorization"] = "Bearer " + token
        url = self._base + where
        request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310
        try:
            response = self._opener.open(request, timeout=15)
            self._compare_clocks(response.headers.get("Date"))
            return response
        except urllib.error.HTTPError as error:
            said = ""
            with contextlib.suppress(OSError, http.client.HTTPException), error:
                said = error.read(300).decode("utf-8", "replace")
            hope = error.code == 401 and self._drop(token)
            status = 0 if hope else error.code
            raise StorageError("HTTP %d: %s" % (error.code, said), status) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise StorageError("no answer from the storage: %s" % error) from error

    def _compare_clocks(self, date: Optional[str]) -> None:
        with contextlib.suppress(TypeError, ValueError, IndexError):
            self.skew = time.time() - parsedate_to_datetime(date or "").timestamp()

    def _bearer(self) -> str:
        """Empty for an emulator, and on a host without an account. Raises StorageError when the metadata server is
        silent, as the storage would refuse a call without a token for good."""
        if self._metadata is None:
            return ""
        with self._lock:
            if time.monotonic() >= self._token_until:
                answer = self._metadata.get("service-accounts/default/token")
                if answer is None and not self._token:
                    raise StorageError("no token for the storage: the metadata server is silent")
                if answer is None:
                    return self._token  # asked for a minute before it runs out
                try:
                    said = json.loads(answer or "{}")
                    self._token = said["access_token"]
                    self._token_until = time.monotonic() + float(said["expires_in"]) - 60
                except (ValueError, KeyError, TypeError):
                    self._token = ""
            return self._token

    def _drop(self, token: str) -> bool:
        """Forget a token that was refused. Whether another may be taken: not if this one was refused before."""
        with self._lock:
            hope = token not in ("", self._refused)
            self._refused, self._token, self._token_until = token, "", 0.0
            return hope


def _bucket_and_name(path: str) -> Tuple[str, str]:
    bucket, _, name = path[len("gs://") :].partition("/")
    return bucket, name


def _quoted(path: str) -> Tuple[str, str]:
    bucket, name = _bucket_and_name(path)
    return bucket, urllib.parse.quote(name, safe="")
