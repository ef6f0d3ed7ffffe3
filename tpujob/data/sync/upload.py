"""Uploads files and outside objects to Cloud Storage: with a checksum, under a precondition, and in pieces if large."""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Literal

from tpujob.data.checksums import Hash, of_file
from tpujob.data.locations import Outside, Prefix
from tpujob.data.objects import (
    Changed,
    LocalFile,
    NewObject,
    ObjectContent,
    ObjectFacts,
    Objects,
    SourceReader,
)
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.endpoints import local_file
from tpujob.data.sync.stream_copy import SourceStream, copy_stream
from tpujob.data.sync.workers import AnyPair, Pair
from tpujob.errors import Conflict

_READ = 1 << 20

Done = Literal["copied", "same", "unverified"]


@dataclass(frozen=True, slots=True)
class Uploader:
    """A copier from files of this machine to Cloud Storage. Threads share it."""

    objects: Objects
    cache: ChecksumCache
    target: Prefix
    moved: Callable[[int], None]

    def is_same(self, pair: Pair[LocalFile, ObjectFacts]) -> bool:
        """Return whether the object has the file's content. Reads files of its size whose checksum is not cached."""
        file, target = pair.source, pair.target
        if target is None or target.crc32c is None or target.size != file.size:
            return False
        return checksum_of(file, self.cache) == target.crc32c

    def copy(self, pair: Pair[LocalFile, ObjectFacts]) -> Done:
        """Upload the file. Raises Conflict if another object has the name, Changed, OSError, errors of `Objects`."""
        if self.is_same(pair):
            return "same"
        file = pair.source
        if not file.size:
            open_unchanged(file).close()
        sink = _Upload(self.objects, _new_object(self.target, pair, ""))
        try:
            crc32c, _ = copy_stream(file.size, partial(_file_content, file), None, sink, self.moved)
        except Conflict:
            sink.check_ours(checksum_of(file, self.cache))
        else:
            self.cache.keep_checksum(file, crc32c)
        return "copied"


@dataclass(frozen=True, slots=True)
class Importer:
    """A copier from sources outside Cloud Storage, through the memory of this process. Threads share it."""

    reader: SourceReader
    source: Outside
    objects: Objects
    target: Prefix
    moved: Callable[[int], None]

    def is_same(self, pair: Pair[ObjectFacts, ObjectFacts]) -> bool:
        """Return whether the target is a copy of the source's present version. Needs no request besides the lists."""
        facts, target = pair.source, pair.target
        if target is None or target.size != facts.size:
            return False
        return bool(facts.identity) and facts.identity == target.source

    def copy(self, pair: Pair[ObjectFacts, ObjectFacts]) -> Done:
        """Copy the object. Raises Conflict if another has the name by now, errors of `SourceReader` and `Objects`."""
        if self.is_same(pair):
            return "same"
        facts = pair.source
        sink = _Upload(self.objects, _new_object(self.target, pair, facts.identity))
        source = partial(self.reader.open, self.source.bucket, facts)
        try:
            _, verified = copy_stream(facts.size, source, declared_hash(facts), sink, self.moved)
        except Conflict:
            sink.check_ours(None)
            verified = True
        return "copied" if verified else "unverified"


class _Upload:
    """A sink for an object of Cloud Storage."""

    def __init__(self, objects: Objects, new: NewObject) -> None:
        self._objects, self._new = objects, new
        self._sent: int | None = None  #: the CRC32C of all sent bytes

    def __call__(self, source: SourceStream) -> None:
        size = self._new.size
        self._sent = None
        try:
            facts = self._objects.write(self._new, source.chunks())
        finally:
            self._sent = source.crc32c if source.received == size else None
        if (facts.size, facts.crc32c) != (size, source.crc32c):
            raise Conflict(f"the storage has other bytes than were sent for {self._new.name}")

    def check_ours(self, crc32c: int | None) -> None:
        """Raise Conflict unless the object has our bytes, of an earlier try without an answer or another machine."""
        new = self._new
        present = self._objects.look(new.bucket, new.name)
        if present and present.size == new.size:
            crc32c = self._sent if crc32c is None else crc32c
            if present.crc32c is not None and present.crc32c == crc32c:
                return
            if new.source and present.source == new.source:
                return
        raise Conflict("something else was written there meanwhile")


def _new_object(target: Prefix, pair: AnyPair, source: str) -> NewObject:
    generation = pair.target.generation if pair.target else 0
    return NewObject(target.bucket, target.prefix + pair.key, pair.source.size, generation, source)


def declared_hash(facts: ObjectFacts) -> Hash | None:
    """Return the hash in an object's facts."""
    if facts.crc32c is not None:
        return Hash("crc32c", facts.crc32c.to_bytes(4, "big"))
    return facts.hash


@contextmanager
def _file_content(file: LocalFile, start: int) -> Generator[ObjectContent]:
    with open_unchanged(file) as content:
        content.seek(start)
        yield ObjectContent(_file_chunks(file, content))


def _file_chunks(file: LocalFile, content: BinaryIO) -> Iterator[bytes]:
    left = file.size - content.tell()
    while left:
        data = content.read(min(left, _READ))
        if not data:
            raise Changed
        left -= len(data)
        if not left:  # checked before the last piece, which names the object
            check_unchanged(file, content)
        yield data


def checksum_of(file: LocalFile, cache: ChecksumCache) -> int:
    """Return the CRC32C of a file, from the cache or its content. Raises Changed, OSError."""
    crc32c = cache.checksum(file)
    if crc32c is None:
        with open_unchanged(file) as content:
            _, crc32c = of_file(content)
            check_unchanged(file, content)
        cache.keep_checksum(file, crc32c)
    return crc32c


def open_unchanged(file: LocalFile) -> BinaryIO:
    """Open a file for reading. Raises Changed if it has changed since it was listed, OSError."""
    number = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    content = os.fdopen(number, "rb", buffering=0)
    try:
        check_unchanged(file, content)
    except BaseException:
        content.close()
        raise
    return content


def check_unchanged(file: LocalFile, content: BinaryIO) -> None:
    """Raise Changed if the file has changed since it was listed."""
    present = local_file(file.key, file.path, os.fstat(content.fileno()))
    if present.identity != file.identity:
        raise Changed
