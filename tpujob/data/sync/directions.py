"""Directions of a sync: the lists, copier, valid names and billed operations of each kind of source and target."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, Self

from tpujob.data.keys import FoldersAndFiles, why_no_file
from tpujob.data.locations import Folder, Place, Prefix
from tpujob.data.objects import NotCopied, ObjectFacts, Objects, SourceReader
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.download import Downloader
from tpujob.data.sync.endpoints import Items, in_folder, in_storage, named_files
from tpujob.data.sync.stream_copy import GONE
from tpujob.data.sync.upload import Done, Importer, Uploader
from tpujob.data.sync.workers import Pair
from tpujob.errors import BadRequest, Conflict, NotFound
from tpujob.protocol.left_out import LeftOut, why_no_object

#: most keys that are looked up one by one; of more, the whole target is listed
NAMED = 100


@dataclass(frozen=True, slots=True)
class ServerCopier:
    """A copier between prefixes of Cloud Storage, without a transfer to this machine. Threads share it."""

    objects: Objects
    source: Prefix
    target: Prefix
    moved: Callable[[int], None]

    def is_same(self, pair: Pair[ObjectFacts, ObjectFacts]) -> bool:
        return pair.source.same_bytes(pair.target)

    def copy(self, pair: Pair[ObjectFacts, ObjectFacts]) -> Done:
        """Copy an object. Raises Conflict if another object has the name by now, NotCopied, errors of `Objects`."""
        facts = pair.source
        if facts.crc32c is None:
            raise NotCopied("the storage does not say its checksum, so it cannot be verified")
        if self.is_same(pair):
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
                target = self.objects.look(bucket, name)
                # an earlier try without an answer, or another machine's copy, has written the same bytes
                if target and facts.same_bytes(target):
                    step = target
                    continue
                source = self.objects.look(self.source.bucket, facts.name)
                if source and source.generation == facts.generation:
                    raise Conflict("something else was written there meanwhile") from None
                raise NotCopied(GONE) from None
            except NotFound:
                if not token:
                    raise NotCopied(GONE) from None
                step = ""  # the token has expired
        if not facts.same_bytes(step):
            raise Conflict(f"the storage has made other bytes of {facts.name}")
        self.moved(facts.size)
        return "copied"


class Copier(Protocol):
    """A copier of pairs, whose types depend on the direction. Threads share it."""

    def is_same(self, pair: Any) -> bool: ...
    def copy(self, pair: Any) -> Done: ...


@dataclass(frozen=True, slots=True)
class Direction:
    """The parts of a sync that depend on the kinds of source and target."""

    source: Items
    target: Items
    #: looks up the target's items of these keys alone
    named: Callable[[Sequence[str]], Iterator[tuple[str, Any]]]
    copier: Copier
    why_not: Callable[[str], str]  #: returns why a key cannot be copied; keys come in order
    operations: tuple[int, int]  #: operations of class A and B for an object that is not empty

    def only(self, chosen: Sequence[tuple[str, Any]]) -> Self:
        """Return the direction for these source items, in the order of their keys."""
        keys = [key for key, _ in chosen]

        def source(leave_out: Callable[[LeftOut], None]) -> Iterator[tuple[str, Any]]:
            del leave_out
            yield from chosen

        def target(leave_out: Callable[[LeftOut], None]) -> Iterator[tuple[str, Any]]:
            del leave_out
            yield from self.named(keys)

        return replace(self, source=source, target=target)


def direction(
    source: Place,
    target: Place,
    objects: Objects,
    cache: ChecksumCache,
    reader: SourceReader | None,
    moved: Callable[[int], None],
) -> Direction:
    """Return the direction from source to target. `reader` is that of a source outside Cloud Storage; `moved` gets the
    number of transferred bytes. Raises BadRequest for kinds that cannot be copied."""
    source_reader: Any = objects if isinstance(source, Prefix) else reader
    if isinstance(source, Folder):
        source_items: Items = partial(in_folder, _real_path(source))
    else:
        source_items = partial(in_storage, source_reader, source.bucket, source.prefix)
    copier: Copier
    match source, target:
        case _, Folder():
            assert not isinstance(source, Folder)
            folder = _real_path(target)
            operations = (0, int(isinstance(source, Prefix)))
            copier = Downloader(source_reader, source, folder, cache, moved)
            clashes = FoldersAndFiles()
            return Direction(
                source_items,
                partial(in_folder, folder),
                partial(named_files, folder),
                copier,
                lambda key: why_no_file(key) or clashes.why_not(key),
                operations,
            )
        case Folder(), Prefix():
            copier = Uploader(objects, cache, target, moved)
        case Prefix(), Prefix():
            copier = ServerCopier(objects, source, target, moved)
        case _, Prefix():
            copier = Importer(source_reader, source, objects, target, moved)
        case _:
            raise BadRequest(f"nothing is copied from {source} to {target}")
    target_items = partial(in_storage, objects, target.bucket, target.prefix)

    def why_not(key: str) -> str:
        return why_no_object(target.prefix + key) if key else "it has no name below SRC"

    def named(keys: Sequence[str]) -> Iterator[tuple[str, ObjectFacts]]:
        if len(keys) > NAMED:
            yield from target_items(lambda _: None)
            return
        for key in keys:
            if facts := objects.look(target.bucket, target.prefix + key):
                yield key, facts

    return Direction(source_items, target_items, named, copier, why_not, (1, 0))


def _real_path(place: Folder) -> bytes:
    return os.path.realpath(os.fsencode(place.path))
