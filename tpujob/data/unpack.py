"""Restores the files of a packed set, byte for byte. The set is untrusted: names are checked, and each shard and each
record is compared with its checksum before a file gets its name.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tpujob.data import records
from tpujob.data.checksums import of_file
from tpujob.data.keys import PARTS_FOLDER, exclusive_lock, raising_tpujob_error, why_no_file
from tpujob.data.manifest import (
    NAME,
    IndexEntry,
    Manifest,
    SetFile,
    Shard,
    decode,
    describe_file,
    entries_of,
    remove_stage,
)
from tpujob.data.objects import Problems
from tpujob.data.sync.download import NoPlace, make_folder
from tpujob.data.sync.run import SyncProgress
from tpujob.errors import BadRequest, Conflict, NotFound
from tpujob.protocol.left_out import LeftOut


@dataclass(slots=True)
class UnpackOutcome(Problems):
    """The result of an unpack; a conflict is another file of the same name."""

    files: int = 0
    bytes: int = 0
    same: int = 0  #: files that the folder had already, with the right content


class Unpack:
    def __init__(self, source: str, folder: str, progress: SyncProgress) -> None:
        self._source, self._progress, self._name = Path(source), progress, folder
        self._root = os.path.realpath(os.fsencode(folder))
        self._parts = Path(os.fsdecode(self._root)) / PARTS_FOLDER / "unpack"
        self._outcome = UnpackOutcome()

    def run(self) -> UnpackOutcome:
        """Restore all files into the folder, except those that the outcome names. Safe to repeat after any end.

        Raises NotFound, BadRequest for an unwritable folder or an unusable manifest, Conflict for a damaged shard,
        IllegalInState while another process writes there, and TpujobError.
        """
        with raising_tpujob_error():
            manifest = self._read_manifest()
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadRequest(f"cannot write to {self._name}: {error.strerror}") from error
        message = f"another `tpujob data` command writes to {self._name}"
        with raising_tpujob_error(), exclusive_lock(self._parts / "lock", message):
            self._progress.planned(manifest.content)
            index = self._verify(manifest.index)
            for shard in manifest.shards:
                self._restore(shard, entries_of(index, shard))
            remove_stage(self._parts)
        return self._outcome

    def _read_manifest(self) -> Manifest:
        if not self._source.is_dir():
            raise NotFound(f"there is no folder {self._source}")
        try:
            return decode((self._source / NAME).read_bytes())
        except FileNotFoundError:
            raise NotFound(
                f"there is no packed set at {self._source}: {NAME} is missing",
                hint="it is written last: run the same `tpujob data pack` again after an interruption",
            ) from None

    def _verify(self, file: SetFile) -> Path:
        """Return the path of a file of the set. Raises NotFound, and Conflict for another size or checksum."""
        path = self._source / file.name
        try:
            actual = describe_file(path)
        except FileNotFoundError:
            raise NotFound(f"{path} is missing, which the manifest names") from None
        if (actual.bytes, actual.sha256) != (file.bytes, file.sha256):
            raise Conflict(f"{file.name} does not have its checksum")
        return path

    def _restore(self, shard: Shard, entries: list[IndexEntry]) -> None:
        """Restore the missing files of a shard; read the shard only if there are any."""
        missing = list(map(self._is_missing, entries))
        if not any(missing):
            return
        path = self._verify(shard)
        try:
            contents = records.read(str(path), entries)
            for entry, is_missing, data in zip(entries, missing, contents, strict=True):
                if is_missing:
                    self._write(entry, data)
        except records.Damaged as error:
            raise Conflict(f"{shard.name} is damaged: {error}") from None

    def _is_missing(self, entry: IndexEntry) -> bool:
        """Return whether a file must be restored; otherwise count it, as present or left out."""
        try:
            if reason := why_no_file(entry.key):
                raise NoPlace(reason)
            if not _is_present(self._path(entry), entry):
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


def _is_present(path: bytes, entry: IndexEntry) -> bool:
    """Return whether the file exists with the entry's content. Raises Conflict for other content, NoPlace, OSError."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
        raise NoPlace("its folder is a link")
    if stat.S_ISDIR(status.st_mode):
        raise NoPlace("there is a folder of that name")
    if stat.S_ISREG(status.st_mode) and status.st_size == entry.size:
        with open(path, "rb", buffering=0) as content:
            if of_file(content)[1] == entry.crc32c:
                return True
    raise Conflict("another file of that name is there, and is kept")
