"""Where a host listens for the others of its slice. Whoever reaches the port may knock; a guest is a peer, and no
concern of the door any more, once it has shown the key."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from typing import Dict, Optional, Sequence, Tuple

from tpujob.agent.routes import Address
from tpujob.agent.voice import handshake
from tpujob.agent.voice.peer import Guest, Peer

STRANGERS = 32  #: connections beyond one for each host that may wait to show the key
LONGEST = 4096  #: bytes that a guest may say


class Door:
    """Of one host. Its methods are for the thread of its links."""

    def __init__(
        self, host: int, addresses: Sequence[Address], key: str, selector: selectors.BaseSelector
    ) -> None:
        self._host, self._addresses, self._key, self._selector = host, addresses, key, selector
        self.listener: Optional[socket.socket] = None
        self.guests: Dict[socket.socket, Guest] = {}
        self.refused = 0  #: guests who had something to say, and not the key

    def open(self) -> None:
        """The daemon of an earlier attempt may still have the port: this is called again and again."""
        if self.listener is not None:
            return
        address = self._addresses[self._host]
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        with contextlib.ExitStack() as undo, contextlib.suppress(OSError):
            listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
            self.listener = listener
            undo.pop_all()

    def shut(self) -> None:
        """Leave the port. Guests that are there may go on."""
        if self.listener is not None:
            self.dismiss(self.listener)

    def accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock = listener.accept()[0]
            sock.setblocking(False)
            guest = Guest(handshake.greeting(), time.monotonic())
            self.guests[sock] = guest
            self._selector.register(sock, selectors.EVENT_READ)
            sock.send(guest.greeting.encode() + b"\n")  # into an empty buffer
        if len(self.guests) > len(self._addresses) + STRANGERS:
            self.dismiss(next(iter(self.guests)))  # it has been silent for longest

    def listen_to(self, sock: socket.socket) -> Optional[Tuple[Peer, bytes]]:
        """More of what a guest says. Once it has shown the key: the peer that it is, whose socket is given over, and
        what it has said beyond that."""
        data, guest = b"", self.guests[sock]
        with contextlib.suppress(OSError):
            data = sock.recv(LONGEST)
        said = guest.said + data
        line, end, rest = said.partition(b"\n")
        if data and not end and len(said) < LONGEST:
            self.guests[sock] = guest._replace(said=said)
            return None
        found = handshake.answered(self._key, guest.greeting, line) if end else None
        if found is None or not self._host < found[0] < len(self._addresses):
            self.refused += bool(said)
            self.dismiss(sock)
            return None
        del self.guests[sock]
        return Peer(found[0], sock, found[1], time.monotonic()), rest

    def tend(self, now: float) -> None:
        """Send away who has taken too long."""
        for sock, guest in list(self.guests.items()):
            if now - guest.since > handshake.CONNECT:
                self.dismiss(sock)

    def dismiss(self, sock: socket.socket) -> None:
        """A guest, or the listener, which is opened anew."""
        if sock is self.listener:
            self.listener = None
        self.guests.pop(sock, None)
        with contextlib.suppress(KeyError, ValueError):  # it may be closed
            self._selector.unregister(sock)
        sock.close()

    def close(self) -> None:
        for sock in (*self.guests, *([self.listener] if self.listener else [])):
            self.dismiss(sock)
