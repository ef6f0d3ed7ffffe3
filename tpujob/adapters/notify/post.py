"""One POST of JSON, and what its answer means for a message. No redirect is followed, no proxy is asked, and the
connection goes to an address that was looked at."""

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
from tpujob.version import __version__

#: of an answer; only its beginning is ever shown
MOST = 4096
#: answers of 4xx that may be another one later
_LATER = frozenset({408, 409, 423, 425, 429})


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, private: bool, timeout: float
) -> Receipt:
    """Send it once. `private`: addresses that are not public are allowed, and so is plain HTTP. Never raises."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return Receipt("the URL is invalid", permanent=True)
    if not (url.isascii() and url.isprintable()) or " " in url:
        # http.client would say so with the path, which may be a secret
        return Receipt("the URL is invalid", permanent=True)
    if parts.scheme not in (("https", "http") if private else ("https",)) or not host:
        return Receipt("the URL must begin with https://", permanent=True)
    secure = parts.scheme == "https"
    try:
        found = addresses(host, port or (443 if secure else 80), private=private)
    except Refused as error:
        return Receipt(error.message, permanent=True)
    except Transient as error:
        return Receipt(one_line(error.message, 200))
    connection = _Pinned(host, port or (443 if secure else 80), found, secure, timeout)
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    sent = {"Content-Type": "application/json", "User-Agent": f"tpujob/{__version__}", **headers}
    try:
        with cut_after(timeout, lambda: connection.sock):
            connection.request("POST", target, body, sent)
            response = connection.getresponse()
            text = response.read(MOST).decode(errors="replace")
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = one_line(str(error), 200) or type(error).__name__
        return Receipt(f"{host}: {'no answer in time' if isinstance(error, TimeoutError) else why}")
    finally:
        connection.close()
    return meaning(response.status, text, response.getheader("Retry-After") or "")


def meaning(status: int, text: str, retry_after: str) -> Receipt:
    """Return the receipt for an answer. Only 2xx is success (Standard Webhooks 1.0); a redirect is not."""
    if 200 <= status < 300:
        return Receipt()
    answer = one_line(text, 120)
    error = f"HTTP {status}{f': {answer}' if answer else ''}"
    permanent = 300 <= status < 500 and status not in _LATER
    return Receipt(error, permanent=permanent, retry_after=_seconds(retry_after))


@contextlib.contextmanager
def cut_after(seconds: float, found: Callable[[], socket.socket | None]) -> Generator[None]:
    """Shut the socket that `found` gives down after that many seconds: time limits of single reads would let a slow
    receiver continue for ever."""

    def cut() -> None:
        sock = found()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _seconds(header: str) -> float:
    """Return the seconds of a header that has seconds or a date; 0: it has neither."""
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time())
    except (ValueError, OverflowError):
        return 0.0


class _Pinned(http.client.HTTPConnection):
    """To one of these addresses; the certificate must be that of the host's name."""

    def __init__(
        self, host: str, port: int, found: list[str], secure: bool, timeout: float
    ) -> None:
        super().__init__(host, port, timeout=timeout)
        self._found, self._secure = found, secure
        self._until = monotonic() + timeout
        self.default_port = 443 if secure else 80

    def connect(self) -> None:
        """Raises the error of the last address that was tried."""
        last: OSError = ConnectionRefusedError("it has no address")
        for address in self._found:
            left = max(0.1, self._until - monotonic())
            try:
                self.sock = socket.create_connection((address, self.port), left)
                break
            except OSError as error:
                last = error
        else:
            raise last
        if self._secure:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)


# Allowed addresses ----------------------------------------------------------------------------------------------------


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: prefixes in which an IPv4 address is written as an IPv6 one (RFC 6052, RFC 8215)
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48")))
#: of the IETF for protocols (RFC 6890), where clouds have metadata servers; for documentation (RFC 9637), which
#: Python 3.11 does not know
_RESERVED = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "3fff::/20")))


def addresses(host: str, port: int, *, private: bool) -> list[str]:
    """Return the addresses of that host. Raises Transient when the name does not resolve now; Refused when an address
    is not public, unless `private` ones are allowed."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Transient(f"{host} has no address: {error}") from error
    known = list(dict.fromkeys(str(each[4][0]) for each in found))
    if not private:
        for address in known:
            if not public(ipaddress.ip_address(address.partition("%")[0])):
                raise Refused(
                    f"{host} is at {address}, which is not a public address",
                    cause="PERMISSION",
                    hint="`private: true` of the channel allows it",
                )
    return known


def public(address: Address) -> bool:
    """Return whether it belongs to the public internet; an address that embeds another one is as public as that one."""
    inner = _inner(address)
    if inner is not None:
        return public(inner)
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    if any(address in net for net in _RESERVED):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _inner(address: Address) -> Address | None:
    """The IPv4 address that an IPv6 address leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.teredo:
        return address.teredo[1]
    if any(address in net for net in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
