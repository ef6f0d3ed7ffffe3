"""One request for a file on the web: proxies, and redirects that lead to no place without TLS. Nothing is repeated."""

import threading
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from tpujob.data.places import checked_url, without_query
from tpujob.domain.model import Cause
from tpujob.errors import BadRequest, NotFound, Refused, Transient

_REDIRECTS = 5
_TIMEOUT = urllib3.Timeout(connect=20, read=60)
_CONNECTIONS = 32
#: packed on the way, ranges and sizes would be of other bytes
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "tpujob"}


class Web:
    """Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._managers: dict[str, urllib3.PoolManager] = {}

    def close(self) -> None:
        with self._lock:
            for manager in self._managers.values():
                manager.clear()
            self._managers.clear()

    def ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None
    ) -> urllib3.BaseHTTPResponse:
        """A good answer, whose body is not read yet: 200 or 206. Raises NotFound, Refused, Transient."""
        at, shown = url, without_query(url)
        for _ in range(_REDIRECTS + 1):
            answer = self._once(method, at, headers or {}, shown)
            if answer.status not in (301, 302, 303, 307, 308):
                return _checked(answer, shown)
            to = urljoin(at, answer.headers.get("location", ""))
            answer.close()
            at = _safe(at, to, shown)
        raise Refused(f"{shown} redirects more than {_REDIRECTS} times", cause=Cause.BAD_SPEC)

    def _once(
        self, method: str, url: str, headers: Mapping[str, str], shown: str
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._manager(url).request(
                method,
                url,
                headers={**_HEADERS, **headers},
                preload_content=False,
                decode_content=False,
                redirect=False,
                retries=False,
                timeout=_TIMEOUT,
            )
        except urllib3.exceptions.SSLError as error:
            raise Refused(
                f"{shown} has no certificate that this machine trusts: {error}",
                cause=Cause.PERMISSION,
            ) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Transient(f"{shown} does not answer: {type(error).__name__}") from error

    def _manager(self, url: str) -> urllib3.PoolManager:
        place = urlsplit(url)
        proxy = getproxies().get(place.scheme, "")
        used = "" if not proxy or proxy_bypass(place.hostname or "") else proxy
        with self._lock:
            if used not in self._managers:
                self._managers[used] = (
                    urllib3.ProxyManager(used, maxsize=_CONNECTIONS)
                    if used
                    else urllib3.PoolManager(maxsize=_CONNECTIONS)
                )
            return self._managers[used]


def _safe(at: str, to: str, shown: str) -> str:
    """Where a redirect leads. Raises Refused where a URL of the user could not lead either; and nobody on the web may
    lead to a server of this machine."""
    here = urlsplit(at)
    try:
        checked_url(to)
        if here.scheme == "https" and urlsplit(to).scheme != "https":
            raise BadRequest("it has no TLS")
    except BadRequest as error:
        text = f"{shown} redirects to {without_query(to)!r}: {error.message}"
        raise Refused(text, cause=Cause.BAD_SPEC) from error
    return to


def _checked(answer: urllib3.BaseHTTPResponse, shown: str) -> urllib3.BaseHTTPResponse:
    status = answer.status
    if status in (200, 206):
        return answer
    answer.close()
    text = f"{shown}: HTTP {status}"
    if status in (404, 410, 412, 416):
        raise NotFound(text)
    if status in (408, 425, 429) or status >= 500:
        raise Transient(text)
    if status in (401, 403, 407):
        hint = "no credentials are sent: it must be public, or a signed URL that has not expired"
        raise Refused(text, cause=Cause.PERMISSION, hint=hint)
    raise Refused(text, cause=Cause.BAD_SPEC)
