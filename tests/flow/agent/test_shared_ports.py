"""Hosts of one machine: a program's log says on which ports it would meet the programs of other slices."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tpujob.agent.processes import EMULATED_HOST
from tpujob.agent.setup.shared_ports import ports_of_other_slices, warn_of_shared_ports
from tpujob.emulator.farm.farm import free_everywhere

LISTEN = """
import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def listening(host: str, address: str, port: int) -> Generator[None]:
    """Run a program of that emulated host that listens, until the end of the block."""
    program = subprocess.Popen(
        [sys.executable, "-c", LISTEN, address, str(port)],
        env={**os.environ, EMULATED_HOST: host},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with program:
        assert program.stdout
        assert program.stdin
        assert program.stdout.readline()
        yield
        program.stdin.close()


def test_a_fixed_port_of_another_slice_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EMULATED_HOST, "farm/tj-000002-1/0/")
    everywhere, port = "0.0.0.0", free_everywhere()
    notes: list[str] = []
    with listening("farm/tj-000001-1/0/", everywhere, port):
        assert port in ports_of_other_slices()
        warn_of_shared_ports(notes.append)
        monkeypatch.delenv(EMULATED_HOST)
        assert ports_of_other_slices() == [], "a host of the cloud"
    (note,) = notes
    assert str(port) in note


@pytest.mark.parametrize(
    ("host", "address"),
    [("farm/tj-000002-1/1/", "0.0.0.0"), ("farm/tj-000001-1/0/", "127.0.0.1")],
    ids=["of this slice", "on one address"],
)
def test_other_listeners_are_not(monkeypatch: pytest.MonkeyPatch, host: str, address: str) -> None:
    monkeypatch.setenv(EMULATED_HOST, "farm/tj-000002-1/0/")
    port = free_everywhere()
    with listening(host, address, port):
        assert port not in ports_of_other_slices()
