"""How two hosts of an attempt show each other its key when they connect, and how they sign what they say afterwards.

Whoever reaches the port may connect. The host that listens greets with a number of its own; the one that has dialed
signs that number and adds one; the first signs both. These two numbers are the session: they are part of each signature
after that, with who speaks and a count, so that nothing of another connection, and nothing twice, is believed.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import time
from typing import Any, NamedTuple, Optional, Tuple

from tpujob.agent.base import parse_json
from tpujob.protocol import limits, signing

LONGEST = 1024 * 1024  #: bytes of a word
HELLO = "hello"
CONNECT = 3.0  #: seconds to connect, and as many to show the key


class Session(NamedTuple):
    """One connection, as one side signs and the other verifies."""

    key: str
    number: str

    def line(self, host: int, count: int, kind: str, said: Any) -> bytes:
        """A word of `host`, which is its `count`-th on this connection."""
        text = json.dumps(said, separators=(",", ":"))
        mac = signing.sign(self.key, "link", self.number, str(host), str(count), kind, text)
        return json.dumps({"kind": kind, "said": text, "mac": mac}).encode() + b"\n"

    def read(self, host: int, count: int, line: bytes) -> Optional[Tuple[str, Any]]:
        """Kind and content of the word; None: it is not that word of that host, or cannot be understood."""
        found = parse_json(line)
        kind, text, mac = found.get("kind"), found.get("said"), found.get("mac")
        if not isinstance(kind, str) or not isinstance(text, str):
            return None
        parts = (self.number, str(host), str(count), kind, text)
        if not signing.verify(self.key, mac, "link", *parts):
            return None
        try:
            return kind, json.loads(text)
        except (ValueError, RecursionError):
            return None


def greeting() -> str:
    return secrets.token_hex(16)


def answered(key: str, greeted: str, line: bytes) -> Optional[Tuple[int, Session]]:
    """For the host that listens: who has answered its greeting, and the session; None: nobody with the key."""
    said = parse_json(line).get("said")
    # JSON has text that is no Unicode, such as half of a surrogate pair, and nothing is verified as yet
    claim = parse_json(said.encode("utf-8", "replace")) if isinstance(said, str) else {}
    host, number = claim.get("host"), claim.get("number")
    if type(host) is not int or not 0 <= host < limits.MOST_HOSTS or not isinstance(number, str):
        return None
    proven = Session(key, greeted).read(host, 0, line)
    return (host, Session(key, greeted + number)) if proven and proven[0] == HELLO else None


def dial(peer: socket.socket, key: str, me: int, other: int, seconds: float) -> Optional[Session]:
    """For the host that has connected: the session, once the other side has shown the key; None: it has not, in time.
    Raises OSError."""
    until = time.monotonic() + seconds
    greeted = _line(peer, until).decode("ascii", "replace")
    number = secrets.token_hex(16)
    peer.settimeout(seconds)
    peer.sendall(Session(key, greeted).line(me, 0, HELLO, {"host": me, "number": number}))
    session = Session(key, greeted + number)
    said = session.read(other, 0, _line(peer, until))
    return session if said and said[0] == HELLO else None


def _line(peer: socket.socket, until: float) -> bytes:
    """Up to the end of a line, and nothing after it; empty: it did not come."""
    said = b""
    while len(said) < LONGEST:
        if not select.select([peer], [], [], max(0.0, until - time.monotonic()))[0]:
            return b""
        seen = peer.recv(4096, socket.MSG_PEEK)
        end = seen.find(b"\n")
        said += peer.recv(end + 1 if end >= 0 else len(seen))
        if end >= 0 or not seen:
            return said.rstrip(b"\n") if seen else b""
    return b""
