"""Meetings of a slice's hosts: with many hosts and few file descriptors on host 0, and behind a firewall."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.addresses import free_addresses
from tests.support.agent_host import until
from tests.support.waiting import LONG
from tpujob.agent.base import Failure
from tpujob.agent.setup import meeting
from tpujob.agent.setup.meeting import KIND, Meetings
from tpujob.protocol import signing

KEY = "0a" * 32
HOSTS = 40


class Slice:
    """The hosts of a slice, with the address and threads for their meetings."""

    def __init__(self, hosts: int, **times: float) -> None:
        (self.address,) = free_addresses(1)
        self.hosts, self.times = hosts, times
        self.pool, self.open = ThreadPoolExecutor(hosts), contextlib.ExitStack()

    def host(self, number: int, key: str = KEY) -> HostMeetings:
        made = type("Timed", (HostMeetings,), self.times)(number, self.hosts, self.address, key)
        self.open.callback(made.close)
        return made


class HostMeetings(Meetings):
    def exchange(self, patience: float = 20, **message: Any) -> list[dict[str, Any]]:
        return self.meet(message, patience, lambda: None)


@pytest.fixture
def pair() -> Iterator[Slice]:
    made = Slice(2)
    with made.open, made.pool:
        yield made


def test_all_hosts_get_all_messages_in_each_round(pair: Slice) -> None:
    hosts = [pair.host(0), pair.host(1)]
    for stage in ("facts", "devices"):
        results = [*pair.pool.map(lambda host, stage=stage: host.exchange(stage=stage), hosts)]
        assert results == [[{"host": 0, "stage": stage}, {"host": 1, "stage": stage}]] * 2


def test_a_late_host_learns_that_host_0_has_not_waited(pair: Slice) -> None:
    host_0 = pair.host(0)
    with pytest.raises(Failure, match="host 1 did not come to the pre-flight") as error:
        host_0.exchange(0.1)
    assert error.value.late
    with pytest.raises(Failure, match="host 1 did not come to the pre-flight"):
        pair.host(1).exchange()


def question(number: str, host: int = 1, key: str = KEY) -> bytes:
    """Return a host's request in answer to that number of host 0."""
    parts = ("00", str(host), "1", "{}")
    made = {"number": "00", "host": host, "round": 1, "text": "{}"}
    return json.dumps({**made, "mac": signing.sign(key, KIND, number, *parts)}).encode()


def test_a_question_of_a_stranger_or_of_another_connection_is_not_believed(pair: Slice) -> None:
    host_0, answers = pair.host(0), list[bytes]()
    for make in (
        lambda number: question(number, key="0b" * 32),
        lambda number: question("0" * 32),
        lambda number: question(number, host=0),
        lambda number: question(number, host=2),
        lambda number: b"[]",
        lambda number: b'{"mac": 1, "number": [], "text": {}}',
    ):
        sock = until(lambda: connected(pair.address), "host 0 listens")
        with sock:
            number = sock.recv(100).decode().strip()
            sock.sendall(make(number) + b"\n")
            answers.append(sock.recv(100))
    assert answers == [b""] * 6
    with pytest.raises(Failure, match="host 1 did not come"):
        host_0.exchange(0.1)


def connected(address: tuple[str, int]) -> socket.socket | None:
    with contextlib.suppress(OSError):
        return socket.create_connection(address, timeout=LONG)
    return None


def test_a_host_without_the_key_takes_no_place(pair: Slice) -> None:
    """The port is open to the whole network."""
    host_0 = pair.pool.submit(pair.host(0).exchange, of="the slice")
    stranger = pair.host(1, key="0b" * 32)
    with pytest.raises(Failure, match="host 0 did not come"):
        stranger.exchange(0.5, of="elsewhere")
    host_1 = pair.host(1)
    assert host_1.exchange(of="the slice") == host_0.result()
    assert {message["of"] for message in host_0.result()} == {"the slice"}


# Many hosts ----------------------------------------------------------------------------------------------------------


def test_many_hosts_can_meet() -> None:
    slice = Slice(HOSTS, connect=20.0)  # they are all in one process
    with slice.open, slice.pool:
        hosts = [slice.host(number) for number in range(HOSTS)]
        results = [*slice.pool.map(lambda host: host.exchange(120), hosts)]
    assert all([message["host"] for message in messages] == [*range(HOSTS)] for messages in results)


# Hosts that cannot reach each other ----------------------------------------------------------------------------------


@pytest.fixture
def closed() -> Iterator[int]:
    """A port of this machine that gives no answer, as behind a firewall: its queue of connections is full."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        for _ in range(8):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(("127.0.0.1", port))
        yield port


IMPATIENT = {"reach": 0.2, "cut_off": 0.5, "answer": 0.5}


def test_a_host_without_any_answer_says_which_port_is_closed(pair: Slice, closed: int) -> None:
    pair.address, pair.times = ("127.0.0.1", closed), IMPATIENT
    with pytest.raises(Failure, match=f"host 1 cannot reach host 0 on TCP port {closed}") as error:
        pair.host(1).exchange(600)
    assert error.value.cause == "SETUP"
    assert error.value.unreached == {"source": 1, "target": 0, "port": closed}
    assert not error.value.late


def test_a_host_0_that_does_not_listen_yet_is_only_late(pair: Slice) -> None:
    """A refused connection shows that packets get through."""
    pair.times = IMPATIENT
    with pytest.raises(Failure, match="host 0 did not come") as error:
        pair.host(1).exchange(1.5)
    assert (error.value.cause, error.value.late, error.value.unreached) == ("PREFLIGHT", True, None)


def test_the_ports_of_programs_are_tried_as_well(closed: int) -> None:
    """The rule of a firewall may let one port through and forget another."""
    (free,) = free_addresses(1)
    with socket.create_server((free[0], 0)) as open_:
        ports = [free[1], open_.getsockname()[1]]
        assert meeting.find_closed_port(free[0], ports, lambda: None, 0.2) is None
        assert meeting.find_closed_port("127.0.0.1", [*ports, closed], lambda: None, 0.2) == closed


def test_all_hosts_name_the_same_closed_port() -> None:
    messages = [{"host": 0}, {"host": 1, "closed": None}, {"host": 2, "closed": 8476}]
    messages.append({"host": 3, "closed": 8080})
    failure = meeting.closed_port_failure(messages)
    assert failure is not None
    assert failure.unreached == {"source": 2, "target": 0, "port": 8476}
    assert meeting.closed_port_failure(messages[:2]) is None
