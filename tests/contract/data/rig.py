"""Fixtures and helpers of the tests of `tpujob.data`."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from google.cloud.storage import blob

from tests.contract.emulator.storage_rig import ask
from tests.support.waiting import LONG
from tpujob.adapters.gcs import client
from tpujob.adapters.gcs import objects as gcs_objects
from tpujob.adapters.gcs.objects import JsonObjects
from tpujob.data.locations import Place, parse
from tpujob.data.objects import CopyOutcome, SourceReader
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.run import Preview, Sync
from tpujob.protocol.left_out import LeftOut


class Silent:
    def planned(self, size: int) -> None: ...
    def moved(self, size: int) -> None: ...


def split_uploads(monkeypatch: pytest.MonkeyPatch, above: int) -> None:
    """Objects of more bytes are uploaded in pieces of 256 KiB."""
    monkeypatch.setattr(gcs_objects, "SMALL", above)
    monkeypatch.setattr(blob, "_MAX_MULTIPART_SIZE", above)
    monkeypatch.setattr(client, "PIECE", 256 << 10)


class Requests(JsonObjects):
    """Cloud Storage whose requests that write pass through `write_request`."""

    def write_request(self, send: Callable[..., Any], method: str, url: str, **options: Any) -> Any:
        return send(method, url, **options)

    def connect(self) -> Any:
        google = super().connect()
        send = google._http.request

        def request(method: str, url: str, **options: Any) -> Any:
            if method in ("POST", "PUT"):
                return self.write_request(send, method, url, **options)
            return send(method, url, **options)

        google._http.request = request
        return google


class Rig:
    """A bucket of its own, the folder `source`, and a cache of checksums that outlives each sync."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.bucket = f"b-{uuid.uuid4().hex[:12]}"
        ask(url, "POST", "/storage/v1/b?project=p", json.dumps({"name": self.bucket}).encode())
        self.source = folder / "source"
        self.source.mkdir(parents=True)
        self.place = f"gs://{self.bucket}/data"
        self.objects = JsonObjects(url, patience=LONG)
        self.cache = ChecksumCache(folder / "ledger")
        self._others: list[JsonObjects] = []

    def close(self) -> None:
        self.cache.close()
        for objects in (self.objects, *self._others):
            objects.close()

    def write(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def put(self, name: str, data: bytes) -> None:
        """Write an object as another program does."""
        path = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={quote(name, safe='')}"
        status, _, answer = ask(self.url, "POST", path, data)
        assert status == 200, answer

    def sync(
        self, source: object = "", target: object = "", objects: JsonObjects | None = None
    ) -> CopyOutcome:
        """Sync up, unless another source and target are given. Operations are counted from 0."""
        return self._sync(source, target, objects).run()

    def before(self, method: str, act: Callable[[], object]) -> JsonObjects:
        """Return the storage in which `act` happens once, just before the first call of that method."""
        objects = JsonObjects(self.url, patience=LONG)
        real = getattr(objects, method)

        def first(*arguments: Any) -> Any:
            setattr(objects, method, real)
            act()
            return real(*arguments)

        setattr(objects, method, first)
        return objects

    def preview(self, source: object = "", target: object = "") -> Preview:
        return self._sync(source, target, None).preview()

    def from_outside(
        self,
        source: Place,
        target: object,
        reader: SourceReader,
        objects: JsonObjects | None = None,
    ) -> CopyOutcome:
        """Sync from a source outside Cloud Storage."""
        return self._made(source, parse(str(target)), objects, reader).run()

    def preview_outside(self, source: Place, target: object, reader: SourceReader) -> Preview:
        return self._made(source, parse(str(target)), None, reader).preview()

    def _sync(self, source: object, target: object, objects: JsonObjects | None) -> Sync:
        places = parse(str(source or self.source)), parse(str(target or self.place))
        return self._made(*places, objects)

    def _made(
        self, source: Place, target: Place, objects: JsonObjects | None, reader: Any = None
    ) -> Sync:
        used = objects or self.objects
        self._others.append(used)
        used.operations.class_a = used.operations.class_b = 0
        return Sync(source, target, used, self.cache, Silent(), reader)

    def stored(self) -> dict[str, bytes]:
        """Return every object below the place, as another program reads it."""
        contents: dict[str, bytes] = {}
        for page in self.objects.pages(self.bucket, "data/"):
            for facts in page:
                path = f"/storage/v1/b/{self.bucket}/o/{quote(facts.name, safe='')}?alt=media"
                contents[facts.name.removeprefix("data/")] = ask(self.url, "GET", path)[2]
        return contents


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def named(problems: list[LeftOut]) -> dict[str, str]:
    return {problem.name: problem.reason for problem in problems}
