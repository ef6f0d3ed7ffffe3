"""Sends HTTP requests with urllib3: implements `lib.http.Http`, over connections that stay open, and through the proxy
of the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY)."""

import contextlib
import ssl
import threading
from collections.abc import Generator
from email.message import Message
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import exceptions as urllib3_errors
from urllib3.exceptions import HTTPError, SSLError
from urllib3.util import parse_url

from tpujob.domain.model import Cause
from tpujob.errors import Refused
from tpujob.lib.http import HttpRequest

CONNECT_TIMEOUT = 20.0  #: seconds for a connection, if a request does not have fewer
CONNECTIONS = 32  #: to a host, that stay open for later requests


class PooledHttp:
    """Implements `Http`."""

    def __init__(self, *, proxied: bool = True) -> None:
        """`proxied`: use the proxy of the environment, which cannot reach servers of this machine."""
        self._proxied = proxied
        self._lock = threading.Lock()
        self._managers: dict[str, urllib3.PoolManager] = {}  #: by the URL of the proxy

    def send(self, request: HttpRequest) -> "PooledResponse":
        """Also raises Refused for a proxy that does not speak HTTP."""
        manager, request = self._manager(request.url), request.sized()
        connect = min(CONNECT_TIMEOUT, request.timeout)
        with _as_os_error():
            return PooledResponse(
                manager.request(
                    request.method,
                    request.url,
                    body=request.body,
                    headers=request.headers,
                    timeout=urllib3.Timeout(connect=connect, read=request.timeout),
                    preload_content=False,
                    decode_content=False,
                    redirect=False,
                    retries=False,
                )
            )

    def close(self) -> None:
        with self._lock:
            for manager in self._managers.values():
                manager.clear()
            self._managers.clear()

    def _manager(self, url: str) -> urllib3.PoolManager:
        place = urlsplit(url)
        proxy = proxy_for(place.scheme, place.hostname or "") if self._proxied else ""
        with self._lock:
            if proxy not in self._managers:
                self._managers[proxy] = pool_manager(proxy, CONNECTIONS)
            return self._managers[proxy]


class PooledResponse:
    """Implements `HttpResponse`."""

    def __init__(self, raw: urllib3.BaseHTTPResponse) -> None:
        self._raw, self.status, self.headers = raw, raw.status, Message()
        for name, value in raw.headers.iteritems():
            self.headers[name] = value

    def read(self, size: int = -1) -> bytes:
        with _as_os_error():
            return self._raw.read(None if size < 0 else size, decode_content=False)

    def close(self) -> None:
        self._raw.close()


@contextlib.contextmanager
def _as_os_error() -> Generator[None]:
    try:
        yield
    except SSLError as error:
        raise ssl.SSLError(1, str(error)) from error
    except HTTPError as error:
        # a refused connection counts as a timeout there
        if isinstance(error, urllib3_errors.TimeoutError) and not isinstance(
            error, urllib3_errors.NewConnectionError
        ):
            raise TimeoutError("no answer in time") from error
        reason = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise ConnectionError(str(reason) or type(reason).__name__) from error


# Pools of urllib3 ----------------------------------------------------------------------------------------------------


def proxy_for(scheme: str, host: str) -> str:
    """Return the URL of the proxy that the environment sets for this host; empty: none. Raises Refused for a proxy that
    does not speak HTTP."""
    proxy = "" if proxy_bypass(host) else getproxies().get(scheme, "")
    if proxy and (kind := parse_url(proxy).scheme or "http") not in ("http", "https"):
        message = f"HTTPS_PROXY is not an http:// proxy, but {kind}://"
        raise Refused(message, cause=Cause.BAD_SPEC)
    return proxy


def pool_manager(proxy: str, connections: int) -> urllib3.PoolManager:
    """Return a pool that keeps so many connections to a host."""
    if not proxy:
        return urllib3.PoolManager(maxsize=connections)
    url = parse_url(proxy)
    headers = urllib3.make_headers(proxy_basic_auth=unquote(url.auth) if url.auth else None)
    proxy = f"{url.scheme or 'http'}://{url.netloc}"
    return urllib3.ProxyManager(proxy, maxsize=connections, proxy_headers=headers)
