"""A packed set becomes its files again, byte for byte. Nothing of the set is trusted: each name is judged, and each
shard and each record is compared with its checksum, before a file gets its name.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tpujob.data import records
from tpujob.data.checksums import of_file
from tpujob.data.keys import PARTS_FOLDER, alone, explained, why_no_file
from tpujob.data.manifest import (
    NAME,
    IndexEntry,
    Manifest,
    SetFile,
    Shard,
    decode,
    described,
    entries_of,
    remove_stage,
)
from tpujob.data.objects import LeftOut, Problems
from tpujob.data.sync.download import NoPlace, make_folder
from tpujob.data.sync.run import SyncProgress
from tpujob.errors import BadRequest, Conflict, NotFound


@dataclass(slots=True)
class UnpackOutcome(Problems):
    """What was done; a conflict is another file of that name."""

    files: int = 0
    bytes: int = 0
    same: int = 0  #: were there already, with the right bytes


class Unpack:
    def __init__(self, source: str, folder: str, progress: SyncProgress) -> None:
        self._source, self._progress, self._name = Path(source), progress, folder
        #: with every link in its path resolved
        self._root = os.path.realpath(os.fsencode(folder))
        self._parts = Path(os.fsdecode(self._root)) / PARTS_FOLDER / "unpack"
        self._outcome = UnpackOutcome()

    def run(self) -> UnpackOutcome:
        """Afterwards each file of the set is in the folder, except those that are named. Safe to repeat after any end.

        Raises NotFound, BadRequest when the folder cannot be written to or the manifest is of no use, Conflict for a
        shard whose bytes are others, IllegalInState while another process writes there, and TpujobError.
        """
        with explained():
            manifest = self._manifest()
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadRequest(f"cannot write to {self._name}: {error.strerror}") from error
        other = f"another `tpujob data` command writes to {self._name}"
        with explained(), alone(self._parts / "lock", other):
            self._progress.planned(manifest.content)
            index = self._verified(manifest.index)
            for shard in manifest.shards:
                self._restore(shard, entries_of(index, shard))
            remove_stage(self._parts)
        return self._outcome

    def _manifest(self) -> Manifest:
        if not self._source.is_dir():
            raise NotFound(f"there is no folder {self._source}")
        try:
            return decode((self._source / NAME).read_bytes())
        except FileNotFoundError:
            raise NotFound(
                f"there is no packed set at {self._source}: {NAME} is missing",
                hint="it is written last: run the same `tpujob data pack` again after an interruption",
            ) from None

    def _verified(self, file: SetFile) -> Path:
        """The file of the set with its size and checksum. Raises NotFound, Conflict when its bytes are others."""
        path = self._source / file.name
        try:
            now = described(path)
        except FileNotFoundError:
            raise NotFound(f"{path} is missing, which the manifest names") from None
        if (now.bytes, now.sha256) != (file.bytes, file.sha256):
            raise Conflict(f"{file.name} does not have its checksum")
        return path

    def _restore(self, shard: Shard, entries: list[IndexEntry]) -> None:
        """A shard is not read when all its files are there."""
        wanted = list(map(self._is_wanted, entries))
        if not any(wanted):
            return
        path = self._verified(shard)
        try:
            contents = records.read(str(path), entries)
            for entry, is_wanted, data in zip(entries, wanted, contents, strict=True):
                if is_wanted:
                    self._write(entry, data)
        except records.Damaged as error:
            raise Conflict(f"{shard.name} is damaged: {error}") from None

    def _is_wanted(self, entry: IndexEntry) -> bool:
        try:
            if reason := why_no_file(entry.key):
                raise NoPlace(reason)
            if not _is_there(self._path(entry), entry):
                return True
            self._outcome.same += 1
        except Conflict as error:
            self._outcome.note(LeftOut(entry.key, error.message), conflict=True)
        except (NoPlace, PermissionError) as error:
            self._leave_out(entry, error)
        self._progress.moved(entry.size)
        return False

    def _write(self, entry: IndexEntry, data: bytes) -> None:
        path = self._path(entry)
        try:
            make_folder(os.path.dirname(path))
            unfinished = self._parts / "file.part"
            unfinished.write_bytes(data)
            os.replace(unfinished, path)
        except (NoPlace, PermissionError) as error:
            self._leave_out(entry, error)
        else:
            self._outcome.files += 1
            self._outcome.bytes += entry.size
        self._progress.moved(entry.size)

    def _path(self, entry: IndexEntry) -> bytes:
        return self._root + b"/" + os.fsencode(entry.key)

    def _leave_out(self, entry: IndexEntry, error: NoPlace | PermissionError) -> None:
        reason = str(error) if isinstance(error, NoPlace) else f"the file: {error.strerror}"
        self._outcome.note(LeftOut(entry.key, reason))


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
