"""Whether the hosts of a slice can connect to each other: a firewall between them drops packets and says nothing."""

from __future__ import annotations

import errno
import fnmatch
import os
import socket
from typing import Iterable, List, Optional, Tuple

from tpujob.agent.base import Check, Failure, Record
from tpujob.protocol import UnreachedDocument

CONNECT = 5.0  #: seconds for one connection: inside a network it takes milliseconds
TRIES = 2  #: before a port counts as closed: packets get lost, and each try sends three
SILENT = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})


def _is_silent(error: OSError) -> bool:
    """Return whether nothing answered. A port without a listener refuses a connection, and that is an answer."""
    return isinstance(error, socket.timeout) or error.errno in SILENT


def closed_port(address: str, ports: Iterable[int], check_stop: Check) -> Optional[int]:
    """The first of these ports of that address on which nothing answers. None: something answers on each. Raises
    Stopped."""
    for port in ports:
        if not any(_answers((address, port), check_stop) for _ in range(TRIES)):
            return port
    return None


def _answers(address: Address, check_stop: Check) -> bool:
    check_stop()
    try:
        socket.create_connection(way_to(address), timeout=CONNECT).close()
    except OSError as error:
        return not _is_silent(error)
    return True


def unreached(source: int, port: int) -> Failure:
    """That host `source` gets no answer from host 0. Nothing is wrong with the hosts, so it is SETUP."""
    text = "host %d cannot reach host 0 on TCP port %d: nothing answers, as behind a firewall"
    fact: UnreachedDocument = {"source": source, "target": 0, "port": port}
    return Failure(text % (source, port), "SETUP", unreached=fact)


def first_closed(words: List[Record]) -> Optional[Failure]:
    """What to raise on every host alike, from the messages of all of them. None: no host found a closed port."""
    found = ((word["host"], word.get("closed")) for word in words)
    return next((unreached(host, port) for host, port in found if port), None)


# Routes between hosts ------------------------------------------------------------------------------------------------


Address = Tuple[str, int]


def way_to(address: Address) -> Address:
    """The address itself, unless the file says otherwise now."""
    path = os.environ.get("TPUJOB_ROUTES")
    if not path:
        return address
    try:
        with open(path, encoding="ascii") as file:
            routes = [line.split() for line in file]
    except OSError:
        return address
    for pattern, instead in routes:
        if fnmatch.fnmatch(address[0], pattern):
            host, _, port = instead.rpartition(":")
            return host, int(port)
    return address
