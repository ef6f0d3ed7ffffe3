"""Sends a POST of JSON for a sink, and interprets the answer. Follows no redirect and uses no proxy. The connection
goes to the very address that was checked to be public."""

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Mapping
from email.utils import parsedate_to_datetime
from time import monotonic, time
from urllib.parse import urlsplit

from tpujob.domain.notifications.model import Receipt
from tpujob.domain.text import one_line
from tpujob.errors import Refused, Transient
from tpujob.lib.http import HttpRequest, fetch
from tpujob.lib.plain_http import PlainHttp
from tpujob.version import __version__

MAX_ANSWER = 4096  #: bytes of an answer that are read; only the beginning is ever shown
#: statuses 4xx after which a later try may succeed
_TEMPORARY = frozenset({408, 409, 423, 425, 429})


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, private: bool, timeout: float
) -> Receipt:
    """Send the body once. `private`: allow plain HTTP, and addresses that are not public. Never raises."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return Receipt("the URL is invalid", permanent=True)
    if not (url.isascii() and url.isprintable()) or " " in url:
        # the error of http.client would contain the path, which may be a secret
        return Receipt("the URL is invalid", permanent=True)
    if parts.scheme not in (("https", "http") if private else ("https",)) or not host:
        return Receipt("the URL must begin with https://", permanent=True)
    secure = parts.scheme == "https"
    port = port or (443 if secure else 80)
    try:
        checked = addresses(host, port, private=private)
    except Refused as error:
        return Receipt(error.message, permanent=True)
    except Transient as error:
        return Receipt(one_line(error.message, 200))
    connection = _PinnedConnection(host, port, checked, secure, timeout)
    headers = {"Content-Type": "application/json", "User-Agent": f"tpujob/{__version__}", **headers}
    request = HttpRequest("POST", url, headers, body, timeout)
    try:
        with cut_after(timeout, lambda: connection.opened):
            reply = fetch(PlainHttp(lambda: connection), request, MAX_ANSWER)
    except (OSError, ValueError) as error:
        if isinstance(error, TimeoutError):
            return Receipt(f"{host}: no answer in time")
        return Receipt(f"{host}: {one_line(str(error), 200) or type(error).__name__}")
    finally:
        connection.close()
    text = reply.body.decode(errors="replace")
    return receipt_for(reply.status, text, reply.headers["Retry-After"] or "")


def receipt_for(status: int, text: str, retry_after: str) -> Receipt:
    """Return the receipt for an answer. Only 2xx is a success (Standard Webhooks 1.0)."""
    if 200 <= status < 300:
        return Receipt()
    answer = one_line(text, 120)
    error = f"HTTP {status}{f': {answer}' if answer else ''}"
    permanent = 300 <= status < 500 and status not in _TEMPORARY
    return Receipt(error, permanent=permanent, retry_after=_seconds(retry_after))


@contextlib.contextmanager
def cut_after(seconds: float, get_socket: Callable[[], socket.socket | None]) -> Generator[None]:
    """Shut down the socket after so many seconds: time limits of single reads would let a slow receiver continue for
    ever. An error after that is raised as TimeoutError."""
    late = threading.Event()

    def cut() -> None:
        late.set()
        sock = get_socket()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, ValueError) as error:
        if late.is_set():
            raise TimeoutError("no answer in time") from error
        raise
    finally:
        timer.cancel()


def _seconds(header: str) -> float:
    """Return the seconds in a header `Retry-After`, which has seconds or a date; 0 for anything else."""
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time())
    except (ValueError, OverflowError):
        return 0.0


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to one of these addresses; the certificate must be for the host's name."""

    def __init__(
        self, host: str, port: int, addresses: list[str], secure: bool, timeout: float
    ) -> None:
        super().__init__(host, port, timeout=timeout)
        self._addresses, self._secure = addresses, secure
        self._until = monotonic() + timeout
        self.default_port = 443 if secure else 80
        self.opened: socket.socket | None = (
            None  #: `sock` becomes None before the last answer is read
        )

    def connect(self) -> None:
        """Connect to the first address that answers. Raises the error of the last one."""
        last_error: OSError = ConnectionRefusedError("it has no address")
        for address in self._addresses:
            remaining = max(0.1, self._until - monotonic())
            try:
                self.sock = socket.create_connection((address, self.port), remaining)
                break
            except OSError as error:
                last_error = error
        else:
            raise last_error
        if self._secure:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)
        self.opened = self.sock


# Allowed addresses ----------------------------------------------------------------------------------------------------


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: prefixes of IPv6 addresses that embed an IPv4 address (RFC 6052, RFC 8215)
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48")))
#: for protocols of the IETF (RFC 6890), where clouds have metadata servers; for documentation (RFC 9637), which
#: Python 3.11 lacks
_RESERVED = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "3fff::/20")))


def addresses(host: str, port: int, *, private: bool) -> list[str]:
    """Return the addresses of a host. Raises Transient when its name does not resolve now; Refused when an address is
    not public, unless `private`."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Transient(f"{host} has no address: {error}") from error
    unique = list(dict.fromkeys(str(info[4][0]) for info in infos))
    if not private:
        for address in unique:
            if not is_public(ipaddress.ip_address(address.partition("%")[0])):
                raise Refused(
                    f"{host} is at {address}, which is not a public address",
                    cause="PERMISSION",
                    hint="`private: true` of the channel allows it",
                )
    return unique


def is_public(address: Address) -> bool:
    """Return whether an address is on the public internet; if it embeds an IPv4 address, whether that one is."""
    embedded = _embedded_ipv4(address)
    if embedded is not None:
        return is_public(embedded)
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    if any(address in net for net in _RESERVED):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded_ipv4(address: Address) -> Address | None:
    """Return the IPv4 address that an IPv6 address embeds; None: none."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.teredo:
        return address.teredo[1]
    if any(address in net for net in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
