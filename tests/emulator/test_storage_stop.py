"""A storage server is stopped while clients are still coming in."""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
import threading
from pathlib import Path

import pytest

from tpujob.emulator.storage import StorageServer

#: connections that come before the server is stopped; more follow while it is
BEFORE = 20


def test_a_stopped_storage_leaves_no_connection_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: left.append(str(found.exc_value)))
    for turn in range(5):
        _stopped_while_clients_come(tmp_path / f"{turn}")
    gc.collect()
    assert not left, f"{len(left)} were dropped as they were, such as {left[0]}"


def _stopped_while_clients_come(state: Path) -> None:
    server = StorageServer(state)
    port = int(server.url.rpartition(":")[2])
    clients: list[socket.socket] = []
    enough = threading.Event()

    def come() -> None:
        with contextlib.suppress(OSError):  # it listens no more
            while len(clients) < 10 * BEFORE:
                clients.append(socket.create_connection(("127.0.0.1", port), timeout=5))
                if len(clients) >= BEFORE:
                    enough.set()

    coming = threading.Thread(target=come)
    coming.start()
    assert enough.wait(30)
    server.stop()
    coming.join()
    for client in clients:
        client.close()
