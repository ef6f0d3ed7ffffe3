"""A packed set becomes its files again, byte for byte. Nothing of the set is trusted: each name is judged, and each
shard and each record is compared with its checksum, before a file gets its name.
"""

import os
import stat
import threading
from array import array
from dataclasses import dataclass
from pathlib import Path

from tpujob.data.checksums import extend, of_file
from tpujob.data.keys import PARTS_FOLDER, explained, why_no_file
from tpujob.data.objects import LeftOut, Problems
from tpujob.data.pack import manifest as manifests
from tpujob.data.pack import records
from tpujob.data.pack.folder import FolderSource, remove_stage
from tpujob.data.pack.manifest import IndexEntry, Shard, lines
from tpujob.data.pack.workers import Workers, alone_in
from tpujob.data.sync.download import NoPlace, make_folder
from tpujob.data.sync.run import SyncProgress
from tpujob.errors import BadRequest, Conflict


@dataclass(slots=True)
class UnpackOutcome(Problems):
    """What was done; a conflict is another file of that name."""

    files: int = 0
    bytes: int = 0
    same: int = 0  #: were there already, with the right bytes


class Unpack:
    def __init__(self, source: FolderSource, folder: str, progress: SyncProgress) -> None:
        self._source, self._progress, self._name = source, progress, folder
        #: with every link in its path resolved
        self._root = os.path.realpath(os.fsencode(folder))
        self._parts = Path(os.fsdecode(self._root)) / PARTS_FOLDER / "unpack"
        self._outcome = UnpackOutcome()
        self._lock = threading.Lock()
        self._workers = Workers()

    def run(self) -> UnpackOutcome:
        """Afterwards each file of the set is in the folder, except those that are named. Safe to repeat after any end.

        Raises NotFound, BadManifest, BadRequest when the folder cannot be written to, Conflict for a shard whose bytes
        are not what the manifest says, and TpujobError.
        """
        with explained():
            manifest = manifests.decode(self._source.manifest())
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadRequest(f"cannot write to {self._name}: {error.strerror}") from error
        with explained(), alone_in(self._parts, self._name):
            self._progress.planned(manifest.content)
            index = self._source.verified(manifest.index)
            for _ in self._workers.each(self._shard, ((index, s) for s in manifest.shards)):
                pass
            remove_stage(self._parts)
        return self._outcome

    def _shard(self, task: tuple[Path, Shard]) -> None:
        index, shard = task
        sizes = array("Q")
        wanted = bytearray()
        for entry in lines(index, shard):
            self._workers.go_on()
            sizes.append(entry.size)
            wanted.append(self._is_wanted(entry))
        if not any(wanted):
            return
        path = self._source.verified(shard)
        try:
            contents = records.read(str(path), sizes)
            for number, entry in enumerate(lines(index, shard)):
                self._workers.go_on()
                data = next(contents)
                if extend(0, data) != entry.crc32c:
                    raise records.Damaged(f"record {number} does not have its checksum")
                if wanted[number]:
                    self._write(entry, data, shard)
        except records.Damaged as error:
            raise Conflict(f"{shard.name} is damaged: {error}") from None

    def _is_wanted(self, entry: IndexEntry) -> bool:
        try:
            if reason := why_no_file(entry.key):
                raise NoPlace(reason)
            if not _is_there(self._path(entry), entry):
                return True
            with self._lock:
                self._outcome.same += 1
        except Conflict as error:
            self._note(entry, error.message, conflict=True)
        except NoPlace as error:
            self._note(entry, str(error))
        except PermissionError as error:
            self._note(entry, f"the file: {error.strerror}")
        self._progress.moved(entry.size)
        return False

    def _write(self, entry: IndexEntry, data: bytes, shard: Shard) -> None:
        try:
            path = self._path(entry)
            make_folder(os.path.dirname(path))
            unfinished = self._parts / f"{shard.name}.part"
            unfinished.write_bytes(data)
            os.replace(unfinished, path)
        except NoPlace as error:
            self._note(entry, str(error))
        except PermissionError as error:
            self._note(entry, f"the file: {error.strerror}")
        else:
            with self._lock:
                self._outcome.files += 1
                self._outcome.bytes += entry.size
        self._progress.moved(entry.size)

    def _path(self, entry: IndexEntry) -> bytes:
        return self._root + b"/" + os.fsencode(entry.key)

    def _note(self, entry: IndexEntry, reason: str, *, conflict: bool = False) -> None:
        with self._lock:
            self._outcome.note(LeftOut(entry.key, reason), conflict=conflict)


def _is_there(path: bytes, entry: IndexEntry) -> bool:
    """Whether the file is there with these bytes. Raises NoPlace, Conflict when something else is there, OSError."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
        raise NoPlace("its folder is a link")
    if stat.S_ISDIR(found.st_mode):
        raise NoPlace("there is a folder of that name")
    if stat.S_ISREG(found.st_mode) and found.st_size == entry.size:
        with open(path, "rb", buffering=0) as content:
            if of_file(content)[1] == entry.crc32c:
                return True
    raise Conflict("another file of that name is there, and is kept")
