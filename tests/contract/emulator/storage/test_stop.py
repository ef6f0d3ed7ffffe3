"""A storage server is stopped while clients are still coming in."""

import asyncio
import contextlib
import gc
import socket
import sys
import threading
from pathlib import Path

import pytest
from starlette.responses import Response

from tests.support.waiting import LONG
from tpujob.emulator.http_server import HttpServer, Request
from tpujob.emulator.storage import StorageServer

#: connections that come before the server is stopped; more follow while it is
BEFORE = 20


def test_a_stop_leaves_no_connection_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: dropped.append(str(event.exc_value)))
    for turn in range(5):
        _stopped_while_clients_come(tmp_path / f"{turn}")
    gc.collect()
    assert not dropped, f"{len(dropped)} were dropped as they were, such as {dropped[0]}"


def test_a_client_that_leaves_before_its_answer_leaves_no_task_behind() -> None:
    async def leave() -> None:
        arrived, gone = asyncio.Event(), asyncio.Event()

        async def slow(_: Request) -> Response:
            arrived.set()
            await gone.wait()
            return Response(status_code=204)

        server = HttpServer(slow)
        _, wire = await asyncio.open_connection("127.0.0.1", await server.start("127.0.0.1"))
        wire.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await arrived.wait()
        (serving,) = asyncio.all_tasks() - {asyncio.current_task()}
        wire.transport.abort()
        while server._state.connections:
            await asyncio.sleep(0)
        gone.set()
        await asyncio.wait_for(serving, LONG)
        await server.close()

    asyncio.run(leave())


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
