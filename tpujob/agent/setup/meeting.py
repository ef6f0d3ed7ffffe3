"""Lets the agents of a slice meet before their programs start: each sends one message, and all get all messages. Checks
whether they can connect at all.

Host 0 listens, and the others ask it until all have come. Anybody in the network may connect, so both sides sign with
the key of the attempt, over two numbers of which each side has drawn one for this connection.
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
from tpujob.protocol import UnreachedDocument, signing

KIND = "meeting"  #: of what is signed
CONNECT = 3.0  #: seconds to connect, and as many for the exchange
#: seconds between two questions of a host, at least; and for each host of the slice
AGAIN, AGAIN_EACH = 0.5, 0.005
ANSWER = 10.0  #: seconds, beyond the patience of host 0, for its answer to arrive
#: seconds without an answer of host 0, which was up when its agent was started, after which a host looks whether its
#: machine answers at all; before host 0 listens, its machine refuses connections
CUT_OFF = 30.0
AT_ONCE = 64  #: connections that host 0 serves at once
LONGEST_QUESTION, LONGEST_ANSWER = 64 * 1024, 16 * 1024 * 1024  #: bytes


class Meetings:
    """The meetings of the hosts of one attempt, one after the other."""

    def __init__(self, host: int, hosts: int, address: Address, key: str) -> None:
        """`address`: where host 0 listens."""
        self._host, self._hosts, self._address, self._key = host, hosts, address, key
        self._round, self._closed = 0, False
        self._change = threading.Condition()
        self._words: Dict[int, Dict[int, Record]] = {}  #: by round and host; on host 0
        self._answers: Dict[int, Record] = {}  #: by round; on host 0
        self._fetched: Set[Tuple[int, int]] = set()  #: rounds and hosts that have the answer
        self._free = threading.Semaphore(AT_ONCE)
        if host == 0:
            threading.Thread(target=self._listen, name="meeting", daemon=True).start()

    def meet(self, message: Record, patience: float, check_stop: Check) -> List[Record]:
        """Return the messages of all hosts, by host, the same on each of them. Raises Failure that names the hosts that
        did not come in time, or says that host 0 cannot be reached from here; Stopped."""
        self._round += 1
        message, until = dict(message, host=self._host), time.monotonic() + patience
        answer = (self._ask if self._host else self._collect)(message, until, check_stop)
        missing = answer.get("missing")
        if missing:
            named = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
            who = "host" if len(missing) == 1 else "hosts"
            text = "%s %s did not come to the pre-flight within %.0f s" % (who, named, patience)
            raise Failure(text, "PREFLIGHT", late=True)
        return list(answer["words"])

    def close(self) -> None:
        """Leave the port to the next attempt on this host."""
        self._closed = True

    # On host 0 -------------------------------------------------------------------------------------------------------

    def _collect(self, message: Record, until: float, check_stop: Check) -> Record:
        number = self._round
        with self._change:
            words = self._words.setdefault(number, {})
            words[0] = message
            while len(words) < self._hosts and time.monotonic() < until:
                check_stop()
                self._change.wait(0.2)
            missing = [k for k in range(self._hosts) if k not in words]
            answer: Record = {"words": [words[k] for k in sorted(words)]}
            answer = self._answers[number] = {"missing": missing} if missing else answer
            waiting = {(number, k) for k in words if k}
            until = time.monotonic() + ANSWER  # this host may end now, and its port with it
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
            # a stranger may send anything as often as they like, and a log of it has no limit
            with contextlib.suppress(OSError, ValueError, RecursionError), sock:
                self._reply(sock, time.monotonic() + CONNECT)
        finally:
            self._free.release()

    def _reply(self, sock: socket.socket, until: float) -> None:
        own = secrets.token_hex(16)
        sock.settimeout(CONNECT)
        sock.sendall(own.encode() + b"\n")
        question = parse_json(_line(sock, LONGEST_QUESTION, until))
        other, text = str(question.get("number")), str(question.get("text"))
        host, number = question.get("host"), question.get("round")
        if type(number) is not int or type(host) is not int or not 0 < host < self._hosts:
            return
        parts = (own, other, str(host), str(number), text)
        if not signing.verify(self._key, question.get("mac"), KIND, *parts):
            return
        with self._change:
            self._words.setdefault(number, {})[host] = parse_json(text.encode())
            answer = json.dumps(self._answers.get(number))
            self._change.notify_all()
        mac = signing.sign(self._key, KIND, own, other, answer)
        sock.sendall(json.dumps({"text": answer, "mac": mac}).encode() + b"\n")
        if answer != "null":
            with self._change:
                self._fetched.add((number, host))
                self._change.notify_all()

    # On the others ---------------------------------------------------------------------------------------------------

    def _ask(self, message: Record, until: float, check_stop: Check) -> Record:
        cut_off = min(until, time.monotonic() + CUT_OFF)
        while True:
            check_stop()
            greeted, answer = self._exchange(json.dumps(message))
            now = time.monotonic()
            if answer is not None:
                return answer
            if now >= until + (ANSWER if greeted else 0.0):
                return {"missing": [0]}
            if not greeted and now > cut_off:
                if closed_port(self._address[0], [self._address[1]], check_stop):
                    raise unreached(self._host, self._address[1])
                cut_off = float("inf")
            time.sleep(AGAIN + AGAIN_EACH * self._hosts)

    def _exchange(self, text: str) -> Tuple[bool, Optional[Record]]:
        """Send the message once more. Return whether host 0 is there, and its answer; None: it has none yet."""
        until, greeting = time.monotonic() + CONNECT, ""
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            sock = socket.create_connection(way_to(self._address), timeout=CONNECT)
            opened.enter_context(sock)
            greeting = _line(sock, 64, until).decode("ascii", "replace")
            own, host, number = secrets.token_hex(16), str(self._host), str(self._round)
            mac = signing.sign(self._key, KIND, greeting, own, host, number, text)
            question = {"number": own, "host": self._host, "round": self._round, "text": text}
            sock.sendall(json.dumps(dict(question, mac=mac)).encode() + b"\n")
            reply = parse_json(_line(sock, LONGEST_ANSWER, until + CONNECT))
            answer = str(reply.get("text"))
            if signing.verify(self._key, reply.get("mac"), KIND, greeting, own, answer):
                return True, parse_json(answer.encode()) or None
        return bool(greeting), None


def _line(sock: socket.socket, most: int, until: float) -> bytes:
    """Return a line that comes in time; empty: it does not, or is longer. Raises OSError."""
    data = bytearray()
    while len(data) <= most and time.monotonic() < until:
        sock.settimeout(max(0.01, until - time.monotonic()))
        piece = sock.recv(64 * 1024)
        data += piece
        if not piece:
            break
        if data.endswith(b"\n"):
            return bytes(data[:-1])
    return b""


# Whether the hosts can connect: a firewall between them drops packets and says nothing -------------------------------


REACH = 5.0  #: seconds for one connection: inside a network it takes milliseconds
TRIES = 2  #: before a port counts as closed: packets get lost, and each try sends three
SILENT = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})


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
        socket.create_connection(way_to(address), timeout=REACH).close()
    except OSError as error:
        # a port without a listener refuses a connection, and that is an answer
        return not (isinstance(error, socket.timeout) or error.errno in SILENT)
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
