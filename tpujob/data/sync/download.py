"""One object becomes one file: read into a file of another name, verified, then renamed.

The name of the unfinished file says which generation it is of, so another process can continue it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from tpujob.data.checksum import extend
from tpujob.data.keys import PARTS_FOLDER
from tpujob.data.objects import LocalFile, ObjectFacts, Objects
from tpujob.data.sync.plan import Pair
from tpujob.data.sync.upload import Done
from tpujob.data.sync.walk import local_file
from tpujob.errors import Conflict, NotFound, Transient

_READ = 1 << 20
_TRIES = 8
_GENERATIONS = 3


class NoPlace(Exception):
    """The file cannot be where its name says. `str(error)` is the reason."""


@dataclass(frozen=True, slots=True)
class Downloader:
    """Threads share it. `root`: the folder, with every link in its path resolved."""

    objects: Objects
    bucket: str
    root: bytes
    checksum: Callable[[LocalFile], int]
    keep_checksum: Callable[[LocalFile, int], None]
    sent: Callable[[int], None]  #: told of bytes that arrived
    had: Callable[[int], None]  #: told of bytes that an earlier process had fetched

    def copy(self, pair: Pair) -> Done:
        """Afterwards the file has the bytes of the object. Raises Conflict when the file or the object was changed
        meanwhile, NoPlace, OSError for the file, and what `Objects` raises."""
        facts = pair.facts
        assert facts
        if facts.crc32c is None:
            raise NoPlace("the storage does not say its checksum, so it cannot be verified")
        if pair.may_be_same and pair.file and self.checksum(pair.file) == facts.crc32c:
            return "same"
        for _ in range(_GENERATIONS):
            try:
                self._fetch(pair, facts)
                return "copied"
            except NotFound:  # this generation is gone: it was replaced, or deleted
                newer = self.objects.look(self.bucket, facts.name)
                if newer is None:
                    raise Conflict("it was deleted while it was being copied") from None
                facts = newer
        raise Conflict("it is replaced again and again")

    def _fetch(self, pair: Pair, facts: ObjectFacts) -> None:
        part = self._part(facts)
        try:
            with open(part, "ab+", buffering=0) as content:
                self._fill(content, facts)
            self._publish(pair, facts, part)
        except (NotFound, Conflict, NoPlace):
            os.unlink(part)
            raise

    def _fill(self, content: BinaryIO, facts: ObjectFacts) -> None:
        """Afterwards the unfinished file is complete and verified."""
        size, crc32c = _hashed(content, facts.size)
        self.had(size)
        for failures in range(1, _TRIES + 1):
            try:
                if size < facts.size:
                    size, crc32c = self._append(content, facts, size, crc32c)
                if (size, crc32c) == (facts.size, facts.crc32c):
                    return
                content.truncate(0)  # what is there is wrong: begin anew
                text = f"the bytes of {facts.name} do not have its checksum"
                raise Transient(text)
            except Transient:
                if failures == _TRIES:
                    raise
                time.sleep(min(8.0, 0.05 * 2**failures))
                size, crc32c = _hashed(content, facts.size)

    def _append(
        self, content: BinaryIO, facts: ObjectFacts, size: int, crc32c: int
    ) -> tuple[int, int]:
        def take(data: bytes) -> None:
            nonlocal size, crc32c
            content.write(data)
            size += len(data)
            crc32c = extend(crc32c, data)
            self.sent(len(data))

        self.objects.get(self.bucket, facts, size, take)
        return size, crc32c

    def _publish(self, pair: Pair, facts: ObjectFacts, part: bytes) -> None:
        path = self.root + b"/" + os.fsencode(pair.key)
        self._make_folder(os.path.dirname(path))
        if os.path.isdir(path) and not os.path.islink(path):
            raise NoPlace("there is a folder of that name")
        found = _look(pair.key, path)
        before = pair.file.identity if pair.file and pair.file.path == path else None
        if (found.identity if found else None) != before:
            raise Conflict("the file was changed while the object was being copied")
        os.replace(part, path)
        done = _look(pair.key, path)
        if done and facts.crc32c is not None:
            self.keep_checksum(done, facts.crc32c)

    def _make_folder(self, folder: bytes) -> None:
        """Afterwards it exists, inside the root. Raises NoPlace."""
        try:
            os.makedirs(folder, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise NoPlace("there is a file of the name of its folder") from None
        if os.path.realpath(folder) != folder:
            raise NoPlace("its folder is a link")

    def _part(self, facts: ObjectFacts) -> bytes:
        name = hashlib.sha256(facts.name.encode()).hexdigest()[:40]
        return b"%b/%b/%b-%d" % (
            self.root, PARTS_FOLDER.encode(), name.encode(), facts.generation,
        )  # fmt: skip


def _hashed(content: BinaryIO, most: int) -> tuple[int, int]:
    """Length and checksum of what is there; what is too long is wrong, and is removed."""
    content.seek(0)
    size = crc32c = 0
    while data := content.read(_READ):
        size += len(data)
        crc32c = extend(crc32c, data)
    if size > most:
        content.truncate(0)
        return 0, 0
    return size, crc32c


def _look(key: str, path: bytes) -> LocalFile | None:
    try:
        return local_file(key, path, os.lstat(path))
    except FileNotFoundError:
        return None
