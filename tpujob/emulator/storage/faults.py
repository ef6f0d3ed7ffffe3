"""Injected faults of requests to Cloud Storage, and the count of billed requests.

The control interface's thread adds faults and the storage's thread uses them up, so the faults have a lock.
"""

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import unquote

from starlette.responses import Response

from tpujob.emulator.http_server import FilePart, Handler, Request
from tpujob.emulator.storage.model import StorageApiError

METHODS = ("GET", "LIST", "POST", "PUT", "PATCH", "DELETE")

#: The statuses that a fault can inject, with the JSON API's reason. 200: the request only hangs.
STATUSES = {
    200: "",
    403: "forbidden",
    404: "notFound",
    429: "rateLimitExceeded",
    503: "backendError",
}

_UPLOAD = re.compile(r"/(?:resumable/)?upload/.*")


@dataclass(frozen=True, slots=True)
class StorageFault:
    """A fault of the next `count` requests, which fail before or after they take effect."""

    status: int
    count: int
    method: str = "*"  #: one of METHODS; `*`: any
    when: Literal["pre", "post"] = "pre"
    hang_s: float = 0.0  #: how long the request waits first
    path: str = ""  #: only requests whose bucket and object name contain this text


class StorageFaults:
    """The faults in force, the oldest first."""

    def __init__(self) -> None:
        self._faults: list[StorageFault] = []
        self._lock = threading.Lock()

    def add(self, fault: StorageFault) -> None:
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def all(self) -> list[StorageFault]:
        with self._lock:
            return list(self._faults)

    async def take(self, request: Request) -> StorageFault | None:
        """Return the fault for this request, if any, and count the fault down."""
        if not (faults := self.all()):
            return None
        text = await _subject(request, whole=any(fault.path for fault in faults))
        kind = kind_of(request)
        with self._lock:
            for at, fault in enumerate(self._faults):
                if fault.method in ("*", kind) and fault.path in text:
                    if fault.count > 1:
                        self._faults[at] = replace(fault, count=fault.count - 1)
                    else:
                        del self._faults[at]
                    return fault
        return None


def failing(
    handler: Handler, faults: StorageFaults, refuse: Callable[[Request, StorageApiError], Response]
) -> Handler:
    """Return the handler with the faults in force applied."""

    async def handle(request: Request) -> Response:
        fault = await faults.take(request)
        if fault is None:
            return await handler(request)
        await asyncio.sleep(fault.hang_s)
        error = StorageApiError(
            fault.status, STATUSES[fault.status], f"injected fault: {fault.status}"
        )
        if fault.status != 200 and fault.when == "pre":
            return refuse(request, error)
        response = await handler(request)
        if fault.status == 200:
            return response
        if isinstance(response, FilePart):
            response.file.close()
        return refuse(request, error)

    return handle


async def _subject(request: Request, *, whole: bool) -> str:
    """Return text with the requested bucket and name. Some uploads name the object only at the beginning of the body;
    later pieces of a resumable upload do not name the object."""
    text = f"{unquote(request.path)} {request.query_params.get('name', '')} {request.query_params.get('prefix', '')}"
    if whole and request.method == "POST" and _UPLOAD.fullmatch(request.path):
        text += (await request.body()).decode("utf-8", "replace")
    return text


# Billed operations ---------------------------------------------------------------------------------------------------


#: a header of a 200 response that gives the real status
OVERRIDE = "X-Http-Status-Code-Override"
_LIST = re.compile(r"/storage/v1/b/[^/]+/o/?|/storage/v1/b/?|/[^/]*/?")
_CLASSES: Mapping[str, str] = {
    "LIST": "A", "POST": "A", "PUT": "A", "PATCH": "A", "GET": "B", "DELETE": "",
}  # fmt: skip


class Billed:
    """The billed requests since the emulator was started. The storage's thread counts; any thread may read."""

    def __init__(self) -> None:
        self._lock, self._counts = threading.Lock(), Counter[str]()

    def counting(self, handler: Handler) -> Handler:
        """Return the handler with its responses counted."""

        async def handle(request: Request) -> Response:
            response = await handler(request)
            letter = class_of(request, int(response.headers.get(OVERRIDE, response.status_code)))
            if letter:
                with self._lock:
                    self._counts[letter] += 1
            return response

        return handle

    def counts(self) -> dict[str, int]:
        with self._lock:
            return {letter: self._counts[letter] for letter in "AB"}


def class_of(request: Request, status: int) -> str:
    """Return the class of a request's operation: `A` or `B`; empty: free."""
    if status == 308 or status >= 400:  # a piece of a resumable upload, or refused
        return ""
    begins = request.method == "POST" and request.query_params.get("uploadType") == "resumable"
    return "" if begins else _CLASSES.get(kind_of(request), "")


def kind_of(request: Request) -> str:
    """Return `LIST`, or the request's method; a HEAD counts as a GET."""
    if request.method in ("GET", "HEAD"):
        return "LIST" if _LIST.fullmatch(request.path) else "GET"
    return request.method
