"""Google Cloud Storage on a laptop: the JSON API, uploads and batches, on loopback.

It runs in a thread of its own, so that large transfers do not delay the other emulated APIs of the process. Kept and
shown, and without effect: IAM policies, life-cycle rules. Missing: access control lists, soft delete, notifications,
decompressive transcoding, the XML API but for multipart uploads.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from tpujob.emulator.billed import Billed
from tpujob.emulator.http import (
    Body,
    Handler,
    HttpThread,
    Request,
    Response,
    TooLarge,
    json_response,
)
from tpujob.emulator.storage.batch import handle_batch
from tpujob.emulator.storage.disk import ObjectStore
from tpujob.emulator.storage.faults import StorageFaults, failing
from tpujob.emulator.storage.json_api import JsonApi
from tpujob.emulator.storage.model import StorageApiError
from tpujob.emulator.storage.parts import PartUploads
from tpujob.emulator.storage.upload import Uploads

#: None: not a path of this API
_Api = Callable[[Request], Awaitable[Response | None]]

_LINE = "tpujob-part"  #: between the parts of an upload of this process
_log = logging.getLogger(__name__)
_ONLY_JSON = (
    "There is nothing here: the emulator serves the JSON API of Cloud Storage, and of its XML API the "
    "multipart uploads."
)


class StorageServer:
    """Serves what the folder `state` holds, from the constructor to `stop`. Clients make the buckets, as in the cloud.

    `url` is what the official clients take as STORAGE_EMULATOR_HOST or `api_endpoint`. The constructor raises
    TpujobError when another server uses the folder, OSError when the port is taken.
    """

    def __init__(
        self,
        state: Path,
        port: int = 0,
        faults: StorageFaults | None = None,
        billed: Billed | None = None,
    ) -> None:
        self._disk = ObjectStore(state)
        self._uploads = Uploads(self._disk)
        self._parts = PartUploads(self._disk)
        apis = (self._uploads.handle, self._parts.handle, JsonApi(self._disk).handle)
        handler = _handler(apis, faults or StorageFaults(), billed or Billed())
        try:
            self._http = HttpThread(handler, port, name="storage")
        except OSError:
            self._disk.close()
            raise
        self.url = self._http.url

    async def put(self, url: str, metadata: Mapping[str, str], data: bytes) -> bool:
        """Write an object as a client would, but without a socket; whether it was written. `url`: of the object,
        `gs://`. For the event loop of any thread."""
        bucket, _, name = url.removeprefix("gs://").partition("/")
        facts = json.dumps({"name": name, "contentType": "text/plain", "metadata": {**metadata}})
        head = f"--{_LINE}\r\nContent-Type: application/json\r\n\r\n{facts}\r\n--{_LINE}\r\n\r\n"
        body = head.encode() + data + f"\r\n--{_LINE}--".encode()
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart"
        headers = {"host": "localhost", "content-type": f"multipart/related; boundary={_LINE}"}
        request = Request.parse("POST", target, headers, Body.of(body))
        return (await asyncio.wrap_future(self._http.ask(request))).status == 200

    def stop(self) -> None:
        """Afterwards nothing listens, every connection is closed and the files are at rest. Safe to repeat."""
        self._http.stop()
        self._uploads.close()
        self._parts.close()
        self._disk.close()


def _handler(apis: Sequence[_Api], faults: StorageFaults, billed: Billed) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            for api in apis:
                if found := await api(request):
                    return found
            return _error(StorageApiError(404, "notFound", _ONLY_JSON))
        except StorageApiError as error:
            return _error(error)
        except TooLarge:
            return _error(StorageApiError(413, "uploadTooLarge", "The body is too large."))
        except (UnicodeError, OverflowError) as error:
            return _error(StorageApiError(400, "invalid", f"Invalid text or number: {error}"))
        except OSError as error:
            # Not a 500 or 503: clients repeat those for minutes, and a full disk stays full.
            _log.exception("%s %s", request.method, request.path)
            return _error(StorageApiError(507, "backendError", f"The emulator's disk: {error}"))

    one = billed.counting(failing(answer, faults, _error))

    async def handle(request: Request) -> Response:
        if not request.of_this_machine:
            return _error(
                StorageApiError(403, "forbidden", "Only programs of this machine are served.")
            )
        if request.path.startswith("/batch"):
            try:
                return await handle_batch(request, one)
            except StorageApiError as error:
                return _error(error)
        return await one(request)

    return handle


def _error(error: StorageApiError) -> Response:
    return json_response(error.body(), error.status)
