"""A TCP proxy before the emulated storage, which flips bytes, cuts connections, or kills its clients."""

import contextlib
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

_LIST = rb"GET /storage/v1/b/[^/]+/o\?"
_UNSENT = 256 * 1024  #: bytes that may be forwarded and not have left yet
_HEAD = 2048  #: bytes of a chunk that may be a head; content begins after them


class Proxy:
    """`share` of the chunks of content are tampered with, at most `most` of them, and at most two of what one request
    reads, which is tried three times. Lists pass (requests that begin as `passing`), as nothing in them says what they
    should be: on the real wire TLS does."""

    def __init__(
        self, url: str, *, share: float = 0.0, limit: int = 0, seed: int = 0, passing: bytes = _LIST
    ) -> None:
        place = urlsplit(url)
        self._to = (place.hostname, place.port)
        self._chance = random.Random(seed)
        self._share, self._most, self._passing = share, limit, re.compile(passing)
        self.flipped = self.cut = 0
        self._met: Counter[bytes] = Counter()  #: chunks that were tampered with, by what was read
        self.up = self.down = 0  #: bytes that were forwarded
        self.watch: Callable[[], None] = lambda: None  #: called before each chunk is forwarded
        #: what becomes of a chunk, which goes up or down; None: the connection is cut
        self.change: Callable[[bytes, bool], bytes | None] = lambda data, up: data
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def stop(self) -> None:
        """Afterwards nothing listens, and every connection has ended: all clients must be gone."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()

    def settle(self) -> None:
        """All clients are gone: return when what they sent has been taken, and their connections have ended."""
        for thread in self._threads[1:]:
            thread.join(20)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection(self._to)
                for wire in (client, server):
                    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNSENT)
                thread = threading.Thread(target=self._serve, args=(client, server), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        state: dict[str, Any] = {"list": False, "read": b""}
        back = threading.Thread(target=self._pump, args=(server, client, False, state), daemon=True)
        with client, server:
            back.start()
            self._pump(client, server, True, state)
            back.join()

    def _pump(
        self, source: socket.socket, sink: socket.socket, up: bool, state: dict[str, Any]
    ) -> None:
        try:
            while data := source.recv(1 << 16):
                if up:
                    state["list"] = bool(self._passing.match(data))
                    if b" HTTP/" in data[:_HEAD]:
                        line = data.partition(b" HTTP/")[0]
                        state["read"] = line if line.startswith(b"GET ") else b""
                tampered = self.change(data, up)
                if tampered:
                    tampered = self._tamper(tampered, state["read"], passing=state["list"])
                with self._lock:
                    self.up += len(data) if up else 0
                    self.down += 0 if up else len(data)
                self.watch()
                if tampered is None:
                    break
                sink.sendall(tampered)
        except OSError:
            pass
        for wire in (source, sink):
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def _tamper(self, data: bytes, read: bytes, *, passing: bool) -> bytes | None:
        """None: the connection is to be cut."""
        with self._lock:
            done = self.flipped + self.cut
            if (
                passing
                or len(data) <= _HEAD
                or done >= self._most
                or (read and self._met[read] > 1)
            ):
                return data
            if self._chance.random() >= self._share:
                return data
            self._met[read] += 1
            if self._chance.random() < 0.3:
                self.cut += 1
                return None
            self.flipped += 1
            at = self._chance.randrange(_HEAD, len(data))
            return data[:at] + bytes([data[at] ^ 1 << self._chance.randrange(8)]) + data[at + 1 :]


@contextlib.contextmanager
def between(
    url: str, *, share: float = 0.0, limit: int = 0, seed: int = 0, passing: bytes = _LIST
) -> Iterator[Proxy]:
    proxy = Proxy(url, share=share, limit=limit, seed=seed, passing=passing)
    try:
        yield proxy
    finally:
        proxy.stop()
