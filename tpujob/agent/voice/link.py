"""The connections between the hosts of a slice. Each host listens, and keeps one to the lowest other that answers.

Words are at most `LONGEST` bytes of JSON; they arrive in order, once, or not at all. A connection that brings nothing
for `DEAD` seconds counts as lost: a host that is gone, or a network that drops packets, says so in no other way.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, cast

from tpujob.agent.base import Survived
from tpujob.agent.routes import Address, way_to
from tpujob.agent.voice import open_files
from tpujob.agent.voice.door import STRANGERS, Door
from tpujob.agent.voice.handshake import HELLO, LONGEST
from tpujob.agent.voice.peer import Peer
from tpujob.agent.voice.uplink import Uplink

BEAT = 5.0  #: seconds, at most, between two words on a connection
DEAD = 15.0  #: seconds without any, after which it is lost
WAITING = 4 * LONGEST  #: bytes for one host that wait to be sent
CLOSING = 2.0  #: seconds, at most, for what waits to be sent before the connections end
BEATS = "beat"


class Ear:
    """What is told of connections, on the thread of `Links`; it must not block."""

    def hear(self, host: int, kind: str, said: Any) -> None:
        """A word of a host."""

    def linked(self, host: int) -> None:
        """From now on words can be sent to it."""

    def lost(self, host: int) -> None:
        """No longer. What was sent last may not have arrived."""


class Links:
    """The connections of one host. Methods may be called from any thread."""

    def __init__(self, host: int, addresses: Sequence[Address], key: str, ear: Ear) -> None:
        """`addresses`: of all hosts, by host. Nobody without `key` is heard."""
        self._host, self._addresses, self._ear = host, addresses, ear
        self._peers: Dict[int, Peer] = {}  #: confirmed ones
        self._socks: Dict[socket.socket, Peer] = {}  #: these and those that are not yet
        self._arrived: List[Peer] = []  #: dialed, for the loop to take
        self._dropped: List[Peer] = []
        self._lock = threading.Lock()
        self._uplink = Uplink(host, addresses, key, self.linked, self._take_over)
        self._closed = self._leaving = False
        self._selector = selectors.DefaultSelector()
        self._door = Door(host, addresses, key, self._selector)
        self._wakes, self._waker = socket.socketpair()
        for sock in (self._wakes, self._waker):
            sock.setblocking(False)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._loop = threading.Thread(target=self._run, name="links", daemon=True)
        self._unsigned = 0  #: words
        self._survived = Survived("a link between hosts")

    def start(self) -> None:
        open_files.allow(len(self._addresses) + STRANGERS)
        self._loop.start()
        if self._host:
            self._uplink.start()

    @property
    def refused(self) -> int:
        """Connections and words that were not signed as they should be."""
        return self._door.refused + self._unsigned

    def linked(self) -> List[int]:
        """The hosts that words can be sent to."""
        with self._lock:
            return sorted(self._peers)

    def send(self, host: int, kind: str, said: Any) -> bool:
        """Put a word on its way; False: there is no connection, or too much waits on it."""
        with self._lock:
            peer = self._peers.get(host)
            if peer is None or len(peer.out) > WAITING:
                return False
            self._queue(peer, kind, said)
        self._wake()
        return True

    def accept_no_more(self) -> None:
        """Leave the port to the next attempt on this host. The connections that there are stay; a host that loses its
        own finds another one, or speaks for itself. Safe to repeat."""
        self._leaving = True
        self._wake()

    def close(self) -> None:
        """End all connections, after what waits was sent, as far as that is possible at once. Afterwards this process
        may end. Safe to repeat."""
        self._closed = True
        self._uplink.close()
        self._wake()
        if self._loop.is_alive() and self._loop is not threading.current_thread():
            self._loop.join(CLOSING)

    # The loop --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        tended = 0.0
        while not self._closed:
            if self._leaving:
                self._door.shut()
            else:
                self._door.open()
            for key, events in self._selector.select(BEAT / 5):
                sock = cast(socket.socket, key.fileobj)
                self._guarded(sock, self._serve, sock, events)
            now = time.monotonic()
            for peer in self._taken():
                self._guarded(peer.sock, self._add, peer)
            if now - tended >= BEAT / 5:
                tended = now
                self._door.tend(now)
                for peer in list(self._socks.values()):
                    self._guarded(peer.sock, self._tend, peer, now)
            for peer in list(self._socks.values()):
                self._guarded(peer.sock, self._flush, peer)
        self._end()

    def _guarded(self, sock: socket.socket, act: Callable[..., None], *given: Any) -> None:
        """A failure over one connection ends this one. Without the loop, this host would neither hear nor tell the
        others anything any more, and not even learn that they have gone."""
        for each in (lambda: act(*given), lambda: self._cut(sock)):
            try:
                return each()
            except Exception:  # of any kind: it may be caused by what a stranger has sent
                self._survived.note()
        return None

    def _cut(self, sock: socket.socket) -> None:
        """End a connection, whatever it is."""
        peer = self._socks.get(sock)
        if peer is not None:
            self._drop(peer)
        elif sock is not self._wakes:
            self._door.dismiss(sock)

    def _serve(self, sock: socket.socket, events: int) -> None:
        if sock is self._wakes:
            with contextlib.suppress(OSError):
                self._wakes.recv(4096)
        elif sock is self._door.listener:
            self._door.accept(sock)
        elif sock in self._door.guests:
            self._greeted(sock)
        elif events & selectors.EVENT_READ and sock in self._socks:
            self._read(self._socks[sock])

    def _end(self) -> None:
        arrived = [peer.sock for peer in self._taken()]
        for peer in list(self._socks.values()):
            self._guarded(peer.sock, self._flush, peer)
        self._door.close()
        for sock in (*self._socks, *arrived, self._wakes, self._waker):
            sock.close()
        self._selector.close()

    def _greeted(self, sock: socket.socket) -> None:
        """A guest has said more; it is a peer once it has shown the key."""
        found = self._door.listen_to(sock)
        if found is not None:
            peer, rest = found
            self._socks[sock] = peer
            with self._lock:
                self._queue(peer, HELLO, None, count=0)
            peer.said += rest
            self._take(peer)

    def _taken(self) -> List[Peer]:
        with self._lock:
            arrived, self._arrived = self._arrived, []
            dropped, self._dropped = self._dropped, []
        for peer in dropped:
            self._guarded(peer.sock, self._drop, peer)
        return arrived

    def _take_over(self, peer: Peer, lower: List[int]) -> None:
        """Of the uplink, on its thread."""
        with self._lock:
            if self._closed:  # the loop is over, or about to look for the last time
                peer.sock.close()
                return
            self._arrived.append(peer)
            self._dropped += [self._peers[h] for h in lower if h in self._peers]
        self._wake()

    def _add(self, peer: Peer) -> None:
        """A connection that this host has dialed. Its first word shows the other side that it is heard."""
        peer.sock.setblocking(False)
        self._socks[peer.sock] = peer
        self._selector.register(peer.sock, selectors.EVENT_READ)
        self._confirm(peer)
        with self._lock:
            self._queue(peer, BEATS, None)

    def _confirm(self, peer: Peer) -> None:
        peer.confirmed = True
        with self._lock:
            older = self._peers.get(peer.host)
            self._peers[peer.host] = peer
        if older is not None:
            self._drop(older)  # half of it may be gone for long
        else:
            self._ear.linked(peer.host)

    def _read(self, peer: Peer) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = peer.sock.recv(256 * 1024)  # there is something, or it is over
        if not data:
            return self._drop(peer)
        peer.said += data
        return self._take(peer)

    def _take(self, peer: Peer) -> None:
        """The whole words of what has come. One that is not signed ends the connection."""
        *lines, rest = bytes(peer.said).split(b"\n")
        peer.said = bytearray(rest)
        for line in lines:
            word = peer.session.read(peer.host, peer.got + 1, line)
            if word is None:
                break
            peer.got, peer.heard_at = peer.got + 1, time.monotonic()
            if not peer.confirmed:
                self._confirm(peer)
            if word[0] != BEATS:
                self._ear.hear(peer.host, *word)
        else:
            if len(rest) <= 2 * LONGEST:
                return
        self._unsigned += 1
        self._drop(peer)

    def _tend(self, peer: Peer, now: float) -> None:
        address = self._addresses[peer.host]
        peer.cut = way_to(address) != address
        if now - peer.heard_at > DEAD:
            self._drop(peer)
        elif peer.confirmed and now - peer.spoke_at >= BEAT:
            with self._lock:
                self._queue(peer, BEATS, None)

    def _queue(self, peer: Peer, kind: str, said: Any, count: Optional[int] = None) -> None:
        """The caller has the lock."""
        if count is None:
            peer.sent = count = peer.sent + 1
        peer.out += peer.session.line(self._host, count, kind, said)
        peer.spoke_at = time.monotonic()

    def _flush(self, peer: Peer) -> None:
        with self._lock:
            waits = bytes(peer.out[: 1024 * 1024])
        if peer.cut or not waits:
            return self._watch(peer, waits=False)
        try:
            sent = peer.sock.send(waits)
        except BlockingIOError:
            sent = 0
        except OSError:
            return self._drop(peer)
        with self._lock:
            del peer.out[:sent]
            waits = bytes(peer.out[:1])
        return self._watch(peer, waits=bool(waits))

    def _watch(self, peer: Peer, *, waits: bool) -> None:
        """Be woken when more can be sent."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if waits else 0)
        if self._selector.get_key(peer.sock).events != events:
            self._selector.modify(peer.sock, events)

    def _drop(self, peer: Peer) -> None:
        if self._socks.pop(peer.sock, None) is None:
            return
        with contextlib.suppress(KeyError):  # it may have failed before it was there
            self._selector.unregister(peer.sock)
        peer.sock.close()
        with self._lock:
            current = self._peers.get(peer.host) is peer
            if current:
                del self._peers[peer.host]
        if current:
            self._uplink.look()
            self._ear.lost(peer.host)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
