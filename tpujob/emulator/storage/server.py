"""Google Cloud Storage on a laptop: the JSON API, uploads, batches and enough of the XML API, on loopback.

`start_storage` serves it from a thread of its own with its own event loop, so that large transfers and the other
emulated APIs of the process do not wait for each other. What it does not have: access control lists, IAM, soft delete,
life-cycle rules, notifications, decompressive transcoding.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
from pathlib import Path

from tpujob.emulator.storage.batch import handle_batch
from tpujob.emulator.storage.disk import Disk
from tpujob.emulator.storage.faults import StorageFaults, failing
from tpujob.emulator.storage.http import serve
from tpujob.emulator.storage.json_api import JsonApi
from tpujob.emulator.storage.messages import Cut, Handler, Request, Response, TooLarge
from tpujob.emulator.storage.model import ApiError
from tpujob.emulator.storage.upload import Uploads
from tpujob.emulator.storage.xml_api import XmlApi

_log = logging.getLogger(__name__)
_LOOPBACK = re.compile(r"(127\.\d+\.\d+\.\d+|localhost|\[::1\])(:\d+)?")


class StorageServer:
    """A running server. `url` is what the official clients take as STORAGE_EMULATOR_HOST or `api_endpoint`."""

    def __init__(self, state: Path, port: int, faults: StorageFaults) -> None:
        self._faults = faults
        self._disk = Disk(state)
        try:
            self._socket = socket.create_server(("127.0.0.1", port), backlog=1024)
        except OSError:
            self._disk.close()
            raise
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Afterwards nothing listens, every connection is closed and the files are at rest. Safe to repeat."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        uploads, xml = Uploads(self._disk), XmlApi(self._disk)
        handler = make_handler(JsonApi(self._disk), uploads, xml, self._faults)
        try:
            server, connections = await serve(self._socket, handler)
            await self._end.wait()
            # nobody else is let in, and who was joins the others; a server that is closed drops these as they are
            self._loop.remove_reader(self._socket)
            await _turns()
            server.close()
            for connection in list(connections):
                await connection.end()
            await _turns()  # in which asyncio closes their sockets
        finally:
            uploads.close()
            xml.close()
            self._disk.close()


async def _turns() -> None:
    """Let asyncio do what it has put off: accepting and closing take a few turns of its loop."""
    for _ in range(5):
        await asyncio.sleep(0)


def start_storage(state: Path, port: int = 0, faults: StorageFaults | None = None) -> StorageServer:
    """Serve what the folder `state` holds, on loopback; returns when connections are accepted.

    Buckets are made by clients, as in the cloud. A fault is met by the requests that come after it is set. Raises
    TpujobError when another server uses the folder, OSError when the port is taken.
    """
    return StorageServer(state, port, faults or StorageFaults())


def make_handler(api: JsonApi, uploads: Uploads, xml: XmlApi, faults: StorageFaults) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            found = await uploads.handle(request) or await api.handle(request)
            return found or await xml.handle(request)
        except ApiError as error:
            return _error(error)
        except TooLarge:
            return _error(ApiError(413, "uploadTooLarge", "The body is too large."))
        except (UnicodeError, OverflowError) as error:
            return _error(ApiError(400, "invalid", f"Invalid text or number: {error}"))
        except Cut:
            raise
        except OSError as error:
            # Not a 500 or 503: clients repeat those for minutes, and a full disk stays full.
            _log.exception("%s %s", request.method, request.path)
            return _error(ApiError(507, "backendError", f"The emulator's disk: {error}"))
        except Exception:
            _log.exception("%s %s", request.method, request.path)
            return _error(ApiError(500, "backendError", "The emulator failed; see its log."))

    one = failing(answer, faults, _error)

    async def handle(request: Request) -> Response:
        # A web page that a person has open can reach loopback too: by a name that it points there, or across origins.
        host = request.headers.get("host", "")
        if not _LOOPBACK.fullmatch(host) or "origin" in request.headers:
            return _error(ApiError(403, "forbidden", "Only programs of this machine are served."))
        if request.path.startswith("/batch"):
            try:
                return await handle_batch(request, one)
            except ApiError as error:
                return _error(error)
        return await one(request)

    return handle


def _error(error: ApiError) -> Response:
    if error.status == 304:
        return Response(304)
    headers = {"Content-Type": "application/json; charset=UTF-8"}
    return Response(error.status, headers, json.dumps(error.body()).encode())
