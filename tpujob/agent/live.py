"""Tells who follows an attempt what its hosts print, before it is in the bucket: the daemon's side, a unix socket in
the attempt's folder, and `agent live`, which brings its lines to an SSH session.

Nothing is sent while nobody follows. A follower that is slow is sent what is not in the bucket by then.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from typing import Any, Deque, Dict, Generator, cast

from tpujob.agent.base import Failure, Record
from tpujob.agent.folders import AttemptFolder
from tpujob.agent.ship import Log
from tpujob.agent.voice.speaker import Voice
from tpujob.protocol import live

LOOK = 0.25  #: seconds between two looks for new lines
FOLLOWERS = 8  #: at once; a backend is one
PATIENCE = 30.0  #: seconds that a follower may take for one message
WORD = (
    64 * 1024
)  #: bytes of lines in a word to another host, which JSON may make seven times as long
AGAIN = 3.0  #: seconds after which a host that has not answered is asked once more


class Server:
    """Listens until the process ends. It also asks the hosts that this one is linked to, while somebody follows."""

    def __init__(self, folder: AttemptFolder, host: int, log: Log, voice: Voice) -> None:
        """Raises nothing: where it cannot listen, nobody can follow."""
        self.host, self.log, self.links = host, log, voice.links
        self._lock = threading.Lock()
        self._followers: Dict[int, _Follower] = {}
        self._count = 0
        voice.on[live.LOG] = self._hear
        self._listener = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(folder.live)
            with _short(folder) as path:
                self._listener.bind(path)
            os.chmod(folder.live, 0o600)
            self._listener.listen(FOLLOWERS)
            threading.Thread(target=self._accept, name="live", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock = self._listener.accept()[0]
            except OSError:  # out of descriptors
                time.sleep(1)
                continue
            with self._lock:
                welcome = _uid_of(sock) == os.geteuid() and len(self._followers) < FOLLOWERS
                self._count += welcome
                number, follower = self._count, _Follower(self, sock, self._count)
                if welcome:
                    self._followers[number] = follower
            if welcome:
                threading.Thread(target=self._serve, args=(number, follower), daemon=True).start()
            else:
                sock.close()

    def _serve(self, number: int, follower: _Follower) -> None:
        with contextlib.suppress(OSError), follower.sock:
            follower.tell_all()
        with self._lock:
            del self._followers[number]

    def _hear(self, host: int, said: Any) -> None:
        """A word of another host, on the thread of the links: a question for this host's lines, or its own."""
        if not isinstance(said, dict) or self.links is None:
            return
        word = cast(Record, said)
        number, after, tail = word.get("to"), word.get("after"), live.read_tail(word)
        if tail is not None:
            with self._lock:
                follower = self._followers.get(number) if isinstance(number, int) else None
            if follower is not None and tail.host == host:
                follower.answers.append(tail)
        elif isinstance(after, int):
            tail = self.log.pending(self.host, after, WORD)
            self.links.send(host, live.LOG, {**live.written(tail), "to": number})


class _Follower:
    """Somebody who is told what this host and those that it is linked to print."""

    def __init__(self, server: Server, sock: socket.socket, number: int) -> None:
        self.sock, self._server, self._number = sock, server, number
        self.answers: Deque[live.Tail] = collections.deque()  #: of other hosts
        self._after: Dict[int, int] = {}  #: the last line that was told of each host
        self._settled: Dict[int, int] = {}
        self._asked: Dict[int, float] = {}  #: when each other host may be asked again
        self._told = 0.0

    def tell_all(self) -> None:
        """Until it hangs up: raises OSError then."""
        self.sock.settimeout(PATIENCE)
        server, hosts = self._server, [-1]
        while True:
            linked = server.links.linked() if server.links is not None else []
            if hosts != [server.host, *linked]:
                hosts = [server.host, *linked]
                self._send({"kind": live.TAILS, "hosts": hosts})
            more = self._tell(server.log.pending(server.host, self._after.get(server.host, 0)))
            while self.answers:
                tail = self.answers.popleft()
                more = self._tell(tail) or more
                self._asked[tail.host] = 0.0 if tail.lines else time.monotonic() + 2 * LOOK
            for host in linked:
                if server.links is not None and self._asked.get(host, 0.0) <= time.monotonic():
                    asked = {"to": self._number, "after": self._after.get(host, 0)}
                    server.links.send(host, live.LOG, asked)
                    self._asked[host] = time.monotonic() + AGAIN
            if not more:
                time.sleep(LOOK)

    def _tell(self, tail: live.Tail) -> bool:
        """Whether it has lines."""
        host, now = tail.host, time.monotonic()
        beat = host == self._server.host and now - self._told > live.BEAT
        if tail.lines or tail.settled != self._settled.get(host) or beat:
            self._send(live.written(tail))
            self._settled[host] = tail.settled
            self._told = now if host == self._server.host else self._told
            last = max(tail.after, tail.line + tail.lines - 1)
            self._after[host] = max(last, self._after.get(host, 0))
        return bool(tail.lines)

    def _send(self, said: Record) -> None:
        self.sock.sendall(json.dumps(said, separators=(",", ":")).encode() + b"\n")


def show(folder: AttemptFolder) -> None:
    """Print what the attempt's daemon tells, until it ends or nobody reads. Raises Failure: there is none."""
    source = socket.socket(socket.AF_UNIX)
    try:
        with _short(folder) as path:
            source.connect(path)
    except OSError as error:
        raise Failure("nothing can be followed here: %s" % (error.strerror or error)) from error
    if _uid_of(source) != os.geteuid():
        raise Failure("what answers there belongs to somebody else")
    out = sys.stdout.buffer
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            ready = select.select([source, sys.stdin], [], [])[0]
            if sys.stdin in ready and not os.read(sys.stdin.fileno(), 4096):
                return  # whoever listens has gone
            if source in ready:
                data = source.recv(256 * 1024)
                if not data:
                    return
                out.write(data)
                out.flush()


def _uid_of(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


@contextlib.contextmanager
def _short(folder: AttemptFolder) -> Generator[str, None, None]:
    """A path of the socket that fits: an address has room for 107 bytes."""
    descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield "/proc/self/fd/%d/%s" % (descriptor, os.path.basename(folder.live))
    finally:
        os.close(descriptor)
