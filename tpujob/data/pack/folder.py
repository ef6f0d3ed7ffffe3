"""The folder that a packed set is written to or read from. Each file of it gets its name only when it is whole, and the
caller has verified it before.
"""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

from tpujob.data.checksums import extend
from tpujob.data.keys import PARTS_FOLDER
from tpujob.data.pack.manifest import NAME, SetFile, is_own
from tpujob.errors import BadRequest, Conflict, NotFound

_READ = 1 << 20


class FolderTarget:
    """Holds a packed set and nothing else. Threads share it, except for the manifest."""

    def __init__(self, folder: str) -> None:
        self.name = folder
        self._folder = Path(os.path.realpath(folder))
        #: in which files are made before they get their names
        self.stage = self._folder / PARTS_FOLDER / "pack"

    def prepare(self) -> None:
        """Afterwards the stage exists. Raises BadRequest when nothing can be written there, or should be."""
        try:
            there = os.listdir(self._folder) if self._folder.exists() else []
            others = [name for name in there if not is_own(name) and name != PARTS_FOLDER]
            if not others:
                self.stage.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadRequest(f"cannot write to {self.name}: {error.strerror}") from error
        if others:
            raise BadRequest(
                f"{self.name} holds other files, such as {min(others)}",
                hint="name a new or empty folder, or one that `tpujob data pack` made",
            )

    def manifest(self) -> bytes | None:
        """None: there is no packed set."""
        try:
            return (self._folder / NAME).read_bytes()
        except FileNotFoundError:
            return None

    def has(self, file: SetFile) -> bool:
        """Whether this file is there, with these bytes."""
        try:
            return described(self._folder / file.name).sha256 == file.sha256
        except OSError:
            return False

    def publish(self, path: Path, file: SetFile) -> None:
        """Afterwards the file has its name, and `path` is gone. Repeatable. Raises OSError."""
        _settle(path)
        os.replace(path, self._folder / file.name)
        _settle(self._folder)

    def remove_others(self, keep: set[str]) -> None:
        """Remove files of earlier packed sets that this one does not name."""
        for name in os.listdir(self._folder):
            if is_own(name) and name not in keep:
                (self._folder / name).unlink()
        remove_stage(self.stage)


class FolderSource:
    def __init__(self, folder: str) -> None:
        """Raises NotFound."""
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise NotFound(f"there is no folder {folder}")

    def manifest(self) -> bytes:
        """Raises NotFound."""
        try:
            return (self._folder / NAME).read_bytes()
        except FileNotFoundError:
            raise NotFound(
                f"there is no packed set at {self._folder}: {NAME} is missing",
                hint="it is written last; the same `tpujob data pack` finishes a pack that was interrupted",
            ) from None

    def verified(self, file: SetFile) -> Path:
        """The file with its size and checksum. Raises NotFound, Conflict when its bytes are others."""
        path = self._folder / file.name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise NotFound(f"{path} is missing, which the manifest names") from None
        if size != file.bytes:
            raise Conflict(f"{file.name} has {size:,} bytes instead of {file.bytes:,}")
        if described(path).sha256 != file.sha256:
            raise Conflict(f"{file.name} does not have its checksum")
        return path


def described(path: Path, name: str = "") -> SetFile:
    """The file as it is, under that name, in which {} becomes the first 16 digits of its SHA-256."""
    size = crc32c = 0
    sha256 = hashlib.sha256()
    with open(path, "rb", buffering=0) as content:
        while data := content.read(_READ):
            size += len(data)
            crc32c = extend(crc32c, data)
            sha256.update(data)
    digest = sha256.hexdigest()
    return SetFile(name.replace("{}", digest[:16]), size, crc32c, digest)


def remove_stage(stage: Path) -> None:
    """With its folder of unfinished files, unless others wait in there."""
    shutil.rmtree(stage, ignore_errors=True)
    with suppress(OSError):
        stage.parent.rmdir()


def _settle(path: Path) -> None:
    """Afterwards the file, or the folder's list of names, outlives a loss of power."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
