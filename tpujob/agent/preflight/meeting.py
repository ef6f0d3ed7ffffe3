"""How the agents of a slice meet before their programs start: each says its word, and all get to know all words."""

from __future__ import annotations

import contextlib
import errno
import json
import resource
import select
import selectors
import socket
import time
from typing import Dict, List, Tuple, cast

from tpujob.agent.base import Failure, Record, Stopped, Told

LONGEST = 64 * 1024  #: bytes of a word; an answer holds one of each host
SPARE_FILES = 64  #: that host 0 may have open besides its guests
ANSWER = 10.0  #: seconds, beyond the patience of host 0, for its answer to arrive

Place = Tuple[str, int]


def meet(address: str, word: Record, hosts: int, patience: float, told: Told) -> List[Record]:
    """The words of all hosts, by host, the same on each of them. `word` holds `job`, `attempt` and `host`; host 0
    listens on `address`. Raises Failure that names who has not come in time, Stopped as soon as `told` says so."""
    name, _, port = address.rpartition(":")
    place = (name.strip("[]"), int(port))
    until = time.monotonic() + patience
    with contextlib.ExitStack() as opened:
        if word["host"] == 0:
            _make_room(hosts, opened)
            answer = _Table(place, word, hosts, opened).wait(until, told)
        else:
            answer = _visit(place, word, until, told, opened)
    missing = answer.get("missing")
    if missing:
        named = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        who = "host" if len(missing) == 1 else "hosts"
        text = "%s %s did not come to the pre-flight within %.0f s" % (who, named, patience)
        raise Failure(text, "PREFLIGHT")
    return list(answer["words"])


class _Table:
    """What host 0 keeps."""

    def __init__(
        self, place: Place, word: Record, hosts: int, opened: contextlib.ExitStack
    ) -> None:
        self._place, self._word, self._hosts, self._opened = place, word, hosts, opened
        self._words: Dict[int, Record] = {0: word}
        self._guests: Dict[int, socket.socket] = {}
        self._strangers: Dict[socket.socket, bytes] = {}
        self._ears = opened.enter_context(selectors.DefaultSelector())

    def wait(self, until: float, told: Told) -> Record:
        listener = self._listener(until, told)
        self._ears.register(listener, selectors.EVENT_READ)
        while len(self._words) < self._hosts and time.monotonic() < until:
            _go_on(told)
            for key, _ in self._ears.select(0.2):
                if key.fileobj is listener:
                    self._let_in(listener)
                else:
                    self._hear(cast(socket.socket, key.fileobj))
        listener.close()  # before anybody goes on: the port is needed again
        missing = [k for k in range(self._hosts) if k not in self._words]
        words = [self._words[k] for k in sorted(self._words)]
        answer: Record = {"missing": missing} if missing else {"words": words}
        for guest in self._guests.values():
            with contextlib.suppress(OSError):
                guest.settimeout(ANSWER)
                guest.sendall(json.dumps(answer).encode() + b"\n")
        return answer

    def _listener(self, until: float, told: Told) -> socket.socket:
        kind = socket.AF_INET6 if ":" in self._place[0] else socket.AF_INET
        listener = self._opened.enter_context(socket.socket(kind, socket.SOCK_STREAM))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind(self._place)
                break
            except OSError as error:  # an earlier attempt may be about to let go of it
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    text = "cannot listen on %s:%d: %s" % (*self._place, error.strerror)
                    raise Failure(text, "PREFLIGHT") from error
            _go_on(told)
            time.sleep(0.2)
        listener.listen(1024)
        listener.setblocking(False)
        return listener

    def _let_in(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            guest = self._opened.enter_context(listener.accept()[0])
            guest.setblocking(False)
            self._strangers[guest] = b""
            self._ears.register(guest, selectors.EVENT_READ)

    def _hear(self, guest: socket.socket) -> None:
        """A stranger becomes a guest once it has said a whole word that fits; else it is sent away."""
        data = b""
        with contextlib.suppress(OSError):
            data = guest.recv(LONGEST)
        said = self._strangers[guest] + data
        if data and not said.endswith(b"\n") and len(said) < LONGEST:
            self._strangers[guest] = said
            return
        del self._strangers[guest]
        self._ears.unregister(guest)
        word = _parsed(said)
        number = word.get("host")
        same = all(word.get(key) == self._word[key] for key in ("job", "attempt"))
        if same and isinstance(number, int) and 0 < number < self._hosts:
            self._words[number], self._guests[number] = word, guest
        else:
            guest.close()


def _make_room(hosts: int, opened: contextlib.ExitStack) -> None:
    """Each guest is an open file, of which a session usually may have 1024; as before when they have left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hosts + SPARE_FILES
    if soft < wanted and soft != resource.RLIM_INFINITY:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _visit(
    place: Place, word: Record, until: float, told: Told, opened: contextlib.ExitStack
) -> Record:
    """What a host other than 0 does. One that is cut off comes again while there is time."""
    while True:
        try:
            guest = opened.enter_context(socket.create_connection(place, timeout=5))
            guest.sendall(json.dumps(word).encode() + b"\n")
            answer = _parsed(_answer(guest, until + ANSWER, told))
            if answer:
                return answer
        except OSError:
            pass
        if time.monotonic() > until:
            return {"missing": [0]}
        _go_on(told)
        time.sleep(0.2)


def _answer(guest: socket.socket, until: float, told: Told) -> bytes:
    said = b""
    while not said.endswith(b"\n") and time.monotonic() < until:
        _go_on(told)
        if select.select([guest], [], [], 0.2)[0]:
            data = guest.recv(LONGEST)
            if not data:
                return b""
            said += data
    return said


def _go_on(told: Told) -> None:
    if told():
        raise Stopped


def _parsed(line: bytes) -> Record:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast(Record, value) if isinstance(value, dict) else {}
