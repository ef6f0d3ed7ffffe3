"""Links between hosts of a slice in tests: where they listen, and how fast they find each other lost."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket

import pytest

from tpujob.agent.voice import handshake, link, uplink


def free_addresses(count: int) -> list[tuple[str, int]]:
    """Free until somebody listens there. They are on a loopback address of their own: on 127.0.0.1 any connection that
    another test opens may get such a port as its own one, and keep it."""
    at = f"127.{100 + os.getpid() % 100}.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
    with contextlib.ExitStack() as held:
        servers = [held.enter_context(socket.create_server((at, 0))) for _ in range(count)]
        return [server.getsockname() for server in servers]


def free_peers(count: int) -> list[str]:
    """The same, as plans name them."""
    return [f"{name}:{port}" for name, port in free_addresses(count)]


def quick_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a link is tried after fractions of a second. It is lost when one of its ends closes it, however long
    a busy machine keeps an end from saying anything."""
    monkeypatch.setattr(link, "BEAT", 0.05)
    monkeypatch.setattr(link, "DEAD", 60.0)
    monkeypatch.setattr(handshake, "CONNECT", 60.0)
    monkeypatch.setattr(uplink, "LAST", 0.2)


def impatient_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on an end that says nothing for fractions of a second counts as lost, too. A busy machine may make that
    of any link, so nothing is sure that has been linked once."""
    monkeypatch.setattr(link, "DEAD", 0.4)
    monkeypatch.setattr(handshake, "CONNECT", 0.3)
