"""Keeps a host connected with the lowest other host of its slice that answers."""

from __future__ import annotations

import socket
import threading
import time
from typing import Callable, List, Optional, Sequence

from tpujob.agent.base import Survived
from tpujob.agent.routes import Address, way_to
from tpujob.agent.voice import handshake
from tpujob.agent.voice.peer import Peer

FIRST, LAST = 0.2, 3.0  #: seconds between two tries to reach a lower host: doubled up to the last


class Uplink:
    """Looks for a lower host, on a thread of its own, whenever there is none or another one than host 0."""

    def __init__(
        self,
        host: int,
        addresses: Sequence[Address],
        key: str,
        linked: Callable[[], List[int]],
        arrived: Callable[[Peer, List[int]], None],
    ) -> None:
        """`linked`: the hosts that are connected; `arrived`: takes a new connection, in the place of those to these
        lower hosts."""
        self._host, self._addresses, self._key = host, addresses, key
        self._linked, self._arrived = linked, arrived
        self._seek = threading.Event()  #: a connection was lost
        self._survived = Survived("the greeting of a host")
        self._closed = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="uplink", daemon=True).start()

    def look(self) -> None:
        """A connection was lost: look at once."""
        self._seek.set()

    def close(self) -> None:
        self._closed = True
        self._seek.set()

    def _run(self) -> None:
        wait = FIRST
        while not self._closed:
            self._seek.clear()
            lower = [host for host in self._linked() if host < self._host]
            found = self._first(lower[0] if lower else self._host)
            if found is not None:
                self._arrived(found, lower)
            wait = FIRST if found else min(LAST, 2 * wait)
            if found is None or found.host:
                self._seek.wait(wait)
            else:
                self._seek.wait()

    def _first(self, below: int) -> Optional[Peer]:
        for host in range(below):
            if self._closed:
                break
            found = self._dial(host)
            if found is not None:
                return found
        return None

    def _dial(self, host: int) -> Optional[Peer]:
        patience = handshake.CONNECT
        try:
            sock = socket.create_connection(way_to(self._addresses[host]), timeout=patience)
        except OSError:
            return None
        try:
            session = handshake.dial(sock, self._key, self._host, host, patience)
            if session is not None:
                return Peer(host, sock, session, time.monotonic())
        except OSError:
            pass
        except (
            Exception
        ):  # of any kind: who answers there may be a stranger, and the next try finds the host
            self._survived.note()
        sock.close()
        return None
