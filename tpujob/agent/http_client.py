"""Sends HTTP requests: the one place of the agent that does."""

from __future__ import annotations

import contextlib
import http.client
import urllib.error
import urllib.request
from typing import Any, Iterator, Mapping, Optional

PIECE = 1024 * 1024  #: bytes of one read
#: the metadata server and emulators cannot be reached through a proxy
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_BROKEN = (OSError, ValueError, http.client.HTTPException)


class HttpError(Exception):
    """There is no complete answer, or it is no success."""

    def __init__(self, message: object, status: int = 0, text: str = "") -> None:
        super().__init__(str(message) or type(message).__name__)
        self.status = status  #: the HTTP status; 0: no complete answer
        self.text = text  #: the beginning of a refusal


def send(
    url: str,
    method: str = "GET",
    body: Optional[bytes] = None,
    headers: Optional[Mapping[str, str]] = None,
    *,
    timeout: float,
    direct: bool = False,
) -> Any:
    """Return the successful response, after redirects of a GET, which the caller closes; its body is for `pieces`. Uses
    the proxy of the environment, unless `direct`. `timeout`: seconds without a byte. Raises HttpError."""
    open_url = _DIRECT.open if direct else urllib.request.urlopen
    try:
        request = urllib.request.Request(url, body, dict(headers or {}), method=method)  # noqa: S310, the caller's
        return open_url(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        text = ""
        with contextlib.suppress(OSError, http.client.HTTPException), error:
            text = error.read(300).decode("utf-8", "replace")
        raise HttpError("HTTP %d" % error.code, error.code, text) from error
    except _BROKEN as error:
        raise HttpError(getattr(error, "reason", error)) from error


def pieces(response: Any, size: int = PIECE) -> Iterator[bytes]:
    """Yield the body of a response, `size` bytes at a time. Raises HttpError, also when the end is missing."""
    try:
        yield from iter(lambda: response.read(size), b"")
    except _BROKEN as error:
        raise HttpError(error) from error
    if getattr(response, "length", 0):  # the bytes that did not arrive
        raise HttpError("the answer was cut off")
