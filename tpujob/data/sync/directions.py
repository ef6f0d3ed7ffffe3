"""The directions in which data is copied: which two ends, who copies, which names fit, which operations it costs."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tpujob.data.keys import FoldersAndFiles, why_no_file, why_no_object
from tpujob.data.objects import Objects, SourceReader
from tpujob.data.places import Folder, Place, Prefix
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.download import Downloader
from tpujob.data.sync.endpoints import FolderEndpoint, ListedEndpoint, SyncEndpoint
from tpujob.data.sync.server_copy import ServerCopier
from tpujob.data.sync.upload import Done, Importer, Uploader
from tpujob.errors import BadRequest


class Copier(Protocol):
    """Copies one pair; of which kinds its two ends are, the direction knows. Threads share it."""

    def same(self, pair: Any) -> bool: ...
    def copy(self, pair: Any) -> Done: ...


@dataclass(frozen=True, slots=True)
class Direction:
    source: SyncEndpoint[Any]
    target: SyncEndpoint[Any]
    copier: Copier
    why_not: Callable[[str], str]  #: why a key cannot be copied; keys come in their order
    #: class A and B of copying an object of that size
    operations: Callable[[int], tuple[int, int]]


def direction(
    source: Place,
    target: Place,
    objects: Objects,
    cache: ChecksumCache,
    reader: SourceReader | None,
    moved: Callable[[int], None],
) -> Direction:
    """`reader`: of a source outside Cloud Storage. `moved`: called with bytes that were sent or have arrived. Raises
    BadRequest where nothing is copied."""
    used: Any = objects if isinstance(source, Prefix) else reader
    if isinstance(source, Folder):
        begin: SyncEndpoint[Any] = FolderEndpoint(_real_path(source))
    else:
        from_storage = isinstance(source, Prefix)
        begin = ListedEndpoint(used, source.bucket, source.prefix, billed=from_storage)
    copier: Copier
    match source, target:
        case _, Folder():
            assert not isinstance(source, Folder)
            folder = _real_path(target)
            operations = _one_read if isinstance(source, Prefix) else _none
            copier = Downloader(used, source, folder, cache, moved)
            clashes = FoldersAndFiles()
            return Direction(
                begin,
                FolderEndpoint(folder),
                copier,
                lambda key: why_no_file(key) or clashes.why_not(key),
                operations,
            )
        case Folder(), Prefix():
            copier = Uploader(objects, cache, target, moved)
        case Prefix(), Prefix():
            copier = ServerCopier(objects, source, target, moved)
        case _, Prefix():
            copier = Importer(used, source, objects, target, moved)
        case _:
            raise BadRequest(f"nothing is copied from {source} to {target}")
    end = ListedEndpoint(objects, target.bucket, target.prefix, billed=True)
    return Direction(begin, end, copier, lambda key: _no_object(target, key), _one_write)


def _no_object(place: Prefix, key: str) -> str:
    return why_no_object(place.prefix + key) if key else "it has no name below SRC"


def _real_path(place: Folder) -> bytes:
    return os.path.realpath(os.fsencode(place.path))


def _one_write(_: int) -> tuple[int, int]:
    return 1, 0


def _one_read(size: int) -> tuple[int, int]:
    """An empty object needs no request."""
    return 0, int(size > 0)


def _none(_: int) -> tuple[int, int]:
    return 0, 0
