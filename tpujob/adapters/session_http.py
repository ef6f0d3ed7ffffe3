"""Sends HTTP requests with requests: implements `lib.http.Http`, through the proxy of the environment (HTTPS_PROXY,
HTTP_PROXY, NO_PROXY)."""

import contextlib
import ssl
from collections.abc import Generator
from email.message import Message
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidSchema, RequestException, SSLError, Timeout
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as PoolTimeout

from tpujob.adapters.calling import bad_proxy
from tpujob.errors import Refused
from tpujob.lib.http import HttpRequest

CONNECT_TIMEOUT = 20.0  #: seconds for a connection, if a request does not have fewer
CONNECTIONS = 32  #: to a host, that stay open for later requests


class SessionHttp:
    """Implements `Http`."""

    def __init__(self, session: Any = None, *, proxied: bool = True) -> None:
        """`session`: a session that signs requests; by default none does. `proxied`: use the proxy of the environment,
        which cannot reach servers of this machine."""
        self._session: requests.Session = session or requests.Session()
        self._session.trust_env = proxied
        self._session.auth = lambda request: request  # else ~/.netrc would be
        self._session.headers.clear()  # no compression: ranges and sizes would count compressed bytes
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, _Adapter(pool_maxsize=CONNECTIONS))

    def send(self, request: HttpRequest) -> "SessionResponse":
        """Also raises Refused for a proxy that does not speak HTTP, and the errors of the session's signature."""
        if request.body is not None and not isinstance(request.body, bytes):
            request.body.seek(0)
        with _as_os_error():
            return SessionResponse(
                self._session.request(
                    request.method,
                    request.url,
                    data=request.body,
                    headers=dict(request.headers),
                    timeout=(min(CONNECT_TIMEOUT, request.timeout), request.timeout),
                    allow_redirects=False,
                    stream=True,
                )
            )

    def close(self) -> None:
        self._session.close()


class SessionResponse:
    """Implements `HttpResponse`."""

    def __init__(self, response: requests.Response) -> None:
        self._response, self.status, self.headers = response, response.status_code, Message()
        for name, value in response.headers.items():
            self.headers[name] = value

    def read(self, size: int = -1) -> bytes:
        with _as_os_error():
            return self._response.raw.read(None if size < 0 else size, decode_content=False)

    def close(self) -> None:
        self._response.raw.close()


class _Adapter(HTTPAdapter):
    """Trusts the authorities of this machine, too: requests has its own."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, ssl_context=ssl.create_default_context(), **options)


@contextlib.contextmanager
def _as_os_error() -> Generator[None]:
    try:
        yield
    except (RequestException, HTTPError) as error:
        raise own_error(error) from error


def own_error(error: RequestException | HTTPError) -> OSError | Refused:
    """Return an error of requests or urllib3 as one of Python, or as Refused for a proxy that does not speak HTTP. None
    has the URL in it, which may be a secret."""
    reason: BaseException = error
    while cause := reason.__cause__ or reason.__context__:
        reason = cause
    if isinstance(error, (Timeout, PoolTimeout)):
        return TimeoutError("no answer in time")
    if isinstance(error, SSLError):
        return ssl.SSLError(1, str(reason))
    if isinstance(error, InvalidSchema):
        return bad_proxy()
    kind = ConnectionRefusedError if isinstance(reason, ConnectionRefusedError) else ConnectionError
    return kind(str(reason) or type(reason).__name__)
