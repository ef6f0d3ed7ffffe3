"""One file becomes one object: declared by its checksum, conditional, and for a large file in a session that another
process can continue."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from tpujob.data.checksum import extend, of_file
from tpujob.data.objects import LocalFile, ObjectFacts, Objects, Piece
from tpujob.data.places import Prefix
from tpujob.data.sync.ledger import Ledger
from tpujob.data.sync.plan import Pair
from tpujob.data.sync.told import NOBODY, Told
from tpujob.data.sync.walk import local_file
from tpujob.errors import Conflict, NotFound, Transient

#: bytes up to which a file goes in one request
SMALL = 8 << 20
#: least bytes of a piece: what may have to be sent again
PIECE = 32 << 20
_MOST_PIECES = 9_000
_QUANTUM = 256 << 10  #: pieces are multiples of it (documented)
_READ = 1 << 20
_TRIES = 8
_SESSIONS = 3  #: that are begun for one file in one sync

Done = Literal["copied", "same"]


class Changed(Exception):
    """The file was written to while it was being copied."""


@dataclass(frozen=True, slots=True)
class Uploader:
    """Threads share it."""

    objects: Objects
    ledger: Ledger
    target: Prefix
    told: Told = NOBODY

    def same(self, pair: Pair[LocalFile, ObjectFacts]) -> bool:
        """Whether there is nothing to copy; a file whose size is right is read, unless it was before."""
        file, there = pair.source, pair.target
        if there is None or there.crc32c is None or there.size != file.size:
            return False
        return checksum_of(file, self.ledger) == there.crc32c

    def copy(self, pair: Pair[LocalFile, ObjectFacts]) -> Done:
        """Afterwards the object has the bytes of the file. Raises Conflict when somebody else wrote it meanwhile,
        Changed, OSError for the file, and what `Objects` raises."""
        if self.same(pair):
            return "same"
        file = pair.source
        generation = pair.target.generation if pair.target else 0
        name = self.target.prefix + file.key
        try:
            if file.size <= SMALL:
                self._small(file, name, generation)
            else:
                self._large(file, name, generation)
        except Conflict as error:
            # our own try whose answer was lost, or another sync of the same files
            found = self.objects.look(self.target.bucket, name)
            if not (
                found and found.size == file.size and found.crc32c == checksum_of(file, self.ledger)
            ):
                raise Conflict("something else was written there meanwhile") from error
        return "copied"

    def _small(self, file: LocalFile, name: str, generation: int) -> None:
        with opened(file) as content:
            data = content.read()
            check_unchanged(file, content)
        crc32c = extend(0, data)
        self.objects.put(self.target.bucket, name, data, crc32c, generation)
        self.told.sent(len(data))
        self.ledger.keep_checksum(file, crc32c)

    def _large(self, file: LocalFile, name: str, generation: int) -> None:
        target = f"gs://{self.target.bucket}/{name}"
        crc32c, tries = None, 0
        while crc32c is None:
            tries += 1
            try:
                crc32c = self._in_session(file, name, target, generation)
            except (
                NotFound
            ):  # the session has ended: before its time, or as its bytes arrived changed
                self.ledger.forget_session(file, target)
                if tries == _SESSIONS:
                    raise
        self.ledger.forget_session(file, target)
        self.ledger.keep_checksum(file, crc32c)

    def _in_session(self, file: LocalFile, name: str, target: str, generation: int) -> int:
        session, offset = self._session(file, name, target, generation)
        try:
            with opened(file) as content:
                return _Sender(self, file, content, session).run(offset)
        except (Conflict, Changed):
            self.objects.drop(session)
            self.ledger.forget_session(file, target)
            raise

    def _session(
        self, file: LocalFile, name: str, target: str, generation: int
    ) -> tuple[str, int | ObjectFacts]:
        session, fits = self.ledger.session(file, target, generation)
        if session and fits:
            try:
                offset = self.objects.offset(session, file.size)
                if isinstance(offset, int):
                    self.told.had(offset)
                return session, offset
            except NotFound:
                pass
        elif session:
            self.objects.drop(session)
        session = self.objects.begin(self.target.bucket, name, file.size, generation)
        self.ledger.keep_session(file, target, generation, session)
        return session, 0


class _Sender:
    """Sends one file in pieces. Every byte is hashed once, in order, whatever is sent twice."""

    def __init__(self, up: Uploader, file: LocalFile, content: BinaryIO, session: str) -> None:
        self._up, self._file, self._content, self._session = up, file, content, session
        self._hashed, self._crc32c = 0, 0

    def run(self, offset: int | ObjectFacts) -> int:
        """The checksum of the whole. `offset`: what the session has."""
        failures = 0
        while isinstance(offset, int):
            piece = self._piece(offset)
            try:
                offset = self._send(piece)
                failures = 0
            except Transient:
                failures += 1
                if failures >= _TRIES:
                    raise
                time.sleep(min(8.0, 0.1 * 2**failures))
                offset = self._up.objects.offset(self._session, self._file.size)
        if (offset.size, offset.crc32c) != (self._file.size, self._hash_up_to(self._file.size)):
            raise Conflict(f"the storage has other bytes than were sent for {offset.name}")
        check_unchanged(self._file, self._content)
        return self._crc32c

    def _piece(self, start: int) -> Piece:
        """The last piece is sent alone, as the checksum that it declares must be known before it is sent."""
        size = self._file.size
        step = max(PIECE, -(-size // _MOST_PIECES // _QUANTUM) * _QUANTUM)
        if start + step < size:
            return Piece(start, start + step, size)
        alone = (size - 1) // _QUANTUM * _QUANTUM
        return Piece(start, size if start >= alone else alone, size)

    def _send(self, piece: Piece) -> int | ObjectFacts:
        crc32c = None
        if piece.last:
            crc32c = self._hash_up_to(piece.size)
            check_unchanged(self._file, self._content)
        return self._up.objects.send(self._session, self._bytes(piece), piece, crc32c)

    def _bytes(self, piece: Piece) -> Iterator[bytes]:
        self._hash_up_to(piece.start)
        at = piece.start
        while at < piece.end:
            self._content.seek(at)
            data = self._content.read(min(_READ, piece.end - at))
            if not data:
                raise Changed
            at += len(data)
            if at > self._hashed:
                self._crc32c = extend(self._crc32c, data[self._hashed - at + len(data) :])
                self._hashed = at
            yield data
            self._up.told.sent(len(data))

    def _hash_up_to(self, end: int) -> int:
        self._content.seek(self._hashed)
        while self._hashed < end:
            data = self._content.read(min(_READ, end - self._hashed))
            if not data:
                raise Changed
            self._crc32c = extend(self._crc32c, data)
            self._hashed += len(data)
        return self._crc32c


def checksum_of(file: LocalFile, ledger: Ledger) -> int:
    """From the ledger, or by reading the file. Raises Changed, OSError."""
    known = ledger.checksum(file)
    if known is None:
        with opened(file) as content:
            _, known = of_file(content)
            check_unchanged(file, content)
        ledger.keep_checksum(file, known)
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
    found = local_file(file.key, file.path, os.fstat(content.fileno()))
    if found.identity != file.identity:
        raise Changed
