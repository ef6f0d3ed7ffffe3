"""Connection pools of urllib3, through the proxy of the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY)."""

from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.util import parse_url

from tpujob.domain.model import Cause
from tpujob.errors import Refused


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
