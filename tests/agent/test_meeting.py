"""How the hosts of a slice meet: many of them, at a host 0 that may open few files; or not, behind a firewall."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.links import free_addresses
from tpujob.agent.base import Failure
from tpujob.agent.preflight import meeting, reach
from tpujob.agent.preflight.meeting import Meetings
from tpujob.agent.routes import Address
from tpujob.agent.voice import handshake, open_files
from tpujob.agent.voice.link import Ear, Links

KEY = "0a" * 32
HOSTS, FILES = 40, 20


class Met(Ear):
    """One host: its links, and what meets over them."""

    def __init__(self, host: int, addresses: list[Address], key: str = KEY) -> None:
        self.on: dict[str, Any] = {}
        self.links = Links(host, addresses, key, self)
        voice: Any = self
        self.meetings = Meetings(host, addresses, voice, self.links)
        self.links.start()

    def hear(self, host: int, kind: str, said: Any) -> None:
        self.on[kind](host, said)

    def meet(self, patience: float = 20, **said: Any) -> list[dict[str, Any]]:
        return self.meetings.meet(said, patience, lambda: None)


class Slice:
    def __init__(self, hosts: int) -> None:
        self.addresses: list[Address] = [*free_addresses(hosts)]
        self.pool, self.open = ThreadPoolExecutor(hosts), contextlib.ExitStack()

    def host(self, number: int, key: str = KEY) -> Met:
        made = Met(number, self.addresses, key)
        self.open.callback(made.links.close)
        return made


@pytest.fixture
def pair() -> Iterator[Slice]:
    made = Slice(2)
    with made.open, made.pool:
        yield made


def test_all_hosts_get_what_each_has_said_round_after_round(pair: Slice) -> None:
    hosts = [pair.host(0), pair.host(1)]
    for stage in ("facts", "devices"):
        met = [*pair.pool.map(lambda one, stage=stage: one.meet(stage=stage), hosts)]
        assert met == [[{"host": 0, "stage": stage}, {"host": 1, "stage": stage}]] * 2


def test_who_comes_late_learns_that_host_0_has_not_waited(pair: Slice) -> None:
    host_0 = pair.host(0)
    with pytest.raises(Failure, match="host 1 did not come to the pre-flight") as found:
        host_0.meet(0.1)
    assert found.value.late
    with pytest.raises(Failure, match="host 1 did not come to the pre-flight"):
        pair.host(1).meet()


def test_a_word_that_was_lost_with_its_link_is_said_again(
    pair: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "AGAIN", 0.1)
    host_1, send, lost = pair.host(1), Links.send, list[str]()

    def loses_the_first(self: Links, host: int, kind: str, said: Any) -> bool:
        if self is host_1.links and self.linked() and not lost:
            lost.append(kind)
            return True
        return send(self, host, kind, said)

    monkeypatch.setattr(Links, "send", loses_the_first)
    host_0 = pair.host(0)
    met = [*pair.pool.map(lambda one: one.meet(), (host_0, host_1))]
    assert met == [[{"host": 0}, {"host": 1}]] * 2
    assert lost == [meeting.KIND]


def test_who_does_not_have_the_key_takes_nobodys_place(pair: Slice) -> None:
    """The port is open to whoever is in the network."""
    host_0 = pair.pool.submit(pair.host(0).meet, of="the slice")
    stranger = pair.host(1, key="0b" * 32)
    with pytest.raises(Failure, match="host 0 did not come"):
        stranger.meet(0.5, of="elsewhere")
    stranger.links.close()
    host_1 = pair.host(1)
    assert host_1.meet(of="the slice") == host_0.result()
    assert {word["of"] for word in host_0.result()} == {"the slice"}


# Many hosts ----------------------------------------------------------------------------------------------------------

HOST_0 = """
import json, resource, subprocess, sys
few = (int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, few)
from tests.agent.test_meeting import Met
from tpujob.agent.voice import open_files
from tpujob.agent.voice import handshake
open_files.SPARE, handshake.CONNECT = 20, 20.0
host = Met(0, [tuple(one) for one in json.loads(sys.argv[2])])
words = host.meet(120)
host.links.close()
child = subprocess.Popen(["sleep", "60"])
open_files.as_before(child.pid)
print(json.dumps([len(words), resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == few]))
child.kill()
"""


def test_more_hosts_can_meet_than_a_session_may_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "CONNECT", 20.0)  # they are all in one process
    slice = Slice(HOSTS)
    words = [sys.executable, "-c", HOST_0, str(FILES), json.dumps(slice.addresses)]
    with slice.open, slice.pool, subprocess.Popen(words, stdout=subprocess.PIPE) as host_0:
        others = [slice.host(number) for number in range(1, HOSTS)]
        met = {len(words) for words in slice.pool.map(lambda one: one.meet(120), others)}
        said = host_0.communicate(timeout=120)[0]
    assert met == {HOSTS}
    count, as_before = json.loads(said)
    assert count == HOSTS
    assert as_before, "the program would get another limit than the host's"


def test_an_agent_that_may_open_enough_files_keeps_its_limit() -> None:
    before = open_files.resource.getrlimit(open_files.resource.RLIMIT_NOFILE)
    open_files.allow(1)
    assert open_files.resource.getrlimit(open_files.resource.RLIMIT_NOFILE) == before


# Hosts that cannot reach each other ----------------------------------------------------------------------------------


@pytest.fixture
def closed() -> Iterator[int]:
    """A port of this machine that answers nobody, as one behind a firewall: its queue of connections is full."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        for _ in range(8):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(("127.0.0.1", port))
        yield port


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "CONNECT", 0.2)
    monkeypatch.setattr(meeting, "CUT_OFF", 0.5)
    monkeypatch.setattr(meeting, "ANSWER", 0.5)


@pytest.mark.usefixtures("impatient")
def test_a_host_that_gets_no_answer_at_all_says_which_port_is_closed(
    pair: Slice, closed: int
) -> None:
    pair.addresses[0] = ("127.0.0.1", closed)
    with pytest.raises(Failure, match=f"host 1 cannot reach host 0 on TCP port {closed}") as found:
        pair.host(1).meet(600)
    assert found.value.cause == "SETUP"
    assert found.value.unreached == {"source": 1, "target": 0, "port": closed}
    assert not found.value.late


@pytest.mark.usefixtures("impatient")
def test_a_host_0_that_does_not_listen_yet_is_only_late(pair: Slice) -> None:
    """Its machine refuses connections, so packets get through."""
    with pytest.raises(Failure, match="host 0 did not come") as found:
        pair.host(1).meet(1.5)
    assert (found.value.cause, found.value.late, found.value.unreached) == ("PREFLIGHT", True, None)


@pytest.mark.usefixtures("impatient")
def test_the_ports_of_programs_are_tried_as_well(closed: int) -> None:
    """The rule of a firewall may let one port through and forget another."""
    (free,) = free_addresses(1)
    with socket.create_server((free[0], 0)) as open_:
        ports = [free[1], open_.getsockname()[1]]
        assert reach.closed_port(free[0], ports, lambda: None) is None
        assert reach.closed_port("127.0.0.1", [*ports, closed], lambda: None) == closed


def test_all_hosts_name_the_same_closed_port() -> None:
    words = [{"host": 0}, {"host": 1, "closed": None}, {"host": 2, "closed": 8476}]
    words.append({"host": 3, "closed": 8080})
    failure = reach.first_closed(words)
    assert failure is not None
    assert failure.unreached == {"source": 2, "target": 0, "port": 8476}
    assert reach.first_closed(words[:2]) is None


@pytest.mark.parametrize(
    "odd", [None, [], {}, {"round": []}, {"round": "1", "said": {}}, {"round": 1, "said": 1}]
)
def test_an_odd_word_is_no_meeting(pair: Slice, odd: Any) -> None:
    host = pair.host(0)
    host.hear(1, meeting.KIND, odd)
    with pytest.raises(Failure, match="host 1 did not come"):
        host.meet(patience=0)
