"""The connections between hosts: real sockets on loopback, cut both ways and one way, and strangers who knock."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.agent_host import until
from tests.support.links import free_addresses, impatient_links, quick_links
from tpujob.agent.routes import Address
from tpujob.agent.voice import handshake, link
from tpujob.agent.voice.handshake import Session
from tpujob.agent.voice.link import Ear, Links

KEY, OTHER = "0a" * 32, "0b" * 32

DEEP = b"[" * 900 + b"]" * 900
#: what strangers may say, which JSON allows, or nearly
ODD = {
    "nothing": b"",
    "a list": b"[]",
    "no names": b"{}",
    "numbers": b'{"kind": 1, "said": 2, "mac": 3}',
    "no text": b"\xff",
    "half of a pair": b'{"kind": "hello", "said": "\\ud800", "mac": "x"}',
    "halves": b'{"kind": "\\ud800", "said": "{\\"host\\": 1, \\"number\\": \\"\\ud800\\"}", "mac": "\\udfff"}',
    "half of a pair within": b'{"kind": "hello", "said": "{\\"host\\": 1, \\"number\\": \\"\\\\ud800\\"}", "mac": "x"}',
    "half of a pair in bytes": b'{"kind": "hello", "said": "\xed\xa0\x80", "mac": "x"}',
    "a great number": b'{"kind": "hello", "said": "{\\"host\\": 1%s, \\"number\\": \\"a\\"}", "mac": 1%s}'
    % (b"0" * 1800, b"0" * 1800),
    "a number without end": b'{"kind": "hello", "said": "{\\"host\\": 1%s, \\"number\\": \\"\\"}"}'
    % (b"0" * 4000),
    "no number": b'{"kind": "hello", "said": "{\\"host\\": NaN, \\"number\\": Infinity}", "mac": NaN}',
    "a negative host": b'{"kind": "hello", "said": "{\\"host\\": -1, \\"number\\": \\"a\\"}", "mac": "x"}',
    "truth for a host": b'{"kind": "hello", "said": "{\\"host\\": true, \\"number\\": \\"a\\"}", "mac": "x"}',
    "a deep kind": b'{"kind": %s, "said": %s, "mac": %s}' % (DEEP, DEEP[1:-1], b"[" * 300 + b"]" * 300),
    "a deep word": b'{"kind": "hello", "said": "%s", "mac": "x"}' % DEEP,
    "depth without end": b"[" * 4000,
    "depth without end within": b'{"kind": "hello", "said": "%s", "mac": "x"}' % (b"[" * 4000),
    "objects": b'{"kind": {}, "said": {"host": 1, "number": "a"}, "mac": {}}',
}  # fmt: skip


class Told(Ear):
    def __init__(self) -> None:
        self.words: list[tuple[int, str, Any]] = []
        self.changes: list[str] = []

    def hear(self, host: int, kind: str, said: Any) -> None:
        self.words.append((host, kind, said))

    def linked(self, host: int) -> None:
        self.changes.append(f"+{host}")

    def lost(self, host: int) -> None:
        self.changes.append(f"-{host}")


class Relay:
    """The network on the way to an address: what goes one way or the other can be dropped, and nobody is told."""

    def __init__(self, to: Address) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()
        self.dropped: set[str] = set()  #: there, back
        self.seen = bytearray()  #: what went there
        self._pairs: dict[socket.socket, tuple[socket.socket, str]] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    self._join(self._listener.accept()[0])
                elif key.fileobj in self._pairs:
                    self._pass(key.fileobj)  # type: ignore[arg-type]

    def _join(self, here: socket.socket) -> None:
        try:
            there = socket.create_connection(self._to)
        except OSError:  # nobody listens there as yet
            return here.close()
        self._pairs |= {here: (there, "there"), there: (here, "back")}
        for sock in (here, there):
            self._selector.register(sock, selectors.EVENT_READ)
        return None

    def _pass(self, sock: socket.socket) -> None:
        to, way = self._pairs[sock]
        data = b""
        with contextlib.suppress(OSError):
            data = sock.recv(65536)
        if not data:
            self._selector.unregister(sock)
            if way not in self.dropped:  # else the other side does not learn of it
                with contextlib.suppress(OSError):
                    to.shutdown(socket.SHUT_WR)
            return
        if way == "there":
            self.seen += data
        if way not in self.dropped:
            with contextlib.suppress(OSError):
                to.sendall(data)

    def close(self) -> None:
        self._over = True
        self._thread.join()
        for sock in (self._listener, *self._pairs):
            sock.close()
        self._selector.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_links(monkeypatch)


class Slice:
    def __init__(self) -> None:
        self.open = contextlib.ExitStack()
        self.links: dict[int, Links] = {}
        self.told: dict[int, Told] = {}
        self.addresses: list[Address] = []

    def of(self, hosts: int) -> Slice:
        self.addresses = [*free_addresses(hosts)]
        return self

    def start(self, host: int, key: str = KEY, **ways: Address) -> Links:
        """`ways`: `to_0` and so on, where another address leads to that host."""
        known = [ways.get(f"to_{n}", address) for n, address in enumerate(self.addresses)]
        self.told[host] = Told()
        self.links[host] = Links(host, known, key, self.told[host])
        self.open.callback(self.links[host].close)
        self.links[host].start()
        return self.links[host]

    def relay(self, to: int) -> Relay:
        made = Relay(self.addresses[to])
        self.open.callback(made.close)
        return made

    def said_to(self, host: int) -> list[tuple[int, str, Any]]:
        return self.told[host].words


@pytest.fixture
def slice() -> Iterator[Slice]:
    made = Slice()
    with made.open:
        yield made


def linked(links: Links, *hosts: int) -> Callable[[], bool]:
    return lambda: links.linked() == list(hosts)


def test_hosts_speak_with_the_lowest_one_and_hear_it(slice: Slice) -> None:
    slice.of(3)
    links = [slice.start(host) for host in (2, 1, 0)][::-1]
    until(linked(links[0], 1, 2), "both at host 0")
    assert links[1].send(0, "report", {"step": 7})
    assert links[1].send(0, "log", ["line"] * 5000)
    assert links[0].send(2, "log", {"from": 0})
    until(lambda: len(slice.said_to(0)) == 2 and slice.said_to(2), "the words")
    assert slice.said_to(0) == [(1, "report", {"step": 7}), (1, "log", ["line"] * 5000)]
    assert slice.said_to(2) == [(0, "log", {"from": 0})]
    until(linked(links[2], 0), "host 2 with host 0 alone, though host 1 was there first")
    assert not links[2].send(1, "report", {})


def test_without_the_key_nobody_is_heard(slice: Slice) -> None:
    slice.of(2)
    mine, other = slice.start(0), slice.start(1, key=OTHER)
    until(lambda: mine.refused > 1, "refused, and refused again")
    assert (mine.linked(), other.linked()) == ([], [])
    assert slice.said_to(0) == []


def test_what_was_heard_on_the_way_is_worth_nothing_later(slice: Slice) -> None:
    slice.of(2)
    relay = slice.relay(to=0)
    mine, other = slice.start(0), slice.start(1, to_0=relay.address)
    until(linked(mine, 1), "linked")
    other.send(0, "report", {"phase": "exited"})
    until(lambda: slice.said_to(0), "the word")
    heard = bytes(relay.seen)
    other.close()
    until(linked(mine), "host 1 is gone")
    with socket.create_connection(slice.addresses[0]) as replay:
        replay.sendall(heard)
        until(lambda: mine.refused > 0, "the replay was refused")
    assert len(slice.said_to(0)) == 1


def test_a_word_that_is_repeated_or_spoken_for_another_ends_its_connection() -> None:
    session = Session(KEY, "ab")
    line = session.line(1, 4, "report", {"a": 1})
    assert session.read(1, 4, line) == ("report", {"a": 1})
    assert session.read(1, 5, line) is None
    assert session.read(2, 4, line) is None
    assert Session(KEY, "cd").read(1, 4, line) is None
    assert Session(OTHER, "ab").read(1, 4, line) is None
    assert session.read(1, 4, line.replace(b"report", b"log")) is None


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_words_are_nobodys(odd: bytes) -> None:
    assert Session(KEY, "ab").read(1, 4, odd) is None
    assert handshake.answered(KEY, "ab", odd) is None


@pytest.mark.parametrize("said", ["[" * 100_000, "1" + "0" * 5000, "", "\ud800", "{"])
def test_a_signed_word_that_cannot_be_understood_is_none(said: str) -> None:
    from tpujob.protocol import signing

    mac = signing.sign(KEY, "link", "ab", "1", "4", "report", said)
    line = json.dumps({"kind": "report", "said": said, "mac": mac}).encode()
    read = Session(KEY, "ab").read(1, 4, line)
    assert read is None or read == ("report", 10**5000), "Python 3.8 reads any number"


def test_the_last_word_before_a_host_closes_its_connections_arrives(
    slice: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may end at once afterwards. It is said while the loop has just sent all that waited."""
    slice.of(2)
    mine, other = slice.start(0), slice.start(1)
    until(lambda: mine.linked() and other.linked(), "linked")
    flush, over = Links._flush, threading.Event()

    def then_the_last_word(self: Links, peer: Any) -> None:
        flush(self, peer)
        if self is mine and not over.is_set():
            over.set()
            mine.send(1, "last", "word")
            mine.close()

    monkeypatch.setattr(Links, "_flush", then_the_last_word)
    until(linked(other), "host 0 is gone")
    assert slice.said_to(1) == [(0, "last", "word")]


def test_a_host_that_leaves_its_port_is_heard_and_another_process_listens_there(
    slice: Slice,
) -> None:
    slice.of(2)
    mine, other = slice.start(0), slice.start(1)
    until(lambda: mine.linked() and other.linked(), "linked")
    mine.accept_no_more()
    until(lambda: not _knock(slice.addresses[0]), "nobody listens")
    with socket.create_server(slice.addresses[0]):
        assert other.send(0, "report", {"step": 1})
        assert mine.send(1, "written", 1)
        until(lambda: slice.said_to(0) and slice.said_to(1), "the words")
    assert slice.told[0].changes == ["+1"]


def test_a_host_that_dies_is_missed_at_once_and_the_next_one_is_found(slice: Slice) -> None:
    slice.of(3)
    links = [slice.start(host) for host in range(3)]
    until(linked(links[0], 1, 2), "both at host 0")
    until(lambda: links[1].linked() == links[2].linked() == [0], "both with host 0 alone")
    before = len(slice.told[1].changes)
    links[0].close()
    until(linked(links[1], 2), "host 2 at host 1")
    # host 2 may have missed it first, and be there before host 1 does
    assert sorted(slice.told[1].changes[before:]) == ["+2", "-0"]
    slice.start(0)
    until(linked(slice.links[0], 1, 2), "both at host 0 again")
    until(linked(links[1], 0), "host 2 has left host 1")


@pytest.mark.parametrize("cut", [{"there"}, {"back"}, {"there", "back"}])
def test_a_network_that_drops_packets_is_found_out_on_both_sides(
    slice: Slice, cut: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slice.of(2)
    relay = slice.relay(to=0)
    mine, other = slice.start(0), slice.start(1, to_0=relay.address)
    until(lambda: mine.linked() and other.linked(), "linked")
    impatient_links(monkeypatch)
    relay.dropped = cut
    until(lambda: not mine.linked() and not other.linked(), "lost on both sides")
    assert not other.send(0, "report", {})
    heard = len(slice.said_to(0))
    relay.dropped = set()
    quick_links(monkeypatch)
    until(lambda: mine.linked() and other.linked(), "linked again")
    other.send(0, "report", {"step": 9})
    until(lambda: slice.said_to(0)[heard:] == [(1, "report", {"step": 9})], "the new word")


def test_a_host_that_went_away_without_a_word_comes_back_on_a_new_connection(
    slice: Slice,
) -> None:
    """Host 0 believes in the old connection for long; the new one takes its place."""
    slice.of(2)
    relay = slice.relay(to=0)
    mine = slice.start(0)
    first = slice.start(1, to_0=relay.address)
    until(linked(mine, 1), "linked")
    relay.dropped = {"there", "back"}
    first.close()
    again = slice.start(1)
    until(linked(again, 0), "linked anew")
    again.send(0, "report", {"step": 1})
    until(lambda: slice.said_to(0) == [(1, "report", {"step": 1})], "heard on the new one")
    assert slice.told[0].changes == ["+1"], "it was never lost"


def test_strangers_who_say_nothing_keep_nobody_out(slice: Slice) -> None:
    slice.of(2)
    mine = slice.start(0)
    until(lambda: _knock(slice.addresses[0]), "host 0 listens")
    with contextlib.ExitStack() as many:
        for _ in range(80):
            many.enter_context(socket.create_connection(slice.addresses[0]))
        slice.start(1)
        until(linked(mine, 1), "linked")


def test_a_stranger_who_says_odd_things_disturbs_nobody(slice: Slice) -> None:
    slice.of(2)
    mine, other = slice.start(0), slice.start(1)
    until(lambda: mine.linked() and other.linked(), "linked")
    for odd in ODD.values():
        with socket.create_connection(slice.addresses[0]) as stranger:
            stranger.settimeout(60)
            stranger.sendall(odd + b"\n")
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass  # until host 0 hangs up
    assert other.send(0, "report", {"step": 1})
    until(lambda: slice.said_to(0) == [(1, "report", {"step": 1})], "host 1 is heard on")
    assert (slice.told[0].changes, slice.told[1].changes) == (["+1"], ["+0"])
    assert mine.refused == len(ODD)


def test_a_failure_over_one_connection_leaves_the_others(
    slice: Slice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake of our own: over what a guest says, over a word, and over the end that the failure itself brings."""
    slice.of(3)
    links = [slice.start(host) for host in range(3)]
    until(linked(links[0], 1, 2), "both at host 0")
    until(lambda: links[1].linked() and links[2].linked(), "also by what they know")
    right = handshake.answered

    def answered(key: str, greeted: str, line: bytes) -> Any:
        if line == b"fail":
            raise ValueError("over a guest")
        return right(key, greeted, line)

    def hear(host: int, kind: str, said: Any) -> None:
        if said == "fail":
            raise ValueError("over a word")
        heard.append((host, said))

    def lost(host: int) -> None:
        ended.append(host)
        raise ValueError("over an end")

    heard, ended = list[tuple[int, Any]](), list[int]()
    monkeypatch.setattr(handshake, "answered", answered)
    monkeypatch.setattr(slice.told[0], "hear", hear)
    monkeypatch.setattr(slice.told[0], "lost", lost)
    with socket.create_connection(slice.addresses[0]) as stranger:
        stranger.sendall(b"fail\n")
        stranger.settimeout(60)
        while stranger.recv(4096):
            pass  # until host 0 hangs up
    assert links[0].linked() == [1, 2]
    links[1].send(0, "report", "fail")
    until(lambda: ended == [1], "the connection of host 1 has ended")
    links[2].send(0, "report", "well")
    until(lambda: heard == [(2, "well")], "host 2 is heard")
    until(linked(links[0], 1, 2), "host 1 has come back")
    assert ended == [1]
    noted = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ValueError")]
    assert noted == [f"ValueError: over {what}" for what in ("a guest", "a word", "an end")]


def _knock(address: Address) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
        return True
    return False


def test_words_for_one_who_does_not_read_are_refused_before_they_fill_the_memory(
    slice: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "WAITING", 200_000)
    slice.of(2)
    mine = slice.start(0)
    with socket.create_connection(_listening(slice.addresses[0])) as deaf:
        session = handshake.dial(deaf, KEY, 1, 0, 60)
        assert session is not None
        deaf.sendall(session.line(1, 1, "beat", None))
        until(linked(mine, 1), "linked")
        sent = 0
        while mine.send(1, "log", "x" * 100_000):
            sent += 1
            assert sent < 500, "it takes whatever it is given"


def _listening(address: Address) -> Address:
    until(lambda: _knock(address), "it listens")
    return address
