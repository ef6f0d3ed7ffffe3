"""Connections of urllib3, through the proxy of the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY)."""

from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.util import parse_url

from tpujob.domain.model import Cause
from tpujob.errors import Refused


def proxy_for(scheme: str, host: str) -> str:
    """The URL of the proxy, as the environment has it; empty: none."""
    return "" if proxy_bypass(host) else getproxies().get(scheme, "")


def pool_manager(proxy: str, kept: int) -> urllib3.PoolManager:
    """`kept`: connections to a host. Raises Refused for a proxy that does not speak HTTP."""
    if not proxy:
        return urllib3.PoolManager(maxsize=kept)
    place = parse_url(proxy)
    scheme = place.scheme or "http"
    if scheme not in ("http", "https"):
        text = f"HTTPS_PROXY is not an http:// proxy, but {scheme}://"
        raise Refused(text, cause=Cause.BAD_SPEC)
    secret: dict[str, str] = {}
    if place.auth:
        word = urllib3.make_headers(basic_auth=unquote(place.auth))["authorization"]
        secret = {"Proxy-Authorization": word}
    return urllib3.ProxyManager(f"{scheme}://{place.netloc}", maxsize=kept, proxy_headers=secret)
