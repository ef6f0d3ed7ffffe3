"""Connection pools of urllib3, through the proxy of the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY)."""

from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.util import parse_url

from tpujob.domain.model import Cause
from tpujob.errors import Refused


def proxy_for(scheme: str, host: str) -> str:
    """Return the URL of the proxy that the environment sets for this host; empty: none."""
    return "" if proxy_bypass(host) else getproxies().get(scheme, "")


def pool_manager(proxy: str, connections: int) -> urllib3.PoolManager:
    """Return a pool that keeps so many connections to a host. Raises Refused for a proxy that does not speak HTTP."""
    if not proxy:
        return urllib3.PoolManager(maxsize=connections)
    url = parse_url(proxy)
    scheme = url.scheme or "http"
    if scheme not in ("http", "https"):
        message = f"HTTPS_PROXY is not an http:// proxy, but {scheme}://"
        raise Refused(message, cause=Cause.BAD_SPEC)
    headers = urllib3.make_headers(proxy_basic_auth=unquote(url.auth) if url.auth else None)
    proxy = f"{scheme}://{url.netloc}"
    return urllib3.ProxyManager(proxy, maxsize=connections, proxy_headers=headers)
