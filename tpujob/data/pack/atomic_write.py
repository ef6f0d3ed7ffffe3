"""One file of a packed set gets its name in a folder, unless the name or what is there forbids it."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tpujob.data.checksums import of_file
from tpujob.data.keys import why_no_file
from tpujob.data.pack.manifest import IndexEntry
from tpujob.data.sync.download import NoPlace, make_folder
from tpujob.errors import Conflict


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Threads share it. `root`: with every link in its path resolved; `parts`: a folder of the same disk."""

    root: bytes
    parts: Path

    def is_there(self, entry: IndexEntry) -> bool:
        """Whether the file is there with these bytes. Raises NoPlace for a name that no file may have, Conflict when
        something else is there, OSError."""
        if reason := why_no_file(entry.key):
            raise NoPlace(reason)
        path = self._path(entry)
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
            raise NoPlace("its folder is a link")
        if stat.S_ISDIR(found.st_mode):
            raise NoPlace("there is a folder of that name")
        same = stat.S_ISREG(found.st_mode) and found.st_size == entry.size
        if not same or _checksum(path) != entry.crc32c:
            raise Conflict("another file of that name is there, which stays")
        return True

    def write(self, entry: IndexEntry, data: bytes, part: str) -> None:
        """Afterwards the file is there. `part`: what it is called until it is whole. Raises NoPlace, OSError."""
        path = self._path(entry)
        make_folder(os.path.dirname(path))
        unfinished = self.parts / part
        unfinished.write_bytes(data)
        os.replace(unfinished, path)

    def _path(self, entry: IndexEntry) -> bytes:
        return self.root + b"/" + os.fsencode(entry.key)


def _checksum(path: bytes) -> int:
    with open(path, "rb", buffering=0) as content:
        return of_file(content)[1]
