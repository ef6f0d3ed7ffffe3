"""Addresses of 127.0.0.0/8 for the hosts of a farm, and one port that is free on all of them."""

import errno
import secrets
import socket
from collections.abc import Iterator

from tpujob.errors import TpujobError


def host_addresses(block: int) -> Iterator[str]:
    """Every host address of 127.<block>.0.0/16, in an endless cycle."""
    while True:
        for third in range(1, 251):
            for fourth in range(1, 251):
                yield f"127.{block}.{third}.{fourth}"


def free_everywhere() -> int:
    """A port that is free on every address, below the system's range of ephemeral ports."""
    for _ in range(1000):
        port = 20000 + secrets.randbelow(12000)
        if can_bind("0.0.0.0", port):  # noqa: S104 - bound for a moment, never listened on
            return port
    raise TpujobError("no port between 20000 and 32000 is free")


def can_bind(address: str, port: int) -> bool:
    """Raises TpujobError if the system has no such address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise TpujobError(
                    f"cannot use the loopback address {address}: {error.strerror}",
                    hint="the emulated hosts need Linux, where all of 127.0.0.0/8 is loopback",
                ) from error
            return False
    return True
