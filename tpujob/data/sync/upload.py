"""Bytes become one object of a bucket: declared by their checksum, conditional, and never all in memory when large."""

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
    ObjectContent,
    ObjectFacts,
    Objects,
    Piece,
    SourceReader,
)
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.endpoints import local_file
from tpujob.data.sync.stream_copy import copy_stream
from tpujob.data.sync.workers import Pair
from tpujob.errors import Conflict, Transient

#: bytes up to which an object goes in one request
SMALL = 8 << 20
_QUANTUM = 256 << 10  #: a piece that is not the last has a multiple of it (documented)
_READ = 1 << 20
_TRIES = 8

Done = Literal["copied", "same", "unverified"]


@dataclass(frozen=True, slots=True)
class Uploader:
    """Copies files of this machine. Threads share it."""

    objects: Objects
    cache: ChecksumCache
    target: Prefix
    moved: Callable[[int], None]

    def same(self, pair: Pair[LocalFile, ObjectFacts]) -> bool:
        """Whether there is nothing to copy; a file whose size is right is read, unless it was before."""
        file, there = pair.source, pair.target
        if there is None or there.crc32c is None or there.size != file.size:
            return False
        return checksum_of(file, self.cache) == there.crc32c

    def copy(self, pair: Pair[LocalFile, ObjectFacts]) -> Done:
        """Afterwards the object has the bytes of the file. Raises Conflict when another writer was faster, Changed,
        OSError for the file, and what `Objects` raises."""
        if self.same(pair):
            return "same"
        file = pair.source
        if not file.size:
            opened(file).close()
        sink = _sink(self.objects, self.target, pair.key, file.size, pair.target, "")
        try:
            crc32c, _ = copy_stream(file.size, partial(_file_content, file), None, sink, self.moved)
        except Conflict:
            sink.check_ours(checksum_of(file, self.cache))
        else:
            self.cache.keep_checksum(file, crc32c)
        return "copied"


@dataclass(frozen=True, slots=True)
class Importer:
    """Copies objects outside Cloud Storage, through the memory of this process. Threads share it."""

    reader: SourceReader
    source: Outside
    objects: Objects
    target: Prefix
    moved: Callable[[int], None]

    def same(self, pair: Pair[ObjectFacts, ObjectFacts]) -> bool:
        """Whether there is nothing to copy. Costs no request: lists have all that is compared."""
        facts, there = pair.source, pair.target
        if there is None or there.size != facts.size:
            return False
        return bool(facts.identity) and facts.identity == there.source

    def copy(self, pair: Pair[ObjectFacts, ObjectFacts]) -> Done:
        """Afterwards the object has the bytes of the source. Raises Conflict when another writer was faster, and what
        `SourceReader` and `Objects` raise."""
        if self.same(pair):
            return "same"
        facts = pair.source
        sink = _sink(self.objects, self.target, pair.key, facts.size, pair.target, facts.identity)
        source = partial(self.reader.open, self.source.bucket, facts)
        try:
            _, verified = copy_stream(facts.size, source, declared_hash(facts), sink, self.moved)
        except Conflict:
            sink.check_ours(None)
            verified = True
        return "copied" if verified else "unverified"


class _ObjectSink:
    """What uploads of all sizes share: the name, the condition, and whether a conflict is one with ourselves."""

    def __init__(
        self, objects: Objects, bucket: str, name: str, size: int, generation: int, source: str
    ) -> None:
        """`generation`: what is there by now; 0: nothing. `source`: kept with the object, and shown by lists."""
        self.objects, self.bucket, self.name = objects, bucket, name
        self.size, self.generation, self.source = size, generation, source
        self.crc32c: int | None = None  #: of what was to get the name

    def check_ours(self, crc32c: int | None) -> None:
        """After a Conflict: raise Conflict unless the object has our bytes. It may be our own try whose answer was
        lost, or another machine's copy of the same."""
        there = self.objects.look(self.bucket, self.name)
        if there and there.size == self.size:
            crc32c = self.crc32c if crc32c is None else crc32c
            if there.crc32c is not None and there.crc32c == crc32c:
                return
            if self.source and there.source == self.source:
                return
        raise Conflict("something else was written there meanwhile")


class _SmallObject(_ObjectSink):
    """In memory, then in one request."""

    data = b""

    def restart(self) -> None:
        self.data = b""

    def write(self, chunks: Iterator[bytes], start: int) -> None:
        del start  # always the first byte: there is all or nothing
        self.data = b"".join(chunks)

    def position(self) -> int:
        return len(self.data)

    def finish(self, crc32c: int) -> None:
        self.crc32c = crc32c
        self.objects.put(self.bucket, self.name, self.data, crc32c, self.generation, self.source)

    def abandon(self) -> None: ...


class _LargeObject(_ObjectSink):
    """In an upload session, which takes all but the last bytes in one request. Those wait in memory: the checksum that
    they declare must be known before they are sent."""

    session = ""
    tail = b""
    whole = False  #: the session has all but the tail

    @property
    def tail_start(self) -> int:
        return (self.size - 1) // _QUANTUM * _QUANTUM

    def restart(self) -> None:
        self.abandon()
        self.session = self.objects.begin(
            self.bucket, self.name, self.size, self.generation, self.source
        )

    def write(self, chunks: Iterator[bytes], start: int) -> None:
        self.tail, self.whole = b"", False
        body = self._before_tail(chunks, start)
        if start < self.tail_start:
            piece = Piece(start, self.tail_start, self.size)
            there = self.objects.send(self.session, body, piece, None)
            if there != self.tail_start:
                raise Transient(f"the storage has not taken all that was sent for {self.name}")
        else:
            self.tail = b"".join(chunks)
        self.whole = True

    def position(self) -> int:
        if self.whole:
            return self.size
        there = self.objects.offset(self.session, self.size)
        return there if isinstance(there, int) else self.tail_start

    def finish(self, crc32c: int) -> None:
        self.crc32c = crc32c
        piece = Piece(self.tail_start, self.size, self.size)
        for failures in range(1, _TRIES + 1):
            try:
                there = self.objects.send(self.session, self.tail, piece, crc32c)
            except Transient:
                if failures == _TRIES:
                    raise
                there = self.objects.offset(self.session, self.size)
            if isinstance(there, ObjectFacts):
                if (there.size, there.crc32c) != (self.size, crc32c):
                    raise Conflict(f"the storage has other bytes than were sent for {self.name}")
                self.session = ""
                return

    def abandon(self) -> None:
        session, self.session = self.session, ""
        if session:
            self.objects.drop(session)

    def _before_tail(self, chunks: Iterator[bytes], at: int) -> Iterator[bytes]:
        for data in chunks:
            head = data if at + len(data) <= self.tail_start else data[: self.tail_start - at]
            self.tail += data[len(head) :]
            at += len(head)
            if head:
                yield head


def _sink(
    objects: Objects,
    target: Prefix,
    key: str,
    size: int,
    there: ObjectFacts | None,
    source: str,
) -> _SmallObject | _LargeObject:
    kind = _SmallObject if size <= SMALL else _LargeObject
    generation = there.generation if there else 0
    return kind(objects, target.bucket, target.prefix + key, size, generation, source)


def declared_hash(facts: ObjectFacts) -> Hash | None:
    """What a list or a look has declared of its bytes."""
    if facts.crc32c is not None:
        return Hash("crc32c", facts.crc32c.to_bytes(4, "big"))
    return facts.hash


@contextmanager
def _file_content(file: LocalFile, start: int) -> Generator[ObjectContent]:
    with opened(file) as content:
        content.seek(start)
        yield ObjectContent(_file_chunks(file, content))


def _file_chunks(file: LocalFile, content: BinaryIO) -> Iterator[bytes]:
    left = file.size - content.tell()
    while left:
        data = content.read(min(left, _READ))
        if not data:
            raise Changed
        left -= len(data)
        if not left:  # before the last piece gives the object its name
            check_unchanged(file, content)
        yield data


def checksum_of(file: LocalFile, cache: ChecksumCache) -> int:
    """From the cache, or by reading the file. Raises Changed, OSError."""
    known = cache.checksum(file)
    if known is None:
        with opened(file) as content:
            _, known = of_file(content)
            check_unchanged(file, content)
        cache.keep_checksum(file, known)
    return known


def opened(file: LocalFile) -> BinaryIO:
    """For reading, unless it is another file by now. Raises Changed, OSError."""
    number = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    content = os.fdopen(number, "rb", buffering=0)
    try:
        check_unchanged(file, content)
    except BaseException:
        content.close()
        raise
    return content


def check_unchanged(file: LocalFile, content: BinaryIO) -> None:
    """Raises Changed."""
    now = local_file(file.key, file.path, os.fstat(content.fileno()))
    if now.identity != file.identity:
        raise Changed
