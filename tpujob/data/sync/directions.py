"""The directions in which data is copied: which two ends, who copies, which names fit, which operations it costs."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from tpujob.data.keys import FoldersAndFiles, why_no_file, why_no_object
from tpujob.data.locations import Folder, Place, Prefix
from tpujob.data.objects import NotCopied, ObjectFacts, Objects, SourceReader
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.download import Downloader
from tpujob.data.sync.endpoints import Items, in_folder, listed
from tpujob.data.sync.stream_copy import GONE
from tpujob.data.sync.upload import Done, Importer, Uploader
from tpujob.data.sync.workers import Pair
from tpujob.errors import BadRequest, Conflict, NotFound


@dataclass(frozen=True, slots=True)
class ServerCopier:
    """Threads share it."""

    objects: Objects
    source: Prefix
    target: Prefix
    moved: Callable[[int], None]

    def same(self, pair: Pair[ObjectFacts, ObjectFacts]) -> bool:
        return pair.source.same_bytes(pair.target)

    def copy(self, pair: Pair[ObjectFacts, ObjectFacts]) -> Done:
        """Afterwards there is an object with the same bytes. Raises Conflict when something else was written there
        meanwhile, NotCopied, and what `Objects` raises."""
        facts = pair.source
        if facts.crc32c is None:
            raise NotCopied("the storage does not say its checksum, so it cannot be verified")
        if self.same(pair):
            return "same"
        bucket, name = self.target.bucket, self.target.prefix + pair.key
        generation = pair.target.generation if pair.target else 0
        step: str | ObjectFacts = ""
        while isinstance(step, str):
            token = step
            try:
                step = self.objects.rewrite(
                    self.source.bucket, facts, bucket, name, generation, token
                )
            except Conflict:
                there = self.objects.look(bucket, name)
                # our own try whose answer was lost, or another machine's copy of the same
                if there and facts.same_bytes(there):
                    step = there
                    continue
                now = self.objects.look(self.source.bucket, facts.name)
                if now and now.generation == facts.generation:
                    raise Conflict("something else was written there meanwhile") from None
                raise NotCopied(GONE) from None
            except NotFound:
                if not token:
                    raise NotCopied(GONE) from None
                step = ""  # it has ended before its time: begin again
        if not facts.same_bytes(step):
            raise Conflict(f"the storage has made other bytes of {facts.name}")
        self.moved(facts.size)
        return "copied"


class Copier(Protocol):
    """Copies one pair; of which kinds its two ends are, the direction knows. Threads share it."""

    def same(self, pair: Any) -> bool: ...
    def copy(self, pair: Any) -> Done: ...


@dataclass(frozen=True, slots=True)
class Direction:
    source: Items
    target: Items
    copier: Copier
    why_not: Callable[[str], str]  #: why a key cannot be copied; keys come in their order
    operations: tuple[int, int]  #: class A and B of copying an object that is not empty


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
        begin: Items = partial(in_folder, _real_path(source))
    else:
        begin = partial(listed, used, source.bucket, source.prefix)
    copier: Copier
    match source, target:
        case _, Folder():
            assert not isinstance(source, Folder)
            folder = _real_path(target)
            operations = (0, int(isinstance(source, Prefix)))
            copier = Downloader(used, source, folder, cache, moved)
            clashes = FoldersAndFiles()
            return Direction(
                begin,
                partial(in_folder, folder),
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
    end = partial(listed, objects, target.bucket, target.prefix)

    def why_not(key: str) -> str:
        return why_no_object(target.prefix + key) if key else "it has no name below SRC"

    return Direction(begin, end, copier, why_not, (1, 0))


def _real_path(place: Folder) -> bytes:
    return os.path.realpath(os.fsencode(place.path))
