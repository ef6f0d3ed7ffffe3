"""Which addresses the backend may call for a user: public ones only. Otherwise a URL in a context could make it call
what only the backend reaches, such as a metadata server or a service of the network (SSRF).

A name is resolved once, every address it has is looked at, and the connection is made to one of these: a name that
resolves to something else a moment later changes nothing.
"""

import ipaddress
import socket

from tpujob.errors import Refused, Transient

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
    """Whether it belongs to the open internet; one that stands for another is as public as that."""
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
