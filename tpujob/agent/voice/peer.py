"""Who is at the other end of a connection between two hosts."""

from __future__ import annotations

import socket
from typing import NamedTuple

from tpujob.agent.voice.handshake import Session


class Guest(NamedTuple):
    """Who has connected, and has not shown the key."""

    greeting: str
    since: float
    said: bytes = b""


class Peer:
    """A connection to a host that has shown the key."""

    def __init__(self, host: int, sock: socket.socket, session: Session, since: float) -> None:
        self.host, self.sock, self.session = host, sock, session
        self.sent = self.got = 0  #: words
        self.out, self.said = bytearray(), bytearray()
        self.heard_at = self.spoke_at = since
        self.confirmed = False  #: what this host sent has arrived there at least once
        self.cut = False  #: what is sent there gets lost, in an emulated network
