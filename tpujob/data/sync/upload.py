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

SMALL = 8 << 20  #: most bytes of an object that is uploaded in one request
_QUANTUM = 256 << 10  #: bytes: all pieces but the last have a multiple of it (documented)
_READ = 1 << 20
_TRIES = 8

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
        sink = _make_sink(self.objects, self.target, pair.key, file.size, pair.target, "")
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
        sink = _make_sink(
            self.objects, self.target, pair.key, facts.size, pair.target, facts.identity
        )
        source = partial(self.reader.open, self.source.bucket, facts)
        try:
            _, verified = copy_stream(facts.size, source, declared_hash(facts), sink, self.moved)
        except Conflict:
            sink.check_ours(None)
            verified = True
        return "copied" if verified else "unverified"


class _ObjectSink:
    """A sink for an object of Cloud Storage."""

    def __init__(
        self, objects: Objects, bucket: str, name: str, size: int, generation: int, source: str
    ) -> None:
        """`generation` is the present one of the name; 0: none. `source` becomes `ObjectFacts.source`."""
        self.objects, self.bucket, self.name = objects, bucket, name
        self.size, self.generation, self.source = size, generation, source
        self.crc32c: int | None = None  #: of the sent bytes

    def check_ours(self, crc32c: int | None) -> None:
        """Raise Conflict unless the object has our bytes, of an earlier try without an answer or another machine."""
        present = self.objects.look(self.bucket, self.name)
        if present and present.size == self.size:
            crc32c = self.crc32c if crc32c is None else crc32c
            if present.crc32c is not None and present.crc32c == crc32c:
                return
            if self.source and present.source == self.source:
                return
        raise Conflict("something else was written there meanwhile")


class _SmallObject(_ObjectSink):
    """A sink that collects the bytes in memory, and sends them in one request."""

    data = b""

    def restart(self) -> None:
        self.data = b""

    def write(self, chunks: Iterator[bytes], start: int) -> None:
        del start  # always 0
        self.data = b"".join(chunks)

    def position(self) -> int:
        return len(self.data)

    def finish(self, crc32c: int) -> None:
        self.crc32c = crc32c
        self.objects.put(self.bucket, self.name, self.data, crc32c, self.generation, self.source)

    def abandon(self) -> None: ...


class _LargeObject(_ObjectSink):
    """A sink that sends all bytes but the last in one request of an upload session. The last bytes are sent with the
    checksum, so they wait in memory until it is known."""

    session = ""
    tail = b""  #: the last bytes
    sent = False  #: the session has all bytes before the tail

    @property
    def tail_start(self) -> int:
        return (self.size - 1) // _QUANTUM * _QUANTUM

    def restart(self) -> None:
        self.abandon()
        self.session = self.objects.begin(
            self.bucket, self.name, self.size, self.generation, self.source
        )

    def write(self, chunks: Iterator[bytes], start: int) -> None:
        self.tail, self.sent = b"", False
        body = self._before_tail(chunks, start)
        if start < self.tail_start:
            piece = Piece(start, self.tail_start, self.size)
            offset = self.objects.send(self.session, body, piece, None)
            if offset != self.tail_start:
                raise self._incomplete()
        else:
            self.tail = b"".join(chunks)
        self.sent = True

    def position(self) -> int:
        if self.sent:
            return self.size
        offset = self.objects.offset(self.session, self.size)
        return offset if isinstance(offset, int) else self.tail_start

    def finish(self, crc32c: int) -> None:
        self.crc32c = crc32c
        piece = Piece(self.tail_start, self.size, self.size)
        for failures in range(1, _TRIES + 1):
            try:
                answer = self.objects.send(self.session, self.tail, piece, crc32c)
            except Transient:
                if failures == _TRIES:
                    raise
                answer = self.objects.offset(self.session, self.size)
            if isinstance(answer, ObjectFacts):
                if (answer.size, answer.crc32c) != (self.size, crc32c):
                    raise Conflict(f"the storage has other bytes than were sent for {self.name}")
                self.session = ""
                return
        raise self._incomplete()

    def abandon(self) -> None:
        session, self.session = self.session, ""
        if session:
            self.objects.drop(session)

    def _incomplete(self) -> Transient:
        return Transient(f"the storage has not taken all that was sent for {self.name}")

    def _before_tail(self, chunks: Iterator[bytes], at: int) -> Iterator[bytes]:
        """Yield the bytes before the tail, and keep the tail."""
        for data in chunks:
            head = data if at + len(data) <= self.tail_start else data[: self.tail_start - at]
            self.tail += data[len(head) :]
            at += len(head)
            if head:
                yield head


def _make_sink(
    objects: Objects, target: Prefix, key: str, size: int, present: ObjectFacts | None, source: str
) -> _SmallObject | _LargeObject:
    kind = _SmallObject if size <= SMALL else _LargeObject
    generation = present.generation if present else 0
    return kind(objects, target.bucket, target.prefix + key, size, generation, source)


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
