"""The session of Google's client: sends its requests with urllib3 alone.

Google's client asks of a session what `requests.Session` has: `request` and `close`. For a small object, cookies,
redirects and the environment, which `requests` goes through for each request, cost a third of all CPU time.
"""

# requests and google-auth have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json as json_module
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode, urlsplit

import requests
from google.auth.transport.requests import Request

from tpujob.adapters.calling import ServerClock
from tpujob.adapters.connections import pool_manager, proxy_for

#: connections that stay open for later calls; there are as many connections as calls at once
_IDLE = 128


class StorageSession:
    """Sends requests to one server, through the proxy of the environment for TLS. Thread-safe."""

    def __init__(self, url: str, credentials: Any, clock: ServerClock) -> None:
        """`clock` notes the time of each answer. Raises Refused for a proxy that does not speak HTTP."""
        place = urlsplit(url)
        proxy = proxy_for("https", place.hostname or "") if place.scheme == "https" else ""
        self._pool = pool_manager(proxy, _IDLE).connection_from_url(url)
        self._credentials, self._clock = credentials, clock
        self._refresh = Request()
        self._lock = threading.Lock()

    def close(self) -> None:
        self._pool.close()
        self._refresh.session.close()

    def request(
        self,
        method: str,
        url: str,
        data: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        stream: bool = False,
        timeout: float | None = None,
    ) -> requests.Response:
        """Send a request; return the answer, with its body unless `stream`. Once more with a new token after a 401.
        Raises errors of urllib3, requests and google-auth."""
        url = f"{url}?{urlencode(params)}" if params else url
        signed = dict(headers or {})
        if json is not None:
            data, signed["Content-Type"] = json_module.dumps(json), "application/json"
        self._sign(method, url, signed)
        response = self._send(method, url, data, signed, timeout)
        if response.status_code == 401:
            _ = response.content  # the connection is free again
            self._sign(method, url, signed, refused=signed.get("authorization", ""))
            response = self._send(method, url, data, signed, timeout)
        if not stream:
            _ = response.content
        return response

    def _sign(self, method: str, url: str, headers: dict[str, str], refused: str = "") -> None:
        """Add a token; another one than `refused`. Threads wait for one of them to get it."""
        with self._lock:
            self._credentials.before_request(self._refresh, method, url, headers)
            if refused and headers.get("authorization") == refused:
                self._credentials.refresh(self._refresh)
                self._credentials.apply(headers)

    def _send(
        self,
        method: str,
        url: str,
        data: bytes | str | None,
        headers: Mapping[str, str],
        timeout: float | None,
    ) -> requests.Response:
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        sent = time.monotonic()
        raw = self._pool.urlopen(
            method, target, data, headers, retries=False, redirect=False, timeout=timeout,
            assert_same_host=False, preload_content=False, decode_content=False,
        )  # fmt: skip
        self._clock.note(raw.headers.get("Date", ""), sent)
        response: Any = requests.Response()
        response.status_code, response.headers, response.raw = raw.status, raw.headers, raw
        response.url, response.request = url, SimpleNamespace(method=method, url=url)
        return response
