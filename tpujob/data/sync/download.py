"""One object becomes one file: read into a file of another name, verified, then renamed.

The name of the unfinished file says which generation it is of, so another process can continue it.
"""

import hashlib
import os
import time
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from tpujob.data.checksum import extend, of_file
from tpujob.data.keys import PARTS_FOLDER
from tpujob.data.objects import Hash, LocalFile, NotCopied, ObjectFacts, Reader, WrongBytes
from tpujob.data.places import Outside, Prefix
from tpujob.data.sync.ledger import Ledger
from tpujob.data.sync.newest import copy_newest, hash_of
from tpujob.data.sync.plan import Pair
from tpujob.data.sync.told import NOBODY, Told
from tpujob.data.sync.upload import Done, checksum_of
from tpujob.data.sync.verify import hasher, said_of
from tpujob.data.sync.walk import local_file
from tpujob.errors import Conflict, NotFound, Transient

_READ = 1 << 20
_TRIES = 8


class NoPlace(NotCopied):
    """The file cannot be where its name says."""


@dataclass(frozen=True, slots=True)
class Downloader:
    """Threads share it. `root`: the folder, with every link in its path resolved."""

    reader: Reader
    source: Prefix | Outside
    root: bytes
    ledger: Ledger
    told: Told = NOBODY

    def same(self, pair: Pair[ObjectFacts, LocalFile]) -> bool:
        """Whether there is nothing to copy; a file whose size is right is read, unless it was before. Where the source
        has no CRC32C, a file is the same as long as neither it nor the source has changed since it was copied."""
        facts, file = pair.source, pair.target
        if file is None or file.size != facts.size:
            return False
        if facts.crc32c is not None:
            return checksum_of(file, self.ledger) == facts.crc32c
        return bool(facts.identity) and self.ledger.origin(file) == self._origin(facts)

    def copy(self, pair: Pair[ObjectFacts, LocalFile]) -> Done:
        """Afterwards the file has the bytes of the object. Raises Conflict when the file or the object was changed
        meanwhile, NotCopied, OSError for the file, and what `Reader` raises."""
        facts = pair.source
        if facts.crc32c is None and facts.generation:
            raise NotCopied("the storage does not say its checksum, so it cannot be verified")
        if self.same(pair):
            return "same"
        copy_newest(self.reader, self.source.bucket, facts, partial(self._fetch, pair))
        return "copied"

    def _fetch(self, pair: Pair[ObjectFacts, LocalFile], facts: ObjectFacts) -> None:
        part = self._part(facts)
        try:
            with open(part, "ab+", buffering=0) as content:
                crc32c = self._fill(content, facts)
            self._publish(pair, facts, part, crc32c)
        except (NotFound, Conflict, NotCopied):
            os.unlink(part)
            raise

    def _fill(self, content: BinaryIO, facts: ObjectFacts) -> int:
        """Afterwards the unfinished file is complete and verified; returns its CRC32C."""
        size, crc32c = _hashed(content, facts.size)
        self.told.had(size)
        said, wrong = said_of(facts), (-1, 0)
        told_all = said is not None or not facts.size
        for failures in range(1, _TRIES + 1):
            try:
                if size < facts.size:
                    told_all = told_all or not size
                    size, crc32c, told = self._append(content, facts, size, crc32c)
                    said = said or told
                if size == facts.size:
                    if not told_all:  # another process had begun it
                        said, told_all = hash_of(self.reader, self.source.bucket, facts), True
                    # what only may be a hash is none, when two reads agree with each other and not with it
                    settled = said is not None and not said.certain and wrong == (size, crc32c)
                    if settled or _verified(content, crc32c, said):
                        if settled or (said is None and facts.size):
                            self.told.unverified()
                        return crc32c
                content.truncate(0)  # what is there is wrong
                if wrong == (size, crc32c) or failures == _TRIES:
                    raise WrongBytes(size, facts)
                wrong = size, crc32c
                raise Transient(f"the bytes of {facts.name} are wrong")
            except Transient:
                if failures == _TRIES:
                    raise
                time.sleep(min(8.0, 0.05 * 2**failures))
                size, crc32c = _hashed(content, facts.size)
        raise AssertionError

    def _append(
        self, content: BinaryIO, facts: ObjectFacts, size: int, crc32c: int
    ) -> tuple[int, int, Hash | None]:
        def take(data: bytes) -> None:
            nonlocal size, crc32c
            content.write(data)
            size += len(data)
            crc32c = extend(crc32c, data)
            self.told.sent(len(data))

        told = self.reader.get(self.source.bucket, facts, size, take)
        return size, crc32c, told

    def _publish(
        self, pair: Pair[ObjectFacts, LocalFile], facts: ObjectFacts, part: bytes, crc32c: int
    ) -> None:
        path = self.root + b"/" + os.fsencode(pair.key)
        make_folder(os.path.dirname(path))
        if os.path.isdir(path) and not os.path.islink(path):
            raise NoPlace("there is a folder of that name")
        found = _look(pair.key, path)
        before = pair.target.identity if pair.target and pair.target.path == path else None
        if (found.identity if found else None) != before:
            raise Conflict("the file was changed while the object was being copied")
        os.replace(part, path)
        done = _look(pair.key, path)
        if done:
            self.ledger.keep_checksum(done, crc32c)
            if facts.identity:
                self.ledger.keep_origin(done, self._origin(facts))

    def _origin(self, facts: ObjectFacts) -> str:
        return f"{self.source} {facts.name} {facts.identity}"

    def _part(self, facts: ObjectFacts) -> bytes:
        told = f"{self.source}\0{facts.name}\0{facts.identity}" if facts.identity else facts.name
        name = hashlib.sha256(told.encode()).hexdigest()[:40]
        return b"%b/%b/%b-%d" % (
            self.root, PARTS_FOLDER.encode(), name.encode(), facts.generation,
        )  # fmt: skip


def make_folder(folder: bytes) -> None:
    """Afterwards it exists, and no part of its path is a link. Raises NoPlace, OSError."""
    if os.path.realpath(folder) != folder:
        raise NoPlace("its folder is a link")
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NoPlace("there is a file of the name of its folder") from None


def _verified(content: BinaryIO, crc32c: int, said: Hash | None) -> bool:
    """True where nothing is said."""
    if said is None:
        return True
    if said.kind == "crc32c":
        return crc32c.to_bytes(4, "big") == said.value
    made = hasher(said.kind)
    content.seek(0)
    while data := content.read(_READ):
        made.update(data)
    return made.digest() == said.value


def _hashed(content: BinaryIO, most: int) -> tuple[int, int]:
    """Length and checksum of what is there; what is too long is wrong, and is removed."""
    size, crc32c = of_file(content)
    if size > most:
        content.truncate(0)
        return 0, 0
    return size, crc32c


def _look(key: str, path: bytes) -> LocalFile | None:
    try:
        return local_file(key, path, os.lstat(path))
    except FileNotFoundError:
        return None
