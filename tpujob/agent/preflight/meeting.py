"""Lets the agents of a slice meet before their programs start: each sends one message, and all get all messages."""

from __future__ import annotations

import contextlib
import errno
import json
import resource
import select
import selectors
import socket
import time
from typing import Dict, List, cast

from tpujob.agent.base import Check, Failure, Record, parse_json
from tpujob.agent.preflight.reach import CONNECT, is_silent, unreached
from tpujob.agent.preflight.routes import Address, way_to

LONGEST = 64 * 1024  #: bytes of a message; an answer holds one of each host
SPARE_FILES = 64  #: that host 0 may have open besides its connections
ANSWER = 10.0  #: seconds, beyond the patience of host 0, for its answer to arrive
#: seconds without any answer from the machine of host 0, which was up when its agent was started, after which a host
#: takes itself for cut off; before host 0 listens, its machine refuses connections
CUT_OFF = 30.0


def meet(
    address: str, message: Record, hosts: int, patience: float, check_stop: Check
) -> List[Record]:
    """The messages of all hosts, by host, the same on each of them. `message` holds `job`, `attempt` and `host`; host 0
    listens on `address`. Raises Failure that names the hosts that did not come in time, or that host 0 cannot be
    reached from here; Stopped."""
    name, _, port = address.rpartition(":")
    at = (name.strip("[]"), int(port))
    until = time.monotonic() + patience
    with contextlib.ExitStack() as opened:
        if message["host"] == 0:
            _allow_files(hosts, opened)
            answer = _Collector(at, message, hosts, opened).collect(until, check_stop)
        else:
            answer = _visit(at, message, until, check_stop, opened)
    missing = answer.get("missing")
    if missing:
        named = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        who = "host" if len(missing) == 1 else "hosts"
        text = "%s %s did not come to the pre-flight within %.0f s" % (who, named, patience)
        raise Failure(text, "PREFLIGHT", late=True)
    return list(answer["words"])


class _Collector:
    """What host 0 does."""

    def __init__(
        self, address: Address, message: Record, hosts: int, opened: contextlib.ExitStack
    ) -> None:
        self._address, self._own, self._hosts, self._opened = address, message, hosts, opened
        self._messages: Dict[int, Record] = {0: message}
        self._peers: Dict[int, socket.socket] = {}
        self._unread: Dict[socket.socket, bytes] = {}  #: connections without a whole message yet
        self._selector = opened.enter_context(selectors.DefaultSelector())

    def collect(self, until: float, check_stop: Check) -> Record:
        listener = self._listener(until, check_stop)
        self._selector.register(listener, selectors.EVENT_READ)
        while len(self._messages) < self._hosts and time.monotonic() < until:
            check_stop()
            for key, _ in self._selector.select(0.2):
                if key.fileobj is listener:
                    self._accept(listener)
                else:
                    self._read(cast(socket.socket, key.fileobj))
        listener.close()  # before anybody goes on: the port is needed again
        missing = [k for k in range(self._hosts) if k not in self._messages]
        words = [self._messages[k] for k in sorted(self._messages)]
        answer: Record = {"missing": missing} if missing else {"words": words}
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.settimeout(ANSWER)
                peer.sendall(json.dumps(answer).encode() + b"\n")
        return answer

    def _listener(self, until: float, check_stop: Check) -> socket.socket:
        kind = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        listener = self._opened.enter_context(socket.socket(kind, socket.SOCK_STREAM))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind(self._address)
                break
            except OSError as error:  # an earlier attempt may be about to close it
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    text = "cannot listen on %s:%d: %s" % (*self._address, error.strerror)
                    raise Failure(text, "PREFLIGHT") from error
            check_stop()
            time.sleep(0.2)
        listener.listen(1024)
        listener.setblocking(False)
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            peer = self._opened.enter_context(listener.accept()[0])
            peer.setblocking(False)
            self._unread[peer] = b""
            self._selector.register(peer, selectors.EVENT_READ)

    def _read(self, peer: socket.socket) -> None:
        """Keep the connection once a whole message of this attempt has come; close any other."""
        data = b""
        with contextlib.suppress(OSError):
            data = peer.recv(LONGEST)
        said = self._unread[peer] + data
        if data and not said.endswith(b"\n") and len(said) < LONGEST:
            self._unread[peer] = said
            return
        del self._unread[peer]
        self._selector.unregister(peer)
        message = parse_json(said)
        host = message.get("host")
        same = all(message.get(key) == self._own[key] for key in ("job", "attempt"))
        if same and isinstance(host, int) and 0 < host < self._hosts:
            self._messages[host], self._peers[host] = message, peer
        else:
            peer.close()


def _allow_files(hosts: int, opened: contextlib.ExitStack) -> None:
    """Each connection is an open file, of which a session usually may have 1024; undone when `opened` closes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hosts + SPARE_FILES
    if soft < wanted and soft != resource.RLIM_INFINITY:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _visit(
    address: Address, message: Record, until: float, check_stop: Check, opened: contextlib.ExitStack
) -> Record:
    """What the other hosts do. One whose connection breaks connects again while there is time."""
    cut_off, answered = min(until, time.monotonic() + CUT_OFF), False
    while True:
        try:
            peer = opened.enter_context(socket.create_connection(way_to(address), timeout=CONNECT))
            answered = True
            peer.sendall(json.dumps(message).encode() + b"\n")
            answer = parse_json(_answer(peer, until + ANSWER, check_stop))
            if answer:
                return answer
        except OSError as error:
            answered = answered or not is_silent(error)
        if not answered and time.monotonic() > cut_off:
            raise unreached(message["host"], address[1])
        if time.monotonic() > until:
            return {"missing": [0]}
        check_stop()
        time.sleep(0.2)


def _answer(peer: socket.socket, until: float, check_stop: Check) -> bytes:
    said = b""
    while not said.endswith(b"\n") and time.monotonic() < until:
        check_stop()
        if select.select([peer], [], [], 0.2)[0]:
            data = peer.recv(LONGEST)
            if not data:
                return b""
            said += data
    return said
