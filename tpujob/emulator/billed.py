"""What Cloud Storage bills of the requests that were answered: operations of class A and of class B.

By cloud.google.com/storage/pricing, as read on 2026-09-20: what lists, writes, copies or changes is class A, what reads
an object or its metadata class B; deletions and requests that are refused are free. Pricing
does not say when a resumable upload counts: here it counts once, when it is whole.
"""

import re
import threading
from collections import Counter
from collections.abc import Mapping

from tpujob.emulator.http_messages import Handler, Request, Response

#: a header of a 200: the status that it means
OVERRIDE = "X-Http-Status-Code-Override"
_LIST = re.compile(r"/storage/v1/b/[^/]+/o/?|/storage/v1/b/?|/[^/]*/?")
_CLASSES: Mapping[str, str] = {
    "LIST": "A", "POST": "A", "PUT": "A", "PATCH": "A", "GET": "B", "DELETE": "",
}  # fmt: skip


class Billed:
    """Since the emulator was started. The storage's thread counts; any thread may read."""

    def __init__(self) -> None:
        self._lock, self._counts = threading.Lock(), Counter[str]()

    def counting(self, handler: Handler) -> Handler:
        """The handler, with its answers counted."""

        async def handle(request: Request) -> Response:
            response = await handler(request)
            letter = class_of(request, int(response.headers.get(OVERRIDE, response.status)))
            if letter:
                with self._lock:
                    self._counts[letter] += 1
            return response

        return handle

    def counts(self) -> dict[str, int]:
        with self._lock:
            return {letter: self._counts[letter] for letter in "AB"}


def class_of(request: Request, status: int) -> str:
    """`A` or `B`; empty: free."""
    if status == 308 or status >= 400:  # a piece of a resumable upload, or refused
        return ""
    begins = request.method == "POST" and request.query.get("uploadType") == "resumable"
    return "" if begins else _CLASSES.get(kind_of(request), "")


def kind_of(request: Request) -> str:
    """`LIST`, or its method; a HEAD is a GET."""
    if request.method in ("GET", "HEAD"):
        return "LIST" if _LIST.fullmatch(request.path) else "GET"
    return request.method
