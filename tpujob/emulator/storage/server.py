"""Google Cloud Storage on a laptop: the JSON API, the XML API for objects, uploads and batches, on loopback.

The server runs in its own thread, so that large transfers do not delay the other emulated APIs of the process. IAM
policies and life-cycle rules are stored and shown, but have no effect. Access control lists, soft delete, notifications
and decompressive transcoding are not emulated.
"""

import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from starlette.responses import Response

from tpujob.emulator.http_server import Handler, HttpThread, Request, TooLarge, json_response
from tpujob.emulator.storage.answers import error_response
from tpujob.emulator.storage.disk import ObjectStore
from tpujob.emulator.storage.faults import Billed, StorageFaults, failing
from tpujob.emulator.storage.json_api import JsonApi, handle_batch
from tpujob.emulator.storage.model import StorageApiError, invalid
from tpujob.emulator.storage.upload import Uploads
from tpujob.emulator.storage.xml_api import XmlApi, is_xml

#: returns None for a path of another API
_Api = Callable[[Request], Awaitable[Response | None]]

_S3 = re.compile(b"^x-amz-")
_log = logging.getLogger(__name__)


class StorageServer:
    """A server of the objects in the folder `state`, from the constructor to `stop`. Clients make the buckets, as in
    the cloud. Official clients take `url` as STORAGE_EMULATOR_HOST or `api_endpoint`. The constructor raises
    TpujobError when another server uses the folder, OSError when the port is taken."""

    def __init__(
        self,
        state: Path,
        port: int = 0,
        faults: StorageFaults | None = None,
        billed: Billed | None = None,
        tls: tuple[Path, ssl.SSLContext] | None = None,
    ) -> None:
        """`tls`: the path of a Unix socket on which the same objects are served by TLS, and its context."""
        self._disk = ObjectStore(state)
        self._uploads = Uploads(self._disk)
        self._xml = XmlApi(self._disk)
        apis = (self._uploads.handle, JsonApi(self._disk).handle, self._xml.handle)
        handler = _handler(apis, faults or StorageFaults(), billed or Billed())
        try:
            self._http = HttpThread(handler, port, name="storage", tls=tls)
        except OSError:
            self._disk.close()
            raise
        self.url = self._http.url

    def stop(self) -> None:
        """Stop listening, close every connection, then close the files. Safe to repeat."""
        self._http.stop()
        self._uploads.close()
        self._xml.close()
        self._disk.close()


def _handler(apis: Sequence[_Api], faults: StorageFaults, billed: Billed) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            for api in apis:
                if response := await api(request):
                    return response
            raise StorageApiError(404, "notFound", "There is nothing here.")
        except StorageApiError as error:
            return _error(request, error)
        except TooLarge:
            text = "The body is too large."
            return _error(request, StorageApiError(413, "uploadTooLarge", text))
        except (UnicodeError, OverflowError) as error:
            return _error(request, invalid(f"Invalid text or number: {error}"))
        except OSError as error:
            # Not a 500 or 503: clients repeat those for minutes, and a full disk stays full.
            _log.exception("%s %s", request.method, request.path)
            text = f"The emulator's disk: {error}"
            return _error(request, StorageApiError(507, "backendError", text))

    single = billed.counting(failing(answer, faults, _error))

    async def handle(request: Request) -> Response:
        # Google's names in place of the equal names of S3 (documented: simple migration)
        headers = request.scope["headers"]
        request.scope["headers"] = [(_S3.sub(b"x-goog-", name), value) for name, value in headers]
        if not request.is_from_this_machine:
            text = "Only programs of this machine are served."
            return _error(request, StorageApiError(403, "forbidden", text))
        if request.path.startswith("/batch"):
            try:
                return await handle_batch(request, single)
            except StorageApiError as error:
                return _error(request, error)
        return await single(request)

    return handle


def _error(request: Request, error: StorageApiError) -> Response:
    return error_response(error) if is_xml(request) else json_response(error.body(), error.status)
