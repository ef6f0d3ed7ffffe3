"""The directions in which data is copied: which two sides, who copies, which names fit, which operations it costs."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tpujob.data.keys import FoldersAndFiles, why_no_file, why_no_object
from tpujob.data.objects import Objects, Reader
from tpujob.data.places import Folder, Outside, Place, Prefix
from tpujob.data.sync.download import Downloader
from tpujob.data.sync.ledger import Ledger
from tpujob.data.sync.relay import Relay
from tpujob.data.sync.rewrite import Rewriter
from tpujob.data.sync.sides import FolderSide, ListedSide, Side
from tpujob.data.sync.told import Told
from tpujob.data.sync.upload import Done, Uploader
from tpujob.errors import BadRequest


class Copier(Protocol):
    """Copies one pair; of which kinds its sides are, the way knows. Threads share it."""

    def same(self, pair: Any) -> bool: ...
    def copy(self, pair: Any) -> Done: ...


@dataclass(frozen=True, slots=True)
class Way:
    source: Side[Any]
    target: Side[Any]
    copier: Copier
    why_not: Callable[
        [], Callable[[str], str]
    ]  #: makes the rule that says why a key cannot be copied
    operations: Callable[[int], tuple[int, int]]  #: class A and B of copying an object of that size


def way(
    source: Place,
    target: Place,
    objects: Objects,
    ledger: Ledger,
    told: Told,
    reader: Reader | None,
) -> Way:
    """`reader`: of a source outside Cloud Storage. Raises BadRequest where nothing is copied."""
    if isinstance(source, Folder) and isinstance(target, Prefix):
        copier = Uploader(objects, ledger, target, told)
        side = FolderSide(_folder(source))
        return Way(side, _listed(target, objects), copier, _objects_of(target), _one_write)
    if isinstance(source, Prefix) and isinstance(target, Prefix):
        rewriter = Rewriter(objects, ledger, source, target, told)
        sides = _listed(source, objects), _listed(target, objects)
        return Way(*sides, rewriter, _objects_of(target), _one_write)
    if isinstance(source, Prefix | Outside) and isinstance(target, Folder):
        return _down(source, target, objects, ledger, told, reader)
    if isinstance(source, Outside) and isinstance(target, Prefix) and reader:
        relay = Relay(reader, source, objects, ledger, target, told)
        sides = _outside(source, reader), _listed(target, objects)
        return Way(*sides, relay, _objects_of(target), _one_write)
    raise BadRequest(f"nothing is copied from {source} to {target}")


def _down(
    source: Prefix | Outside,
    target: Folder,
    objects: Objects,
    ledger: Ledger,
    told: Told,
    reader: Reader | None,
) -> Way:
    if isinstance(source, Prefix):
        listed, reader, operations = _listed(source, objects), objects, _one_read
    else:
        assert reader
        listed, operations = _outside(source, reader), _none
    folder = _folder(target)
    downloader = Downloader(reader, source, folder, ledger, told)
    return Way(listed, FolderSide(folder), downloader, _files, operations)


def _folder(place: Folder) -> bytes:
    return os.path.realpath(os.fsencode(place.path))


def _listed(place: Prefix, objects: Objects) -> ListedSide:
    return ListedSide(objects, place.bucket, place.prefix, billed=True)


def _outside(place: Outside, reader: Reader) -> ListedSide:
    return ListedSide(reader, place.bucket, place.prefix, billed=False)


def _objects_of(place: Prefix) -> Callable[[], Callable[[str], str]]:
    def why_not(key: str) -> str:
        return why_no_object(place.prefix + key) if key else "it has no name below SRC"

    return lambda: why_not


def _files() -> Callable[[str], str]:
    clashes = FoldersAndFiles()
    return lambda key: why_no_file(key) or clashes.why_not(key)


def _one_write(_: int) -> tuple[int, int]:
    return 1, 0


def _one_read(size: int) -> tuple[int, int]:
    """An empty object needs no request."""
    return 0, int(size > 0)


def _none(_: int) -> tuple[int, int]:
    return 0, 0
