"""Meetings of a slice's agents before their programs start: each agent sends one message, and all get all messages.
Also checks whether the hosts can connect.

Host 0 listens; the other hosts send their messages to it and poll for the answer. Anybody in the network may connect.
So both sides sign with the key of the attempt, over a random number of each side for this connection.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import json
import os
import secrets
import socket
import threading
import time
from typing import Dict, Iterable, List, Optional, Set, Tuple

from tpujob.agent.base import Check, Failure, Record, parse_json
from tpujob.lib.threads import start_loop
from tpujob.protocol import UnreachedDocument, signing

KIND = "meeting"  #: the kind of the signatures
#: seconds between two requests of a host: a constant, and a part for each host of the slice
AGAIN, AGAIN_EACH = 0.5, 0.005
REACH = 5.0  #: seconds to reach a port, which takes milliseconds inside a network
AT_ONCE = 64  #: connections that host 0 serves at once
MAX_REQUEST, MAX_ANSWER = 64 * 1024, 16 * 1024 * 1024  #: bytes


class Meetings:
    """The meetings of the hosts of one attempt, one after the other."""

    connect = 3.0  #: seconds to connect, and as many for the exchange
    answer = 10.0  #: seconds after the patience of host 0 in which its answer may arrive
    #: seconds without an answer of host 0 after which a host checks for a firewall; without one, a host 0 that does not
    #: listen yet refuses connections
    cut_off = 30.0
    reach = REACH

    def __init__(self, host: int, hosts: int, address: Address, key: str) -> None:
        """Host 0 listens on `address` from now on."""
        self._host, self._hosts, self._address, self._key = host, hosts, address, key
        self._round = 0
        self._closed = False
        self._change = threading.Condition()
        self._messages: Dict[int, Dict[int, Record]] = {}  #: on host 0, by round and host
        self._answers: Dict[int, Record] = {}  #: on host 0, by round
        self._fetched: Set[Tuple[int, int]] = set()  #: rounds and hosts that have got the answer
        self._free = threading.Semaphore(AT_ONCE)
        if host == 0:
            start_loop("meeting", self._listen)

    def meet(self, message: Record, patience: float, check_stop: Check) -> List[Record]:
        """Return the messages of all hosts, in the order of hosts, equal on all hosts. Raises Stopped, and Failure that
        names the missing hosts, or says that this host cannot reach host 0."""
        self._round += 1
        message, until = dict(message, host=self._host), time.monotonic() + patience
        answer = (self._poll_answer if self._host else self._collect)(message, until, check_stop)
        missing = answer.get("missing")
        if missing:
            numbers = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
            noun = "host" if len(missing) == 1 else "hosts"
            text = "%s %s did not come to the pre-flight within %.0f s" % (noun, numbers, patience)
            raise Failure(text, "PREFLIGHT", late=True)
        return list(answer["words"])

    def close(self) -> None:
        """Free the port for the next attempt on this host."""
        self._closed = True

    # On host 0 -------------------------------------------------------------------------------------------------------

    def _collect(self, message: Record, until: float, check_stop: Check) -> Record:
        """Wait for the messages of all hosts, then until all have got the answer. Return the answer."""
        number = self._round
        with self._change:
            messages = self._messages.setdefault(number, {})
            messages[0] = message
            while len(messages) < self._hosts and time.monotonic() < until:
                check_stop()
                self._change.wait(0.2)
            missing = [k for k in range(self._hosts) if k not in messages]
            answer: Record = {"words": [messages[k] for k in sorted(messages)]}
            answer = self._answers[number] = {"missing": missing} if missing else answer
            waiting = {(number, k) for k in messages if k}
            until = time.monotonic() + self.answer  # this attempt may end then, and close its port
            while not waiting <= self._fetched and time.monotonic() < until:
                check_stop()
                self._change.wait(0.2)
        return answer

    def _listen(self) -> None:
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        while not self._closed:
            # the daemon of an earlier attempt may still have the port
            with contextlib.suppress(OSError), socket.socket(family) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(self._address)
                listener.listen(1024)
                listener.settimeout(0.2)
                while not self._closed:
                    with contextlib.suppress(socket.timeout):
                        self._accept(listener.accept()[0])
            time.sleep(0.2)

    def _accept(self, sock: socket.socket) -> None:
        if self._free.acquire(blocking=False):
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()
        else:
            sock.close()

    def _serve(self, sock: socket.socket) -> None:
        try:
            # not logged: a stranger may send anything any number of times
            with contextlib.suppress(OSError, ValueError, RecursionError), sock:
                self._reply(sock, time.monotonic() + self.connect)
        finally:
            self._free.release()

    def _reply(self, sock: socket.socket, until: float) -> None:
        """Take the message of another host, and send the answer of its round, or null."""
        own_number = secrets.token_hex(16)
        sock.settimeout(self.connect)
        sock.sendall(own_number.encode() + b"\n")
        request = parse_json(_read_line(sock, MAX_REQUEST, until))
        peer_number, text = str(request.get("number")), str(request.get("text"))
        host, number = request.get("host"), request.get("round")
        if type(number) is not int or type(host) is not int or not 0 < host < self._hosts:
            return
        parts = (own_number, peer_number, str(host), str(number), text)
        if not signing.verify(self._key, request.get("mac"), KIND, *parts):
            return
        with self._change:
            self._messages.setdefault(number, {})[host] = parse_json(text.encode())
            answer = json.dumps(self._answers.get(number))
            self._change.notify_all()
        mac = signing.sign(self._key, KIND, own_number, peer_number, answer)
        sock.sendall(json.dumps({"text": answer, "mac": mac}).encode() + b"\n")
        if answer != "null":
            with self._change:
                self._fetched.add((number, host))
                self._change.notify_all()

    # On the other hosts ----------------------------------------------------------------------------------------------

    def _poll_answer(self, message: Record, until: float, check_stop: Check) -> Record:
        """Send the message until host 0 has the answer. Raises Failure, Stopped."""
        cut_off = min(until, time.monotonic() + self.cut_off)
        while True:
            check_stop()
            greeted, answer = self._exchange(json.dumps(message))
            now = time.monotonic()
            if answer is not None:
                return answer
            if now >= until + (self.answer if greeted else 0.0):
                return {"missing": [0]}
            if not greeted and now > cut_off:
                if find_closed_port(self._address[0], [self._address[1]], check_stop, self.reach):
                    raise unreached_failure(self._host, self._address[1])
                cut_off = float("inf")
            time.sleep(AGAIN + AGAIN_EACH * self._hosts)

    def _exchange(self, text: str) -> Tuple[bool, Optional[Record]]:
        """Send the message. Return whether host 0 has greeted, and its answer, or None without one."""
        until, greeting = time.monotonic() + self.connect, ""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            sock = socket.create_connection(route_to(self._address), timeout=self.connect)
            stack.enter_context(sock)
            greeting = _read_line(sock, 64, until).decode("ascii", "replace")
            own_number, host, number = secrets.token_hex(16), str(self._host), str(self._round)
            mac = signing.sign(self._key, KIND, greeting, own_number, host, number, text)
            request = {"number": own_number, "host": self._host, "round": self._round, "text": text}
            sock.sendall(json.dumps(dict(request, mac=mac)).encode() + b"\n")
            reply = parse_json(_read_line(sock, MAX_ANSWER, until + self.connect))
            answer = str(reply.get("text"))
            if signing.verify(self._key, reply.get("mac"), KIND, greeting, own_number, answer):
                return True, parse_json(answer.encode()) or None
        return bool(greeting), None


def _read_line(sock: socket.socket, limit: int, until: float) -> bytes:
    """Return a line of about `limit` bytes at most; empty: none came in time. Raises OSError."""
    data = bytearray()
    while len(data) <= limit and time.monotonic() < until:
        sock.settimeout(max(0.01, until - time.monotonic()))
        piece = sock.recv(64 * 1024)
        data += piece
        if not piece:
            break
        if data.endswith(b"\n"):
            return bytes(data[:-1])
    return b""


# Connections between hosts: a firewall drops packets without an answer -----------------------------------------------


TRIES = 2  #: tries before a port counts as closed; each sends three packets
SILENT = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})


def find_closed_port(
    address: str, ports: Iterable[int], check_stop: Check, reach: float = REACH
) -> Optional[int]:
    """Return the first of the ports that gives no answer, not even a refusal; None: all answer. Raises Stopped."""
    for port in ports:
        if not any(_does_answer((address, port), check_stop, reach) for _ in range(TRIES)):
            return port
    return None


def _does_answer(address: Address, check_stop: Check, reach: float) -> bool:
    check_stop()
    try:
        socket.create_connection(route_to(address), timeout=reach).close()
    except OSError as error:
        # a refusal is an answer
        return not (isinstance(error, socket.timeout) or error.errno in SILENT)
    return True


def unreached_failure(source: int, port: int) -> Failure:
    """Return the failure of host `source` to reach host 0. Its cause is SETUP, as the hosts are healthy."""
    text = "host %d cannot reach host 0 on TCP port %d: nothing answers, as behind a firewall"
    document: UnreachedDocument = {"source": source, "target": 0, "port": port}
    return Failure(text % (source, port), "SETUP", unreached=document)


def closed_port_failure(messages: List[Record]) -> Optional[Failure]:
    """Return the failure of the first host with a closed port, equal on all hosts; None: no port is closed."""
    ports = ((message["host"], message.get("closed")) for message in messages)
    return next((unreached_failure(host, port) for host, port in ports if port), None)


# Routes between hosts ------------------------------------------------------------------------------------------------


Address = Tuple[str, int]


def route_to(address: Address) -> Address:
    """Return the address to connect to: `address`, unless the file TPUJOB_ROUTES has another for it."""
    path = os.environ.get("TPUJOB_ROUTES")
    if not path:
        return address
    try:
        with open(path, encoding="ascii") as file:
            routes = [line.split() for line in file]
    except OSError:
        return address
    for pattern, target in routes:
        if fnmatch.fnmatch(address[0], pattern):
            host, _, port = target.rpartition(":")
            return host, int(port)
    return address
