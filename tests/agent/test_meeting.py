"""How the hosts of a slice meet: many of them, at a host 0 that may open few files; or not, behind a firewall."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tpujob.agent.base import Failure
from tpujob.agent.preflight import meeting, reach
from tpujob.agent.preflight.meeting import meet

HOSTS, FILES = 60, 32

HOST_0 = """
import json, resource, sys
from tpujob.agent.preflight.meeting import meet
few = (int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, few)
words = meet(sys.argv[2], {"job": "1", "attempt": 1, "host": 0}, int(sys.argv[3]), 30, lambda: None)
print(json.dumps([len(words), resource.getrlimit(resource.RLIMIT_NOFILE) == few]))
"""


def test_more_hosts_can_meet_than_a_session_may_open_files() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [sys.executable, "-c", HOST_0, str(FILES), address, str(HOSTS)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as host_0:

        def other(number: int) -> int:
            said = {"job": "1", "attempt": 1, "host": number}
            return len(meet(address, said, HOSTS, 30, lambda: None))

        with ThreadPoolExecutor(HOSTS) as pool:
            met = set(pool.map(other, range(1, HOSTS)))
        said = host_0.communicate(timeout=60)[0]
    assert met == {HOSTS}
    count, as_before = json.loads(said)
    assert count == HOSTS
    assert as_before, "the program would get another limit than the host's"


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
    for module in (meeting, reach):
        monkeypatch.setattr(module, "CONNECT", 0.2)
    monkeypatch.setattr(meeting, "CUT_OFF", 0.5)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.mark.usefixtures("impatient")
def test_a_host_that_gets_no_answer_at_all_says_which_port_is_closed(closed: int) -> None:
    said = {"job": "1", "attempt": 1, "host": 3}
    with pytest.raises(Failure, match=f"host 3 cannot reach host 0 on TCP port {closed}") as found:
        meet(f"127.0.0.1:{closed}", said, 4, 600, lambda: None)
    assert found.value.cause == "SETUP"
    assert found.value.unreached == {"source": 3, "target": 0, "port": closed}
    assert not found.value.late


@pytest.mark.usefixtures("impatient")
def test_a_host_0_that_does_not_listen_yet_is_only_late() -> None:
    """Its machine refuses connections, so packets get through."""
    said = {"job": "1", "attempt": 1, "host": 3}
    with pytest.raises(Failure, match="host 0 did not come") as found:
        meet(f"127.0.0.1:{free_port()}", said, 4, 1.5, lambda: None)
    assert (found.value.cause, found.value.late, found.value.unreached) == ("PREFLIGHT", True, None)


@pytest.mark.usefixtures("impatient")
def test_the_ports_of_programs_are_tried_as_well(closed: int) -> None:
    """The rule of a firewall may let one port through and forget another."""
    with socket.create_server(("127.0.0.1", 0)) as open_:
        ports = [free_port(), open_.getsockname()[1]]
        assert reach.closed_port("127.0.0.1", ports, lambda: None) is None
        assert reach.closed_port("127.0.0.1", [*ports, closed], lambda: None) == closed


def test_all_hosts_name_the_same_closed_port() -> None:
    words = [{"host": 0}, {"host": 1, "closed": None}, {"host": 2, "closed": 8476}]
    words.append({"host": 3, "closed": 8080})
    failure = reach.first_closed(words)
    assert failure is not None
    assert failure.unreached == {"source": 2, "target": 0, "port": 8476}
    assert reach.first_closed(words[:2]) is None
