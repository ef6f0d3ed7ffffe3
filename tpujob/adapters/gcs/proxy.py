"""The proxy of the environment, and a tunnel through it (CONNECT, RFC 9110)."""

import base64
import socket
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

_LONGEST_ANSWER = 64 << 10


@dataclass(frozen=True, slots=True)
class Proxy:
    host: str
    port: int
    credentials: str = ""  #: base64 of user and password


def proxy_for(host: str) -> Proxy | None:
    """For TLS to that host: HTTPS_PROXY, unless NO_PROXY names the host. None: none. Raises OSError for one that is no
    http:// proxy."""
    url = getproxies().get("https", "")
    if not url or proxy_bypass(host):
        return None
    place = urlsplit(url if "://" in url else f"http://{url}")
    if place.scheme != "http" or not place.hostname:
        raise OSError(f"HTTPS_PROXY is no http:// proxy, but {place.scheme}://{place.hostname}")
    secret = ""
    if place.username:
        pair = f"{unquote(place.username)}:{unquote(place.password or '')}"
        secret = base64.b64encode(pair.encode()).decode()
    return Proxy(place.hostname, place.port or 80, secret)


def open_tunnel(wire: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Afterwards the connection leads to that host. Raises OSError when the proxy refuses."""
    to = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {to} HTTP/1.1", f"Host: {to}"]
    if proxy.credentials:
        lines.append(f"Proxy-Authorization: Basic {proxy.credentials}")
    wire.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = wire.recv(1)  # what follows the empty line belongs to the host
        if not data or len(answer) > _LONGEST_ANSWER:
            raise OSError(f"the proxy {proxy.host}:{proxy.port} does not answer")
        answer += data
    status = answer.split(b" ", 2)[1:2]
    if status != [b"200"]:
        line = answer.partition(b"\r\n")[0].decode("latin-1")
        raise OSError(f"the proxy {proxy.host}:{proxy.port} refuses: {line}")
