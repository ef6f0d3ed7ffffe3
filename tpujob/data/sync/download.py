"""Downloads an object to a file: into a part file, which is verified and then renamed."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from tpujob.data.keys import PARTS_FOLDER
from tpujob.data.locations import Outside, Prefix
from tpujob.data.objects import LocalFile, NotCopied, ObjectFacts, SourceReader
from tpujob.data.sync.checksum_cache import ChecksumCache
from tpujob.data.sync.endpoints import local_file
from tpujob.data.sync.stream_copy import SourceStream, copy_stream
from tpujob.data.sync.upload import Done, checksum_of, declared_hash
from tpujob.data.sync.workers import Pair
from tpujob.errors import Conflict


class NoPlace(NotCopied):
    """A link, folder or file is in the way of the file's path."""


@dataclass(frozen=True, slots=True)
class Downloader:
    """A copier from a storage to the folder `root`, a path without links. Threads share it."""

    reader: SourceReader
    source: Prefix | Outside
    root: bytes
    cache: ChecksumCache
    moved: Callable[[int], None]

    def is_same(self, pair: Pair[ObjectFacts, LocalFile]) -> bool:
        """Return whether the file has the object's content. Reads a file of the right size unless its checksum is
        cached. Without a CRC32C of the source, neither file nor source may have changed since the copy."""
        facts, file = pair.source, pair.target
        if file is None or file.size != facts.size:
            return False
        if facts.crc32c is not None:
            return checksum_of(file, self.cache) == facts.crc32c
        return bool(facts.identity) and self.cache.origin(file) == self._origin(facts)

    def copy(self, pair: Pair[ObjectFacts, LocalFile]) -> Done:
        """Download the object. Raises Conflict if the file changed, NotCopied, OSError, errors of `SourceReader`."""
        facts = pair.source
        if facts.crc32c is None and facts.generation:
            raise NotCopied("the storage does not say its checksum, so it cannot be verified")
        if self.is_same(pair):
            return "same"
        name = hashlib.sha256(f"{self.source}\0{facts.name}".encode()).hexdigest()[:40]
        path = b"%b/%b/%b" % (self.root, PARTS_FOLDER.encode(), name.encode())
        open_source = partial(self.reader.open, self.source.bucket, facts)
        declared = declared_hash(facts)
        try:
            with open(path, "wb") as content:
                sink = partial(_write_part, content)
                _, verified = copy_stream(facts.size, open_source, declared, sink, self.moved)
            self._publish(pair, path)
        except (Conflict, NotCopied):
            os.unlink(path)
            raise
        return "copied" if verified else "unverified"

    def _publish(self, pair: Pair[ObjectFacts, LocalFile], part: bytes) -> None:
        facts, path = pair.source, self.root + b"/" + os.fsencode(pair.key)
        make_folder(os.path.dirname(path))
        if os.path.isdir(path) and not os.path.islink(path):
            raise NoPlace("there is a folder of that name")
        present = _find_file(pair.key, path)
        before = pair.target.identity if pair.target and pair.target.path == path else None
        if (present.identity if present else None) != before:
            raise Conflict("the file was changed while the object was being copied")
        os.replace(part, path)
        if facts.identity and (file := _find_file(pair.key, path)):
            self.cache.keep_origin(file, self._origin(facts))

    def _origin(self, facts: ObjectFacts) -> str:
        return f"{self.source} {facts.name} {facts.identity}"


def _write_part(content: BinaryIO, source: SourceStream) -> None:
    content.seek(0)
    content.truncate()
    content.writelines(source.chunks())


def make_folder(folder: bytes) -> None:
    """Create the folder if it is missing. Raises NoPlace if its path has a link or a file in it, OSError."""
    if os.path.realpath(folder) != folder:
        raise NoPlace("its folder is a link")
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NoPlace("there is a file of the name of its folder") from None


def _find_file(key: str, path: bytes) -> LocalFile | None:
    try:
        return local_file(key, path, os.lstat(path))
    except FileNotFoundError:
        return None
